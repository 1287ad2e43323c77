"""Run a command of alembert, list the functions that it enters in the order of their first call, and count modules.

    .venv/bin/python scripts/journey.py predict work/export "Some text."

Counted are functions that the command itself calls, in all threads of its process; what modules compute while they are
imported, class bodies and generated methods are not. docs/lab/journeys.md has the counts of four commands.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import alembert
from alembert.cli import run

_PACKAGE = str(Path(alembert.__file__).parent)


class CallRecorder:
    """Collects the functions that run, with their modules."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._known: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._known:
            return
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if not is_function or not code.co_filename.startswith(_PACKAGE):
            self._known.add(code)
        elif not _is_importing(frame):
            self._known.add(code)
            self.calls.append((_module_name(code), code.co_qualname))


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _module_name(code: CodeType) -> str:
    path = Path(code.co_filename).relative_to(_PACKAGE).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__")


if __name__ == "__main__":
    recorder = CallRecorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    exit_code = run(sys.argv[1:])
    sys.setprofile(None)
    for module, function in recorder.calls:
        print(f"{module}.{function}", file=sys.stderr)
    modules = {module for module, _ in recorder.calls}
    print(f"{len(modules)} modules, {len(recorder.calls)} functions, exit code {exit_code}", file=sys.stderr)
