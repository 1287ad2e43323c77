"""Shared by readers: check mentions against the text, link relations, and compose a text from parts.

Annotation files state both the offsets and the words of a mention, and the two do not always agree: trailing white
space in the words, line breaks written as spaces, another case, offsets of an older text. Differences in white space
and case alone are accepted. Otherwise the mention is moved to the only occurrence of its words in the text, or, if they
occur often, to the only one close by. Each correction is counted in the source's tally.

`Composer` joins the parts of a text by one line break, so a title of n characters is followed by text that starts at
n + 1, which is also how PubTator and BioC count. White space at the ends of a part is removed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final

from alembert.corpus.document import Entity, Relation, Section, Span, are_valid_spans, collect_targets
from alembert.corpus.readers.source import SourceFile

_MAX_DISTANCE = 20
_CONCEPT: Final = re.compile(r"tmVar:.+|[a-z]\|[A-Z]+\|[^,;]*|[^|,;]+")
"""One concept id of several; variants as tmVar writes them (p|SUB|V|600|E) have bars inside."""


def locate_mention(
    source: SourceFile, text: str, spans: tuple[Span, ...], surface: str | None
) -> tuple[Span, ...] | None:
    """Return the spans of a mention, or None if its words cannot be located for certain."""
    if are_valid_spans(spans, len(text)):
        words = " ".join(text[start:end] for start, end in spans)
        if surface is None or words == surface:
            return spans
        if _normalise(words) == _normalise(surface):
            source.tally["the words of a mention differed from the text in white space or case"] += 1
            return spans
    start = _find_unique_start(text, surface.strip(), spans[0][0] if spans else 0) if surface else None
    if start is None:
        return None
    source.tally["a mention was moved to the only place that holds its words"] += 1
    return ((start, start + len((surface or "").strip())),)


def _normalise(text: str) -> str:
    return "".join(text.split()).casefold()


def _find_unique_start(text: str, words: str, stated: int) -> int | None:
    starts = list(_find_all(text, words))
    if len(starts) > 1:
        starts = [start for start in starts if abs(start - stated) <= _MAX_DISTANCE]
    return starts[0] if len(starts) == 1 else None


def _find_all(text: str, words: str) -> Iterator[int]:
    start = text.find(words) if words else -1
    while start >= 0:
        yield start
        start = text.find(words, start + 1)


def make_ids_unique(entities: Iterable[Entity], source: SourceFile) -> Iterator[Entity]:
    """Make ids unique: files that count per passage repeat theirs."""
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
    entities, linked = list(entities), list(relations)
    unlinked: list[Relation] = []
    while True:
        targets = collect_targets(entities, linked)
        dangling = [link for link in linked if any(target not in targets for _, target in link.arguments)]
        if not dangling:
            return linked, unlinked
        linked = [link for link in linked if link not in dangling]
        unlinked += dangling


def unlinked_reason(relation: Relation) -> str:
    return f"relation {relation.id} names an argument that the document does not have"


_LAYOUT = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


class Composer:
    """Composes a text from parts, each a section."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sections: list[Section] = []
        self.length = 0

    def add(self, part: str, kind: str, heading: str = "") -> None:
        """Append a part as a section; an empty part adds nothing."""
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
