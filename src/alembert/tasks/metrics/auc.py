"""Areas under curves: how well probabilities put the examples of a label before the others, whatever the threshold.

A label that all examples have, or none, has no such areas: it is named in `undefined` and in no average.
"""

# N examples, L labels
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics.numbers import falling, mean_ranks


@dataclass(frozen=True, kw_only=True)
class Areas:
    """Areas of each label that has examples and counter-examples."""

    roc_auc: Mapping[str, float]
    average_precision: Mapping[str, float]
    undefined: tuple[str, ...]

    @property
    def macro_roc_auc(self) -> float:
        return fmean(self.roc_auc.values()) if self.roc_auc else 0.0

    @property
    def macro_average_precision(self) -> float:
        return fmean(self.average_precision.values()) if self.average_precision else 0.0


def areas(gold_NL: npt.ArrayLike, scores_NL: npt.ArrayLike, labels: Sequence[str]) -> Areas:
    """Compute the areas of each label, one against the rest; `gold_NL` is true where the example has the label."""
    gold, scores = np.asarray(gold_NL, bool), np.asarray(scores_NL)
    having = gold.sum(axis=0)
    has_both = (having > 0) & (having < len(gold))
    defined = [(place, label) for place, label in enumerate(labels) if has_both[place]]
    return Areas(
        roc_auc={label: roc_auc(gold[:, place], scores[:, place]) for place, label in defined},
        average_precision={
            label: average_precision(gold[:, place], scores[:, place]) for place, label in defined
        },
        undefined=tuple(label for place, label in enumerate(labels) if not has_both[place]),
    )


def roc_auc(gold: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Give the chance that an example scores above a counter-example, ties half (Mann and Whitney 1947).

    >>> roc_auc([False, True, False, True], [0.1, 0.4, 0.4, 0.8])
    0.875
    """
    is_gold = np.asarray(gold, bool)
    positives, negatives = int(is_gold.sum()), int((~is_gold).sum())
    above = mean_ranks(scores)[is_gold].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def average_precision(gold: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Average the precision at each example, from the highest score down; equal scores come together.

    >>> average_precision([True, False, True], [0.9, 0.8, 0.7]).__round__(3)
    0.833
    """
    is_gold = np.asarray(gold, bool)
    order, kept = falling(np.asarray(scores, np.float64))
    hits = np.cumsum(is_gold[order])[kept - 1]
    gained = np.diff(hits, prepend=0)
    return float((gained * hits / kept).sum() / is_gold.sum())
