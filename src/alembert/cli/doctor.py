"""`alembert doctor`: what this machine can do, which settings are chosen, and why.

The report is one dictionary: the table and `--json` have the same content.
"""

from __future__ import annotations

import os
import platform
import runpy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from alembert.errors import EXTRAS
from alembert.hardware import environment
from alembert.hardware.capabilities import Capabilities, detect_capabilities, load_cached_capabilities
from alembert.hardware.environment import installed_version, list_variables, make_cache_key
from alembert.hardware.torch_settings import allowed_cpus, cpu_quota, physical_cores
from alembert.terminal import print_json, say, stdout_console

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


TYPE_HEADS = ("library", "type", "limit", "1 thread", "all", "training", "verdict")
VARIABLE_HEADS = ("variable", "value", "set by", "why")


def doctor(
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of tables."),
    refresh: bool = typer.Option(False, "--refresh", help="Ignore the cache and test again."),
) -> None:
    """Show what this machine can do, which settings are chosen, and why."""
    if refresh or load_cached_capabilities() is None:
        say("testing numeric types in child processes, about ten seconds ...")
    report = build_doctor_report(detect_capabilities(refresh=refresh))
    if as_json:
        print_json(report, indent=2)
    else:
        print_report(report)


def print_report(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the report as tables that fit 80 columns."""
    console = console or stdout_console()
    _print_table(console, "Machine", (), _machine_rows(report["machine"]))
    _print_table(console, "Libraries", (), _library_rows(report["libraries"]))
    _print_table(console, "Numeric types (GFLOP/s)", TYPE_HEADS, _type_rows(report["types"]))
    sets = report["instruction_sets"]
    rows = [("advertised", " ".join(sets["advertised"]) or "none known"), ("AMX", sets["amx_in_words"])]
    _print_table(console, "Instruction sets", (), rows)
    _print_table(console, "Choices", ("", "chosen", "why"), _choice_rows(report["choices"]))
    _print_table(console, "Environment", VARIABLE_HEADS, _variable_rows(report["environment"]))
    cache = report["cache"]
    state = "" if cache["written"] else " (could not be written)"
    console.print(f"Stored in {cache['file']}{state}", soft_wrap=True)


def _print_table(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    console.print(title, style="bold")
    table = Table(*heads, box=None, show_header=bool(heads), pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*row)
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
    console.print()


def _machine_rows(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    cores = f"{machine['cores_allowed']} physical, {machine['cpus_allowed']} of {machine['cpus']} CPUs allowed"
    quota = f", quota {machine['cpu_quota']:g}" if machine["cpu_quota"] else ""
    memory = "unknown" if machine["memory_gb"] is None else f"{machine['memory_gb']} GB"
    return [
        ("CPU", machine["cpu"]),
        ("cores", cores + quota),
        ("memory", memory),
        ("system", machine["os"]),
        ("Python", machine["python"]),
    ]


def _library_rows(libraries: Mapping[str, Mapping[str, str | None]]) -> Iterable[tuple[str, str, str]]:
    for name, library in libraries.items():
        build = f", {library['build']} build" if library["build"] else ""
        version = f"{library['version']}{build}" if library["version"] else "not installed"
        extra = "" if library["version"] else f" (pip install 'alembert[{library['extra']}]')"
        yield name, version, f"{library['purpose']}{extra}"


def _type_rows(types: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    speeds = ("one_thread", "all_threads", "training")
    return [
        (t["library"], t["dtype"], t["limit"] or "none", *(_number(t[name]) for name in speeds), t["verdict"])
        for t in types
    ]


def _choice_rows(choices: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [(name.replace("_", " "), _value(c["value"]), c["reason"]) for name, c in choices.items()]


def _variable_rows(variables: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(v["name"], v["value"] or "unset", v["origin"], v["reason"]) for v in variables]


def _number(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _value(value: str | int | None) -> str:
    if value is None:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
