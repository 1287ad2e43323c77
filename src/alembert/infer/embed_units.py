"""What an index is made of: the documents or sentences of files, or of a Corpus, one after the other.

In: paths, and how to read them. Out: portions, one for each item of an input, with the units that came of it and what
could not be used. A portion knows its place, so that work which was stopped goes on behind it: inputs that are done are
not opened again, and of the one that was not, items are read and passed over, which costs little beside a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from alembert.corpus.document import Document, Span
from alembert.corpus.inputs import check_inputs, named_corpus
from alembert.corpus.jobs import source_names
from alembert.corpus.readers import Item, ReadOptions, Remark, SetAside
from alembert.corpus.refine import kind_of, sentences_of
from alembert.corpus.store import Corpus
from alembert.corpus.stream import Stream, known_format, size_of
from alembert.infer.embed_store import Unit
from alembert.text.language import detect

UnitKind = Literal["document", "sentence"]
_MOST_PORTIONS: Final = 4096
"""Items of a chunk: what is set aside has no characters, and still takes memory."""


class Place(NamedTuple):
    """How many items of which input were taken; those of the inputs before it all were."""

    input: int = 0
    items: int = 0


@dataclass(frozen=True)
class Portion:
    """What one item of an input gave, and where reading stands behind it."""

    place: Place
    done: int
    """How far that is, in the measure of `Supply.total`."""
    units: tuple[Unit, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def characters(self) -> int:
        return sum(len(unit.text) for unit in self.units)


class Supply(Protocol):
    """Inputs that can be read from any place on."""

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""

    def portions(self, after: Place) -> Iterator[Portion]:
        """Give what follows a place."""


def supply_of(
    inputs: Sequence[Path],
    unit: UnitKind,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> Supply:
    """Take one Corpus folder, or files of any format that has a reader."""
    check_inputs(inputs)
    corpus = named_corpus(inputs)
    return _Files(tuple(inputs), unit, options, format) if corpus is None else _OfCorpus(corpus, unit)


def chunks(portions: Iterator[Portion], characters: int) -> Iterator[list[Portion]]:
    """Put portions together until they have so many characters; where borders fall depends on the input alone."""
    chunk: list[Portion] = []
    size = 0
    for portion in portions:
        chunk.append(portion)
        size += portion.characters
        if size >= characters or len(chunk) >= _MOST_PORTIONS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@dataclass(frozen=True)
class _Files:
    files: tuple[Path, ...]
    unit: UnitKind
    options: ReadOptions
    format: str | None

    @property
    def total(self) -> int:
        return sum(map(size_of, self.files))

    def portions(self, after: Place) -> Iterator[Portion]:
        before = sum(map(size_of, self.files[: after.input]))
        for number in range(after.input, len(self.files)):
            yield from self._of_file(number, after.items if number == after.input else 0, before)
            before += size_of(self.files[number])

    def _of_file(self, number: int, passed: int, before: int) -> Iterator[Portion]:
        path, source = self.files[number], source_names(self.files)[number]
        with closing(Stream(path)) as stream:
            items = stream.items(self.options, self.format or known_format(path))
            for count, item in enumerate(islice(items, passed, None), passed + 1):
                place = Place(number, count)
                yield _portion_of(item, source, self.unit, place, before + stream.place())


@dataclass(frozen=True)
class _OfCorpus:
    corpus: Corpus
    unit: UnitKind

    @property
    def total(self) -> int:
        return self.corpus.counts.get("documents", 0)

    def portions(self, after: Place) -> Iterator[Portion]:
        for count, entry in enumerate(islice(self.corpus.entries(), after.items, None), after.items + 1):
            spans = entry.sentences if self.unit == "sentence" else _whole(entry.document)
            yield _portion(entry.document, entry.source, spans, Place(0, count), count)


def _portion_of(item: Item, source: str, unit: UnitKind, place: Place, done: int) -> Portion:
    if isinstance(item, Document):
        spans = _sentences(item) if unit == "sentence" else _whole(item)
        return _portion(item, source, spans, place, done)
    if isinstance(item, SetAside):
        aside = SetAside(source, item.position, item.id, item.reason, item.kind)
        return Portion(place, done, set_aside=(aside,), counts=_counts_of(aside))
    if isinstance(item, Remark):
        return Portion(place, done, counts={f"remark: {item.reason}": item.count})
    return Portion(place, done, counts={"deletions not applied": 1})


def _portion(document: Document, source: str, spans: Sequence[Span], place: Place, done: int) -> Portion:
    units = tuple(
        Unit(document.id, source, start, end, document.text[start:end])
        for start, end in spans
        if not document.text[start:end].isspace()
    )
    if units:
        return Portion(place, done, units, counts={"documents": 1})
    aside = SetAside(source, f"item {place.items}", document.id, "the text is blank")
    return Portion(place, done, set_aside=(aside,), counts=_counts_of(aside))


def _whole(document: Document) -> list[Span]:
    return [(0, len(document.text))] if document.text else []


def _sentences(document: Document) -> list[Span]:
    return list(sentences_of(document, document.language or detect(document.text)))


def _counts_of(aside: SetAside) -> dict[str, int]:
    return {"set aside": 1, f"set aside: {kind_of(aside.reason)}": 1}
