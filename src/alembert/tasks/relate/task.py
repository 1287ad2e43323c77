"""The task `relate`: what relation there is between two entities of a text, or none.

In: sentences with two entities that are marked (`<< a >> [[ b ]]`, `<e1>`) or replaced (`@GENE$`), with a label
each; or documents with entities and relations in any annotation format. Out: a label for each pair, of documents the
triples that they hold. The entities are marked with pieces of their own in what the model reads; the classifier reads
the first token or the two markers. The latter is one layer of tokens with two columns for each label: the head's marker
answers in the first of them, the tail's in the second, and the sum is what a layer over both states side by side would
say.
"""

# R rows, C labels
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput
from alembert.tasks.classify.data import ClassifyKind
from alembert.tasks.classify.rows import collect_labels, format_labels
from alembert.tasks.classify.scores import ClassifyAnswer, ClassifyCalibration, decode_single, drop_below_score
from alembert.tasks.example import AnnotationSpec, Coverage, EncodedExample, ReadResult, collect
from alembert.tasks.metrics import Floats
from alembert.tasks.metrics.calibration import fit_temperature
from alembert.tasks.metrics.classes import balanced_weights
from alembert.tasks.relate.data import (
    RelateExample,
    RelateForm,
    RelateSettings,
    example_from_document,
    example_from_text,
)
from alembert.tasks.relate.files import RelateRewriter, read_file
from alembert.tasks.relate.margin import RelateMargins
from alembert.tasks.relate.pairs import CandidatePair, PairRules, learn_pair_rules, list_candidate_pairs
from alembert.tasks.relate.rows import (
    ENTITY_MARKERS,
    PairLayout,
    RelateRowBuilder,
    check_links,
    check_negative,
    describe_decisions,
    describe_form,
    detect_form,
    detect_negative_label,
    note_texts_without_pairs,
)
from alembert.tasks.relate.scores import (
    RelatePrediction,
    RelationResults,
    build_sample_metric,
    compute_scores,
    with_relations,
)
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.settings import DistillLossSettings, LossSettings, load_settings, load_temperature
from alembert.tasks.task import LossUnit, SampleMetric, Task, TaskScores
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


@dataclass(frozen=True, eq=False)
class RelateTask(Task[RelateExample, RelatePrediction]):
    """Relate entities."""

    name: ClassVar[str] = "relate"
    settings_class: ClassVar[type[Any]] = RelateSettings
    answer_name: ClassVar[str] = "pairs"
    kind: ClassVar[ClassifyKind] = "single"
    """What kind of classification it is."""

    settings: RelateSettings
    form: RelateForm
    classes: tuple[str, ...]
    """Labels in the order of the outputs."""
    rules: PairRules
    layout: str = ""
    """How the entities are marked in the training data, in words."""
    calibration: ClassifyCalibration = field(default_factory=ClassifyCalibration)
    weights: tuple[float, ...] = ()
    """Weight of each label if labels are balanced; empty: not computed."""
    certain_only: bool = False
    """Whether pairs that may have a relation which could not be linked are left out, as in training."""

    # -- reading

    @classmethod
    def read(cls, files: Sequence[Path], settings: RelateSettings, options: ReadOptions) -> ReadResult[RelateExample]:
        return collect(files, lambda path: read_file(path, options))

    @classmethod
    def read_unlabelled(
        cls, files: Sequence[Path], settings: RelateSettings, options: ReadOptions
    ) -> ReadResult[RelateExample]:
        reading = cls.read(files, settings, options)
        return replace(reading, examples=tuple(replace(example, links=None) for example in reading.examples))

    @classmethod
    def learn(cls, examples: Sequence[RelateExample], settings: RelateSettings) -> RelateTask:
        check_links(examples)
        form, negative = detect_form(examples), detect_negative_label(examples, settings)
        rules = learn_pair_rules(
            examples, distance=settings.max_distance, directed=settings.directed, negative=negative
        )
        golds = {pair.label for example in examples for pair in list_candidate_pairs(example, rules) if pair.label}
        golds |= {relation.label for example in examples for relation in example.unlinked}
        check_negative(negative, sorted(golds), settings)
        classes = collect_labels(sorted(golds), "single")
        if negative not in classes:
            rules = replace(rules, negative=None)
        layout = ", ".join(sorted({example.layout for example in examples}))
        return cls(settings, form, classes, rules, layout)

    @classmethod
    def example_from_text(cls, text: str, name: str) -> RelateExample:
        return example_from_text(text, name)

    def describe(self) -> list[str]:
        return list(describe_decisions(self.rules, self.classes, self.form, self.layout, self.settings.measure))

    def check(self, examples: Sequence[RelateExample]) -> None:
        for example in examples:
            self._check_form(example)
            stated = [link.label for link in example.links or ()] + [relation.label for relation in example.unlinked]
            for label in stated:
                if label not in self.classes:
                    raise BadInput(
                        f"{example.where} has the relation {label!r}, which this task does not know; it knows "
                        f"{format_labels(self.classes)}. Use data with the same relations, or fine-tune on all of them."
                    )

    def _check_form(self, example: RelateExample) -> None:
        where = example.where or f"example {example.id}"
        if example.form == "plain":
            raise BadInput(f"{where} has no pair of entities to relate: {example.layout}.")
        if example.form != self.form and "anonymised" in (example.form, self.form):
            raise BadInput(
                f"{where} is {describe_form(example.form)}; each example that this task was learnt from is "
                f"{describe_form(self.form)}. Use data in the same form."
            )
        strange = [mention.type for mention in example.mentions if mention.type.casefold() not in self.stand_ins]
        if self.form == "anonymised" and strange:
            stand_ins = ", ".join(self.stand_ins.values())
            raise BadInput(
                f"{where} has an entity @{strange[0]}$, which this task does not know; it knows {stand_ins}."
            )

    def data_notes(self, examples: Sequence[RelateExample]) -> list[str]:
        return list(note_texts_without_pairs(examples, self.rules))

    def gold_answers(self, example: RelateExample) -> list[str]:
        linked = [pair.label for pair in list_candidate_pairs(example, self.rules) if pair.label is not None]
        return linked + [relation.label for relation in example.unlinked]

    def rewriter(self) -> RelateRewriter:
        return RelateRewriter()

    # -- encoding

    @property
    def labels(self) -> tuple[str, ...]:
        return self.classes

    @property
    def loss_unit(self) -> LossUnit:
        return "rows"

    @property
    def stand_ins(self) -> dict[str, str]:
        """Type of an entity in lower case -> the piece that takes its place; none if entities are marked."""
        if self.form != "anonymised":
            return {}
        return {name.casefold(): f"@{name}$" for types in self.rules.types for name in types}

    @property
    def special_tokens(self) -> Mapping[str, str]:
        stand_ins = {piece: name.replace("-", " ").replace("_", " ") for name, piece in sorted(self.stand_ins.items())}
        return stand_ins or ENTITY_MARKERS

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        kind = "relation" if self.reads_markers else "classify"
        return HeadSpec(kind=kind, outputs=len(self.classes))

    @property
    def reads_markers(self) -> bool:
        return self.settings.pooling == "markers"

    def for_training(self) -> RelateTask:
        return replace(self, certain_only=True)

    def _pairs(self, example: RelateExample) -> list[CandidatePair]:
        pairs = list_candidate_pairs(example, self.rules)
        return [pair for pair in pairs if pair.is_certain] if self.certain_only else pairs

    def encode(self, examples: Sequence[RelateExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        listed_pairs = [self._pairs(example) for example in examples]
        limit = min(self.settings.max_length, longest)
        builder = RelateRowBuilder(tokenizer, limit, self.classes, self.stand_ins, self.reads_markers)
        return builder.encode(examples, listed_pairs)

    # -- loss

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> RelateTask:
        gold = [row.labels for example in encoded for row in example.rows if row.labels is not None]
        if not gold:
            return self
        return replace(self, weights=balanced_weights(np.concatenate(gold), len(self.classes)))

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.losses import label_loss

        return label_loss(self._evidence(outputs), target.labels, self.kind, settings, self.weights)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import label_divergence

        return label_divergence(self._evidence(one), self._evidence(other), self.kind)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.losses import label_distillation_loss

        student, teacher = self._evidence(outputs), self._evidence(taught)
        return label_distillation_loss(student, teacher, self.kind, settings.temperature)

    def _evidence(self, outputs: Any) -> Any:
        """Return one line a row: of two markers, the first columns at the head's and the others at the tail's."""
        if not self.reads_markers:
            return outputs
        size = len(self.classes)
        return outputs[0::2, :size] + outputs[1::2, size:]

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> RelatePrediction:
        layout: PairLayout = encoded.layout
        read = iter(decode_single(self.compute_logits(outputs), self.classes, self.calibration))
        unread = ClassifyAnswer(label=self.rules.negative)
        answers = tuple(next(read) if is_read else unread for is_read in layout.is_read)
        return RelatePrediction(layout.pairs, answers, encoded.coverage)

    def margins(self) -> RelateMargins:
        return RelateMargins(self)

    def apply_min_score(self, prediction: RelatePrediction, min_score: float) -> RelatePrediction:
        negative = self.rules.negative
        asked = [answer for answer in prediction.answers if answer.label != negative]
        _, coverage = drop_below_score(asked, prediction.coverage, min_score)
        answers = tuple(
            answer if answer.label == negative else answer.with_min_score(min_score) for answer in prediction.answers
        )
        return RelatePrediction(prediction.pairs, answers, coverage)

    def compute_logits(self, outputs: Sequence[Outputs]) -> Floats:
        if not outputs:
            return np.empty((0, len(self.classes)))
        evidence: Outputs = self._evidence(np.concatenate(outputs))
        return evidence.astype(np.float64)

    def tune(
        self, examples: Sequence[RelateExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> RelateTask:
        """Fit the temperature, which changes no label."""
        gold = [row.labels for example in encoded for row in example.rows if row.labels is not None]
        labelled = [parts for example, parts in zip(encoded, outputs, strict=True) if example.coverage.gold]
        if not gold:
            return self
        logits_RC = np.concatenate([self.compute_logits(parts) for parts in labelled])
        return replace(self, calibration=ClassifyCalibration(fit_temperature(logits_RC, np.concatenate(gold))))

    # -- scores

    def score(self, examples: Sequence[RelateExample], predictions: Sequence[RelatePrediction]) -> TaskScores:
        coverage = Coverage.total(prediction.coverage for prediction in predictions)
        return compute_scores(self._compared(examples, predictions), self.settings.measure, coverage)

    def sample_metric(self, examples: Sequence[RelateExample], predictions: Sequence[RelatePrediction]) -> SampleMetric:
        return build_sample_metric(self._compared(examples, predictions), self.settings.measure)

    def _compared(self, examples: Sequence[RelateExample], predictions: Sequence[RelatePrediction]) -> RelationResults:
        unlinked = [[relation.label for relation in example.unlinked] for example in examples]
        return RelationResults.of(self.classes, self.rules.negative, predictions, unlinked)

    def confidences(self, example: RelateExample, prediction: RelatePrediction) -> Iterator[tuple[float, bool]]:
        for pair, answer in zip(prediction.pairs, prediction.answers, strict=True):
            is_relation = answer.label not in (None, self.rules.negative)
            if is_relation and answer.score is not None and pair.label is not None:
                yield answer.score, answer.label == pair.label

    def label_pairs(
        self, examples: Sequence[RelateExample], predictions: Sequence[RelatePrediction]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        judged = [
            (pair.label, answer.label)
            for prediction in predictions
            for pair, answer in zip(prediction.pairs, prediction.answers, strict=True)
            if pair.label is not None and answer.label is not None
        ]
        return [gold for gold, _ in judged], [guess for _, guess in judged]

    def comparison_key(self) -> dict[str, Any]:
        named = {"relations": sorted(self.classes), "negative": str(self.rules.negative)}
        return {**named, "measure": self.settings.measure}

    def to_record(self, example: RelateExample, prediction: RelatePrediction) -> dict[str, Any]:
        return prediction.to_record(example, self.rules.negative)

    def to_lines(self, example: RelateExample, prediction: RelatePrediction) -> list[str]:
        return prediction.to_lines(example, self.rules.negative)

    # -- documents

    @classmethod
    def examples_from_documents(cls, documents: Sequence[Document]) -> list[RelateExample]:
        return [example_from_document(document, "", is_annotated=False)[0] for document in documents]

    @property
    def annotation(self) -> AnnotationSpec:
        types = self.rules.types if self.rules.is_typed else ()
        return AnnotationSpec(writes="relations", reads="entities", pair_types=types)

    def annotate(self, document: Document, example: RelateExample, prediction: RelatePrediction) -> Document:
        return with_relations(document, example, prediction, self.rules.negative)

    def annotation_facts(self, example: RelateExample, prediction: RelatePrediction) -> Mapping[str, Any]:
        unread = len(prediction.pairs) - prediction.coverage.windows
        return {"unread_pairs": unread, "has_no_pairs": not self.rules.has_related_types(example.mentions)}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "labels": list(self.classes),
            "layout": self.layout,
            "rules": self.rules.to_table(),
            "temperature": self.calibration.temperature,
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> RelateTask:
        form = table["form"]
        if form not in get_args(RelateForm):
            raise ValueError("the form of the examples is not known")
        settings = load_settings(RelateSettings, table["settings"])
        labels, rules = tuple(str(label) for label in table["labels"]), PairRules.from_table(table["rules"])
        if rules.negative not in (None, *labels):
            raise ValueError("the label of pairs without a relation is none of the labels")
        return cls(
            settings,
            form,
            labels,
            rules,
            str(table["layout"]),
            ClassifyCalibration(load_temperature(table)),
        )
