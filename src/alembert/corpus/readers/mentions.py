"""Stated mentions checked against the text: kept, mended when there is one way to mend them, or refused.

Annotation files state both the offsets and the words of a mention, and the two do not always agree: trailing white
space in the words, line breaks written as spaces, capitals made small, offsets of an older text. White space and case
alone are no disagreement about the place. Otherwise the mention moves to the only place of the text that holds its words, or, when they occur often, to
the only one close by. Each mending is counted in the source's tally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from alembert.corpus.document import Entity, Relation, Span, spans_are_sound
from alembert.corpus.readers.source import Source

_CLOSE = 20


def settle(
    source: Source, text: str, spans: tuple[Span, ...], surface: str | None
) -> tuple[Span, ...] | None:
    """Give the spans at which a mention stands, or None when its words cannot be placed for certain."""
    if spans_are_sound(spans, len(text)):
        found = " ".join(text[start:end] for start, end in spans)
        if surface is None or found == surface:
            return spans
        if _bare(found) == _bare(surface):
            source.tally["the words of a mention differed from the text in white space or case"] += 1
            return spans
    start = _only_place(text, surface.strip(), spans[0][0] if spans else 0) if surface else None
    if start is None:
        return None
    source.tally["a mention was moved to the only place that holds its words"] += 1
    return ((start, start + len((surface or "").strip())),)


def _bare(text: str) -> str:
    return "".join(text.split()).casefold()


def _only_place(text: str, words: str, stated: int) -> int | None:
    places = list(_places(text, words))
    if len(places) > 1:
        places = [place for place in places if abs(place - stated) <= _CLOSE]
    return places[0] if len(places) == 1 else None


def _places(text: str, words: str) -> Iterator[int]:
    place = text.find(words) if words else -1
    while place >= 0:
        yield place
        place = text.find(words, place + 1)


def with_own_ids(entities: Iterable[Entity], source: Source) -> Iterator[Entity]:
    """Give each entity an id of its own: files that count per passage repeat theirs."""
    seen: set[str] = set()
    for entity in entities:
        number, name = 1, entity.id
        while name in seen:
            number, name = number + 1, f"{entity.id}.{number + 1}"
        if number > 1:
            source.tally["an annotation id occurred twice and was changed"] += 1
        seen.add(name)
        yield entity if number == 1 else replace(entity, id=name)


def linked(relations: Iterable[Relation], entities: Iterable[Entity]) -> tuple[list[Relation], list[str]]:
    """Keep the relations whose arguments exist; say of each other one that it is left out."""
    entities, kept = list(entities), list(relations)
    known = {entity.id for entity in entities} | {
        concept for entity in entities for concept in entity.concepts
    }
    lost: list[str] = []
    while True:
        targets = known | {relation.id for relation in kept}
        loose = [one for one in kept if any(target not in targets for _, target in one.arguments)]
        if not loose:
            return kept, lost
        kept = [one for one in kept if one not in loose]
        lost += [f"relation {one.id} names an argument that the document does not have" for one in loose]
