"""Stored numbers: what int8 and float16 keep, and what they say about what they lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from alembert.errors import BadFile
from alembert.infer.index import dequantise, quantise_int8, to_stored

# Drawn as whole numbers: torch, once loaded, flushes the denormal floats that hypothesis wants to draw.
VECTORS = arrays(np.int32, (3, 5), elements=st.integers(-(10**7), 10**7)).map(
    lambda numbers: numbers.astype(np.float32) / np.float32(1000)
)


@given(VECTORS)
def test_int8_is_within_half_a_step(vectors: np.ndarray) -> None:
    numbers, scales = quantise_int8(vectors)
    differences = np.abs(vectors - dequantise(numbers, scales))
    assert (differences <= 0.5001 * scales[:, None].astype(np.float64)).all()


@given(VECTORS)
def test_the_error_of_the_copy_is_a_bound(vectors: np.ndarray) -> None:
    found = to_stored(vectors, "float32", copy=True)
    lost = np.linalg.norm(vectors - dequantise(found.copy, found.rows["scale"]), axis=1)
    assert (found.rows["error"] >= lost).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@given(VECTORS)
def test_norms_are_those_of_what_is_stored(dtype: str, vectors: np.ndarray) -> None:
    found = to_stored(vectors, dtype)
    full = dequantise(found.matrix, found.rows["scale"] if dtype == "int8" else None)
    np.testing.assert_allclose(found.rows["norm"], np.linalg.norm(full, axis=1), rtol=1e-6)


def test_float32_is_kept_to_the_bit() -> None:
    vectors = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    assert to_stored(vectors, "float32").matrix.tobytes() == vectors.tobytes()


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(BadFile, match="weights are damaged"):
        to_stored(np.array([[1.0, np.nan]], np.float32), "float32")


def test_numbers_that_are_too_large_are_refused() -> None:
    with pytest.raises(BadFile, match=r"too large for float16. Use --dtype float32"):
        to_stored(np.array([[1e6, 0.0]], np.float32), "float16")
