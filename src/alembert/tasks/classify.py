"""The task `classify`: one label, several labels or a number for a text, a pair of texts, or each sentence of a document.

In: labelled rows of tables, JSON lines, Parquet or sections of abstracts. Out: labels with probabilities, or numbers.
What the rows are is told from the training data and said. Texts of any length are read through windows whose outputs
are pooled, in training, evaluation and prediction alike. The head of numbers learns values that were moved to mean 0
and deviation 1, which suits the usual learning rates: its raw outputs are on that scale, and the task undoes it.
"""

# A answers, C outputs
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from alembert.corpus.examples.labelled import LabelValue
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify_check import (
    answers_in,
    check_answers,
    check_differ,
    check_form,
    labels_of,
    listed,
)
from alembert.tasks.classify_decode import (
    Answer,
    Calibration,
    ClassifyPrediction,
    multi_answers,
    number_answers,
    pooled,
    single_answers,
    with_min_score,
)
from alembert.tasks.classify_example import (
    ClassifyExample,
    advice_on_context,
    as_kind,
    kind_of,
    read_examples,
    read_unlabelled,
    sentences_of,
    sides_of,
    texts_of,
)
from alembert.tasks.classify_rewrite import ClassifyRewriter
from alembert.tasks.classify_rows import Cutting, Targets, document_rows, text_rows, token_ids
from alembert.tasks.classify_scores import Compared, at_best_thresholds, measure_of, measures_of
from alembert.tasks.classify_settings import MAINS, ClassifySettings, Kind, wrong_main
from alembert.tasks.classify_show import confidences_of, lines_of, record_of
from alembert.tasks.example import Coverage, Encoded, Reading
from alembert.tasks.imitation_settings import ImitationSettings
from alembert.tasks.loss_settings import LossSettings
from alembert.tasks.metrics.calibration import (
    best_threshold,
    fit_binary_temperature,
    fit_temperature,
    sigmoid,
)
from alembert.tasks.metrics.classes import balanced_weights, codes, indicator
from alembert.tasks.metrics.tally import Floats
from alembert.tasks.runner import Outputs
from alembert.tasks.setting_checks import LARGEST, saved, saved_number, saved_temperature
from alembert.tasks.task import Measure, Scores, Task
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.targets import Target


@dataclass(frozen=True, eq=False)
class ClassifyTask(Task[ClassifyExample, ClassifyPrediction]):
    """Say what texts are."""

    name: ClassVar[str] = "classify"
    settings_class: ClassVar[type[Any]] = ClassifySettings
    answer_name: ClassVar[str] = "labels"

    settings: ClassifySettings
    kind: Kind
    classes: tuple[str, ...] = ()
    """Labels in the order of the outputs; none if the answers are numbers."""
    pairs: bool | None = False
    """Whether pairs of texts are classified; none: it is not known, and each example is read as it is."""
    mean: float = 0.0
    deviation: float = 1.0
    chosen: Calibration = field(default_factory=Calibration)
    weights: tuple[float, ...] = ()
    """Weight of each label if labels are balanced; empty: not computed."""
    is_training: bool = False
    """Whether texts are cut to `train_windows`."""

    # -- data

    @classmethod
    def read(cls, files: Sequence[Path], settings: ClassifySettings, options: ReadOptions) -> Reading[ClassifyExample]:
        return read_examples(files, settings, options)

    @classmethod
    def read_unlabelled(
        cls, files: Sequence[Path], settings: ClassifySettings, options: ReadOptions
    ) -> Reading[ClassifyExample]:
        return read_unlabelled(files, settings, options)

    @classmethod
    def settle(cls, examples: Sequence[ClassifyExample], settings: ClassifySettings) -> ClassifySettings:
        return replace(settings, kind=kind_of((gold for each in examples for gold in each.golds), settings.kind))

    @classmethod
    def learn(cls, examples: Sequence[ClassifyExample], settings: ClassifySettings) -> ClassifyTask:
        golds = [gold for example in examples for gold in example.golds]
        if not golds:
            raise BadInput("There are no labelled examples to learn from. Check what was set aside, and why.")
        kind = kind_of(golds, settings.kind)
        if settings.main not in ("auto", *MAINS[kind]):
            raise BadSetting(wrong_main(settings.main, kind))
        settings = replace(settings, kind=kind)
        pairs = len(examples[0].texts) == 2 and not examples[0].is_document
        check_form(examples, is_document=settings.context == "document", pairs=pairs)
        fitting: list[Any] = [gold for _, gold in answers_in(examples, kind)]
        if kind == "number":
            check_differ(fitting)
            mean, deviation = float(np.mean(fitting)), float(np.std(fitting))
            return cls(settings, kind, pairs=pairs, mean=mean, deviation=deviation)
        return cls(settings, kind, labels_of(fitting, kind), pairs)

    @classmethod
    def of_texts(cls, texts: Sequence[str], ids: Sequence[str] | None = None) -> list[ClassifyExample]:
        """Make examples without answers; the two texts of a pair are parted by a tab."""
        return texts_of(texts, ids)

    def decisions(self) -> list[str]:
        unit = "sentence of a document" if self.is_document else "pair of texts" if self.pairs else "text"
        if self.kind == "number":
            answer = f"Each {unit} has a number: mean {self.mean:.4g}, deviation {self.deviation:.4g} in training."
        else:
            share = "one label" if self.kind == "single" else "any number of labels, also none,"
            answer = f"Each {unit} has {share} of {len(self.classes)}: {listed(self.classes)}."
        most = self.settings.train_windows
        cut = [f"Of each {unit} at most {most} windows are learnt from, as `train_windows` asks."] if most else []
        return [answer, *cut, f"Models are chosen by {self.main}."]

    def advice(self, examples: Sequence[ClassifyExample], encoded: Sequence[Encoded]) -> Iterator[str]:
        if not (self.is_document or self.pairs):
            yield from advice_on_context(examples)

    def check(self, examples: Sequence[ClassifyExample]) -> None:
        check_form(examples, is_document=self.is_document, pairs=self.pairs)
        check_answers(examples, self.kind, self.classes)

    def answers(self, example: ClassifyExample) -> list[str]:
        if self.kind == "number":
            return []
        golds = [as_kind(gold, self.kind) for gold in example.golds]
        return [label for gold in golds for label in (gold if isinstance(gold, tuple) else (str(gold),))]

    def rewriter(self) -> ClassifyRewriter:
        return ClassifyRewriter()

    # -- the model

    @property
    def is_document(self) -> bool:
        """Whether the sentences of a document are classified together."""
        return self.settings.context == "document"

    @property
    def main(self) -> str:
        """The measure that models are chosen by."""
        return MAINS[self.kind][0] if self.settings.main == "auto" else self.settings.main

    @property
    def labels(self) -> tuple[str, ...]:
        return self.classes

    @property
    def counted(self) -> Literal["places", "rows", "examples"]:
        return "places" if self.is_document else "examples"

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        outputs = len(self.classes) or 1
        if self.is_document:
            return HeadSpec(kind="tag", outputs=outputs)
        pooling = self.settings.pooling
        return HeadSpec(kind="classify", outputs=outputs, pooling=pooling, answers=self.kind)

    def for_training(self) -> ClassifyTask:
        """Give the task that encodes training data: it cuts texts to `train_windows`, if that was asked for."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[ClassifyExample], tokenizer: Tokenizer, longest: int) -> list[Encoded]:
        most = self.settings.train_windows if self.is_training else None
        cutting = Cutting(tokenizer, min(self.settings.window, longest), self.settings.overlap, most)
        parts = [sentences_of(example) if self.is_document else sides_of(example, self.pairs) for example in examples]
        ids = token_ids([part for each in parts for part in each], tokenizer)
        rows_of = document_rows if self.is_document else text_rows
        return [
            rows_of(texts, [next(ids) for _ in texts], cutting, self._targets(example.golds))
            for example, texts in zip(examples, parts, strict=True)
        ]

    def _targets(self, golds: Sequence[LabelValue]) -> Targets | None:
        """Give right answers in the form that the loss takes."""
        if not golds:
            return None
        fitting: Any = [as_kind(gold, self.kind) for gold in golds]
        if self.kind == "number":
            return ((np.array(fitting, np.float64) - self.mean) / self.deviation).astype(np.float32)
        if self.kind == "multi":
            return indicator(fitting, self.classes).astype(np.float32)
        return codes(fitting, self.classes)

    def balanced(self, encoded: Sequence[Encoded]) -> ClassifyTask:
        """Weigh one label by the inverse of its frequency; of several, each by the ratio of no to yes."""
        gold = [row.labels for each in encoded for row in each.rows if row.labels is not None]
        if self.kind == "number" or not gold:
            return self
        labels = np.concatenate(gold)
        if self.kind == "single":
            return replace(self, weights=balanced_weights(labels, len(self.classes)))
        counts = labels.sum(0).clip(min=1)
        weights = (len(labels) - counts).clip(min=1) / counts
        return replace(self, weights=tuple(weights.tolist()))

    def loss(self, head: nn.Module, outputs: Tensor, target: Target, settings: LossSettings) -> Tensor:
        from alembert.tasks.classify_losses import loss_of

        return loss_of(self._evidence(outputs, target), target.labels, self.kind, settings, self.weights)

    def divergence(self, one: Tensor, other: Tensor, target: Target) -> Tensor:
        from alembert.tasks.classify_losses import divergence_of

        return divergence_of(self._evidence(one, target), self._evidence(other, target), self.kind)

    def imitation(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: Target, settings: ImitationSettings
    ) -> Tensor:
        from alembert.tasks.classify_losses import imitation_of

        student, teacher = self._evidence(outputs, target), self._evidence(taught, target)
        return imitation_of(student, teacher, self.kind, settings.temperature)

    def _evidence(self, outputs: Tensor, target: Target) -> Tensor:
        from alembert.tasks.classify_losses import pooled

        return outputs if self.is_document else pooled(outputs, target.example_of_row, self.settings.pool)

    # -- answers

    def decode(self, encoded: Encoded, outputs: Sequence[Outputs]) -> ClassifyPrediction:
        return ClassifyPrediction(tuple(self._answers(self._pooled(encoded, outputs))), encoded.coverage)

    def withhold(self, prediction: ClassifyPrediction, min_score: float) -> ClassifyPrediction:
        if self.kind == "number":
            return super().withhold(prediction, min_score)
        return ClassifyPrediction(*with_min_score(prediction.answers, prediction.coverage, min_score))

    def _pooled(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Floats:
        if not outputs:
            return np.empty((0, len(self.classes) or 1))
        return pooled(np.concatenate(outputs), encoded.layout, self.settings.pool)

    def _answers(self, logits_AC: Floats) -> list[Answer]:
        if self.kind == "number":
            return number_answers(logits_AC, self.mean, self.deviation)
        read = single_answers if self.kind == "single" else multi_answers
        return read(logits_AC, self.classes, self.chosen)

    def tune(
        self,
        examples: Sequence[ClassifyExample],
        encoded: Sequence[Encoded],
        outputs: Sequence[Sequence[Outputs]],
    ) -> ClassifyTask:
        """Fit the temperature, which changes no label, and choose the threshold of each of several labels by F1."""
        known = [
            (gold, self._pooled(each, parts))
            for example, each, parts in zip(examples, encoded, outputs, strict=True)
            if (gold := self._targets(example.golds)) is not None
        ]
        if self.kind == "number" or not known:
            return self
        gold, logits_AC = (np.concatenate(part) for part in zip(*known, strict=True))
        if self.kind == "single":
            return replace(self, chosen=Calibration(fit_temperature(logits_AC, gold)))
        temperature = fit_binary_temperature(logits_AC, gold)
        sure_AC = sigmoid(logits_AC / temperature)
        thresholds = tuple(best_threshold(sure, yes) for sure, yes in zip(sure_AC.T, gold.T, strict=True))
        return replace(self, chosen=Calibration(temperature, thresholds))

    def score(self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]) -> Scores:
        compared = self._compared(examples, predictions)
        measures, by_label = measures_of(compared)
        untuned = ""
        if self.kind == "multi" and not self.chosen.thresholds and compared.has_probabilities:
            untuned = f"best_{self.main}"
            measures |= {untuned: measures_of(at_best_thresholds(compared))[0][self.main]}
        return Scores(
            main=self.main,
            measures=measures,
            by_label=by_label,
            coverage=Coverage.total(prediction.coverage for prediction in predictions),
            untuned=untuned,
        )

    def measure(self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]) -> Measure:
        return measure_of(self._compared(examples, predictions), self.main)

    def _compared(self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]) -> Compared:
        return Compared.of(self.kind, self.classes, examples, predictions)

    def confidences(self, example: ClassifyExample, prediction: ClassifyPrediction) -> Iterator[tuple[float, bool]]:
        return confidences_of(example, prediction)

    def labelled_as(
        self, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        if self.kind != "single":
            return None
        gold = [str(gold) for example in examples for gold in example.golds]
        return gold, [str(answer.label) for prediction in predictions for answer in prediction.answers]

    def question(self) -> dict[str, Any]:
        return {"kind": self.kind, "measure": self.main, "labels": sorted(self.classes)}

    def record(self, example: ClassifyExample, prediction: ClassifyPrediction) -> dict[str, Any]:
        return record_of(example, prediction, is_document=self.is_document)

    def show(self, example: ClassifyExample, prediction: ClassifyPrediction) -> list[str]:
        return lines_of(example, prediction, is_document=self.is_document)

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "labels": list(self.classes),
            "pairs": self.pairs,
            "mean": self.mean,
            "deviation": self.deviation,
            "temperature": self.chosen.temperature,
            "thresholds": dict(zip(self.classes, self.chosen.thresholds, strict=False)),
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ClassifyTask:
        kind, labels = table["kind"], tuple(str(label) for label in table["labels"])
        if kind not in get_args(Kind) or (kind == "number") == bool(labels):
            raise ValueError("the kind of the task and its labels do not fit")
        thresholds = table["thresholds"]
        settings = replace(saved(ClassifySettings, table["settings"]), kind=kind)
        return cls(
            settings,
            kind,
            labels,
            None if table["pairs"] is None else bool(table["pairs"]),
            saved_number(table, "mean", -LARGEST, LARGEST),
            saved_number(table, "deviation", 1 / LARGEST, LARGEST),
            Calibration(
                saved_temperature(table),
                tuple(saved_number(thresholds, label, 0, 1) for label in labels) if thresholds else (),
            ),
        )
