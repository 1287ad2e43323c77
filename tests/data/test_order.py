"""Chance by address."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.order import Permutation, make_rng, stable_hash


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_permutation_has_every_number_once(size: int, key: int) -> None:
    order = Permutation(size, key)
    assert sorted(order[place] for place in range(size)) == list(range(size))


def test_a_huge_permutation_needs_no_memory() -> None:
    order = Permutation(10**12, 5)
    assert 0 <= order[10**12 - 1] < 10**12


@pytest.mark.parametrize("place", [-1, 10])
def test_a_place_outside_is_refused(place: int) -> None:
    with pytest.raises(IndexError):
        Permutation(10, 1)[place]


def test_other_keys_give_other_orders() -> None:
    orders = {tuple(Permutation(8, key)[place] for place in range(8)) for key in range(50)}
    assert len(orders) > 45


def test_every_document_comes_first_about_as_often() -> None:
    counts = np.bincount([Permutation(10, stable_hash("first", key))[0] for key in range(10_000)], minlength=10)
    expected = 1000
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # chi-square, 9 degrees of freedom, p = 0.001


def test_neighbours_part() -> None:
    order = Permutation(1000, 3)
    steps = [order[place + 1] - order[place] for place in range(999)]
    assert steps.count(1) < 10


def test_an_address_is_its_parts_in_their_order() -> None:
    assert len({stable_hash(1, 2), stable_hash(2, 1), stable_hash(12), stable_hash("1", 2, "")}) == 4


def test_an_address_always_gives_the_same_stream() -> None:
    # These numbers are part of what a saved run relies on: if they change, old runs cannot be continued.
    assert make_rng(1, "masks", 0, 7).integers(0, 1000, 4).tolist() == [579, 186, 952, 303]
