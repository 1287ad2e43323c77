"""The one door to OpenVINO and NNCF: what must be in place before they load, and how models are compiled.

Both report their use to a server over the package `openvino_telemetry` when they are imported. It is hidden from them
here; without it they run, and have nobody to tell. The instruction limit is in the environment since `import alembert`
(`environment`).
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from typing import Any

from alembert.extras import require


def check_openvino() -> None:
    """Refuse what needs OpenVINO if it is not installed."""
    require(
        "An Export in the OpenVINO format",
        "openvino",
        otherwise="Exports made with --format onnx run without it.",
    )


def import_openvino() -> Any:
    """Import OpenVINO with its telemetry switched off."""
    check_openvino()
    return _imported("openvino")


@functools.cache
def the_core() -> Any:
    """Give the one Core of the process, which stays to its end.

    Each Core moves the stack on which signals are handled, if there is one of its own (`faulthandler` makes it), and puts
    back the one that it found when it goes. With several that come and go in any order, the next signal would run on
    memory that is gone.
    """
    core = import_openvino().Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # the move comes with the first use
    return core


def import_nncf() -> Any:
    """Import NNCF with its telemetry switched off and its running commentary silenced."""
    the_core()  # before those that NNCF makes
    ordinary = logging.getLoggerClass()
    require("An int8 Export in the OpenVINO format", "nncf")
    nncf = _imported("nncf")
    # It makes all loggers of the process its own, which say nothing to the root.
    logging.setLoggerClass(ordinary)
    # Its own function would change handlers that others use too.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    return nncf


def compile_settings(threads: int, streams: int, *, exact: bool = True) -> dict[str, Any]:
    """Give the options of `compile_model`: so many independent streams on so many threads in all.

    On processors with bfloat16 OpenVINO takes that by itself for whatever is not quantised. Where answers must be those of
    float32 (`exact`), float32 is named.
    """
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams, "ENABLE_CPU_PINNING": False}
    return {**settings, "INFERENCE_PRECISION_HINT": "f32"} if exact else settings


def _imported(library: str) -> Any:
    if "openvino" not in sys.modules:
        # None makes `import openvino_telemetry` fail, as if it were not installed.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        _import_without_converter()
    return importlib.import_module(library)


def _import_without_converter() -> None:
    """Import OpenVINO without its model converter, which it does without: loading it would take as long as all the rest."""
    sys.modules["openvino.tools.ovc"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("openvino")
    finally:
        del sys.modules["openvino.tools.ovc"]
