"""The one door to OpenVINO and NNCF: nothing is reported, and what is missing is one sentence."""

import subprocess
import sys

import pytest

from alembert.errors import MissingExtra
from alembert.hardware.runtimes import get_core, import_nncf, import_openvino, make_compile_settings


@pytest.mark.parametrize("door", ["import_openvino", "import_nncf"])
def test_the_package_that_reports_use_is_not_loaded(door: str) -> None:
    check = (
        f"import sys; from alembert.hardware.runtimes import {door}; {door}(); "
        "sys.exit(any(name.startswith('openvino_telemetry') and module for name, module in sys.modules.items()))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("door", [import_openvino, import_nncf])
def test_what_is_not_installed_is_one_sentence(door: object, monkeypatch: pytest.MonkeyPatch) -> None:
    get_core()  # opened before, as NNCF needs it
    monkeypatch.setattr("alembert.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"not installed\. Install it with: pip install 'alembert\[openvino\]'"):
        door()  # type: ignore[operator]


def test_openvino_takes_the_options_of_compiling() -> None:
    core = get_core()
    assert make_compile_settings(threads=2, streams=2).keys() <= set(core.get_property("CPU", "SUPPORTED_PROPERTIES"))


def test_other_loggers_stay_as_they_are() -> None:
    """NNCF makes every later logger of the process one of its own, which tells the root nothing."""
    check = (
        "import logging; from alembert.hardware.runtimes import import_nncf; import_nncf(); "
        "assert logging.getLoggerClass() is logging.Logger"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)


def test_signals_are_handled_after_other_cores_came_and_went() -> None:
    """A Core moves the stack of signal handlers; two that end in the order of their making leave it on lost memory."""
    check = (
        "import faulthandler, signal; faulthandler.enable(); "
        "from alembert.hardware.runtimes import get_core, import_nncf, import_openvino; "
        "import_nncf(); cores = [get_core(), get_core()]; "
        "other = import_openvino().Core(); other.get_property('CPU', 'FULL_DEVICE_NAME'); del other; cores.clear(); "
        "heard = []; signal.signal(signal.SIGTERM, lambda *_: heard.append(1)); "
        "signal.raise_signal(signal.SIGTERM); assert heard"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)
