"""The report of an export (loss, gain, size) for the terminal, the manifest and the model card."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from alembert.files.card import escape_markdown
from alembert.tasks.runtime.export_files import RUNTIME_PACKAGES, ExportMetadata, ExportPrecision


@dataclass(frozen=True, kw_only=True)
class TaskMeasurement:
    """What int8 cost and won for a task; scores are those of the same examples."""

    task: str
    """Its kind: tag, classify."""
    judged: int = 0
    """Examples that the scores are of."""
    measure: str | None = None
    """Name of the score; none: nothing was labelled."""
    fp32: float | None = None
    exported: float | None = None
    interval: tuple[float, float] | None = None
    """Points lost at least and at most, but for the chance in the choice of the examples (95 %)."""
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

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield names and values for people."""
        if self.lost is not None:
            yield (
                f"{self.measure} on {self.judged:,} examples",
                f"{self.exported:.4f}, with fp32 {self.fp32:.4f}: {_describe_change(self.lost, self.interval)}",
            )
        if self.same_answers is not None:
            yield "answers as with fp32", f"{self.same_answers:.1%} of {self.judged:,} examples"
        for form, speed in self.texts_per_second.items():
            tokens = self.tokens_per_second[form]
            yield f"speed of {form}", f"{speed:,.0f} texts a second, {tokens:,.0f} tokens a second"
        if self.texts_per_second:
            yield "measured on", self.machine


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """An export that was written."""

    tasks: Mapping[str, TaskMeasurement]
    """Head, which of several is called as its task -> what was measured."""
    facts: ExportMetadata
    asked: ExportPrecision
    calibration_rows: int
    in_float: tuple[str, ...]
    """Products that stay in float, because int8 would cost too much there."""
    bytes: int
    """Size of the weights of the graph."""
    checkpoint_bytes: int
    vectors: str | None = None
    """What a vector is, if a task makes them."""

    @property
    def measured(self) -> TaskMeasurement:
        """What was measured of the task that lost most; of a single task, its own."""
        return max(
            self.tasks.values(), key=lambda measurement: -math.inf if measurement.lost is None else measurement.lost
        )

    @property
    def task(self) -> str:
        """The kind of the task; of several tasks, names and kinds."""
        if len(self.tasks) == 1:
            return self.measured.task
        return ", ".join(f"{name} ({measurement.task})" for name, measurement in self.tasks.items())

    def to_table(self) -> dict[str, Any]:
        """Return plain values; `measured` is of the task that lost most."""
        worst = self.measured
        return asdict(self) | {"task": self.task, "measured": asdict(worst), "lost_points": worst.lost}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield names and values for people."""
        yield "task" if len(self.tasks) == 1 else "tasks", self.task
        yield "runs in", RUNTIME_PACKAGES[self.facts.format]
        yield "numbers", self._numbers()
        yield "size", f"{self.bytes / 1e6:.1f} MB, as a checkpoint {self.checkpoint_bytes / 1e6:.1f} MB"
        if self.vectors:
            yield "vectors", self.vectors
        for head, measurement in self.tasks.items():
            whose = "" if len(self.tasks) == 1 else f"{head}: "
            yield from ((f"{whose}{name}", value) for name, value in measurement.rows())

    def _numbers(self) -> str:
        if self.facts.precision != self.asked:
            return "fp32: int8 would cost more than it may, whatever is left in float"
        if self.facts.precision == "fp32":
            return "fp32"
        described = f"int8, calibrated on {self.calibration_rows:,} rows of text"
        return f"{described}; in float: {', '.join(self.in_float)}" if self.in_float else described

    def notes(self) -> Iterator[str]:
        """Yield what a user should know before using it."""
        if self.facts.precision != self.asked:
            yield "int8 costs too much with this model; the Export has fp32 numbers"
        unknown = [head for head, measurement in self.tasks.items() if not measurement.judged]
        if self.facts.precision == "int8" and unknown and len(self.tasks) > 1:
            yield f"what int8 costs was not measured for {', '.join(unknown)}: no examples were given"
        speeds = self.measured.texts_per_second
        if {"int8", "fp32"} <= speeds.keys() and speeds["int8"] < 1.1 * speeds["fp32"]:
            yield (
                f"int8 is {speeds['int8'] / speeds['fp32']:.2f}x as fast as fp32 here, in {RUNTIME_PACKAGES[self.facts.format]}; it "
                "saves three quarters of the size everywhere"
            )


def render_card(outcome: ExportReport) -> str:
    """Write the text of the model card, `README.md`."""
    facts = outcome.facts
    kind = "tasks" if len(outcome.tasks) > 1 else "task"
    lines = [
        "---",
        f"library_name: {facts.format}",
        "---",
        f"# {facts.layers} x {facts.width} model for the {kind} {escape_markdown(outcome.task)}, {facts.precision}",
        "",
        "| | |",
        "|---|---|",
        *(
            f"| {escape_markdown(name)} | {escape_markdown(value)} |"
            for name, value in (*_model_rows(facts), *outcome.rows())
        ),
        "",
        *(_ONNX_USAGE if facts.format == "onnx" else _OPENVINO_USAGE),
        "",
    ]
    return "\n".join(lines)


_OPENVINO_USAGE: Final = (
    "It runs without torch: `alembert predict FOLDER TEXT`, or `TaskModel.open(folder)` in Python. `model.xml` and",
    "`model.bin` are an OpenVINO graph with the inputs `ids` and `segments` (texts x tokens) and `lengths` (texts); each",
    "head is an output. `task.json` says how they are read.",
)
_ONNX_USAGE: Final = (
    "`model.onnx` runs in every program that reads ONNX, as here in ONNX Runtime:",
    "",
    "```python",
    "import numpy as np",
    "import onnxruntime",
    "from tokenizers import Tokenizer",
    "",
    'encoding = Tokenizer.from_file("tokenizer.json").encode("Imatinib inhibits BCR-ABL1.")',
    "inputs = {",
    '    "input_ids": np.array([encoding.ids], np.int64),',
    '    "attention_mask": np.array([encoding.attention_mask], np.int64),',
    '    "token_type_ids": np.array([encoding.type_ids], np.int64),',
    "}",
    'session = onnxruntime.InferenceSession("model.onnx")',
    "names = [output.name for output in session.get_outputs()]",
    "outputs = dict(zip(names, session.run(None, inputs)))",
    "```",
    "",
    "Each head is an output: numbers for each token (texts x tokens x labels), or one row a text. The labels above are in the",
    "order of the numbers. What becomes of the numbers (CRF, thresholds, windows of long texts, pooling) is in `task.json`;",
    "`alembert predict FOLDER TEXT` does it, without torch.",
)


def _model_rows(facts: ExportMetadata) -> Iterator[tuple[str, str]]:
    yield "layers", str(facts.layers)
    yield "width", str(facts.width)
    yield "parameters", f"{facts.parameters:,}"
    yield "longest input", f"{facts.longest} tokens"
    for name, head in facts.heads.items():
        if head.labels:
            yield "labels" if len(facts.heads) == 1 else f"{name}: labels", ", ".join(head.labels)


def _describe_change(lost: float, interval: tuple[float, float] | None) -> str:
    """Describe the change, and whether the examples are enough to distinguish it from chance."""
    change = f"{abs(lost):.2f} points {'lost' if lost >= 0 else 'won'}"
    if interval is None:
        return change
    low, high = interval
    if low == high == 0:
        return "no difference"
    if low <= 0 <= high:
        sign = 1 if lost >= 0 else -1
        ends = sorted((sign * low, sign * high))
        return f"no measurable difference ({change}, which may be chance: {ends[0]:+.2f} to {ends[1]:+.2f})"
    ends = sorted((abs(low), abs(high)))
    return f"{change} ({ends[0]:.2f} to {ends[1]:.2f})"
