"""Answers what this machine can do and what was chosen, from the cache or by trying.

In: the processor, the libraries that are installed, and trials in child processes. Out: one frozen `Capabilities`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from alembert.errors import BadSetting
from alembert.hardware import cache
from alembert.hardware.choices import (
    EXPORT_LIBRARIES,
    Verdict,
    amx_verdict,
    choose_export,
    choose_inference,
    choose_library,
    choose_limit,
    choose_training,
    ladder,
)
from alembert.hardware.cpu import Cpu, read_cpu
from alembert.hardware.environment import ISA, answer_key, has_limit, of_user, prepare_environment
from alembert.hardware.threads import choose_threads
from alembert.hardware.trials import OUTCOMES, TYPES, Prober, Trial, try_library

CHOSEN = (
    "isa_limit",
    "training_type",
    "inference_type",
    "export_type",
    "export_library",
    "threads",
    "flush_denormals",
)


@dataclass(frozen=True)
class Choice:
    """One choice as it is shown to people; a value of None means: nothing is set."""

    name: str
    value: str | int | None
    reason: str


@dataclass(frozen=True)
class Capabilities:
    """What works on this machine, how fast, what was chosen; `reasons` has a sentence for each choice."""

    cpu: Cpu
    trials: tuple[Trial, ...]
    amx: str
    """absent, usable, unusable or unknown."""
    isa_limit: str | None
    """The value for ONEDNN_MAX_CPU_ISA, None for no limit."""
    training_type: str
    inference_type: str
    """For a Checkpoint in torch."""
    export_type: str
    """For an Export."""
    export_library: str | None
    """For an Export of that type: openvino or onnxruntime; none: neither could be measured."""
    threads: int
    flush_denormals: bool
    reasons: Mapping[str, str]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """List what was chosen, each with its reason."""
        return tuple(Choice(name, getattr(self, name), self.reasons[name]) for name in CHOSEN)

    def libraries_for(self, dtype: str) -> list[str]:
        """Name the libraries that run an Export with numbers of a type here."""
        return [
            t.library
            for t in self.trials
            if t.limit == self.isa_limit and t.dtype == dtype and t.library in EXPORT_LIBRARIES and t.all_threads
        ]

    def library_for(self, dtype: str) -> Verdict:
        """Choose the library that runs an Export with numbers of a type."""
        return choose_library([t for t in self.trials if t.limit == self.isa_limit], dtype)

    def trial(self, library: str, dtype: str) -> Trial | None:
        """Find how a type fared under the limit that is in force in this process, else under the chosen one."""
        found = {t.limit: t for t in self.trials if (t.library, t.dtype) == (library, dtype)}
        return found.get(os.environ.get(ISA)) or found.get(self.isa_limit)


def capabilities(refresh: bool = False, *, cpu: Cpu | None = None, prober: Prober | None = None) -> Capabilities:
    """Say what this machine can do; the first time, and on `refresh`, by trying for several seconds."""
    cpu = cpu or read_cpu()
    known = None if refresh else remembered(cpu)
    if known is not None:
        return known
    trials = _try_everything(cpu, prober or Prober())
    found = _decide(cpu, trials)
    key = answer_key(cpu)
    if any(trial.outcome == "works" for trial in trials):
        cache.store(key, {"isa_limit": _storable(found), "trials": [asdict(trial) for trial in trials]})
    prepare_environment()  # lifts the precaution at once where AMX has just been seen to work
    return found


def remembered(cpu: Cpu | None = None) -> Capabilities | None:
    """Return the cached answer for this machine, or None if there is none that makes sense."""
    cpu = cpu or read_cpu()
    answer = cache.load(answer_key(cpu))
    if not has_limit(answer):
        return None
    try:
        trials = [_restored(trial) for trial in answer["trials"]]
    except (KeyError, TypeError, ValueError):
        return None
    return _decide(cpu, trials)


def check_dtype(name: str) -> None:
    """Refuse a numeric type that would kill the process on this machine."""
    if name not in TYPES["torch"]:
        known = ", ".join(TYPES["torch"])
        raise BadSetting(f"The numeric type {name!r} is not known. Use one of: {known}.")
    if name == "float32":  # what everything falls back on: nothing to ask for
        return
    trial = capabilities().trial("torch", name)
    if trial is not None and trial.is_fatal:
        how = f"it was killed by {trial.detail}" if trial.outcome == "killed" else "it hung"
        raise BadSetting(
            f"The numeric type {name} cannot be used on this machine: a process that tried it was lost ({how}). "
            "Use float32; `alembert doctor` shows what works here."
        )


def _try_everything(cpu: Cpu, prober: Prober) -> list[Trial]:
    """Try all installed libraries under ever narrower limits, until nothing dies."""
    threads, deadline = choose_threads().count, prober.started()
    trials: list[Trial] = []
    for limit in ladder(cpu, of_user(ISA)):
        rung = [
            trial
            for library in TYPES
            if find_spec(library) is not None
            for trial in try_library(library, limit, threads, prober, deadline)
        ]
        trials += rung
        if not any(trial.is_fatal for trial in rung):
            break
    return trials


def _decide(cpu: Cpu, trials: Sequence[Trial]) -> Capabilities:
    limit = choose_limit(trials, cpu, of_user(ISA))
    in_force = [trial for trial in trials if trial.limit == limit.value]
    amx = amx_verdict(trials, cpu)
    training, inference = choose_training(in_force), choose_inference(in_force)
    export, threads = choose_export(in_force), choose_threads()
    library = choose_library(in_force, str(export.value))
    reasons = {
        "amx": amx.reason,
        "isa_limit": limit.reason,
        "training_type": training.reason,
        "inference_type": inference.reason,
        "export_type": export.reason,
        "export_library": library.reason,
        "threads": threads.reason,
        "flush_denormals": "Denormal numbers carry no information and can slow a backward pass down, up to tenfold.",
    }
    return Capabilities(
        cpu=cpu,
        trials=tuple(trials),
        amx=str(amx.value),
        isa_limit=limit.value,
        training_type=str(training.value),
        inference_type=str(inference.value),
        export_type=str(export.value),
        export_library=library.value,
        threads=threads.count,
        flush_denormals=True,
        reasons=reasons,
    )


def _storable(found: Capabilities) -> str | None:
    """The limit that a later import should set; the user's own is not ours to remember."""
    return found.isa_limit if of_user(ISA) is None else None


def _restored(stored: Mapping[str, Any]) -> Trial:
    trial = Trial(**stored)
    speeds = (trial.one_thread, trial.all_threads, trial.training)
    if trial.outcome not in OUTCOMES or not all(s is None or isinstance(s, float) for s in speeds):
        raise ValueError("not a trial")
    return trial
