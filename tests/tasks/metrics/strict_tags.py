"""Which tokens make an entity, read strictly or leniently.

`bio` and `bioes` are strict, as seqeval's `mode="strict"` with IOB2 and IOBES: an entity begins with B or S and holds
together by its label, an I that continues nothing is none, and a `bioes` entity that never ends is none. `conll` is
lenient, as the conlleval script of the CoNLL shared tasks: whatever can be read as an entity is one. On well-formed tags
all agree.

>>> entities_of(["I-Drug", "O", "B-Drug", "I-Drug"], "bio"), entities_of(["I-Drug", "O", "B-Drug", "I-Drug"], "conll")
([(2, 4, 'Drug')], [(0, 1, 'Drug'), (2, 4, 'Drug')])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from alembert.corpus.readers.conll import decode_tags
from alembert.tasks.metrics.spans import EntityTuple

Scheme = Literal["bio", "bioes", "conll"]


def entities_of(tags: Iterable[str], scheme: Scheme) -> list[EntityTuple]:
    """Give first token, end and label of each entity."""
    if scheme == "conll":
        return decode_tags(tags)
    return _strict_bio(tags) if scheme == "bio" else _strict_bioes(tags)


def _strict_bio(tags: Iterable[str]) -> list[EntityTuple]:
    found: list[EntityTuple] = []
    open_label: str | None = None
    for index, (prefix, label) in enumerate(map(_parted, tags)):
        if prefix == "I" and label == open_label:
            found[-1] = (found[-1][0], index + 1, label)
            continue
        open_label = label if prefix == "B" else None
        if prefix == "B":
            found.append((index, index + 1, label))
    return found


def _strict_bioes(tags: Iterable[str]) -> list[EntityTuple]:
    found: list[EntityTuple] = []
    begun: tuple[int, str] | None = None
    for index, (prefix, label) in enumerate(map(_parted, tags)):
        goes_on = begun is not None and prefix in ("I", "E") and begun[1] == label
        if prefix == "S":
            found.append((index, index + 1, label))
        if begun is not None and goes_on and prefix == "E":
            found.append((begun[0], index + 1, label))
        if prefix == "B":
            begun = (index, label)
        elif not (goes_on and prefix == "I"):
            begun = None
    return found


def _parted(tag: str) -> tuple[str, str]:
    prefix, _, label = tag.partition("-")
    return prefix, label
