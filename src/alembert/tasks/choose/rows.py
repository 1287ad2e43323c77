"""Rows of the task `choose`: for each choice one row, or several where the text is longer than a window.

Without a passage a choice is `[CLS] question [SEP] choice [SEP]`; with one it is `[CLS] passage [SEP] question choice
[SEP]`, as RACE and SWAG are usually read. They are cut as the pairs of `classify` are: the longer side, which is mostly
the passage, through windows, the shorter one whole in each of them. The first row of a choice has the label 1 if
the choice is right and 0 if not; its other rows have none, which is how the loss tells where a choice begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alembert.data.windows import IntArray
from alembert.tasks.choose.data import ChooseExample
from alembert.tasks.classify.decode import pool_windows
from alembert.tasks.classify.rows import ClassifyLayout, WindowSpec, encode_text, encode_token_ids
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.metrics.tally import Floats
from alembert.tasks.runtime import Outputs


def encode_examples(examples: Sequence[ChooseExample], cutting: WindowSpec) -> list[EncodedExample]:
    """Encode examples; the texts of all of them go through the tokenizer at once."""
    texts = [text for example in examples for text in (example.sides[0], *example.sides[1])]
    ids = encode_token_ids(texts, cutting.tokenizer)
    return [_encoded(example, next(ids), [next(ids) for _ in example.choices], cutting) for example in examples]


def _encoded(
    example: ChooseExample, first: IntArray, seconds: Sequence[IntArray], cutting: WindowSpec
) -> EncodedExample:
    shared, own = example.sides
    parts = [
        encode_text((shared, text), (first, ids), cutting, _label(example, number))
        for number, (text, ids) in enumerate(zip(own, seconds, strict=True))
    ]
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    return EncodedExample(
        tuple(row for part in parts for row in part.rows),
        _coverage(example, [part.coverage for part in parts]),
        ClassifyLayout(owners, answers=len(parts)),
    )


def _label(example: ChooseExample, number: int) -> IntArray | None:
    return None if example.gold is None else np.array([number == example.gold], np.int64)


def _coverage(example: ChooseExample, parts: Sequence[Coverage]) -> Coverage:
    """Count an example once: what its choices share is read with each, and cut from each alike."""
    return replace(
        Coverage.total(parts),
        examples=1,
        characters=sum(map(len, example.texts)),
        split_examples=int(any(part.split_examples for part in parts)),
        gold=int(example.gold is not None),
        cut_characters=max(part.cut_characters for part in parts),
    )


def pool_choice_scores(encoded: EncodedExample, outputs: Sequence[Outputs], pool: str) -> Floats:
    """Compute one score a choice, from those of its windows."""
    return pool_windows(np.concatenate(outputs), encoded.layout, pool)[:, 0]
