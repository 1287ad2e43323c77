"""The task `tag`: entities in text, or any other labels of stretches of words (part of speech).

In: documents with entities at character offsets, in any annotation format. Out: entities at character offsets of the
text as it was given. Documents of any length are read sentence by sentence, or through windows that overlap; each word
is predicted by the window that gives it the most context, in training, evaluation and prediction alike.
"""

# W words, C tags
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.corpus.examples.tag_check import TagProblem, check_tag_files
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile
from alembert.tasks.example import AnnotationSpec, EncodedExample, Example, ReadResult, collect, with_entities
from alembert.tasks.metrics.spans import f1_measure, span_counts
from alembert.tasks.runtime import ExampleOutputs, Outputs, check_finite
from alembert.tasks.settings import DistillLossSettings, LossSettings, load_settings, load_temperature
from alembert.tasks.tag.crf import AllowedTransitions, CrfDecoder, build_allowed_transitions
from alembert.tasks.tag.data import (
    TagExample,
    TagPrediction,
    TagRewriter,
    TagSettings,
    check_entity_types,
    check_gold,
    choose_context,
    collect_mentions,
    compute_scores,
    pair_gold_and_predicted,
    read_file,
    sentence_starts,
)
from alembert.tasks.tag.decode import (
    TagDecoder,
    decode_pointer_spans,
    fit_entity_temperature,
    fit_span_temperature,
    fit_word_temperature,
    to_entities,
    with_probabilities,
)
from alembert.tasks.tag.features import TagLexicons
from alembert.tasks.tag.margin import TagMargins
from alembert.tasks.tag.rows import TagRowBuilder, compute_tag_weights
from alembert.tasks.tag.tags import OUTSIDE, TagScheme, tag_names
from alembert.tasks.tag.types import apply_declared_types, check_declared_types, infer_types, read_warm_up
from alembert.tasks.task import LossUnit, SampleMetric, Task, TaskScores
from alembert.text.surface import SurfaceFeatures
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch
    from alembert.tasks.tag.losses import CrfLoss

HEAD_KINDS: dict[str, str] = {"softmax": "tag", "crf": "crf", "span": "pointer"}
"""Setting -> kind of head."""


@dataclass(frozen=True, eq=False)
class TagTask(Task[TagExample, TagPrediction]):
    """Find entities of known types."""

    name: ClassVar[str] = "tag"
    settings_class: ClassVar[type[Any]] = TagSettings
    example_class: ClassVar[type[Example]] = TagExample
    answer_name: ClassVar[str] = "entities"
    text_name: ClassVar[str] = ""

    types: tuple[str, ...]
    settings: TagSettings
    partial: bool = False
    """Whether some types, or some stretches of text, are unknown in some of the training data."""
    temperature: float = 1.0
    weights: tuple[float, ...] = ()
    """Weight of each tag in the loss; empty: all the same."""
    crf_decoder: CrfDecoder | None = None
    output_names: tuple[str, ...] = ()
    """Names of the head's outputs, if the head was trained elsewhere; empty: the tags of the scheme."""
    lexicons: TagLexicons = field(default_factory=TagLexicons)
    """Terms whose matches the model reads."""
    is_training: bool = False
    """Whether matches of lexicons are dropped at random."""

    # -- reading

    @classmethod
    def read(cls, files: Sequence[Path], settings: TagSettings, options: ReadOptions) -> ReadResult[TagExample]:
        options = replace(options, token_labels=options.token_labels or settings.every_token)
        return apply_declared_types(collect(files, lambda path: read_file(path, options)), options.types)

    @classmethod
    def mark_unknown(
        cls, examples: Sequence[TagExample], settings: TagSettings, sources: Sequence[Path]
    ) -> tuple[Sequence[TagExample], Sequence[str]]:
        return (examples, ()) if settings.partial == "off" else infer_types(examples, sources)

    @classmethod
    def read_unlabelled(
        cls, files: Sequence[Path], settings: TagSettings, options: ReadOptions
    ) -> ReadResult[TagExample]:
        reading = cls.read(files, settings, options)
        bare = (replace(each, entities=None, discontinuous=(), types=None, unknown=()) for each in reading.examples)
        return replace(reading, examples=tuple(bare))

    def read_warm_up(self, files: Sequence[Path], options: ReadOptions, min_score: float) -> ReadResult[TagExample]:
        return read_warm_up(files, options, min_score, self.types)

    def for_warm_up(self) -> TagTask:
        return replace(self, partial=True)

    @classmethod
    def examples_from_documents(cls, documents: Sequence[Document]) -> list[TagExample]:
        return [TagExample(id=d.id, texts=(d.text,), sentences=sentence_starts(d)) for d in documents]

    @classmethod
    def learn(cls, examples: Sequence[TagExample], settings: TagSettings) -> TagTask:
        counts: dict[str, int] = {}
        for example in examples:
            for _, _, label in example.entities or ():
                counts[label] = counts.get(label, 0) + 1
        if not counts:
            raise BadFile(
                f"None of the {len(examples):,} training examples has an entity, so there is nothing to learn. "
                "Check that the file is annotated, and that its format was recognised (`alembert finetune` without --out)."
            )
        types = tuple(sorted(counts))
        partial = any(each.unknown or (each.types is not None and each.types < counts.keys()) for each in examples)
        lexicons = TagLexicons.read(settings.lexicons)
        return cls(types, choose_context(settings, examples), partial, lexicons=lexicons)

    def describe(self) -> list[str]:
        many = "type" if len(self.types) == 1 else "types"
        sentences = [f"entities of {len(self.types)} {many}: {', '.join(self.types)}"]
        if self.settings.head == "span":
            sentences.append("a span head scores every stretch of words, so entities may nest and overlap")
        else:
            scheme = TagScheme.from_names(self.output_names).name if self.output_names else self.settings.scheme
            sentences.append(f"{len(self.labels)} tags ({scheme}), at the first piece of each word")
        if self.settings.is_by_sentence:
            sentences.append("each sentence is read by itself, as the training examples are single sentences")
        if self.partial:
            sentences.append("types and words that some training examples do not annotate count as unknown there")
        if self.settings.case:
            sentences.append("letter case and shape of words are read beside the pieces")
        return [*sentences, *self.lexicons.describe(self.types)]

    def check(self, examples: Sequence[TagExample]) -> None:
        check_entity_types(examples, self.types)

    def check_gold(self, examples: Sequence[TagExample]) -> None:
        check_gold(examples)

    def check_reading(self, options: ReadOptions, files: Sequence[Path]) -> None:
        check_declared_types(options.types, files, self.types)

    def gold_answers(self, example: TagExample) -> list[str]:
        return [label for _, _, label in example.entities or ()]

    def entity_surfaces(self, examples: Sequence[TagExample]) -> Iterator[tuple[str, str]]:
        for example in examples:
            for start, end, label in example.entities or ():
                yield example.text[start:end], label

    def find_tag_problems(self, files: Sequence[Path], options: ReadOptions) -> Iterator[TagProblem]:
        return iter(()) if self.settings.every_token else check_tag_files(files, options)

    def rewriter(self) -> TagRewriter:
        return TagRewriter()

    # -- encoding

    @property
    def labels(self) -> tuple[str, ...]:
        return self.types if self.settings.head == "span" else self.output_names or self.tags

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """What each output means: O, or B-, I-, E- or S- and a type."""
        return (
            TagScheme.from_names(self.output_names).tags
            if self.output_names
            else tag_names(self.types, self.settings.scheme)
        )

    @property
    def _allows_several(self) -> bool:
        """Whether the right answer for some words is one of several tags."""
        return self.partial or OUTSIDE not in self.tags

    @property
    def loss_unit(self) -> LossUnit:
        return "rows" if self.settings.head == "span" else "places"

    @cached_property
    def allowed_transitions(self) -> AllowedTransitions:
        """Which tags may follow each other."""
        return build_allowed_transitions(self.labels, self.settings.scheme)

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind=HEAD_KINDS[self.settings.head], outputs=len(self.labels))

    @cached_property
    def surface(self) -> SurfaceFeatures | None:
        """What the model reads beside the pieces."""
        if not (self.settings.case or self.lexicons.terms):
            return None
        return SurfaceFeatures(self.settings.case, self.lexicons.gazetteer, self.settings.abbreviations)

    @property
    def token_features(self) -> Mapping[str, int]:
        return {} if self.surface is None else self.surface.blocks

    def for_training(self) -> TagTask:
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[TagExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        limit = min(self.settings.max_length, longest) - 2
        mentions = collect_mentions(examples) if self.is_training else None
        several = self._allows_several or any(example.unknown for example in examples)
        builder = TagRowBuilder(self.settings, self.types, self.tags, tokenizer, limit, several, self.surface, mentions)
        return builder.encode(examples)

    # -- loss

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> TagTask:
        if self.settings.head != "softmax" or self._allows_several:
            return self
        return replace(self, weights=compute_tag_weights(encoded, len(self.labels)))

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.tag import losses

        if self.settings.head == "span":
            return losses.span_loss(outputs, target, len(self.types))
        if self.settings.head == "crf":
            return self._chain(head, target).loss(outputs, target.labels)
        return losses.word_loss(outputs, target, settings, self.weights)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.tag import losses

        if self.settings.head == "span":
            return losses.span_divergence(one, other, target, len(self.types))
        return super().divergence(one, other, target)

    def teacher_targets(
        self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        return self._chain(head, target).teacher_targets(outputs, settings) if self.settings.head == "crf" else outputs

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.tag import losses

        if self.settings.head == "span":
            return losses.span_distillation_loss(outputs, taught, target, len(self.types), settings.temperature)
        if self.settings.head == "crf":
            return self._chain(head, target).distillation_loss(outputs, taught, settings)
        return super().distillation_loss(head, outputs, taught, target, settings)

    def for_student(self, *, lexicons: bool = False) -> TagTask:
        return self if lexicons else replace(self, lexicons=TagLexicons())

    def _chain(self, head: nn.Module, target: TaskBatch) -> CrfLoss:
        from alembert.tasks.tag.losses import CrfLoss

        return CrfLoss.of(head, target, self.allowed_transitions)

    @property
    def decoding_weights(self) -> tuple[str, ...]:
        return ("crf.transitions", "crf.start", "crf.end") if self.settings.head == "crf" else ()

    def with_decoding_weights(self, weights: Mapping[str, npt.NDArray[np.float32]]) -> TagTask:
        parts = [weights[name] for name in self.decoding_weights]
        for part in parts:
            check_finite(part, "Transitions of the CRF")
        return replace(self, crf_decoder=CrfDecoder(*parts)) if parts else self

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> TagPrediction:
        return self.decode_batch([encoded], [outputs])[0]

    def decode_batch(
        self, encoded: Sequence[EncodedExample], outputs: Sequence[Sequence[Outputs]]
    ) -> list[TagPrediction]:
        if self.settings.head == "span":
            return [self._decode_spans(*pair) for pair in zip(encoded, outputs, strict=True)]
        spans = self._decoder.decode_documents([read.layout for read in encoded], outputs)
        return list(map(to_entities, encoded, spans))

    def _decode_spans(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> TagPrediction:
        spans = decode_pointer_spans(encoded.layout, outputs, self.types)
        return to_entities(encoded, with_probabilities(spans, self.temperature))

    @cached_property
    def _decoder(self) -> TagDecoder:
        return TagDecoder(
            tags=self.tags,
            legal=None if self.output_names else self.allowed_transitions,
            crf=self.crf_decoder,
            temperature=self.temperature,
        )

    def margins(self) -> TagMargins:
        return TagMargins(self)

    def apply_min_score(self, prediction: TagPrediction, min_score: float) -> TagPrediction:
        return prediction.with_min_score(min_score)

    def tune(
        self, examples: Sequence[TagExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> TagTask:
        """Fit the temperature of the words' probabilities, or of the spans'; the entities stay the same."""
        if self.settings.head == "span":
            return replace(self, temperature=fit_span_temperature(self, examples, encoded, outputs))
        if self._allows_several:
            return replace(self, temperature=fit_entity_temperature(self, examples, encoded, outputs))
        temperature = fit_word_temperature(self, examples, encoded, outputs)
        return self if temperature is None else replace(self, temperature=temperature)

    # -- scores

    def score(self, examples: Sequence[TagExample], predictions: Sequence[TagPrediction]) -> TaskScores:
        return compute_scores(examples, predictions)

    def sample_metric(self, examples: Sequence[TagExample], predictions: Sequence[TagPrediction]) -> SampleMetric:
        return f1_measure(span_counts(*pair_gold_and_predicted(examples, predictions)))

    def confidences(self, example: TagExample, prediction: TagPrediction) -> Iterator[tuple[float, bool]]:
        gold = set(example.entities or ())
        for entity in prediction.entities:
            if example.annotates(entity.label):
                yield entity.score, (entity.start, entity.end, entity.label) in gold

    def comparison_key(self) -> dict[str, Any]:
        return {"types": sorted(self.types)}

    # -- documents

    @property
    def annotation(self) -> AnnotationSpec:
        return AnnotationSpec(writes="entities", entity_types=self.types)

    def annotate(self, document: Document, example: TagExample, prediction: TagPrediction) -> Document:
        return with_entities(document, ((e.start, e.end, e.label, e.score) for e in prediction.entities))

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "types": list(self.types),
            "settings": {**asdict(self.settings), "lexicons": []},
            "partial": self.partial,
            "temperature": self.temperature,
            **({"names": list(self.output_names)} if self.output_names else {}),
            **({"lexicons": self.lexicons.to_table()} if self.lexicons.terms else {}),
        }

    def resource_files(self) -> Mapping[str, bytes]:
        return self.lexicons.files()

    def load_resources(self, folder: Path, table: Mapping[str, Any]) -> TagTask:
        return replace(self, lexicons=TagLexicons.load(folder, table.get("lexicons", ())))

    def with_lexicons(self, lexicons: Sequence[str]) -> TagTask:
        return replace(self, lexicons=self.lexicons.add(TagLexicons.read(lexicons)))

    @property
    def lexicon_labels(self) -> tuple[str, ...]:
        return tuple(self.lexicons.terms)

    def lexicon_notes(self) -> list[str]:
        return self.lexicons.notes()

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> TagTask:
        types = tuple(str(label) for label in table["types"])
        settings = load_settings(TagSettings, table["settings"])
        names = tuple(str(name) for name in table.get("names", ()))
        if names and (settings.head != "softmax" or set(types) != set(TagScheme.from_names(names).types)):
            raise ValueError("the names of the tags and the types of entities do not fit")
        return cls(types, settings, bool(table["partial"]), load_temperature(table), output_names=names)
