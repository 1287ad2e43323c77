"""What an export gave: the loss, the gain and the size, for the screen, the manifest and the model card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from alembert.tasks.export_files import ExportFacts, Precision


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What int8 cost and won; scores are those of the same examples."""

    judged: int = 0
    """Examples that the scores are of."""
    measure: str | None = None
    """Name of the score; none: nothing was labelled."""
    fp32: float | None = None
    exported: float | None = None
    same_answers: float | None = None
    """Share of the judged examples that fp32 and the Export answer alike."""
    texts_per_second: Mapping[str, float] = field(default_factory=dict)
    """Form of the model -> texts that it answered in a second, from text to answer."""
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    machine: str = ""
    """Where the speed was measured."""

    @property
    def lost(self) -> float | None:
        """Points that the Export scores less than fp32."""
        return None if self.fp32 is None or self.exported is None else 100 * (self.fp32 - self.exported)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """An export that was written."""

    task: str
    facts: ExportFacts
    asked: Precision
    calibration_rows: int
    in_float: tuple[str, ...]
    """Products that stay in float, because int8 would cost too much there."""
    measured: Measured
    bytes: int
    """Size of the weights of the graph."""
    checkpoint_bytes: int

    def to_table(self) -> dict[str, Any]:
        """Give plain values."""
        return asdict(self) | {"lost_points": self.measured.lost}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Give names and values for people."""
        yield "task", self.task
        yield "numbers", self._numbers()
        yield "size", f"{self.bytes / 1e6:.1f} MB, as a checkpoint {self.checkpoint_bytes / 1e6:.1f} MB"
        found = self.measured
        if found.lost is not None:
            yield (
                f"{found.measure} on {found.judged:,} examples",
                f"{found.exported:.4f}, with fp32 {found.fp32:.4f}: {_change(found.lost)}",
            )
        if found.same_answers is not None:
            yield "answers as with fp32", f"{found.same_answers:.1%} of {found.judged:,} examples"
        for form, speed in found.texts_per_second.items():
            tokens = found.tokens_per_second[form]
            yield f"speed of {form}", f"{speed:,.0f} texts a second, {tokens:,.0f} tokens a second"
        if found.texts_per_second:
            yield "measured on", found.machine

    def _numbers(self) -> str:
        if self.facts.precision != self.asked:
            return "fp32: int8 would cost more than it may, whatever is left in float"
        if self.facts.precision == "fp32":
            return "fp32"
        told = f"int8, calibrated on {self.calibration_rows:,} rows of text"
        return f"{told}; in float: {', '.join(self.in_float)}" if self.in_float else told

    def notes(self) -> Iterator[str]:
        """Say what a user should know before using it."""
        if self.facts.precision != self.asked:
            yield "int8 costs too much with this model; the Export has fp32 numbers"
        speeds = self.measured.texts_per_second
        if {"int8", "fp32"} <= speeds.keys() and speeds["int8"] < 1.1 * speeds["fp32"]:
            yield (
                f"int8 is {speeds['int8'] / speeds['fp32']:.2f}x as fast as fp32 here; it is made for processors with "
                "VNNI or AMX instructions, and saves three quarters of the size everywhere"
            )


def card(outcome: Outcome) -> str:
    """Give the text of the model card, `README.md`."""
    facts = outcome.facts
    lines = [
        "---",
        "library_name: openvino",
        "---",
        f"# {facts.layers} x {facts.width} model for the task {outcome.task}, {facts.precision}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in _model(facts)),
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in outcome.rows()),
        "",
        "It runs without torch: `alembert predict FOLDER TEXT`, or `TaskModel.open(folder)` in Python. `model.xml` and",
        "`model.bin` are an OpenVINO graph with the inputs `ids` and `segments` (texts x tokens) and `lengths` (texts); its",
        "output is that of the head. `task.json` says how it is read.",
        "",
    ]
    return "\n".join(lines)


def _model(facts: ExportFacts) -> Iterator[tuple[str, str]]:
    yield "layers", str(facts.layers)
    yield "width", str(facts.width)
    yield "parameters", f"{facts.parameters:,}"
    yield "longest input", f"{facts.longest} tokens"
    if facts.labels:
        yield "labels", ", ".join(facts.labels)


def _change(lost: float) -> str:
    return f"{abs(lost):.2f} points {'lost' if lost >= 0 else 'won'}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
