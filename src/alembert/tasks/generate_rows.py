"""Rows of the task `generate`: `[CLS] source [SEP] target`, each token of the target predicted from those before it.

The source is the prefix, whose tokens see each other both ways; a token of the target sees the source and the target up
to itself (UniLM, Dong et al. 2019). The head is asked from the last [SEP] of the source on, and its last answer is the
[SEP] that ends the target, which therefore need not be read. What is longer than its room is cut, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alembert.data.windows import IntArray, Row
from alembert.tasks.example import Coverage, Encoded
from alembert.tasks.generate_example import GenerateExample
from alembert.text.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, eq=False)
class Layout:
    """What is needed to write and to read what was written."""

    tokenizer: Tokenizer
    room: int
    """Tokens that the model can write."""
    is_asked: bool = True
    """Whether a text is to be written; only some of the development examples are, to save time."""


@dataclass(frozen=True)
class Room:
    """Tokens for source and target, without special ones."""

    source: int
    target: int
    limit: int
    """Tokens of a row at most."""

    @classmethod
    def of(cls, source: int | None, target: int, longest: int) -> Room:
        """Share out what the model can read; a target never takes more than half of it."""
        for_target = min(target, longest // 2)
        left = longest - 2 - for_target
        return cls(left if source is None else min(source, left), for_target, longest)


def encode_examples(
    examples: Sequence[GenerateExample], tokenizer: Tokenizer, room: Room, asked: Sequence[bool]
) -> list[Encoded]:
    """Turn examples into one row each; those that are asked are to be written for."""
    sources = tokenizer.encode_batch([each.source for each in examples], add_special_tokens=False)
    given = [each.target for each in examples if each.target is not None]
    targets = iter(tokenizer.encode_batch(given, add_special_tokens=False))
    encoded = []
    for example, source, is_asked in zip(examples, sources, asked, strict=True):
        target = None if example.target is None else next(targets)
        prefix = np.array([tokenizer.cls_id, *source.ids[: room.source], tokenizer.sep_id], np.int64)
        answer = None if target is None else target.ids[: room.target]
        row = _asking(prefix) if answer is None else _answered(prefix, answer, tokenizer.sep_id)
        cut = _cut(source, room.source) + (0 if target is None else _cut(target, room.target))
        layout = Layout(tokenizer, room.limit - len(prefix), is_asked)
        encoded.append(Encoded((row,), _coverage(example, row, tokenizer, cut), layout))
    return encoded


def _asking(prefix: IntArray) -> Row:
    return Row(prefix, np.array([len(prefix) - 1]), segments=np.zeros_like(prefix), prefix=len(prefix))


def _answered(prefix: IntArray, target: Sequence[int], end: int) -> Row:
    answers = np.array([*target, end], np.int64)
    return Row(
        ids=np.concatenate([prefix, answers[:-1]]),
        places=len(prefix) - 1 + np.arange(len(answers)),
        labels=answers,
        segments=np.repeat([0, 1], [len(prefix), len(target)]),
        prefix=len(prefix),
    )


def _coverage(example: GenerateExample, row: Row, tokenizer: Tokenizer, cut: int) -> Coverage:
    return Coverage(
        examples=1,
        characters=len(example.source),
        tokens=row.length,
        windows=1,
        unknown=int(np.count_nonzero(row.ids == tokenizer.unk_id)),
        gold=int(example.target is not None),
        cut_characters=cut,
    )


def _cut(encoding: Encoding, room: int) -> int:
    """Count the characters from the first token that has no room."""
    return encoding.offsets[-1][1] - encoding.offsets[room][0] if len(encoding) > room else 0


def source_of(row: Row) -> Row:
    """Give the source of a row alone: what is written after."""
    return row if row.length == row.prefix else _asking(row.ids[: row.prefix])
