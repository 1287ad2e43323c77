"""What this machine can do and which types and limits are chosen, from the cache or by trying.

In: the processor, the libraries that are installed, and trials in child processes. Out: one frozen `Capabilities`, in
which each choice has a sentence with the numbers that explain it. The same trials always give the same choices, so
trials are cached and choices are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from alembert.errors import BadSetting
from alembert.hardware import environment
from alembert.hardware.environment import (
    ISA_VARIABLE,
    WITHOUT_AMX,
    WITHOUT_AVX512,
    Cpu,
    get_user_value,
    has_limit,
    make_cache_key,
    prepare_environment,
    read_cpu,
)
from alembert.hardware.torch_settings import choose_threads
from alembert.hardware.trials import OUTCOMES, PROBED_TYPES, Prober, ProbeResult, probe_library

# A narrower type must win clearly: casts take time, precision is lost, and measurements on shared machines are noisy.
MIN_SPEEDUP = 1.2
EXPORT_LIBRARIES = ("openvino", "onnxruntime")


@dataclass(frozen=True)
class ReasonedChoice:
    """A value and the sentence that explains it."""

    value: str | None
    reason: str


def list_isa_limits(cpu: Cpu, of_user: str | None) -> tuple[str | None, ...]:
    """List the instruction limits worth trying, widest first; the user's own limit is the only one if there is one.

    >>> list_isa_limits(Cpu("Xeon", frozenset({"amx_tile", "avx512f"})), None)
    (None, 'AVX512_CORE_BF16', 'AVX2')
    """
    if of_user is not None:
        return (of_user,)
    without_amx = (WITHOUT_AMX,) if cpu.advertises_amx else ()
    without_avx512 = (WITHOUT_AVX512,) if "avx512f" in cpu.flags else ()
    return (None, *without_amx, *without_avx512)


def choose_isa_limit(trials: Sequence[ProbeResult], cpu: Cpu, of_user: str | None) -> ReasonedChoice:
    """Take the widest limit under which nothing died, or the one under which least died."""
    tried = [limit for limit in list_isa_limits(cpu, of_user) if any(trial.limit == limit for trial in trials)]
    if of_user is not None:
        return ReasonedChoice(of_user, f"You have set this limit.{_describe_fatal(_fatal(trials, of_user))}")
    if not tried:
        return ReasonedChoice(
            WITHOUT_AMX if cpu.advertises_amx else None, "Nothing could be tried; this is the safe choice."
        )
    best = min(tried, key=lambda limit: len(_fatal(trials, limit)))
    return ReasonedChoice(best, _why_limit(trials, best))


def describe_amx(trials: Sequence[ProbeResult], cpu: Cpu) -> ReasonedChoice:
    """Describe in plain words whether the AMX instructions can be used."""
    if not cpu.advertises_amx:
        return ReasonedChoice("absent", "The CPU does not advertise AMX.")
    unlimited = [t for t in trials if t.limit is None and t.dtype in {"bfloat16", "int8"}]
    if dead := [t for t in unlimited if t.is_fatal]:
        return ReasonedChoice("unusable", f"The CPU advertises AMX, but it is unusable here:{_describe_fatal(dead)}")
    if any(t.outcome == "works" for t in unlimited):
        return ReasonedChoice("usable", "The CPU advertises AMX, and programs that may use it run.")
    return ReasonedChoice("unknown", "The CPU advertises AMX, but nothing that uses it could be tried.")


def choose_training_type(trials: Iterable[ProbeResult]) -> ReasonedChoice:
    """Choose the type for training in torch: bfloat16 if it is clearly faster than float32.

    float16 is no candidate: its gradients vanish without loss scaling.
    """
    speeds = {t.dtype: t.training for t in trials if t.library == "torch" and t.training}
    return _fastest({k: v for k, v in speeds.items() if k != "float16"}, "forward and backward in torch")


def choose_inference_type(trials: Iterable[ProbeResult]) -> ReasonedChoice:
    """Choose the floating type for inference with a Checkpoint in torch."""
    speeds = {t.dtype: t.all_threads for t in trials if t.library == "torch" and t.all_threads}
    return _fastest({k: v for k, v in speeds.items() if k != "int8"}, "forward in torch")


def choose_export_type(trials: Iterable[ProbeResult]) -> ReasonedChoice:
    """Choose the type of an Export, which runs in the library that is fastest for it."""
    tried = _export_speeds(trials)
    if not tried:
        return ReasonedChoice(
            "int8",
            "Neither OpenVINO nor ONNX Runtime is installed, so nothing was measured; int8 is the usual choice.",
        )
    speeds = {dtype: max(own.values()) for dtype, own in tried.items()}
    return _fastest(speeds, "forward in the faster of OpenVINO and ONNX Runtime")


def choose_export_library(trials: Iterable[ProbeResult], dtype: str) -> ReasonedChoice:
    """Choose the library that runs an Export with numbers of a type; none: neither could be measured."""
    speeds = _export_speeds(trials).get(dtype, {})
    if not speeds:
        return ReasonedChoice(None, f"{dtype} could be measured neither in OpenVINO nor in ONNX Runtime.")
    numbers = ", ".join(f"{library} {speed:.0f}" for library, speed in speeds.items())
    best = max(speeds, key=speeds.__getitem__)
    why = "It is the fastest" if len(speeds) > 1 else "It is the only one"
    return ReasonedChoice(best, f"{why} ({dtype}, GFLOP/s, forward: {numbers}).")


def _export_speeds(trials: Iterable[ProbeResult]) -> dict[str, dict[str, float]]:
    """Return the speed of each type in each library that runs Exports."""
    speeds: dict[str, dict[str, float]] = {}
    for trial in trials:
        if trial.library in EXPORT_LIBRARIES and trial.all_threads:
            speeds.setdefault(trial.dtype, {})[trial.library] = trial.all_threads
    return speeds


def _fastest(speeds: dict[str, float], what: str) -> ReasonedChoice:
    if "float32" not in speeds:
        return ReasonedChoice("float32", f"Nothing could be measured ({what}); float32 works everywhere.")
    numbers = ", ".join(f"{dtype} {speed:.0f}" for dtype, speed in speeds.items())
    measured = f"GFLOP/s, {what}: {numbers}"
    best = max(speeds, key=lambda dtype: speeds[dtype])
    if best == "float32":
        return ReasonedChoice("float32", f"It is the fastest ({measured}).")
    if speeds[best] < MIN_SPEEDUP * speeds["float32"]:
        return ReasonedChoice("float32", f"No other type is {MIN_SPEEDUP}x as fast ({measured}).")
    return ReasonedChoice(best, f"It is {speeds[best] / speeds['float32']:.1f}x as fast as float32 ({measured}).")


def _why_limit(trials: Sequence[ProbeResult], best: str | None) -> str:
    fatal = [trial for trial in trials if trial.is_fatal]
    if best is None:
        return f"Least died without a limit:{_describe_fatal(fatal)}" if fatal else "Every type ran or failed cleanly."
    still = _fatal(trials, best)
    after = f" With it, still:{_describe_fatal(still)}" if still else " With it, nothing dies."
    return f"Without it:{_describe_fatal(_fatal(trials, None))}{after}"


def _fatal(trials: Iterable[ProbeResult], limit: str | None) -> list[ProbeResult]:
    return [trial for trial in trials if trial.limit == limit and trial.is_fatal]


def _describe_fatal(trials: Iterable[ProbeResult]) -> str:
    """Write what died, as ' bfloat16 in torch was killed by SIGILL.', or nothing."""
    deaths = [
        f"{t.dtype} in {t.library} " + (f"was killed by {t.detail}" if t.outcome == "killed" else "hung")
        for t in trials
    ]
    return f" {'; '.join(deaths)}." if deaths else ""


CHOICE_NAMES = (
    "isa_limit",
    "training_type",
    "inference_type",
    "export_type",
    "export_library",
    "threads",
    "flush_denormals",
)


@dataclass(frozen=True)
class HardwareChoice:
    """One choice as it is shown to people; a value of None means: nothing is set."""

    name: str
    value: str | int | None
    reason: str


@dataclass(frozen=True)
class Capabilities:
    """What works on this machine, how fast, what was chosen; `reasons` has a sentence for each choice."""

    cpu: Cpu
    trials: tuple[ProbeResult, ...]
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
    def choices(self) -> tuple[HardwareChoice, ...]:
        """List what was chosen, each with its reason."""
        return tuple(HardwareChoice(name, getattr(self, name), self.reasons[name]) for name in CHOICE_NAMES)

    def libraries_for(self, dtype: str) -> list[str]:
        """Name the libraries that run an Export with numbers of a type here."""
        return [
            t.library
            for t in self.trials
            if t.limit == self.isa_limit and t.dtype == dtype and t.library in EXPORT_LIBRARIES and t.all_threads
        ]

    def library_for(self, dtype: str) -> ReasonedChoice:
        """Choose the library that runs an Export with numbers of a type."""
        return choose_export_library([t for t in self.trials if t.limit == self.isa_limit], dtype)

    def trial(self, library: str, dtype: str) -> ProbeResult | None:
        """Find how a type fared under the limit that is in force in this process, else under the chosen one."""
        by_limit = {t.limit: t for t in self.trials if (t.library, t.dtype) == (library, dtype)}
        return by_limit.get(os.environ.get(ISA_VARIABLE)) or by_limit.get(self.isa_limit)


def detect_capabilities(refresh: bool = False, *, cpu: Cpu | None = None, prober: Prober | None = None) -> Capabilities:
    """Find out what this machine can do; the first time, and on `refresh`, by trying for several seconds."""
    cpu = cpu or read_cpu()
    cached = None if refresh else load_cached_capabilities(cpu)
    if cached is not None:
        return cached
    trials = _probe_all(cpu, prober or Prober())
    capabilities = _decide(cpu, trials)
    key = make_cache_key(cpu)
    if any(trial.outcome == "works" for trial in trials):
        environment.store(
            key, {"isa_limit": _get_storable_limit(capabilities), "trials": [asdict(trial) for trial in trials]}
        )
    prepare_environment()  # lifts the precaution at once where AMX has just been seen to work
    return capabilities


def load_cached_capabilities(cpu: Cpu | None = None) -> Capabilities | None:
    """Return the cached answer for this machine, or None if there is none that makes sense."""
    cpu = cpu or read_cpu()
    answer = environment.load(make_cache_key(cpu))
    if not has_limit(answer):
        return None
    try:
        trials = [_restore_probe(trial) for trial in answer["trials"]]
    except (KeyError, TypeError, ValueError):
        return None
    return _decide(cpu, trials)


def check_dtype(name: str) -> None:
    """Refuse a numeric type that would kill the process on this machine."""
    if name not in PROBED_TYPES["torch"]:
        names = ", ".join(PROBED_TYPES["torch"])
        raise BadSetting(f"The numeric type {name!r} is not known. Use one of: {names}.")
    if name == "float32":  # what everything falls back on: nothing to ask for
        return
    trial = detect_capabilities().trial("torch", name)
    if trial is not None and trial.is_fatal:
        how = f"it was killed by {trial.detail}" if trial.outcome == "killed" else "it hung"
        raise BadSetting(
            f"The numeric type {name} cannot be used on this machine: a process that tried it was lost ({how}). "
            "Use float32; `alembert doctor` shows what works here."
        )


def _probe_all(cpu: Cpu, prober: Prober) -> list[ProbeResult]:
    """Try all installed libraries under ever narrower limits, until nothing dies."""
    threads, deadline = choose_threads().count, prober.start_deadline()
    trials: list[ProbeResult] = []
    for limit in list_isa_limits(cpu, get_user_value(ISA_VARIABLE)):
        results = [
            trial
            for library in PROBED_TYPES
            if find_spec(library) is not None
            for trial in probe_library(library, limit, threads, prober, deadline)
        ]
        trials += results
        if not any(trial.is_fatal for trial in results):
            break
    return trials


def _decide(cpu: Cpu, trials: Sequence[ProbeResult]) -> Capabilities:
    limit = choose_isa_limit(trials, cpu, get_user_value(ISA_VARIABLE))
    in_force = [trial for trial in trials if trial.limit == limit.value]
    amx = describe_amx(trials, cpu)
    training, inference = choose_training_type(in_force), choose_inference_type(in_force)
    export, threads = choose_export_type(in_force), choose_threads()
    library = choose_export_library(in_force, str(export.value))
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


def _get_storable_limit(capabilities: Capabilities) -> str | None:
    """The limit that a later import should set; the user's own is not ours to remember."""
    return capabilities.isa_limit if get_user_value(ISA_VARIABLE) is None else None


def _restore_probe(stored: Mapping[str, Any]) -> ProbeResult:
    trial = ProbeResult(**stored)
    speeds = (trial.one_thread, trial.all_threads, trial.training)
    if trial.outcome not in OUTCOMES or not all(s is None or isinstance(s, float) for s in speeds):
        raise ValueError("not a trial")
    return trial
