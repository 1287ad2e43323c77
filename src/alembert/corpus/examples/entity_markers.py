"""Find the two marked entities of a text, with the spans of the marks, so that both can be removed or replaced.

In: a text in one of the layouts of relation data. Out: the two entities, each with its span without and with the marks.
`<< a >> ... [[ b ]]` (ChemProt as SciBERT ships it), `<e1>a</e1> ... <e2>b</e2>` (SemEval) and `[E1] a [/E1] ... [E2] b
[/E2]` wrap the words; `@GENE$ ... @DISEASE$` (BioBERT) replaces them, and one that names two types, `@CHEM-GENE$`, is
both entities at once. Texts are full of signs that look like marks (`P << 0.01`, `[[3H]serotonin]`): marks with spaces
inside come first, and a text in which a mark occurs twice, or in which the marks of the two entities cross, is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from alembert.errors import BadInput

_MARKER_STYLES: Final = {
    "<< >> and [[ ]]": (("<<", ">>"), ("[[", "]]")),
    "<e1> and <e2>": (("<e1>", "</e1>"), ("<e2>", "</e2>")),
    "[E1] and [E2]": (("[E1]", "[/E1]"), ("[E2]", "[/E2]")),
}
_PLACEHOLDER: Final = re.compile(r"@([A-Za-z][\w-]*)\$", re.ASCII)


@dataclass(frozen=True, slots=True)
class EntityMarker:
    """A marked entity: `text[start:end]` are its words, `text[outer_start:outer_end]` has the marks as well."""

    start: int
    end: int
    outer_start: int
    outer_end: int
    name: str = ""
    """The type that replaces the words (GENE of @GENE$); empty if the words are there."""


@dataclass(frozen=True, slots=True)
class MarkedPair:
    """The two entities of a text, and how they are marked."""

    first: EntityMarker
    second: EntityMarker
    layout: str
    """For messages: "<< >> and [[ ]]", "@DISEASE$ and @GENE$"."""

    @property
    def is_anonymised(self) -> bool:
        return bool(self.first.name)


def find_marked_pair(text: str) -> MarkedPair | None:
    """Find the two marked entities of a text; None if nothing is marked.

    >>> pair = find_marked_pair("<< Aspirin >>-like [[ COX-2 ]] inhibitors")
    >>> pair.first, pair.layout
    (EntityMarker(start=3, end=10, outer_start=0, outer_end=13, name=''), '<< >> and [[ ]]')
    """
    halves = 0
    for layout, (first, second) in _MARKER_STYLES.items():
        markers = [mark for marks in (first, second) if (mark := _find_wrapped(text, *marks))]
        if len(markers) == 2:
            _refuse_crossed(*markers)
            return MarkedPair(markers[0], markers[1], layout)
        halves += len(markers)
    placeholders = [EntityMarker(*match.span(), *match.span(), match[1]) for match in _PLACEHOLDER.finditer(text)]
    if placeholders:
        return _make_placeholder_pair(placeholders)
    if halves:
        raise BadInput("one entity is marked in the text; expected two")
    return None


def _make_placeholder_pair(marks: list[EntityMarker]) -> MarkedPair:
    is_both = len(marks) == 1 and "-" in marks[0].name
    if len(marks) != 2 and not is_both:
        words = "1 word" if len(marks) == 1 else f"{len(marks)} words"
        raise BadInput(
            f"the text has {words} such as @GENE$; expected one for each of two entities, or @CHEM-GENE$ for both"
        )
    names = sorted({f"@{mark.name}$" for mark in marks})
    return MarkedPair(marks[0], marks[-1], " and ".join(names))


def _refuse_crossed(marker: EntityMarker, other_marker: EntityMarker) -> None:
    first, second = sorted((marker, other_marker), key=lambda mark: mark.outer_start)
    if second.outer_start < first.outer_end < second.outer_end:
        raise BadInput("the marks of the two entities cross; expected them apart, or one inside the other")


def _find_wrapped(text: str, opening: str, closing: str) -> EntityMarker | None:
    for gap in (" ", r"\s{0,4}"):
        start, end = re.escape(opening) + gap, gap + re.escape(closing)
        matches = list(re.finditer(rf"{start}(?!\s)((?:(?!{start}).)+?){end}", text, re.DOTALL))
        if len(matches) > 1:
            raise BadInput(f"the marks {opening} {closing} stand at {len(matches)} places of the text; expected one")
        if matches:
            (match,) = matches
            return EntityMarker(*match.span(1), *match.span())
    return None
