"""Turns what was tried into choices, each with the sentence and the numbers that explain it.

Pure functions: the same trials always give the same choices, so trials are remembered and choices are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from alembert.hardware.cpu import Cpu
from alembert.hardware.environment import WITHOUT_AMX, WITHOUT_AVX512
from alembert.hardware.trials import Trial

# A narrower type must win clearly: casts take time, precision is lost, and measurements on shared machines are noisy.
MARGIN = 1.2
EXPORT_LIBRARIES = ("openvino", "onnxruntime")


@dataclass(frozen=True)
class Verdict:
    """A value and the sentence that explains it."""

    value: str | None
    reason: str


def ladder(cpu: Cpu, of_user: str | None) -> tuple[str | None, ...]:
    """List the instruction limits worth trying, widest first; the user's own limit is the only one if there is one.

    >>> ladder(Cpu("Xeon", frozenset({"amx_tile", "avx512f"})), None)
    (None, 'AVX512_CORE_BF16', 'AVX2')
    """
    if of_user is not None:
        return (of_user,)
    without_amx = (WITHOUT_AMX,) if cpu.advertises_amx else ()
    without_avx512 = (WITHOUT_AVX512,) if "avx512f" in cpu.flags else ()
    return (None, *without_amx, *without_avx512)


def choose_limit(trials: Sequence[Trial], cpu: Cpu, of_user: str | None) -> Verdict:
    """Take the widest limit under which nothing died, or the one under which least died."""
    tried = [limit for limit in ladder(cpu, of_user) if any(trial.limit == limit for trial in trials)]
    if of_user is not None:
        return Verdict(of_user, f"You have set this limit.{_deaths(_fatal(trials, of_user))}")
    if not tried:
        return Verdict(WITHOUT_AMX if cpu.advertises_amx else None, "Nothing could be tried; this is the safe choice.")
    best = min(tried, key=lambda limit: len(_fatal(trials, limit)))
    return Verdict(best, _why_limit(trials, best))


def amx_verdict(trials: Sequence[Trial], cpu: Cpu) -> Verdict:
    """Say in plain words whether the AMX instructions can be used."""
    if not cpu.advertises_amx:
        return Verdict("absent", "The CPU does not advertise AMX.")
    unlimited = [t for t in trials if t.limit is None and t.dtype in {"bfloat16", "int8"}]
    if dead := [t for t in unlimited if t.is_fatal]:
        return Verdict("unusable", f"The CPU advertises AMX, but it is unusable here:{_deaths(dead)}")
    if any(t.outcome == "works" for t in unlimited):
        return Verdict("usable", "The CPU advertises AMX, and programs that may use it run.")
    return Verdict("unknown", "The CPU advertises AMX, but nothing that uses it could be tried.")


def choose_training(trials: Iterable[Trial]) -> Verdict:
    """Choose the type for training in torch: bfloat16 if it is clearly faster than float32.

    float16 is no candidate: its gradients vanish without loss scaling.
    """
    speeds = {t.dtype: t.training for t in trials if t.library == "torch" and t.training}
    return _fastest({k: v for k, v in speeds.items() if k != "float16"}, "forward and backward in torch")


def choose_inference(trials: Iterable[Trial]) -> Verdict:
    """Choose the floating type for inference with a Checkpoint in torch."""
    speeds = {t.dtype: t.all_threads for t in trials if t.library == "torch" and t.all_threads}
    return _fastest({k: v for k, v in speeds.items() if k != "int8"}, "forward in torch")


def choose_export(trials: Iterable[Trial]) -> Verdict:
    """Choose the type of an Export, which runs in the library that is fastest for it."""
    tried = _measured_exports(trials)
    if not tried:
        return Verdict(
            "int8",
            "Neither OpenVINO nor ONNX Runtime is installed, so nothing was measured; int8 is the usual choice.",
        )
    speeds = {dtype: max(own.values()) for dtype, own in tried.items()}
    return _fastest(speeds, "forward in the faster of OpenVINO and ONNX Runtime")


def choose_library(trials: Iterable[Trial], dtype: str) -> Verdict:
    """Choose the library that runs an Export with numbers of a type; none: neither could be measured."""
    speeds = _measured_exports(trials).get(dtype, {})
    if not speeds:
        return Verdict(None, f"{dtype} could be measured neither in OpenVINO nor in ONNX Runtime.")
    numbers = ", ".join(f"{library} {speed:.0f}" for library, speed in speeds.items())
    best = max(speeds, key=speeds.__getitem__)
    why = "It is the fastest" if len(speeds) > 1 else "It is the only one"
    return Verdict(best, f"{why} ({dtype}, GFLOP/s, forward: {numbers}).")


def _measured_exports(trials: Iterable[Trial]) -> dict[str, dict[str, float]]:
    """Give the speed of each type in each library that runs Exports."""
    found: dict[str, dict[str, float]] = {}
    for trial in trials:
        if trial.library in EXPORT_LIBRARIES and trial.all_threads:
            found.setdefault(trial.dtype, {})[trial.library] = trial.all_threads
    return found


def _fastest(speeds: dict[str, float], what: str) -> Verdict:
    if "float32" not in speeds:
        return Verdict("float32", f"Nothing could be measured ({what}); float32 works everywhere.")
    numbers = ", ".join(f"{dtype} {speed:.0f}" for dtype, speed in speeds.items())
    measured = f"GFLOP/s, {what}: {numbers}"
    best = max(speeds, key=lambda dtype: speeds[dtype])
    if best == "float32":
        return Verdict("float32", f"It is the fastest ({measured}).")
    if speeds[best] < MARGIN * speeds["float32"]:
        return Verdict("float32", f"No other type is {MARGIN}x as fast ({measured}).")
    return Verdict(best, f"It is {speeds[best] / speeds['float32']:.1f}x as fast as float32 ({measured}).")


def _why_limit(trials: Sequence[Trial], best: str | None) -> str:
    fatal = [trial for trial in trials if trial.is_fatal]
    if best is None:
        return f"Least died without a limit:{_deaths(fatal)}" if fatal else "Every type ran or failed cleanly."
    still = _fatal(trials, best)
    after = f" With it, still:{_deaths(still)}" if still else " With it, nothing dies."
    return f"Without it:{_deaths(_fatal(trials, None))}{after}"


def _fatal(trials: Iterable[Trial], limit: str | None) -> list[Trial]:
    return [trial for trial in trials if trial.limit == limit and trial.is_fatal]


def _deaths(trials: Iterable[Trial]) -> str:
    """Tell what died, as ' bfloat16 in torch was killed by SIGILL.', or nothing."""
    told = [
        f"{t.dtype} in {t.library} " + (f"was killed by {t.detail}" if t.outcome == "killed" else "hung")
        for t in trials
    ]
    return f" {'; '.join(told)}." if told else ""
