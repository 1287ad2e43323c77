"""Everything `alembert doctor` shows, as one plain dictionary: the table and `--json` have the same content."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Any

from alembert.hardware import cache
from alembert.hardware.cpu import installed_version
from alembert.hardware.environment import answer_key, variables
from alembert.hardware.findings import Capabilities
from alembert.hardware.threads import allowed_cpus, cpu_quota, physical_cores

LIBRARIES = (
    "torch",
    "openvino",
    "onnxruntime",
    "tokenizers",
    "safetensors",
    "numpy",
    "pyarrow",
    "lxml",
    "huggingface_hub",
    "ray",
)
# Slower than this share of float32, a type is of no practical use.
TOO_SLOW = 0.25


def doctor_report(found: Capabilities) -> dict[str, Any]:
    """Collect machine, libraries, types, instruction sets, choices, environment and cache."""
    return {
        "machine": _machine(found),
        "libraries": {name: installed_version(name) for name in LIBRARIES},
        "types": [
            {**asdict(trial), "verdict": _verdict(found, index)} for index, trial in enumerate(found.trials)
        ],
        "instruction_sets": {
            "advertised": found.cpu.notable_flags,
            "amx": found.amx,
            "amx_in_words": found.reasons["amx"],
        },
        "choices": {
            choice.name: {"value": choice.value, "reason": choice.reason} for choice in found.choices
        },
        "environment": [variable._asdict() for variable in variables(found.cpu)],
        "cache": _cache(found),
    }


def _machine(found: Capabilities) -> dict[str, Any]:
    allowed = allowed_cpus()
    return {
        "cpu": found.cpu.model,
        "cpus": os.cpu_count(),
        "cpus_allowed": len(allowed),
        "cores_allowed": physical_cores(allowed),
        "cpu_quota": cpu_quota(),
        "memory_gb": _memory_gb(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None


def _verdict(found: Capabilities, index: int) -> str:
    trial = found.trials[index]
    if trial.outcome == "killed":
        return f"killed by {trial.detail}"
    if trial.outcome != "works":
        return f"{trial.outcome}: {trial.detail}"
    peers = [
        t.all_threads or 0.0 for t in found.trials if (t.library, t.limit) == (trial.library, trial.limit)
    ]
    return "too slow" if (trial.all_threads or 0.0) < TOO_SLOW * peers[0] else "works"


def _cache(found: Capabilities) -> dict[str, Any]:
    file = cache.file_for(answer_key(found.cpu))
    return {"file": str(file), "written": file.is_file()}
