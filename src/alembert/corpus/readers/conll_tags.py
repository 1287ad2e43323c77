"""The tags of CoNLL files: what a tag says, which dialect a file is in, and which tokens make an entity.

One rule decodes all dialects: B, S, U and W begin an entity, E, L, S, U and W end it, and I or M goes on with an entity
of the same label or begins one where there is none. That is what IOB1 (B only between neighbours), IOB2, BIOES, BILOU
and plain IO mean, so the dialect is found out only to be reported. A label is set off by "-" or "_"; bare tags have none.

>>> entities(["B-Drug", "I-Drug", "O", "I-Drug"])
[(0, 2, 'Drug'), (3, 4, 'Drug')]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

TAG = re.compile(r"(?:([BIESLUMW])(?:[-_](\S.*))?|O)")
_BEGINS, _ENDS = frozenset("BSUW"), frozenset("ESLUW")


def entities(tags: Iterable[str], bare: str = "entity") -> list[tuple[int, int, str]]:
    """Give first token, end and label of each entity; a tag that is none raises ValueError."""
    found: list[tuple[int, int, str]] = []
    goes_on: str | None = None
    for index, tag in enumerate(tags):
        prefix, label = _parsed(tag, bare)
        if not prefix:
            goes_on = None
            continue
        if prefix in _BEGINS or goes_on != label:
            found.append((index, index + 1, label))
        else:
            found[-1] = (found[-1][0], index + 1, label)
        goes_on = None if prefix in _ENDS else label
    return found


@lru_cache(maxsize=4096)
def is_tag(value: str) -> bool:
    """Tell whether a value is a tag of one of the dialects."""
    return TAG.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _parsed(tag: str, bare: str) -> tuple[str, str]:
    match = TAG.fullmatch(tag)
    if match is None:
        raise ValueError
    return match[1] or "", match[2] or bare


def dialect(tags: Sequence[str]) -> str:
    """Name the dialect that the tags of a file give evidence of."""
    parsed = [_parsed(tag, "") for tag in tags if TAG.fullmatch(tag)]
    prefixes = {prefix for prefix, _ in parsed}
    if prefixes & {"S", "E"}:
        return "BIOES"
    if prefixes & {"L", "U"}:
        return "BILOU"
    if "B" not in prefixes:
        return "IO" if "I" in prefixes else "no entities"
    starts = [prefix for before, (prefix, _) in zip([("", ""), *parsed], parsed, strict=False) if not before[0]]
    return "IOB1" if starts.count("I") > starts.count("B") else "IOB2"


def tag_column(rows: Sequence[Sequence[str]]) -> int | None:
    """Find the column that holds the tags: the last one in which nearly all values are tags, not all of them B or I."""
    width = max(Counter(map(len, rows)).items(), key=lambda item: item[1], default=(0, 0))[0]
    usual = [row for row in rows if len(row) == width]
    for column in reversed(range(width)):
        counts = Counter(row[column] for row in usual)
        tags = {value for value in counts if TAG.fullmatch(value)}
        enough = sum(counts[tag] for tag in tags) >= 0.98 * len(rows)
        if enough and any(tag == "O" or len(tag) > 1 for tag in tags):
            return column
    return None
