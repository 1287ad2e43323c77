"""What `alembert doctor` shows, as one dictionary: the table and `--json` have the same content."""

from __future__ import annotations

import os
import platform
import runpy
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alembert.extras import EXTRAS
from alembert.hardware import environment
from alembert.hardware.capabilities import Capabilities
from alembert.hardware.environment import installed_version, list_variables, make_cache_key
from alembert.hardware.torch_settings import allowed_cpus, cpu_quota, physical_cores

# Library -> what it is for.
LIBRARIES = {
    "onnxruntime": "runs Exports in the ONNX format",
    "tokenizers": "tokenizes text",
    "numpy": "computes with arrays",
    "lxml": "reads XML",
    "torch": "runs and trains Checkpoints",
    "safetensors": "reads and writes Checkpoints",
    "onnx": "writes Exports in the ONNX format",
    "openvino": "runs Exports in the OpenVINO format",
    "nncf": "quantises Exports in the OpenVINO format",
    "pyarrow": "reads and writes Corpora, Parquet and .zst files, and reads from object stores",
    "huggingface_hub": "downloads models from the Hugging Face hub",
    "rjieba": "segments Chinese words",
    "matplotlib": "draws plots",
    "ray": "runs work on a cluster",
}
# Slower than this share of float32, a type is of no practical use.
MIN_USEFUL_SPEED = 0.25


def build_doctor_report(capabilities: Capabilities) -> dict[str, Any]:
    """Collect machine, libraries, types, instruction sets, choices, environment and cache."""
    return {
        "machine": _machine(capabilities),
        "libraries": {name: _library(name) for name in LIBRARIES},
        "types": [
            {**asdict(trial), "verdict": _describe_outcome(capabilities, index)}
            for index, trial in enumerate(capabilities.trials)
        ],
        "instruction_sets": {
            "advertised": capabilities.cpu.notable_flags,
            "amx": capabilities.amx,
            "amx_in_words": capabilities.reasons["amx"],
        },
        "choices": {choice.name: {"value": choice.value, "reason": choice.reason} for choice in capabilities.choices},
        "environment": [variable._asdict() for variable in list_variables(capabilities.cpu)],
        "cache": _cache(capabilities),
    }


def _library(name: str) -> dict[str, str | None]:
    return {
        "version": installed_version(name),
        "build": torch_build() if name == "torch" else None,
        "purpose": LIBRARIES[name],
        "extra": EXTRAS.get(name),
    }


def torch_build() -> str | None:
    """Find the processors that the installed torch was built for, without loading it; none: it is not installed.

    Builds with CUDA run on any machine, and take several GB more than the build for CPUs.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    platforms = {"CUDA": "cuda", "ROCm": "hip", "XPU": "xpu"}
    built = [f"{name} {facts[key]}" for name, key in platforms.items() if facts.get(key)]
    return " ".join(built) or "CPU"


def _machine(capabilities: Capabilities) -> dict[str, Any]:
    allowed = allowed_cpus()
    return {
        "cpu": capabilities.cpu.model,
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


def _describe_outcome(capabilities: Capabilities, index: int) -> str:
    trial = capabilities.trials[index]
    if trial.outcome == "killed":
        return f"killed by {trial.detail}"
    if trial.outcome != "works":
        return f"{trial.outcome}: {trial.detail}"
    peers = [t.all_threads or 0.0 for t in capabilities.trials if (t.library, t.limit) == (trial.library, trial.limit)]
    return "too slow" if (trial.all_threads or 0.0) < MIN_USEFUL_SPEED * peers[0] else "works"


def _cache(capabilities: Capabilities) -> dict[str, Any]:
    file = environment.get_cache_file(make_cache_key(capabilities.cpu))
    return {"file": str(file), "written": file.is_file()}
