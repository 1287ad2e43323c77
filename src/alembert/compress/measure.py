"""What an Export costs and gains for a task, its scores, answers and speed against fp32, and which format is faster.

An `ExportedTask` is one task of the model with its head and examples; an `ExportCandidate` is a form of the model that
may become the Export; `Fp32Baseline` compares candidates with fp32.

The faster format is chosen by running the model itself in both over the same rows: libraries differ as much in what they
do between products as in the products that `doctor` measures. Full batches of rows of natural length and a row of 128
tokens alone count alike, since people annotate files and wait for single texts. What counts is CPU time: on a busy
machine seconds of the clock say more about the other work. `ExportSettings.format` names a format instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import process_time
from typing import Any, Final, Protocol

import numpy as np

from alembert.compress.card import TaskMeasurement
from alembert.data.windows import Row
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.example import EncodedExample, get_group_ids
from alembert.tasks.files import SavedTask
from alembert.tasks.metrics import compare_paired
from alembert.tasks.runtime import Runner
from alembert.tasks.runtime.export import TOKEN_BUDGET, ExportedGraph, GraphRunner
from alembert.tasks.runtime.export_files import RUNTIME_PACKAGES, DecodingWeights, ExportFormat, HeadMetadata
from alembert.tasks.runtime.torch import ModelRunner
from alembert.tasks.task import AnyTask


class SpeedMeasurement(Protocol):
    """How fast a form answered."""

    @property
    def texts_per_second(self) -> float: ...

    @property
    def tokens_per_second(self) -> float: ...


@dataclass(frozen=True)
class ExportCandidate:
    """A task with the tokenizer of its checkpoint and something that computes; `infer.speed` can measure it."""

    task: AnyTask
    checkpoint: Checkpoint
    runner: Runner

    def encode(self, examples: Sequence[Any]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.task.encode(examples, self.checkpoint.require_tokenizer(), self.checkpoint.max_tokens)

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Answer examples."""
        encoded = self.encode(examples)
        outputs = self.task.run(self.runner, encoded)
        return self.task.decode_batch(encoded, outputs)


def compute_agreement(task: AnyTask, examples: Sequence[Any], one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the share of examples that two forms answer alike, whatever probabilities they give."""
    triples = zip(examples, one, other, strict=True)
    alike = [
        bool(strip_floats(task.to_record(example, a)) == strip_floats(task.to_record(example, b)))
        for example, a, b in triples
    ]
    return sum(alike) / len(alike)


def strip_floats(value: Any) -> Any:
    """Leave out numbers that are not whole from a record: scores, chances, vectors.

    >>> strip_floats({"label": "yes", "score": 0.93, "spans": [{"start": 3, "score": 0.5}]})
    {'label': 'yes', 'spans': [{'start': 3}]}
    """
    if isinstance(value, Mapping):
        return {name: strip_floats(item) for name, item in value.items() if not isinstance(item, float)}
    if isinstance(value, list | tuple):
        return [strip_floats(item) for item in value if not isinstance(item, float)]
    return value


SpeedFunction = Callable[[Sequence[ExportCandidate], Sequence[Any]], Sequence[SpeedMeasurement]]
"""Measures candidates on examples: `infer.speed.measure_speeds` is one."""


@dataclass(frozen=True)
class ExportData:
    """What an export is made with, beside the checkpoint; of several tasks each has its own."""

    calibration: Sequence[Any] = ()
    """Examples of the task, labelled or not, whose text int8 is calibrated on."""
    judged: Sequence[Any] = ()
    """Examples on which fp32 and the Export are compared."""
    labelled: bool = True
    """Whether the right answers of the judged ones are known."""
    stopwatch: SpeedFunction | None = None
    """Measures speed; none: it is not measured."""
    machine: str = ""
    """Where it is measured, in a few words."""
    files: tuple[Path, ...] = ()
    """Where the examples come from, for the manifest."""


@dataclass(frozen=True)
class ExportedTask:
    """A task of a checkpoint with its material."""

    checkpoint: Checkpoint
    saved: SavedTask
    data: ExportData
    is_only: bool = True
    """Whether the model has no other task."""

    @cached_property
    def task(self) -> AnyTask:
        """The task as it decodes: with what it needs of the head's weights."""
        task = self._unbound
        if task.attention_pattern not in (None, "bidirectional"):
            others = "" if self.is_only else f" (here {self.saved.name}), or export another task alone: --task NAME"
            raise BadSetting(
                f"A model of the task {task.name} that writes texts cannot be exported. Use the checkpoint itself{others}."
            )
        return task.with_head_weights(self.checkpoint.model.head(self.head))

    @cached_property
    def _unbound(self) -> AnyTask:
        return self.saved.open()

    @cached_property
    def head(self) -> str:
        return self.saved.head or self._unbound.head().kind

    @property
    def facts(self) -> HeadMetadata:
        spec = self.checkpoint.model.spec(self.head)
        return HeadMetadata(kind=spec.kind, per_token=spec.per_token, labels=self.task.labels)

    @property
    def vectors(self) -> str | None:
        """What a vector is, if the task makes them."""
        return self.task.vector.in_words() if isinstance(self.task, CompareTask) else None

    @property
    def decoding_weights(self) -> DecodingWeights:
        """The weights of the head that decoding needs."""
        head = self.checkpoint.model.head(self.head)
        parameters = {name: head.get_parameter(name) for name in self.task.decoding_weights}
        return {name: parameter.detach().float().cpu().numpy() for name, parameter in parameters.items()}

    def rows(self, most: int) -> list[Row]:
        """Return rows to calibrate on, from everywhere in the text."""
        examples = self.data.calibration
        count = min(most, len(examples))
        drawn = [examples[number * len(examples) // count] for number in range(count)]
        encoded = self.task.encode(drawn, self.checkpoint.require_tokenizer(), self.checkpoint.max_tokens)
        return [row for example in encoded for row in example.rows][:most]

    def candidate(self, graph: ExportedGraph) -> ExportCandidate:
        """Return the task with what computes its head."""
        return ExportCandidate(self.task, self.checkpoint, GraphRunner(graph, self.head))

    def in_torch(self) -> ExportCandidate:
        """Return the task as the checkpoint computes it."""
        runner = ModelRunner(self.checkpoint.model, self.head, self.task.attention_pattern)
        return ExportCandidate(self.task, self.checkpoint, runner)


@dataclass(frozen=True)
class Fp32Baseline:
    """A task with its fp32 form, by which others are judged; it answers once for all of them."""

    part: ExportedTask
    exact: ExportCandidate

    @cached_property
    def answers(self) -> list[Any]:
        """What fp32 says to the judged examples."""
        return self.exact.predict(self.part.data.judged)

    @property
    def is_scored(self) -> bool:
        return bool(self.part.data.judged) and self.part.data.labelled

    def loss(self, candidate: ExportCandidate) -> float:
        """Return the points that another form scores less than fp32."""
        answers = candidate.predict(self.part.data.judged)
        return 100 * (self._score(self.answers) - self._score(answers))

    def measure(self, candidate: ExportCandidate | None) -> TaskMeasurement:
        """Compare another form with fp32; none: measure fp32 itself."""
        judged = self.part.data.judged
        measurement = TaskMeasurement(task=self.part.task.name, judged=len(judged))
        if not judged:
            return measurement
        answers = self.answers if candidate is None else candidate.predict(judged)
        if self.is_scored:
            scores = self.part.task.score(judged, answers)
            measurement = replace(
                measurement, measure=scores.main, fp32=self._score(self.answers), exported=scores.value
            )
            measurement = measurement if candidate is None else replace(measurement, interval=self._interval(answers))
        if candidate is not None and not self._answers_are_numbers:
            measurement = replace(
                measurement, same_answers=compute_agreement(self.part.task, judged, self.answers, answers)
            )
        return self._add_speeds(measurement, {"fp32": self.exact} | ({} if candidate is None else {"int8": candidate}))

    def _interval(self, answers: Sequence[Any]) -> tuple[float, float]:
        """Find where the points lost lie, by drawing other examples; those of one document are drawn together."""
        task, judged = self.part.task, self.part.data.judged
        interval = compare_paired(
            task.sample_metric(judged, self.answers),
            task.sample_metric(judged, answers),
            len(judged),
            kin=get_group_ids(judged),
        ).interval
        return 100 * interval.low, 100 * interval.high

    def _score(self, answers: Sequence[Any]) -> float:
        return self.part.task.score(self.part.data.judged, answers).value

    @property
    def _answers_are_numbers(self) -> bool:
        """Whether answers are numbers or vectors, of which no two are the same."""
        return not self.part.task.labels and self.part.facts.kind in ("classify", "embed")

    def _add_speeds(self, measurement: TaskMeasurement, forms: Mapping[str, ExportCandidate]) -> TaskMeasurement:
        material = self.part.data
        if material.stopwatch is None:
            return measurement
        in_torch = self.part.in_torch()
        # The first call prepares an engine; the graphs have had theirs.
        in_torch.predict(material.judged[:1])
        forms = {"the checkpoint": in_torch, **forms}
        speeds = dict(zip(forms, material.stopwatch(list(forms.values()), material.judged), strict=True))
        return replace(
            measurement,
            texts_per_second={form: speed.texts_per_second for form, speed in speeds.items()},
            tokens_per_second={form: speed.tokens_per_second for form, speed in speeds.items()},
            machine=material.machine,
        )


ROUNDS: Final = 5
BATCHES_PER_THREAD: Final = 4
"""Fewer would leave a thread without work for much of the time."""
LONE_TOKENS: Final = 128
"""Tokens of the row that is computed alone: a passage. Shorter ones hardly tell libraries apart."""
LONE_CALLS: Final = 8
Timer = Callable[[], float]


@dataclass(frozen=True)
class FormatSpeed:
    """How fast a graph was, in CPU time."""

    tokens_per_second: float
    milliseconds: float
    """What a single row took."""

    def __str__(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens a CPU second, {self.milliseconds:.1f} CPU ms for one row alone"


def fill_batches(rows: Sequence[Row], threads: int) -> list[Row]:
    """Repeat rows until each thread has some full batches of them."""
    needed = BATCHES_PER_THREAD * threads * TOKEN_BUDGET
    return list(rows) * max(1, -(-needed // sum(row.length for row in rows)))


def stretch_row(row: Row, tokens: int) -> Row:
    """Repeat or cut a row so that it has so many tokens.

    >>> stretch_row(Row(np.array([5, 6, 7]), positions=np.arange(3)), 5).ids.tolist()
    [5, 6, 7, 5, 6]
    """
    order = np.arange(tokens) % row.length
    features = row.features and replace(row.features, rows_TF=row.features.rows_TF[order])
    segments = None if row.segments is None else row.segments[order]
    return replace(row, ids=row.ids[order], segments=segments, features=features, positions=np.arange(tokens))


def measure_format_speeds(
    graphs: Mapping[ExportFormat, ExportedGraph], rows: Sequence[Row], lone: Row, clock: Timer = process_time
) -> dict[ExportFormat, FormatSpeed]:
    """Measure graphs in turn, over all rows together and over one row alone; each has read them before.

    CPU time of all threads counts, and of each graph the fastest turn: other work on the machine changes little then.
    """
    tokens = sum(row.length for row in rows)
    together: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    single: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    for turn in range(1 + ROUNDS):
        for form, graph in graphs.items():
            all_rows = _time_rows(graph, rows, clock)
            alone = [_time_rows(graph, [lone], clock) for _ in range(LONE_CALLS)]
            if turn:
                together[form].append(all_rows)
                single[form] += alone
    return {form: FormatSpeed(tokens / max(min(together[form]), 1e-9), 1000 * min(single[form])) for form in graphs}


def _time_rows(graph: ExportedGraph, rows: Sequence[Row], clock: Timer) -> float:
    began = clock()
    deque(graph.head_outputs(list(graph.heads), rows), maxlen=0)
    return clock() - began


def choose_format(speeds: Mapping[ExportFormat, FormatSpeed]) -> ExportFormat:
    """Take the format that is faster in the geometric mean of many rows and single ones.

    >>> choose_format({"openvino": FormatSpeed(900, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'openvino'
    >>> choose_format({"openvino": FormatSpeed(500, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'onnx'
    """
    return max(speeds, key=lambda form: speeds[form].tokens_per_second / max(speeds[form].milliseconds, 1e-9))


def describe_speeds(speeds: Mapping[ExportFormat, FormatSpeed]) -> str:
    return "; ".join(f"in {RUNTIME_PACKAGES[form]} {speed}" for form, speed in speeds.items())
