"""`alembert doctor`: what this machine can do, which settings are chosen, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from alembert.hardware.capabilities import detect_capabilities, load_cached_capabilities
from alembert.hardware.report import build_doctor_report
from alembert.terminal import print_json, say, stdout_console

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
