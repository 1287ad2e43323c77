"""Replace parts of a text, and say where everything else went.

In: a text and edits, each the new text of a stretch. Out: the new text, and for every old place that no edit covers its new
one, so that labels at character offsets stay where their words are. A border inside of a stretch that is replaced has no
new place: who makes edits keeps them off the borders (`stretches`), and a border that is met all the same is a bug.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from alembert.text.sentences import Span


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """`text` is to stand in the place of the characters from `start` to `end`; neither is empty."""

    start: int
    end: int
    text: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end or not self.text:
            raise ValueError("an edit replaces at least one character by at least one")


class Rewriting:
    """A text and the edits of it, which do not overlap.

    >>> rewriting = Rewriting("No fever in mice.", [Edit(3, 8, "rash"), Edit(12, 16, "rabbits")])
    >>> rewriting.text, rewriting.span((3, 16))
    ('No rash in rabbits.', (3, 18))
    """

    def __init__(self, text: str, edits: Iterable[Edit]) -> None:
        self._edits = sorted(edits)
        ends = [0, *(edit.end for edit in self._edits)]
        starts = [*(edit.start for edit in self._edits), len(text)]
        if any(start < end for start, end in zip(starts, ends, strict=True)):
            raise ValueError("edits overlap, or reach beyond the text")
        kept = [text[end:start] for start, end in zip(starts, ends, strict=True)]
        fresh = [*(edit.text for edit in self._edits), ""]
        self.text = "".join(part for pair in zip(kept, fresh, strict=True) for part in pair)

    @cached_property
    def _ends(self) -> list[int]:
        return [edit.end for edit in self._edits]

    @cached_property
    def _shifts(self) -> list[int]:
        """How far everything has moved after so many edits."""
        return [0, *accumulate(len(edit.text) - (edit.end - edit.start) for edit in self._edits)]

    def place(self, at: int) -> int:
        """Give the new place of a border between two characters."""
        passed = bisect_right(self._ends, at)
        if passed < len(self._edits) and self._edits[passed].start < at:
            raise ValueError("a border is inside of a stretch that was replaced")
        return at + self._shifts[passed]

    def span(self, span: Span) -> Span:
        """Give the new place of a stretch, which grows and shrinks with the edits inside of it."""
        return self.place(span[0]), self.place(span[1])


def stretches(length: int, *, borders: Iterable[int] = (), fixed: Sequence[Span] = ()) -> list[Span]:
    """Cut a text of this length at borders, and leave out what is fixed: what is left may be rewritten, each by itself.

    >>> stretches(10, borders=[4], fixed=[(6, 8)])
    [(0, 4), (4, 6), (8, 10)]
    """
    cuts = sorted({0, length, *borders, *(place for span in fixed for place in span)})
    covered = _merged(fixed)
    ends = [end for _, end in covered]
    return [
        (start, end)
        for start, end in pairwise(cuts)
        if not any(first < end for first, _ in covered[bisect_right(ends, start) :][:1])
    ]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Put stretches that overlap together."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def apart(spans: Sequence[Span]) -> list[bool]:
    """Tell of each stretch whether it neither overlaps nor holds another one.

    >>> apart([(0, 3), (2, 5), (7, 9)])
    [False, False, True]
    """
    starts, ends = sorted(start for start, _ in spans), sorted(end for _, end in spans)
    return [bisect_left(starts, end) - bisect_right(ends, start) == 1 for start, end in spans]
