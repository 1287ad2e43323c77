"""Stated mentions checked against the text: kept, mended when there is one way to mend them, or refused.

Annotation files state both the offsets and the words of a mention, and the two do not always agree: trailing white
space in the words, line breaks written as spaces, capitals made small, offsets of an older text. White space and case
alone are no disagreement about the place. Otherwise the mention moves to the only place of the text that holds its words, or, when they occur often, to
the only one close by. Each mending is counted in the source's tally.

A document's text put together from parts, with the sections they make.

Parts are joined by one line break, so a title of n characters is followed by text that starts at n + 1, which is also
how PubTator and BioC count. White space at the ends of a part goes; inside it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final

from alembert.corpus.document import Entity, Relation, Section, Span, are_valid_spans
from alembert.corpus.readers.source import SourceFile

_MAX_DISTANCE = 20
_CONCEPT: Final = re.compile(r"tmVar:.+|[a-z]\|[A-Z]+\|[^,;]*|[^|,;]+")
"""One concept id of several; variants as tmVar writes them (p|SUB|V|600|E) have bars inside."""


def locate_mention(
    source: SourceFile, text: str, spans: tuple[Span, ...], surface: str | None
) -> tuple[Span, ...] | None:
    """Give the spans at which a mention stands, or None when its words cannot be placed for certain."""
    if are_valid_spans(spans, len(text)):
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
        places = [place for place in places if abs(place - stated) <= _MAX_DISTANCE]
    return places[0] if len(places) == 1 else None


def _places(text: str, words: str) -> Iterator[int]:
    place = text.find(words) if words else -1
    while place >= 0:
        yield place
        place = text.find(words, place + 1)


def make_ids_unique(entities: Iterable[Entity], source: SourceFile) -> Iterator[Entity]:
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


def split_concepts(stated: str, named: Container[str] = ()) -> tuple[str, ...]:
    """Split concept ids that a file joins by "|", "," or ";"; an id that relations name as a whole stays whole.

    >>> split_concepts("D003924,D009765; -")
    ('D003924', 'D009765')
    >>> split_concepts("c|DEL|35|G;MESH:D006311")
    ('c|DEL|35|G', 'MESH:D006311')
    >>> split_concepts("CVCL:1,2", named={"CVCL:1,2"})
    ('CVCL:1,2',)
    """
    whole = stated.strip()
    parts = [whole] if whole in named else map(str.strip, _CONCEPT.findall(whole))
    return tuple(dict.fromkeys(part for part in parts if part not in ("", "-")))


def partition_relations(
    relations: Iterable[Relation], entities: Iterable[Entity]
) -> tuple[list[Relation], list[Relation]]:
    """Separate the relations whose arguments exist from the others."""
    entities, kept = list(entities), list(relations)
    known = {entity.id for entity in entities} | {concept for entity in entities for concept in entity.concepts}
    unlinked: list[Relation] = []
    while True:
        targets = known | {relation.id for relation in kept}
        loose = [one for one in kept if any(target not in targets for _, target in one.arguments)]
        if not loose:
            return kept, unlinked
        kept = [one for one in kept if one not in loose]
        unlinked += loose


def unlinked_reason(relation: Relation) -> str:
    """Say why a relation could not be linked."""
    return f"relation {relation.id} names an argument that the document does not have"


_LAYOUT = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


class Composer:
    """Collects parts; `text` and `sections` are the result."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sections: list[Section] = []
        self.length = 0

    def annotate(self, part: str, kind: str, heading: str = "") -> None:
        """Append a part as a section of its own; an empty part adds nothing."""
        part = part.strip()
        if part:
            start = self.length + (1 if self._parts else 0)
            self._parts.append(part)
            self.length = start + len(part)
            self._sections.append(Section(start, self.length, kind, heading))

    @property
    def text(self) -> str:
        return "\n".join(self._parts)

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(self._sections)


def unwrap(text: str) -> str:
    """Turn the line breaks and indents of a pretty-printed file into single spaces.

    >>> unwrap("two\\n      lines")
    'two lines'
    """
    return _LAYOUT.sub(" ", text) if "\n" in text or "\r" in text else text
