"""Scores of the task `compare`: what is measured depends on what the examples say.

- Pairs with a number: Spearman's and Pearson's correlation between the numbers and the cosines.
- Pairs and triples: `accuracy`, the share of texts that are nearer to their partner than to every other partner and
  negative among 64 examples, in the order of the file.
- Texts alone: `uniformity` (Wang and Isola 2020), how evenly the vectors lie on the sphere: -log of the mean of
  exp(-2 d^2) over pairs of texts. Higher is more even. It says that a model has not collapsed, and not that it is good.
"""

# N examples, D width
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from alembert.tasks.compare_decode import Compared, units
from alembert.tasks.compare_example import CompareExample
from alembert.tasks.metrics import numbers
from alembert.tasks.task import Measure

Floats = npt.NDArray[np.float64]
AMONG: Final = 64
"""Examples whose texts are told apart from each other; fixed, so that scores of different models can be compared."""


def measures_of(examples: Sequence[CompareExample], predictions: Sequence[Compared]) -> dict[str, float]:
    """Compute all measures, the one that models are chosen by first."""
    if _has_scores(examples):
        gold, guess = _series(examples, predictions)
        return {"spearman": numbers.spearman(gold, guess), "pearson": numbers.pearson(gold, guess)}
    name, each_N, combine = _of_each(examples, predictions)
    return {name: combine(each_N)}


def measure_of(examples: Sequence[CompareExample], predictions: Sequence[Compared]) -> Measure:
    """Prepare the measure that models are chosen by for samples of examples."""
    if _has_scores(examples):
        return numbers.spearman_measure(*_series(examples, predictions))
    _, each_N, combine = _of_each(examples, predictions)
    return lambda indices: combine(each_N[indices])


def _has_scores(examples: Sequence[CompareExample]) -> bool:
    return all(example.score is not None for example in examples)


def _series(examples: Sequence[CompareExample], predictions: Sequence[Compared]) -> tuple[list[float], list[float]]:
    gold = [example.score for example in examples if example.score is not None]
    return gold, [prediction.similarities[0] for prediction in predictions]


def _of_each(
    examples: Sequence[CompareExample], predictions: Sequence[Compared]
) -> tuple[str, Floats, Callable[[Floats], float]]:
    """Give what is measured, its value for each example, and how the values become one."""
    if min(len(example.texts) for example in examples) > 1:
        found = [_is_nearest(block) for block in _blocks(predictions)]
        return "accuracy", np.concatenate(found), lambda each: float(each.mean())
    spread = [_nearness(block) for block in _blocks(predictions)]
    return "uniformity", np.concatenate(spread), lambda each: float(-np.log(each.mean()))


def _blocks(predictions: Sequence[Compared]) -> Iterator[list[Floats]]:
    """Give unit vectors of some examples at a time; a last one that is left alone joins those before it."""
    found = [units(prediction.vectors) for prediction in predictions]
    starts = [start for start in range(0, len(found), AMONG) if start == 0 or len(found) - start > 1]
    for start, end in zip(starts, [*starts[1:], len(found)], strict=True):
        yield found[start:end]


def _is_nearest(block: Sequence[Floats]) -> Floats:
    anchors_ND = np.stack([vectors[0] for vectors in block])
    partners_ND = np.stack([vectors[1] for vectors in block])
    negatives = [vectors[2:] for vectors in block]
    cosines = anchors_ND @ np.concatenate([partners_ND, *negatives]).T
    own_N = np.diagonal(cosines).copy()
    np.fill_diagonal(cosines, -np.inf)
    found: Floats = (own_N > cosines.max(axis=1)).astype(np.float64)
    return found


def _nearness(block: Sequence[Floats]) -> Floats:
    """Give for each text the mean of exp(-2 d^2) to the others of its block; 1 for one alone."""
    vectors_ND = np.stack([vectors[0] for vectors in block])
    near = np.exp(-2 * (2 - 2 * np.clip(vectors_ND @ vectors_ND.T, -1, 1)))
    others = max(len(block) - 1, 1)
    found: Floats = (near.sum(axis=1) - np.diagonal(near)) / others if len(block) > 1 else np.ones(1)
    return found
