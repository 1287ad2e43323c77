"""Vectors of the task `compare`, from the head's outputs, without torch; the cosines between them, and their scores.

What is measured depends on what the examples say.

- Pairs with a number: Spearman's and Pearson's correlation between the numbers and the cosines.
- Pairs and triples: `accuracy`, the share of texts that are nearer to their partner than to every other partner and
  negative among 64 examples, in the order of the file.
- Texts alone: `uniformity` (Wang and Isola 2020), how evenly the vectors lie on the sphere: -log of the mean of
  exp(-2 d^2) over pairs of texts. Higher is more even. It says that a model has not collapsed, and not that it is good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.tasks.compare.data import CompareExample, CompareLayout
from alembert.tasks.compare.pooling import PoolingName
from alembert.tasks.example import Coverage, TaskPrediction, shorten
from alembert.tasks.metrics import classes
from alembert.tasks.runtime import Outputs
from alembert.tasks.task import SampleMetric

# R rows, T texts, D width


Vectors = npt.NDArray[np.float32]
_SHOWN: Final = 4
"""Numbers of a vector that people are shown."""


@dataclass(frozen=True, eq=False)
class ComparePrediction(TaskPrediction[CompareExample]):
    """The vectors of an example's texts."""

    vectors: Vectors
    """One line a text."""
    coverage: Coverage

    @property
    def similarities(self) -> list[float]:
        """Cosines between the first text and each of the others."""
        units_TD = normalise_vectors(self.vectors)
        cosines: list[float] = (units_TD[1:] @ units_TD[0]).tolist()
        return cosines

    def to_record(self, example: CompareExample) -> dict[str, Any]:
        """Return the vector of one text, or the similarity of two, or of the first to each of several."""
        if len(example.texts) == 1:
            vector = self.vectors[0].tolist()
            answer = {"text": example.texts[0], "dimension": len(vector), "vector": vector}
        elif len(example.texts) == 2:
            answer = {"texts": list(example.texts), "similarity": self.similarities[0]}
        else:
            answer = {"texts": list(example.texts), "similarities": self.similarities}
        return {"id": example.id, **answer, "coverage": self.coverage.brief()}

    def to_lines(self, example: CompareExample) -> list[str]:
        """List similarities with the beginnings of texts; of a vector its size and the first numbers."""
        if len(example.texts) == 1:
            vector = self.vectors[0]
            first = " ".join(f"{number:.4f}" for number in vector[:_SHOWN].tolist())
            return [f"{len(vector)} numbers, length {np.linalg.norm(vector):.4f}: {first} ..."]
        others = zip(self.similarities, example.texts[1:], strict=True)
        return [f"{similarity:.4f}  {shorten(text)}" for similarity, text in others]


def pool_vectors(
    outputs: Sequence[Outputs], layout: CompareLayout, pooling: PoolingName, *, normalise: bool
) -> Vectors:
    """Put the rows of each text together; a layer that is for training alone is left out."""
    rows_RD = np.concatenate(outputs)
    if pooling == "cls_train_layer":
        rows_RD = rows_RD[:, rows_RD.shape[1] // 2 :]
    weights_R = layout.weights / np.bincount(layout.owners, layout.weights)[layout.owners]
    means_TD = np.zeros((layout.texts, rows_RD.shape[1]))
    np.add.at(means_TD, layout.owners, rows_RD * weights_R[:, None])
    return (normalise_vectors(means_TD) if normalise else means_TD).astype(np.float32)


def normalise_vectors(vectors_TD: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Scale vectors to length 1; one of zeros stays as it is."""
    values_TD = vectors_TD.astype(np.float64)
    lengths_T = np.linalg.norm(values_TD, axis=-1, keepdims=True)
    scaled: npt.NDArray[np.float64] = values_TD / np.where(lengths_T > 0, lengths_T, 1.0)
    return scaled


# N examples, D width


Floats = npt.NDArray[np.float64]
BLOCK_EXAMPLES: Final = 64
"""Examples whose texts are told apart from each other; fixed, so that scores of different models can be compared."""


def compute_metrics(examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]) -> dict[str, float]:
    """Compute all measures, the one that models are chosen by first."""
    if _has_scores(examples):
        gold, guess = _series(examples, predictions)
        return {"spearman": classes.spearman(gold, guess), "pearson": classes.pearson(gold, guess)}
    name, values_N, combine = _example_values(examples, predictions)
    return {name: combine(values_N)}


def build_sample_metric(examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]) -> SampleMetric:
    """Prepare the measure that models are chosen by for samples of examples."""
    if _has_scores(examples):
        return classes.spearman_measure(*_series(examples, predictions))
    _, values_N, combine = _example_values(examples, predictions)
    return lambda indices: combine(values_N[indices])


def _has_scores(examples: Sequence[CompareExample]) -> bool:
    return all(example.score is not None for example in examples)


def _series(
    examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]
) -> tuple[list[float], list[float]]:
    gold = [example.score for example in examples if example.score is not None]
    return gold, [prediction.similarities[0] for prediction in predictions]


def _example_values(
    examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]
) -> tuple[str, Floats, Callable[[Floats], float]]:
    """Return what is measured, its value for each example, and how the values become one."""
    if min(len(example.texts) for example in examples) > 1:
        nearest = [_is_nearest(block) for block in _blocks(predictions)]
        return "accuracy", np.concatenate(nearest), lambda values_N: float(values_N.mean())
    spread = [_mean_closeness(block) for block in _blocks(predictions)]
    return "uniformity", np.concatenate(spread), lambda values_N: float(-np.log(values_N.mean()))


def _blocks(predictions: Sequence[ComparePrediction]) -> Iterator[list[Floats]]:
    """Yield unit vectors of some examples at a time; a last one that is left alone joins those before it."""
    units = [normalise_vectors(prediction.vectors) for prediction in predictions]
    starts = [start for start in range(0, len(units), BLOCK_EXAMPLES) if start == 0 or len(units) - start > 1]
    for start, end in zip(starts, [*starts[1:], len(units)], strict=True):
        yield units[start:end]


def _is_nearest(block: Sequence[Floats]) -> Floats:
    anchors_ND = np.stack([vectors[0] for vectors in block])
    partners_ND = np.stack([vectors[1] for vectors in block])
    negatives = [vectors[2:] for vectors in block]
    cosines = anchors_ND @ np.concatenate([partners_ND, *negatives]).T
    own_N = np.diagonal(cosines).copy()
    np.fill_diagonal(cosines, -np.inf)
    is_nearest_N: Floats = (own_N > cosines.max(axis=1)).astype(np.float64)
    return is_nearest_N


def _mean_closeness(block: Sequence[Floats]) -> Floats:
    """Compute for each text the mean of exp(-2 d^2) to the others of its block; 1 for one alone."""
    vectors_ND = np.stack([vectors[0] for vectors in block])
    near = np.exp(-2 * (2 - 2 * np.clip(vectors_ND @ vectors_ND.T, -1, 1)))
    others = max(len(block) - 1, 1)
    means_N: Floats = (near.sum(axis=1) - np.diagonal(near)) / others if len(block) > 1 else np.ones(1)
    return means_N
