"""The task `classify`: one label, several labels or a number for a text, a pair of texts, or each sentence of a document.

In: labelled rows of tables, JSON lines, Parquet or sections of abstracts. Out: labels with probabilities, or
numbers. The kind of the labels is detected from the training data and reported. Texts of any length are read through
windows whose outputs are pooled, in training, evaluation and prediction alike. The head of numbers learns values that
were moved to mean 0 and deviation 1, which suits the usual learning rates: its raw outputs are on that scale, and the
task undoes it.
"""

# A answers, C outputs
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from alembert.corpus.document import Document
from alembert.corpus.examples.labelled import LabelValue
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify.data import (
    CLASSIFY_METRICS,
    ClassifyExample,
    ClassifyKind,
    ClassifySettings,
    advise_on_context,
    convert_label,
    describe_wrong_metric,
    detect_kind,
    get_sentences,
    read_examples,
    read_unlabelled,
    split_sides,
)
from alembert.tasks.classify.margin import ClassifyMargins
from alembert.tasks.classify.rows import (
    ClassifyRewriter,
    TargetArray,
    WindowSpec,
    check_answers,
    check_form,
    check_values_differ,
    collect_labels,
    compute_class_weights,
    encode_document,
    encode_targets,
    encode_text,
    encode_token_ids,
    format_labels,
    iter_gold_answers,
)
from alembert.tasks.classify.scores import (
    ClassifyAnswer,
    ClassifyCalibration,
    ClassifyComparison,
    ClassifyPrediction,
    build_sample_metric,
    compute_scores,
    decode_multi,
    decode_numbers,
    decode_single,
    drop_below_score,
    fit_calibration,
    iter_confidences,
    pool_windows,
    with_labelled_sentences,
    with_labels,
)
from alembert.tasks.example import AnnotationSpec, Coverage, EncodedExample, Example, ReadResult, collect
from alembert.tasks.metrics import Floats
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.settings import (
    MAX_MAGNITUDE,
    DistillLossSettings,
    LossSettings,
    load_number,
    load_settings,
    load_temperature,
)
from alembert.tasks.task import LossUnit, SampleMetric, Task, TaskScores
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


@dataclass(frozen=True, eq=False)
class ClassifyTask(Task[ClassifyExample, ClassifyPrediction]):
    """Classify texts: a label, several labels or a number."""

    name: ClassVar[str] = "classify"
    settings_class: ClassVar[type[Any]] = ClassifySettings
    example_class: ClassVar[type[Example]] = ClassifyExample
    answer_name: ClassVar[str] = "labels"

    settings: ClassifySettings
    kind: ClassifyKind
    classes: tuple[str, ...] = ()
    """Labels in the order of the outputs; none if the answers are numbers."""
    pairs: bool | None = False
    """Whether pairs of texts are classified; none: it is not known, and each example is read as it is."""
    mean: float = 0.0
    deviation: float = 1.0
    calibration: ClassifyCalibration = field(default_factory=ClassifyCalibration)
    weights: tuple[float, ...] = ()
    """Weight of each label if labels are balanced; empty: not computed."""
    is_training: bool = False
    """Whether texts are cut to `train_windows`."""

    # -- reading

    @classmethod
    def read(
        cls, files: Sequence[Path], settings: ClassifySettings, options: ReadOptions
    ) -> ReadResult[ClassifyExample]:
        return read_examples(files, settings, options)

    @classmethod
    def read_unlabelled(
        cls, files: Sequence[Path], settings: ClassifySettings, options: ReadOptions
    ) -> ReadResult[ClassifyExample]:
        return collect(files, lambda path: read_unlabelled(path, settings, options))

    @classmethod
    def resolve_settings(cls, examples: Sequence[ClassifyExample], settings: ClassifySettings) -> ClassifySettings:
        return replace(
            settings, kind=detect_kind((gold for example in examples for gold in example.golds), settings.kind)
        )

    @classmethod
    def learn(cls, examples: Sequence[ClassifyExample], settings: ClassifySettings) -> ClassifyTask:
        golds = [gold for example in examples for gold in example.golds]
        if not golds:
            raise BadInput("There are no labelled examples to learn from. Check what was set aside, and why.")
        kind = detect_kind(golds, settings.kind)
        if settings.main not in ("auto", *CLASSIFY_METRICS[kind]):
            raise BadSetting(describe_wrong_metric(settings.main, kind))
        settings = replace(settings, kind=kind)
        pairs = len(examples[0].texts) == 2 and not examples[0].is_document
        check_form(examples, is_document=settings.context == "document", pairs=pairs)
        fitting: list[Any] = [gold for _, gold in iter_gold_answers(examples, kind)]
        if kind == "number":
            check_values_differ(fitting)
            mean, deviation = float(np.mean(fitting)), float(np.std(fitting))
            return cls(settings, kind, pairs=pairs, mean=mean, deviation=deviation)
        return cls(settings, kind, collect_labels(fitting, kind), pairs)

    def describe(self) -> list[str]:
        unit = "sentence of a document" if self.is_document else "pair of texts" if self.pairs else "text"
        if self.kind == "number":
            answer = f"Each {unit} has a number: mean {self.mean:.4g}, deviation {self.deviation:.4g} in training."
        else:
            share = "one label" if self.kind == "single" else "any number of labels, also none,"
            answer = f"Each {unit} has {share} of {len(self.classes)}: {format_labels(self.classes)}."
        most = self.settings.train_windows
        cut = [f"Of each {unit} at most {most} windows are learnt from, as `train_windows` asks."] if most else []
        return [answer, *cut, f"Models are chosen by {self.main}."]

    def advice(self, examples: Sequence[ClassifyExample], encoded: Sequence[EncodedExample]) -> Iterator[str]:
        if not (self.is_document or self.pairs):
            yield from advise_on_context(examples)

    def check(self, examples: Sequence[ClassifyExample]) -> None:
        check_form(examples, is_document=self.is_document, pairs=self.pairs)
        check_answers(examples, self.kind, self.classes)

    def gold_answers(self, example: ClassifyExample) -> list[str]:
        if self.kind == "number":
            return []
        golds = [convert_label(gold, self.kind) for gold in example.golds]
        return [label for gold in golds for label in (gold if isinstance(gold, tuple) else (str(gold),))]

    def rewriter(self) -> ClassifyRewriter:
        return ClassifyRewriter()

    # -- encoding

    @property
    def is_document(self) -> bool:
        """Whether the sentences of a document are classified together."""
        return self.settings.context == "document"

    @property
    def main(self) -> str:
        """The measure that models are chosen by."""
        return CLASSIFY_METRICS[self.kind][0] if self.settings.main == "auto" else self.settings.main

    @property
    def labels(self) -> tuple[str, ...]:
        return self.classes

    @property
    def loss_unit(self) -> LossUnit:
        return "places" if self.is_document else "examples"

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        outputs = len(self.classes) or 1
        if self.is_document:
            return HeadSpec(kind="tag", outputs=outputs)
        pooling = self.settings.pooling
        return HeadSpec(kind="classify", outputs=outputs, pooling=pooling, answers=self.kind)

    def for_training(self) -> ClassifyTask:
        """Return the task that encodes training data: it cuts texts to `train_windows`, if that was asked for."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[ClassifyExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        most = self.settings.train_windows if self.is_training else None
        cutting = WindowSpec(tokenizer, min(self.settings.window, longest), self.settings.overlap, most)
        parts = [
            get_sentences(example) if self.is_document else split_sides(example, self.pairs) for example in examples
        ]
        ids = encode_token_ids([text for texts in parts for text in texts], tokenizer)
        rows_of = encode_document if self.is_document else encode_text
        return [
            rows_of(texts, [next(ids) for _ in texts], cutting, self._targets(example.golds))
            for example, texts in zip(examples, parts, strict=True)
        ]

    def _targets(self, golds: Sequence[LabelValue]) -> TargetArray | None:
        return encode_targets(golds, self.kind, self.classes, self.mean, self.deviation) if golds else None

    # -- loss

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> ClassifyTask:
        gold = [row.labels for example in encoded for row in example.rows if row.labels is not None]
        if self.kind == "number" or not gold:
            return self
        return replace(self, weights=compute_class_weights(np.concatenate(gold), self.kind, len(self.classes)))

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.losses import label_loss

        return label_loss(self._pool_outputs(outputs, target), target.labels, self.kind, settings, self.weights)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import label_divergence

        return label_divergence(self._pool_outputs(one, target), self._pool_outputs(other, target), self.kind)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.losses import label_distillation_loss

        student, teacher = self._pool_outputs(outputs, target), self._pool_outputs(taught, target)
        return label_distillation_loss(student, teacher, self.kind, settings.temperature)

    def _pool_outputs(self, outputs: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import pool_rows

        return outputs if self.is_document else pool_rows(outputs, target.example_of_row, self.settings.pool)

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> ClassifyPrediction:
        return ClassifyPrediction(tuple(self._answers(self.pool(encoded, outputs))), encoded.coverage)

    def margins(self) -> ClassifyMargins:
        return ClassifyMargins(self)

    def apply_min_score(self, prediction: ClassifyPrediction, min_score: float) -> ClassifyPrediction:
        if self.kind == "number":
            return super().apply_min_score(prediction, min_score)
        return ClassifyPrediction(*drop_below_score(prediction.answers, prediction.coverage, min_score))

    def pool(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> Floats:
        if not outputs:
            return np.empty((0, len(self.classes) or 1))
        return pool_windows(np.concatenate(outputs), encoded.layout, self.settings.pool)

    def _answers(self, logits_AC: Floats) -> list[ClassifyAnswer]:
        if self.kind == "number":
            return decode_numbers(logits_AC, self.mean, self.deviation)
        read = decode_single if self.kind == "single" else decode_multi
        return read(logits_AC, self.classes, self.calibration)

    def tune(
        self, examples: Sequence[ClassifyExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> ClassifyTask:
        labelled = [
            (gold, self.pool(rows, parts))
            for example, rows, parts in zip(examples, encoded, outputs, strict=True)
            if (gold := self._targets(example.golds)) is not None
        ]
        if self.kind == "number" or not labelled:
            return self
        gold, logits_AC = (np.concatenate(part) for part in zip(*labelled, strict=True))
        return replace(self, calibration=fit_calibration(logits_AC, gold, self.kind))

    # -- scores

    def score(self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]) -> TaskScores:
        coverage = Coverage.total(prediction.coverage for prediction in predictions)
        is_tuned = bool(self.calibration.thresholds)
        return compute_scores(self._compared(examples, predictions), self.main, coverage, is_tuned=is_tuned)

    def sample_metric(
        self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]
    ) -> SampleMetric:
        return build_sample_metric(self._compared(examples, predictions), self.main)

    def _compared(
        self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]
    ) -> ClassifyComparison:
        return ClassifyComparison.of(self.kind, self.classes, examples, predictions)

    def confidences(self, example: ClassifyExample, prediction: ClassifyPrediction) -> Iterator[tuple[float, bool]]:
        return iter_confidences(example, prediction)

    def label_pairs(
        self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        if self.kind != "single":
            return None
        gold = [str(gold) for example in examples for gold in example.golds]
        return gold, [str(answer.label) for prediction in predictions for answer in prediction.answers]

    def comparison_key(self) -> dict[str, Any]:
        return {"kind": self.kind, "measure": self.main, "labels": sorted(self.classes)}

    def to_record(self, example: ClassifyExample, prediction: ClassifyPrediction) -> dict[str, Any]:
        return prediction.to_record(example, is_document=self.is_document)

    def to_lines(self, example: ClassifyExample, prediction: ClassifyPrediction) -> list[str]:
        return prediction.to_lines(example, is_document=self.is_document)

    # -- documents

    @property
    def annotation(self) -> AnnotationSpec:
        if self.pairs:
            return AnnotationSpec(problem="classifies pairs of texts, and a document is one text")
        if not self.is_document:
            return AnnotationSpec(writes="labels")
        problem = "gives each sentence a number, and a format has labels alone" if self.kind == "number" else ""
        return AnnotationSpec(writes="entities", sentence_labels=self.labels, problem=problem)

    def for_documents(self) -> ClassifyTask:
        """Read a document as one text, where a model that was fine-tuned elsewhere may be for pairs."""
        return replace(self, pairs=False) if self.pairs is None else self

    def annotate(self, document: Document, example: ClassifyExample, prediction: ClassifyPrediction) -> Document:
        if self.is_document:
            return with_labelled_sentences(document, example, prediction.answers)
        return with_labels(document, prediction.answer)

    def annotation_facts(self, example: ClassifyExample, prediction: ClassifyPrediction) -> Mapping[str, Any]:
        if self.is_document:
            return {}
        return {"probabilities": prediction.answer.probabilities, "value": prediction.answer.value}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "labels": list(self.classes),
            "pairs": self.pairs,
            "mean": self.mean,
            "deviation": self.deviation,
            "temperature": self.calibration.temperature,
            "thresholds": dict(zip(self.classes, self.calibration.thresholds, strict=False)),
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ClassifyTask:
        kind, labels = table["kind"], tuple(str(label) for label in table["labels"])
        if kind not in get_args(ClassifyKind) or (kind == "number") == bool(labels):
            raise ValueError("the kind of the task and its labels do not fit")
        thresholds = table["thresholds"]
        settings = replace(load_settings(ClassifySettings, table["settings"]), kind=kind)
        return cls(
            settings,
            kind,
            labels,
            None if table["pairs"] is None else bool(table["pairs"]),
            load_number(table, "mean", -MAX_MAGNITUDE, MAX_MAGNITUDE),
            load_number(table, "deviation", 1 / MAX_MAGNITUDE, MAX_MAGNITUDE),
            ClassifyCalibration(
                load_temperature(table),
                tuple(load_number(thresholds, label, 0, 1) for label in labels) if thresholds else (),
            ),
        )
