"""The door to ONNX Runtime: what is off behind it, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest

from alembert.errors import BadFile
from alembert.hardware.runtimes import open_session

# Counts what is switched off by name: the library cannot be asked whether it reports.
SWITCHED_OFF = """
import onnxruntime
calls = []
onnxruntime.disable_telemetry_events = lambda: calls.append("off")
from alembert.hardware.runtimes import import_onnxruntime
import_onnxruntime(), import_onnxruntime()
assert calls == ["off"], calls
"""


def test_telemetry_is_switched_off_before_the_first_session() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWITCHED_OFF], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("nothing")
    with pytest.raises(BadFile, match=r"model\.onnx cannot be opened in ONNX Runtime"):
        open_session(tmp_path / "model.onnx", threads=1)
    with pytest.raises(BadFile, match="The graph cannot be opened"):
        open_session(b"nothing", threads=1)
