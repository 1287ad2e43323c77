"""Trials of numeric types in throw-away child processes, and how each ended.

A child that dies, hangs, cannot import its library or prints rubbish is an answer, never an error here. One child tries
several types, because loading torch takes seconds; after a death the rest is tried in a new child.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembert.hardware.environment import ISA_VARIABLE

CHILD_COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
PROBED_TYPES: Mapping[str, tuple[str, ...]] = {
    "torch": ("float32", "bfloat16", "float16", "int8"),
    "openvino": ("float32", "int8"),
    "onnxruntime": ("float32", "int8"),
}
OUTCOMES = frozenset({"works", "killed", "hangs", "fails"})


@dataclass(frozen=True)
class ProbeResult:
    """How one numeric type fared in one library under one instruction limit; speeds in GFLOP/s."""

    library: str
    dtype: str
    limit: str | None
    outcome: str
    detail: str = ""
    one_thread: float | None = None
    all_threads: float | None = None
    training: float | None = None

    @property
    def is_fatal(self) -> bool:
        """Whether a process that uses this type would be lost."""
        return self.outcome in {"killed", "hangs"}


@dataclass(frozen=True)
class Prober:
    """How children are started and how long they may take; tests put other commands here."""

    command: Sequence[str] = CHILD_COMMAND
    seconds: float = 60.0
    seconds_in_all: float = 120.0

    def start_deadline(self) -> Deadline:
        """Start the clock."""
        return Deadline(time.monotonic() + self.seconds_in_all)


@dataclass(frozen=True)
class Deadline:
    """A point in time after which nothing more is tried."""

    at: float

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self.at - time.monotonic()


@dataclass(frozen=True)
class _ChildExit:
    """What a child printed and how it ended."""

    begun: str | None
    answers: Mapping[str, Mapping[str, Any]]
    outcome: str
    detail: str


def probe_library(
    library: str, limit: str | None, threads: int, prober: Prober, deadline: Deadline
) -> list[ProbeResult]:
    """Try every type of a library under an instruction limit, restarting after each death."""
    waiting = list(PROBED_TYPES[library])
    trials: list[ProbeResult] = []
    while waiting:
        if deadline.left <= 0:
            return trials + [ProbeResult(library, dtype, limit, "fails", "not tried: out of time") for dtype in waiting]
        seconds = min(prober.seconds, deadline.left)
        child_exit = _run([*prober.command, library, str(threads), *waiting], limit, seconds)
        settled = _settle_types(child_exit, waiting)
        trials += [_make_probe_result(library, limit, dtype, answer) for dtype, answer in settled.items()]
        waiting = [dtype for dtype in waiting if dtype not in settled]
    return trials


def _settle_types(child_exit: _ChildExit, waiting: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the types that this child settled; without a culprit its exit settles all that are left."""
    settled = {dtype: child_exit.answers[dtype] for dtype in waiting if dtype in child_exit.answers}
    outcome = {"outcome": child_exit.outcome, "error": child_exit.detail}
    open_types = [dtype for dtype in waiting if dtype not in settled]
    if child_exit.begun in open_types:
        return {**settled, str(child_exit.begun): outcome}
    return {**settled, **dict.fromkeys(open_types, outcome)}


def _run(command: Sequence[str], limit: str | None, seconds: float) -> _ChildExit:
    environment = {name: value for name, value in os.environ.items() if name != ISA_VARIABLE}
    if limit is not None:
        environment[ISA_VARIABLE] = limit
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=seconds, check=False, **quiet)
    except subprocess.TimeoutExpired as late:
        return _make_child_exit(late.stdout or b"", "hangs", f"no answer within {seconds:.0f} s")
    except (OSError, ValueError) as problem:
        return _make_child_exit(b"", "fails", f"the child process could not be started: {problem}")
    return _make_child_exit(done.stdout, *_classify_exit(done.returncode))


def _classify_exit(code: int) -> tuple[str, str]:
    if code == 0:
        return "fails", "no answer that could be understood"
    if code < 0:
        names = {int(member): member.name for member in signal.Signals}
        return "killed", names.get(-code, f"signal {-code}")
    # Windows reports a fatal exception as a large status instead of a signal.
    return ("killed", f"status {code:#x}") if code > 0xC0000000 else ("fails", f"exit code {code}")


def _make_child_exit(output: bytes, outcome: str, detail: str) -> _ChildExit:
    lines = [line for line in map(_parse_line, output.splitlines()) if line]
    begun = [str(line["begin"]) for line in lines if "begin" in line]
    answers = {str(line["type"]): line for line in lines if "type" in line}
    return _ChildExit(begun[-1] if begun else None, answers, outcome, detail)


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _make_probe_result(library: str, limit: str | None, dtype: str, answer: Mapping[str, Any]) -> ProbeResult:
    outcome = answer.get("outcome") or ("fails" if "error" in answer else "works")
    one, every, training = (_speed(answer.get(name)) for name in ("one_thread", "all_threads", "training"))
    if outcome == "works" and every is None:
        return ProbeResult(library, dtype, limit, "fails", "no answer that could be understood")
    return ProbeResult(library, dtype, limit, str(outcome), str(answer.get("error", "")), one, every, training)


def _speed(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value > 0 else None
