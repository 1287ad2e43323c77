"""The nearest vectors of an index to a query, exactly, in little memory.

Blocks of the mapped matrix are multiplied in float32 (or the int8 copy is, a quarter of the bytes). Such a score is a
little wrong, and how wrong at most is known: rounding grows with the width, and of each row of the copy the length of
what it lacks is stored. A row is left out only if its score with that margin stays below the k best so far; all others
are computed again in float64 from the stored vectors. So the k that come out are the k best, whatever was looked
through, equal vectors have equal scores, and of equal scores the earlier row comes first. The trade-off: every vector
is looked at, and time grows with their number; there is no graph to build, to tune and to be wrong.
"""

# Q queries, B rows of a block, D width
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.errors import BadInput, BadSetting
from alembert.infer.index import StoredArray, VectorArray, VectorIndex

SimilarityMeasure = Literal["cosine", "dot"]
ScoreArray = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.int64]

QUERY_BATCH: Final = 64
"""Queries that one pass over the matrix answers."""
_BLOCK_NUMBERS: Final = 1 << 24
"""Numbers of a block: 64 MB of float32, which are read where they are mapped. Short blocks would keep the cores waiting
for each other."""
_CAST_NUMBERS: Final = 1 << 19
"""Numbers that are turned into float32 at a time: 2 MB, which stay in the cache until they are multiplied."""
_UNIT_ERROR: Final = np.float32(2.0**-20)
"""How far the weight of a row may be from 1 to be left out."""
_MANY_CANDIDATES: Final = 1024
"""Rows of a block that are computed again without a closer look at their margins."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A row of an index and its score."""

    row: int
    score: float


def find_nearest(
    index: VectorIndex, queries_QD: VectorArray, k: int, *, measure: SimilarityMeasure = "cosine", copy: bool = False
) -> list[list[Hit]]:
    """Return the k best rows for each query, the best first; all rows if there are fewer.

    With `copy` the int8 copy is looked through in place of the full vectors; the result is the same.
    """
    _check(index, queries_QD, k, copy)
    hits: list[list[Hit]] = []
    for start in range(0, len(queries_QD), QUERY_BATCH):
        hits += _find_nearest(index, queries_QD[start : start + QUERY_BATCH], k, measure, copy)
    return hits


def _check(index: VectorIndex, queries_QD: VectorArray, k: int, copy: bool) -> None:
    if k < 1:
        raise BadSetting(f"The number of results is {k}; expected at least 1.")
    if queries_QD.ndim != 2 or queries_QD.shape[1] != index.facts.dimension:
        raise BadInput(
            f"The queries have the shape {list(queries_QD.shape)}, and the vectors are {index.facts.dimension} wide. "
            "They come from different models."
        )
    if not np.isfinite(queries_QD).all():
        raise BadInput("A query has numbers that are infinite or none at all.")
    if copy and index.copy is None:
        raise BadSetting(f"{index.folder} has no int8 copy to look through. Encode with --int8, or search without it.")


def _find_nearest(
    index: VectorIndex, queries_QD: VectorArray, k: int, measure: SimilarityMeasure, copy: bool
) -> list[list[Hit]]:
    # The length of a query changes no order: it is taken out, and put back into the scores of `dot`.
    full_QD = queries_QD.astype(np.float64)
    lengths_Q = np.sqrt((full_QD * full_QD).sum(1))
    units_QD = full_QD / np.where(lengths_Q > 0, lengths_Q, 1)[:, None]
    best = [_TopK(index, unit, min(k, len(index)), measure) for unit in units_QD]
    for block in _blocks(index, units_QD.astype(np.float32), measure, copy):
        floors_Q = np.array([top.floor for top in best])
        for number in np.flatnonzero(block.scores_QB.max(1) + block.margins_B.max() > floors_Q):
            best[number].update(block.scores_QB[number], block.margins_B, block.first)
    factors = lengths_Q if measure == "dot" else np.ones(len(best))
    return [top.hits(factor) for top, factor in zip(best, factors.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class _Block:
    """Scores of some rows in float32, each with the margin within which the true one lies."""

    first: int
    scores_QB: npt.NDArray[np.float32]
    margins_B: npt.NDArray[np.float32]


def _blocks(index: VectorIndex, units_QD: VectorArray, measure: SimilarityMeasure, copy: bool) -> Iterator[_Block]:
    matrix = index.copy if copy and index.copy is not None else index.matrix
    width = index.facts.dimension
    # Twice what float32 can lose in a sum of so many products, in whatever order they are added.
    rounding = np.float32((width + 16) * 2.0**-23)
    step = max(1, _BLOCK_NUMBERS // width)
    for first in range(0, len(index), step):
        rows = index.rows[first : first + step]
        norms_B = rows["norm"] if measure == "dot" else np.sign(rows["norm"])
        scores_QB = _products(units_QD, matrix[first : first + step])
        weights_B = _weights(rows, measure, scaled=matrix.dtype == np.int8)
        margins_B: npt.NDArray[np.float32] = rounding * norms_B
        margins_B += rows["error"] * _weights(rows, measure, scaled=False)
        if np.abs(weights_B - 1).max() <= _UNIT_ERROR:  # rows of length 1: wider margins cost less than a product
            margins_B += 2 * _UNIT_ERROR * np.maximum(rows["norm"], 1)
        else:
            scores_QB *= weights_B
        yield _Block(first, scores_QB, margins_B)


def _products(units_QD: VectorArray, block_BD: StoredArray) -> npt.NDArray[np.float32]:
    if block_BD.dtype == np.float32:
        return units_QD @ block_BD.T
    products_QB = np.empty((len(units_QD), len(block_BD)), np.float32)
    step = max(1, _CAST_NUMBERS // block_BD.shape[1])
    for first in range(0, len(block_BD), step):
        piece = slice(first, first + step)
        np.matmul(units_QD, block_BD[piece].astype(np.float32).T, out=products_QB[:, piece])
    return products_QB


def _weights(rows: npt.NDArray[Any], measure: SimilarityMeasure, *, scaled: bool) -> npt.NDArray[np.float32]:
    """Return the factor for the product with a row; a vector of zeros has the cosine 0 with everything."""
    scales_B: npt.NDArray[np.float32] = rows["scale"] if scaled else np.ones(len(rows), np.float32)
    if measure == "dot":
        return scales_B
    weights_B = np.zeros_like(scales_B)
    np.divide(scales_B, rows["norm"], out=weights_B, where=rows["norm"] > 0)
    return weights_B


class _TopK:
    """The best rows for one query so far, with scores in float64."""

    def __init__(self, index: VectorIndex, unit_D: ScoreArray, k: int, measure: SimilarityMeasure) -> None:
        self._index = index
        self._unit_D = unit_D
        self._k = k
        self._measure = measure
        self._scores = np.empty(0)
        self._rows = np.empty(0, np.int64)

    @property
    def floor(self) -> float:
        """A row must be above this to come in; rows come in order, and of equal ones the first stays."""
        return float(self._scores[-1]) if len(self._scores) == self._k else -np.inf

    def update(self, scores_B: npt.NDArray[np.float32], margins_B: npt.NDArray[np.float32], first: int) -> None:
        """Add the rows of a block that are good enough; `first` is the number of its first row."""
        found = self._candidates(scores_B, margins_B)
        rows = np.concatenate([self._rows, first + found])
        scores = np.concatenate([self._scores, self._exact(first + found)])
        order = np.lexsort((rows, -scores))[: self._k]
        self._rows, self._scores = rows[order], scores[order]

    def _candidates(self, scores_B: npt.NDArray[np.float32], margins_B: npt.NDArray[np.float32]) -> RowNumbers:
        """Find the rows of a block that may be among the k best."""
        upper_B = scores_B + margins_B
        found = np.flatnonzero(upper_B > self.floor)
        if len(found) <= max(self._k, _MANY_CANDIDATES):
            return found
        least = np.partition((scores_B - margins_B)[found], -self._k)[-self._k]
        remaining: RowNumbers = found[upper_B[found] >= least]
        return remaining

    def hits(self, factor: float) -> list[Hit]:
        """Return the rows, the best first, with scores times a factor."""
        pairs = zip(self._rows.tolist(), self._scores.tolist(), strict=True)
        return [Hit(row, score * factor) for row, score in pairs]

    def _exact(self, rows: RowNumbers) -> ScoreArray:
        vectors = self._index.read_vectors(rows)
        # A sum along each row is made in one order, unlike a matrix product: equal rows have equal scores.
        products: ScoreArray = (vectors * self._unit_D).sum(1)
        if self._measure == "dot":
            return products
        lengths = np.sqrt((vectors * vectors).sum(1))
        cosines = np.zeros_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        return cosines
