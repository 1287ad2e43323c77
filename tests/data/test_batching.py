"""Batches by a budget: each text once, in order of length, never more than fits."""

from hypothesis import given
from hypothesis import strategies as st

from alembert.data.batching import batch_by_padded_tokens

LENGTHS = st.lists(st.integers(1, 40), max_size=30)


@given(LENGTHS, st.integers(1, 100))
def test_each_text_is_in_one_batch_and_short_ones_come_first(lengths: list[int], budget: int) -> None:
    order = [number for batch in batch_by_padded_tokens(lengths, budget) for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths)


@given(LENGTHS, st.integers(1, 100))
def test_a_padded_batch_fits_the_budget_unless_it_is_one_long_text(lengths: list[int], budget: int) -> None:
    for batch in batch_by_padded_tokens(lengths, budget):
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= budget
