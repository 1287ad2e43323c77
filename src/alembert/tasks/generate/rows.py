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
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.generate.data import GenerateExample
from alembert.text.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True, eq=False)
class GenerateLayout:
    """What is needed to write and to read what was written."""

    tokenizer: Tokenizer
    max_new_tokens: int
    """Tokens that the model can write."""
    is_asked: bool = True
    """Whether a text is to be written; only some of the development examples are, to save time."""


@dataclass(frozen=True)
class TokenBudget:
    """Tokens for source and target, without special ones."""

    source: int
    target: int
    limit: int
    """Tokens of a row at most."""

    @classmethod
    def of(cls, source: int | None, target: int, longest: int) -> TokenBudget:
        """Share out what the model can read; a target never takes more than half of it."""
        for_target = min(target, longest // 2)
        left = longest - 2 - for_target
        return cls(left if source is None else min(source, left), for_target, longest)


def encode_examples(
    examples: Sequence[GenerateExample], tokenizer: Tokenizer, room: TokenBudget, asked: Sequence[bool]
) -> list[EncodedExample]:
    """Turn examples into one row each; those that are asked are to be written for."""
    sources = tokenizer.encode_batch([example.source for example in examples], add_special_tokens=False)
    written = [example.target for example in examples if example.target is not None]
    targets = iter(tokenizer.encode_batch(written, add_special_tokens=False))
    encoded = []
    for example, source, is_asked in zip(examples, sources, asked, strict=True):
        target = None if example.target is None else next(targets)
        prefix = np.array([tokenizer.cls_id, *source.ids[: room.source], tokenizer.sep_id], np.int64)
        answer = None if target is None else target.ids[: room.target]
        row = _source_row(prefix) if answer is None else _training_row(prefix, answer, tokenizer.sep_id)
        cut = _count_cut_characters(source, room.source) + (
            0 if target is None else _count_cut_characters(target, room.target)
        )
        layout = GenerateLayout(tokenizer, room.limit - len(prefix), is_asked)
        encoded.append(EncodedExample((row,), _coverage(example, row, tokenizer, cut), layout))
    return encoded


def _source_row(prefix: IntArray) -> Row:
    return Row(prefix, np.array([len(prefix) - 1]), segments=np.zeros_like(prefix), prefix=len(prefix))


def _training_row(prefix: IntArray, target: Sequence[int], end: int) -> Row:
    answers = np.array([*target, end], np.int64)
    return Row(
        ids=np.concatenate([prefix, answers[:-1]]),
        positions=len(prefix) - 1 + np.arange(len(answers)),
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


def _count_cut_characters(encoding: Encoding, room: int) -> int:
    """Count the characters from the first token that has no room."""
    return encoding.offsets[-1][1] - encoding.offsets[room][0] if len(encoding) > room else 0


def drop_target(row: Row) -> Row:
    """Keep the source of a row alone: what a text is written after."""
    return row if row.length == row.prefix else _source_row(row.ids[: row.prefix])
