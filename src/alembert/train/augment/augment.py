"""Augmentation: copies of examples in which words are replaced by others that fit, as in TinyBERT (Jiao et al. 2020).

In: a task, examples, and a model that knows words. Out: for each example up to so many copies, in which each word that
carries meaning is replaced with some chance by one of its candidates, and, if that is asked for, entities by others of
their type. Every copy is made from the original, all of its texts, so that nothing adds up; answers are carried along
by the task's `Rewriter`. Chance has an address (seed, example, copy): neither the order of the examples nor what else
is augmented changes a copy, as long as the candidates are the same.

Names of entities are those of the examples, or of lexicons whose labels are types of the task. A type that has a
lexicon takes names from it alone; inverted names ("Leukemia, Myeloid, Acute") are turned round.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from alembert.artifact import atomic_write
from alembert.corpus.jobs import Progress
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.data.order import make_rng
from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.tasks.example import EntitySpan, Rewriter
from alembert.tasks.task import AnyTask
from alembert.text.lexicon import Lexicon, list_spellings
from alembert.text.replacement import TextEdit, find_replaceable_words, is_chinese
from alembert.text.sentences import Span
from alembert.text.words import Dictionary, DictionarySegmenter, JiebaSegmenter, Segmenter
from alembert.train.augment import AugmentSettings
from alembert.train.augment.candidates import CandidateFinder, WordSlot


@dataclass(frozen=True)
class EntityNames:
    """Names by type, in the order of the alphabet."""

    names: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, task: AnyTask, rewriter: Rewriter[Any], examples: Sequence[Any], lexicons: Sequence[Lexicon]
    ) -> EntityNames:
        """Gather the names of entities; refuse a task without entities, and a lexicon of a type that it has not."""
        mentions: dict[str, set[str]] = {}
        for example in examples:
            for text, entities in zip(example.texts, rewriter.entities(example), strict=True):
                for start, end, label in entities:
                    mentions.setdefault(label, set()).add(text[start:end])
        if not mentions:
            raise BadSetting(
                f"The examples of the task {task.name} have no entities that could be replaced as a whole. "
                "Leave --entities and --dictionary out."
            )
        from_lexicons = _names_from_lexicons(lexicons, sorted(mentions))
        names = {label: sorted(from_lexicons.get(label, own)) for label, own in mentions.items()}
        notes = [
            f"entities of type {label} are all called the same, so that none is replaced as a whole"
            for label, listed in sorted(names.items())
            if len(listed) < 2
        ]
        return cls(names, tuple(notes))

    def other(self, label: str, name: str, chance: float) -> str | None:
        """Choose by a number from 0 to 1 a name of a type that is not this one; none: there is none."""
        listed = self.names[label]
        at = bisect_left(listed, name)
        is_listed = at < len(listed) and listed[at] == name
        count = len(listed) - is_listed
        chosen = int(chance * count)
        return listed[chosen + (is_listed and chosen >= at)] if count else None


def _names_from_lexicons(lexicons: Sequence[Lexicon], types: Sequence[str]) -> dict[str, set[str]]:
    named: dict[str, set[str]] = {}
    type_of_label = {label.casefold(): label for label in types}
    for lexicon in lexicons:
        if lexicon.label.casefold() not in type_of_label:
            raise BadSetting(
                f"The dictionary {lexicon.path} is of the type {lexicon.label!r}; the entities of the examples are "
                f"{', '.join(types)}. Write --dictionary TYPE=FILE with one of them."
            )
        terms = {list_spellings(term)[-1] for term, _ in lexicon.terms}
        named.setdefault(type_of_label[lexicon.label.casefold()], set()).update(terms)
    return named


_EXAMPLES_PER_BATCH: Final = 256
"""Examples whose candidates are found together."""


@dataclass(frozen=True)
class AugmentResult:
    """What augmentation gave."""

    examples: tuple[Any, ...]
    """The copies; originals are not among them."""
    origins: tuple[int, ...]
    """For each copy the number of its original."""
    counts: Mapping[str, int]
    """What was done, and what was left out."""
    notes: tuple[str, ...]
    """What must be known with it, in sentences."""


@dataclass(frozen=True)
class _AugmentInput:
    """An example with what may be replaced in each of its texts."""

    example: Any
    slots: list[list[WordSlot]]
    entities: list[list[EntitySpan]]


def augment(
    checkpoint: Checkpoint,
    task: AnyTask,
    examples: Sequence[Any],
    settings: AugmentSettings | None = None,
    *,
    lexicons: Sequence[Lexicon] = (),
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> AugmentResult:
    """Make copies of examples; the model at hand gives the candidates, where its weights are.

    Entities are replaced by those of the lexicons, whose labels are types of the task, or by others of the examples.
    """
    settings = settings or AugmentSettings()
    rewriter, tokenizer = task.rewriter(), checkpoint.require_tokenizer()
    names = EntityNames.of(task, rewriter, examples, lexicons) if settings.entity_probability or lexicons else None
    segmenter, notes = _choose_segmenter(examples)
    words = [_replaceable_words(rewriter, example, segmenter) for example in examples]
    counted = Counter(_spellings(examples, words))
    if not counted and names is None:
        raise BadInput(
            f"None of the {len(examples):,} examples has a word that may be replaced: function words, numbers and "
            "single letters are not."
        )
    source = CandidateFinder(checkpoint, tokenizer, counted, settings.candidates)
    maker = _CopyMaker(rewriter, settings, names)
    on_progress(Progress("augmenting", 0, len(examples)))
    for start in range(0, len(examples), _EXAMPLES_PER_BATCH):
        part = slice(start, start + _EXAMPLES_PER_BATCH)
        for number, prepared in enumerate(_find_slots(rewriter, source, examples[part], words[part]), start=start):
            maker.make(number, prepared)
        on_progress(Progress("augmenting", min(start + _EXAMPLES_PER_BATCH, len(examples)), len(examples)))
    all_notes = (source.note, *notes, *(names.notes if names else ()))
    return AugmentResult(tuple(maker.made), tuple(maker.origins), dict(maker.counts), all_notes)


def write_augmented(path: Path, task: AnyTask, examples: Sequence[Any]) -> None:
    """Write examples with their answers as JSON lines that `finetune` reads for the same task, whole or not at all."""
    records = task.rewriter().records
    lines = (
        json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        for example in examples
        for record in records(example)
    )
    atomic_write(path, b"".join(line.encode() + b"\n" for line in lines))


# -- what may be replaced


def _choose_segmenter(examples: Sequence[Any]) -> tuple[Segmenter, list[str]]:
    if WordSettings().resolved().segmenter == "jieba":
        return JiebaSegmenter(), []
    has_chinese = any(is_chinese(letter) for example in examples for text in example.texts for letter in text)
    note = "every Chinese character counts as a word of its own; pip install 'alembert[zh]' finds words"
    return DictionarySegmenter(Dictionary(())), [note] if has_chinese else []


def _replaceable_words(rewriter: Rewriter[Any], example: Any, segmenter: Segmenter) -> list[list[Span]]:
    return [
        [span for stretch in stretches for span in find_replaceable_words(text, stretch, segmenter)]
        for text, stretches in zip(example.texts, rewriter.editable_spans(example), strict=True)
    ]


def _spellings(examples: Sequence[Any], words: Sequence[list[list[Span]]]) -> Iterator[str]:
    for example, by_text in zip(examples, words, strict=True):
        for text, spans in zip(example.texts, by_text, strict=True):
            yield from (text[slice(*span)] for span in spans)


def _find_slots(
    rewriter: Rewriter[Any], source: CandidateFinder, examples: Sequence[Any], words: Sequence[list[list[Span]]]
) -> Iterator[_AugmentInput]:
    texts = [text for example in examples for text in example.texts]
    slots = iter(source.slots(texts, [spans for by_text in words for spans in by_text]))
    for example in examples:
        yield _AugmentInput(example, [next(slots) for _ in example.texts], rewriter.entities(example))


# -- copies


class _CopyMaker:
    """Draws copies, and counts what becomes of them."""

    def __init__(self, rewriter: Rewriter[Any], settings: AugmentSettings, names: EntityNames | None) -> None:
        self._rewriter, self._settings, self._names = rewriter, settings, names
        self.made: list[Any] = []
        self.origins: list[int] = []
        self.counts: Counter[str] = Counter(examples=0, copies=0, same=0, lost=0, words=0, filled=0, replaced=0)

    def make(self, number: int, prepared: _AugmentInput) -> None:
        """Make the copies of an example."""
        example, seen = prepared.example, {prepared.example.texts}
        self.counts["examples"] += 1
        self.counts["words"] += sum(map(len, prepared.slots))
        self.counts["filled"] += sum(slot.is_filled for slots in prepared.slots for slot in slots)
        for turn in range(1, self._settings.copies + 1):
            rng = make_rng(self._settings.seed, "augment", example.key, turn)
            edits = [
                self._edits(text, slots, entities, rng)
                for text, slots, entities in zip(example.texts, prepared.slots, prepared.entities, strict=True)
            ]
            copy = self._rewriter.rewrite(example, edits, f"{example.id}#{turn}")
            if copy is None or copy.texts in seen:
                self.counts["lost" if copy is None else "same"] += 1
                continue
            seen.add(copy.texts)
            self.made.append(copy)
            self.origins.append(number)
            self.counts["copies"] += 1
            self.counts["replaced"] += sum(map(len, edits))

    def _edits(
        self, text: str, slots: Sequence[WordSlot], entities: Sequence[EntitySpan], rng: np.random.Generator
    ) -> list[TextEdit]:
        """Draw what is replaced in a text: whole entities first, then words outside of them."""
        whole = [] if self._names is None else self._whole(text, entities, rng)
        taken = {index for edit in whole for index in range(edit.start, edit.end)}
        chances, choices = rng.random((2, len(slots))).tolist()
        return whole + [
            TextEdit(slot.start, slot.end, slot.candidates[int(choice * len(slot.candidates))])
            for slot, chance, choice in zip(slots, chances, choices, strict=True)
            if chance < self._settings.replace_probability and slot.start not in taken
        ]

    def _whole(self, text: str, entities: Sequence[EntitySpan], rng: np.random.Generator) -> list[TextEdit]:
        assert self._names is not None
        chances, choices = rng.random((2, len(entities))).tolist()
        edits = []
        for (start, end, label), chance, choice in zip(entities, chances, choices, strict=True):
            other = self._names.other(label, text[start:end], choice)
            if chance < self._settings.entity_probability and other is not None:
                edits.append(TextEdit(start, end, other))
        return edits
