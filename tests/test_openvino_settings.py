"""The one door to OpenVINO and NNCF: nothing is reported, and what is missing is one sentence."""

import subprocess
import sys

import pytest

from alembert.errors import BadSetting
from alembert.hardware import openvino_settings
from alembert.hardware.openvino_settings import compile_settings, import_nncf, import_openvino


@pytest.mark.parametrize("door", ["import_openvino", "import_nncf"])
def test_the_package_that_reports_use_is_not_loaded(door: str) -> None:
    check = (
        f"import sys; from alembert.hardware.openvino_settings import {door}; {door}(); "
        "sys.exit(any(name.startswith('openvino_telemetry') and module for name, module in sys.modules.items()))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("door", [import_openvino, import_nncf])
def test_what_is_not_installed_is_one_sentence(door: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino_settings, "find_spec", lambda name: None)
    with pytest.raises(BadSetting, match=r"not installed\. Install it: pip install 'alembert\[openvino\]'"):
        door()  # type: ignore[operator]


def test_openvino_takes_the_options_of_compiling() -> None:
    core = import_openvino().Core()
    assert compile_settings(threads=2, streams=2).keys() <= set(
        core.get_property("CPU", "SUPPORTED_PROPERTIES")
    )


def test_other_loggers_stay_as_they_are() -> None:
    """NNCF makes every later logger of the process one of its own, which tells the root nothing."""
    check = (
        "import logging; from alembert.hardware.openvino_settings import import_nncf; import_nncf(); "
        "assert logging.getLoggerClass() is logging.Logger"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=120)
