"""Examples of the task `classify`: read from files, and what their right answers are.

A right answer is a label, a tuple of labels or a number. Which of them it is, is told file by file when reading, and
settled over all training data by `kind_of`; `as_kind` then reads an answer as the task's kind, or says that it is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, cast

from alembert.corpus.labelled import Label, Labelled, read_labelled
from alembert.corpus.labelled_records import as_number
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadInput
from alembert.tasks.classify_settings import ClassifySettings, Kind
from alembert.tasks.example import Example, Reading
from alembert.text.sentences import split as split_sentences

_SIDES: Final[dict[bool | None, tuple[int, ...]]] = {True: (2,), False: (1,), None: (1, 2)}
"""Whether pairs are classified -> how many texts an example has."""


@dataclass(frozen=True, kw_only=True)
class ClassifyExample(Example):
    """A text, a pair of texts, or the sentences of a document."""

    golds: tuple[Label, ...] = ()
    """The right answer, or one for each sentence of a document; empty: not known."""
    is_document: bool = False
    group: str | None = None
    """The document that the text is a part of, or that it is."""
    lines: tuple[str, ...] = ()
    """File and line of each sentence of a document."""

    @property
    def kin(self) -> int | str:
        return self.key if self.group is None else self.group

    @property
    def gold(self) -> Label | None:
        """The right answer, where there is one."""
        return self.golds[0] if len(self.golds) == 1 else None

    def line_of(self, answer: int) -> str:
        """Say where the right answer of a sentence stands."""
        return self.lines[answer] if self.lines else self.where or f"example {self.id}"


def read_examples(
    files: Sequence[Path], settings: ClassifySettings, options: ReadOptions
) -> Reading[ClassifyExample]:
    """Read labelled files; rows that do not fit the kind that was asked for are set aside."""
    examples: list[ClassifyExample] = []
    aside: list[SetAside] = []
    remarks: list[Remark] = []
    for path in files:
        found = read_labelled(path, options)
        aside += found.set_aside
        remarks += found.remarks
        rows = list(_fitting(found.rows, settings, aside))
        examples += _documents(rows) if settings.context == "document" else map(_example, rows)
    return Reading(tuple(examples), tuple(aside), tuple(remarks))


def kind_of(golds: Iterable[Label], asked: str) -> Kind:
    """Tell what the answers are: several labels if some have several, numbers if some have fractions."""
    if asked != "auto":
        return cast(Kind, asked)
    types = {type(gold) for gold in golds}
    return "multi" if tuple in types else "number" if float in types else "single"


def as_kind(gold: Label, kind: Kind) -> Label | None:
    """Read an answer as one of a kind; none: it is of another."""
    if kind == "number":
        return as_number(gold) if isinstance(gold, str) else gold if isinstance(gold, float) else None
    if kind == "multi" and isinstance(gold, str):
        return (gold,)
    return gold if isinstance(gold, tuple if kind == "multi" else str) else None


def in_words(gold: Label) -> str:
    """Say what an answer is."""
    if isinstance(gold, tuple):
        return f"{len(gold)} labels"
    return f"the number {gold:g}" if isinstance(gold, float) else f"the label {gold!r}"


def texts_of(texts: Sequence[str], ids: Sequence[str] | None) -> list[ClassifyExample]:
    """Make examples without answers."""
    names = ids or [f"text-{number}" for number in range(1, len(texts) + 1)]
    return [ClassifyExample(id=name, texts=(text,)) for name, text in zip(names, texts, strict=True)]


def sides_of(example: ClassifyExample, pairs: bool | None) -> tuple[str, ...]:
    """Return the text, or the two of a pair, which a tab may separate; `pairs` is none if either may be."""
    sides = example.texts
    if pairs is not False and len(sides) == 1 and (pairs or sides[0].count("\t") == 1):
        sides = tuple(sides[0].split("\t"))
    if example.is_document or len(sides) not in _SIDES[pairs]:
        expected = {True: "two texts, parted by one tab", False: "one text", None: "one text or two"}[pairs]
        found = "a document of sentences" if example.is_document else f"{len(sides)} texts"
        raise BadInput(f"{example.line_of(0)} is {found}; this task classifies {expected}.")
    return sides


def sentence_spans(example: ClassifyExample) -> list[tuple[int, int]] | None:
    """Find the sentences of a plain text; none: the example is made of sentences."""
    return None if example.is_document else split_sentences("\n\n".join(example.texts))


def sentences_of(example: ClassifyExample) -> tuple[str, ...]:
    """Give the sentences of a document, or of a text that is read as one."""
    spans = sentence_spans(example)
    if spans is None:
        return example.texts
    text = "\n\n".join(example.texts)
    return tuple(text[start:end] for start, end in spans)


def _example(row: Labelled) -> ClassifyExample:
    return ClassifyExample(id=row.id, texts=row.texts, where=row.where, golds=(row.label,), group=row.group)


def _documents(rows: Sequence[Labelled]) -> Iterator[ClassifyExample]:
    """Put the rows of one document, which follow each other, together."""
    for group, members in groupby(rows, key=lambda row: row.group):
        sentences = list(members)
        if group is None:
            raise BadInput(
                f"{sentences[0].where} does not say which document it belongs to, which `context` document needs. Use a "
                "file of sections (###ID, then LABEL<TAB>sentence), or name the column of the document with `id` under "
                "[read]."
            )
        pair = next((row for row in sentences if len(row.texts) > 1), None)
        if pair:
            raise BadInput(f"{pair.where} is a pair of texts; `context` document takes single sentences.")
        yield ClassifyExample(
            id=group,
            texts=tuple(row.texts[0] for row in sentences),
            where=sentences[0].where,
            golds=tuple(row.label for row in sentences),
            is_document=True,
            group=group,
            lines=tuple(row.where for row in sentences),
        )


def _fitting(
    rows: Sequence[Labelled], settings: ClassifySettings, aside: list[SetAside]
) -> Iterator[Labelled]:
    """Read labels as the kind that was asked for."""
    for row in rows:
        label: Label | None = row.label
        if settings.kind == "multi" and isinstance(label, str):
            label = tuple(part.strip() for part in label.split(settings.separator) if part.strip())
        elif settings.kind == "single":
            label = _as_one(row.label)
        elif settings.kind == "number":
            label = as_kind(row.label, "number")
        if label is None:
            reason = f"the row has {in_words(row.label)}, which is not of kind {settings.kind}"
            aside.append(SetAside(row.source, row.position, row.id, reason))
        else:
            yield replace(row, label=label)


def _as_one(label: Label) -> str | None:
    if isinstance(label, tuple):
        return label[0] if len(label) == 1 else None
    return str(label)
