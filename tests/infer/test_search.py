"""Search is exact: it gives what comparing with every vector in float64 gives, whatever is looked through."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from alembert.errors import BadInput, BadSetting
from alembert.infer import search
from alembert.infer.index import IndexConfig, VectorIndex, to_stored
from alembert.infer.search import find_nearest

POOLING = {"mode": "mean"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks for a few dozen rows."""
    monkeypatch.setattr(search, "_BLOCK_NUMBERS", 64)
    monkeypatch.setattr(search, "_CAST_NUMBERS", 24)
    monkeypatch.setattr(search, "_MANY_CANDIDATES", 1)


def index_of(vectors: np.ndarray, dtype: str = "float32", *, copy: bool = False) -> VectorIndex:
    numbers = to_stored(vectors.astype(np.float32), dtype, copy=copy)
    facts: dict[str, Any] = {"model": "m", "fingerprint": "f", "pooling": POOLING, "length": 16}
    facts |= {"unit": "document", "dtype": dtype, "copy": copy, "dimension": vectors.shape[1]}
    return VectorIndex(Path("v"), None, IndexConfig(**facts), numbers.matrix, numbers.rows, numbers.copy)


def random_vectors(rows: int, width: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def brute_force(index: VectorIndex, query: np.ndarray, k: int, measure: str) -> list[tuple[int, float]]:
    """All rows at once, in float64."""
    vectors, wanted = index.read_vectors(np.arange(len(index))), query.astype(np.float64)
    scores = vectors @ wanted
    if measure == "cosine":
        scores = scores / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted)
    return sorted(enumerate(scores.tolist()), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize(
    ("dtype", "copy"),
    [("float32", False), ("float16", False), ("int8", False), ("float32", True), ("float16", True)],
)
@settings(max_examples=30)
@given(
    rows=st.integers(0, 60),
    k=st.integers(1, 70),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([1e-3, 1.0, 300.0]),
)
def test_it_equals_brute_force(
    dtype: str, copy: bool, measure: str, rows: int, k: int, seed: int, spread: float
) -> None:
    vectors = random_vectors(rows, seed=seed) * np.float32(spread)
    index = index_of(vectors, dtype, copy=copy)
    query = random_vectors(1, seed=seed + 1)
    (hits,) = find_nearest(index, query, k, measure=measure, copy=copy)
    expected = brute_force(index, query[0], k, measure)
    assert [hit.row for hit in hits] == [row for row, _ in expected]
    np.testing.assert_allclose([hit.score for hit in hits], [score for _, score in expected], rtol=1e-9)


def test_it_finds_the_neighbours_that_scikit_learn_finds() -> None:
    vectors, queries = random_vectors(300), random_vectors(7, seed=3)
    peer = NearestNeighbors(n_neighbors=9, algorithm="brute", metric="cosine").fit(vectors)
    distances, rows = peer.kneighbors(queries)
    found = find_nearest(index_of(vectors, copy=True), queries, 9, copy=True)
    assert [[hit.row for hit in hits] for hits in found] == rows.tolist()
    np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], 1 - distances, atol=1e-6)


@pytest.mark.parametrize("copy", [False, True])
def test_equal_vectors_have_equal_scores_and_come_in_row_order(copy: bool) -> None:
    vectors = random_vectors(40)[np.arange(120) % 40]
    (hits,) = find_nearest(index_of(vectors, copy=copy), random_vectors(1, seed=9), 30, copy=copy)
    groups = [hits[start : start + 3] for start in range(0, 30, 3)]
    assert all(len({hit.score for hit in group}) == 1 for group in groups)
    assert all([hit.row % 40 for hit in group] == [group[0].row] * 3 for group in groups)
    assert all([hit.row for hit in group] == sorted(hit.row for hit in group) for group in groups)


def test_rows_of_length_1_are_found_as_brute_force_finds_them() -> None:
    """Their products are not divided by their lengths, which differ from 1 by rounding."""
    vectors = random_vectors(60)
    index = index_of(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    query = random_vectors(1, seed=1)
    found = [(hit.row, pytest.approx(hit.score)) for hit in find_nearest(index, query, 20)[0]]
    assert found == brute_force(index, query[0], 20, "cosine")


@settings(max_examples=30)
@given(st.integers(1, 200))
def test_the_size_of_blocks_changes_nothing(block: int) -> None:
    index, queries = index_of(random_vectors(50), copy=True), random_vectors(3, seed=4)
    whole = find_nearest(index, queries, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_BLOCK_NUMBERS", block)
        assert find_nearest(index, queries, 5) == whole
        assert find_nearest(index, queries, 5, copy=True) == whole


def test_many_queries_are_answered_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries = index_of(random_vectors(50)), random_vectors(20, seed=4)
    together = find_nearest(index, queries, 2)
    monkeypatch.setattr(search, "QUERY_BATCH", 3)
    assert find_nearest(index, queries, 2) == together


def test_an_empty_index_gives_nothing() -> None:
    assert find_nearest(index_of(np.zeros((0, 12))), random_vectors(2), 5) == [[], []]


@pytest.mark.parametrize("measure", ["cosine", "dot"])
def test_vectors_of_zeros_score_zero(measure: str) -> None:
    vectors = np.concatenate([np.zeros((1, 12)), random_vectors(2)])
    index = index_of(vectors, copy=True)
    for queries in (np.zeros((1, 12), np.float32), random_vectors(1, seed=7)):
        (hits,) = find_nearest(index, queries, 3, measure=measure, copy=True)
        assert next(hit.score for hit in hits if hit.row == 0) == 0.0
        assert len(hits) == 3


def test_what_cannot_be_compared_is_refused() -> None:
    index = index_of(random_vectors(3))
    with pytest.raises(BadInput, match="different models"):
        find_nearest(index, random_vectors(1, width=11), 1)
    with pytest.raises(BadInput, match="infinite"):
        find_nearest(index, np.full((1, 12), np.nan, np.float32), 1)
    with pytest.raises(BadSetting, match="at least 1"):
        find_nearest(index, random_vectors(1), 0)
    with pytest.raises(BadSetting, match="no int8 copy"):
        find_nearest(index, random_vectors(1), 1, copy=True)
