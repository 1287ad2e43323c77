"""Whether a picture is faithful: what becomes of the margin without its highest words, and with these alone.

Comprehensiveness and sufficiency are those of DeYoung et al. (2020), on margins. They are compared with those of random
orders, which are the same in every run, and for checkpoints with the order of attention: a picture that does no better
than chance says nothing about the decision. A word is left out with its features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from alembert.infer.explain.inputs import DecisionInputs, InputUnit
from alembert.infer.explain.result import Faithfulness

SHARES: Final = (0.05, 0.1, 0.2, 0.5)
"""Of the words, the highest first."""
RANDOM_ORDERS: Final = 5
_SEED: Final = 1

Order = Sequence[int]


def measure_faithfulness(inputs: DecisionInputs, scores: Sequence[float]) -> Faithfulness:
    """Compare the order of the scores of the words with random ones, and with that of attention if it is known."""
    random = np.random.default_rng(_SEED)
    orders: list[Order] = [_rank(scores), *(random.permutation(len(scores)).tolist() for _ in range(RANDOM_ORDERS))]
    attention = attention_scores(inputs)
    if attention is not None:
        orders.append(_rank(attention))
    sets = [units for order in orders for units in _left_out(inputs.words, order)]
    losses = inputs.base.value - np.array(list(inputs.margins_without(sets)))
    without_O, alone_O = losses.reshape(len(orders), 2, -1).mean(2).T
    chance = slice(1, 1 + RANDOM_ORDERS)
    return Faithfulness(
        comprehensiveness=float(without_O[0]),
        sufficiency=float(alone_O[0]),
        random_comprehensiveness=float(without_O[chance].mean()),
        random_sufficiency=float(alone_O[chance].mean()),
        attention_comprehensiveness=None if attention is None else float(without_O[-1]),
        attention_sufficiency=None if attention is None else float(alone_O[-1]),
    )


def count_evaluations(has_attention: bool) -> int:
    """Count how often the margin is computed."""
    return (1 + RANDOM_ORDERS + has_attention) * 2 * len(SHARES)


def attention_scores(inputs: DecisionInputs) -> list[float] | None:
    """Return how much the outputs that decide attend to each word; none: an Export."""
    gradients = inputs.part.runner.gradients()
    if gradients is None:
        return None
    rows = [inputs.encoded.rows[number] for number in inputs.deciding_rows]
    with inputs.engine.lock:
        found = gradients.attention(rows)
    per_row = {}
    for number, attention_PT in zip(inputs.deciding_rows, found, strict=True):
        changes = inputs.base.gradient[number]
        asked = (
            np.abs(changes).sum(1) > 0 if len(changes) == len(attention_PT) else np.ones(len(attention_PT), np.bool_)
        )
        per_row[number] = attention_PT[asked].mean(0)
    return [sum(float(per_row[row][list(tokens)].sum()) for row, tokens in word.cells.items()) for word in inputs.words]


def _rank(scores: Sequence[float]) -> list[int]:
    ranked: list[int] = np.argsort(-np.array(scores), kind="stable").tolist()
    return ranked


def _left_out(words: Sequence[InputUnit], order: Order) -> Iterator[list[InputUnit]]:
    """Yield what is left out for each share: the first words, then all but the first."""
    counts = [max(1, round(share * len(order))) for share in SHARES]
    yield from ([words[number] for number in order[:count]] for count in counts)
    yield from ([words[number] for number in order[count:]] for count in counts)
