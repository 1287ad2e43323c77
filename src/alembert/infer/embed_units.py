"""What an index is made of: the documents or sentences of files, or of a Corpus, one after the other.

In: paths, and how to read them. Out: portions, one for each item of an input (`supply`), with the units that came of it
and what could not be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from alembert.corpus.chunks import generalise_reason, split_into_sentences
from alembert.corpus.document import Document, Span
from alembert.corpus.inputs import InputFiles
from alembert.corpus.readers import ReadOptions, Remark, SetAside
from alembert.infer import supply
from alembert.infer.embed_store import Unit
from alembert.infer.supply import Place, Supply, Taken
from alembert.text.language import detect_language

UnitKind = Literal["document", "sentence"]


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


@dataclass(frozen=True)
class UnitSupply:
    """Inputs as the units that they are made of."""

    supply: Supply
    unit: UnitKind

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""
        return self.supply.total

    def portions(self, after: Place) -> Iterator[Portion]:
        """Give what follows a place."""
        return map(partial(_portion_of, self.unit), self.supply.items(after))


def supply_of(
    inputs: InputFiles,
    unit: UnitKind,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> UnitSupply:
    """Take one Corpus folder, or files of any format that has a reader."""
    return UnitSupply(supply.supply_of(inputs, options, format), unit)


def _portion_of(unit: UnitKind, taken: Taken) -> Portion:
    item, place, done = taken.item, taken.place, taken.done
    if isinstance(item, Document):
        spans = _sentences(item, taken.sentences) if unit == "sentence" else _whole(item)
        return _portion(item, taken.source, spans, place, done)
    if isinstance(item, SetAside):
        aside = SetAside(taken.source, item.position, item.id, item.reason, item.kind)
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


def _sentences(document: Document, known: Sequence[Span] | None) -> Sequence[Span]:
    if known is not None:
        return known
    return list(split_into_sentences(document, document.language or detect_language(document.text)))


def _counts_of(aside: SetAside) -> dict[str, int]:
    return {"set aside": 1, f"set aside: {generalise_reason(aside.reason)}": 1}
