"""Labelled items: each once in a pass, in a new order, within the budget, found again by the cursor."""

from hypothesis import given
from hypothesis import strategies as st

from alembert.data.example_sampler import ExampleSampler
from alembert.data.feed import Cursor

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


def a_pass(feed: ExampleSampler, epoch: int) -> list[tuple[int, ...]]:
    cursor, portions = Cursor(epoch=epoch), []
    while cursor.epoch == epoch:
        (portion,), cursor = feed.take(cursor, 1)
        portions.append(portion.indices)
    return portions


@given(LENGTHS, st.integers(1, 5))
def test_a_pass_has_each_item_once(lengths: list[int], epoch: int) -> None:
    feed = ExampleSampler(lengths, seed=1, micro_tokens=64)
    assert sorted(item for items in a_pass(feed, epoch) for item in items) == list(range(len(lengths)))


@given(LENGTHS)
def test_micro_batches_keep_the_budget(lengths: list[int]) -> None:
    for items in a_pass(ExampleSampler(lengths, seed=1, micro_tokens=64), 0):
        assert sum(lengths[item] for item in items) <= 64


@given(LENGTHS, st.integers(1, 7))
def test_steps_of_any_size_see_the_same_order(lengths: list[int], count: int) -> None:
    feed = ExampleSampler(lengths, seed=1, micro_tokens=64)
    cursor, found = Cursor(), []
    while len(found) < 20:
        portions, cursor = feed.take(cursor, count)
        found += [portion.indices for portion in portions]
    passes = [items for epoch in range(25) for items in a_pass(feed, epoch)]
    assert found == passes[: len(found)]


def test_every_pass_has_another_order() -> None:
    feed = ExampleSampler([10] * 50, seed=1, micro_tokens=100)
    assert a_pass(feed, 0) != a_pass(feed, 1)


def test_an_item_longer_than_the_budget_stands_alone() -> None:
    feed = ExampleSampler([5, 500, 5], seed=1, micro_tokens=64)
    assert (1,) in a_pass(feed, 0)


@given(LENGTHS, st.integers(2, 9))
def test_groups_have_a_fixed_size_and_no_item_twice(lengths: list[int], group: int) -> None:
    found = a_pass(ExampleSampler(lengths, seed=1, micro_tokens=64, group=group), 0)
    size = min(group, len(lengths))
    assert {len(items) for items in found} == {size}
    assert len({item for items in found for item in items}) == len(lengths) // size * size


def test_what_a_pass_of_groups_leaves_out_comes_in_another() -> None:
    feed = ExampleSampler([1] * 10, seed=1, micro_tokens=64, group=4)
    passes = [item for epoch in range(8) for items in a_pass(feed, epoch) for item in items]
    assert set(passes) == set(range(10))
