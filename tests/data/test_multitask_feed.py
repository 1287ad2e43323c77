"""Several sets of labelled data in turn: turns as planned, each in its own order, found again by the cursor."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from alembert.data.example_sampler import ExampleSampler, MultiTaskBatchPlan, MultiTaskSampler, count_task_batches
from alembert.data.feed import Cursor

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=60)
OWNERS = st.dictionaries(st.sampled_from("abcd"), LENGTHS, min_size=1)


def mixed(owners: dict[str, list[int]], temperature: float = 1.0, seed: int = 1) -> MultiTaskSampler:
    feeds = {name: ExampleSampler(lengths, seed=seed, micro_tokens=64) for name, lengths in owners.items()}
    return MultiTaskSampler(feeds, seed=seed, temperature=temperature)


def a_pass(feed: MultiTaskSampler, epoch: int) -> list[MultiTaskBatchPlan]:
    cursor, portions = Cursor(epoch=epoch), []
    while cursor.epoch == epoch:
        (portion,), cursor = feed.take(cursor, 1)
        portions.append(portion)
    return portions


@given(OWNERS, st.integers(0, 3))
def test_by_size_each_item_of_each_owner_comes_once_in_a_pass(owners: dict[str, list[int]], epoch: int) -> None:
    seen = Counter((each.task, item) for each in a_pass(mixed(owners), epoch) for item in each.batch.indices)
    assert seen == {(name, item): 1 for name, lengths in owners.items() for item in range(len(lengths))}


@given(OWNERS, st.floats(1, 20))
def test_turns_are_those_that_were_planned(owners: dict[str, list[int]], temperature: float) -> None:
    feed = mixed(owners, temperature)
    sizes = {name: len(ExampleSampler(own, seed=1, micro_tokens=64).epoch_batches(0)) for name, own in owners.items()}
    assert Counter(each.task for each in a_pass(feed, 0)) == count_task_batches(sizes, temperature)


@given(st.integers(1, 500), st.integers(1, 500), st.floats(1, 50))
def test_temperature_moves_turns_to_the_smaller_and_never_beyond_equal(
    one: int, other: int, temperature: float
) -> None:
    turns = count_task_batches({"small": min(one, other), "large": max(one, other)}, temperature)
    assert turns["small"] >= min(one, other)
    assert turns["small"] <= turns["large"]


@given(LENGTHS, st.integers(1, 4))
def test_one_owner_alone_has_its_own_order(lengths: list[int], count: int) -> None:
    alone, cursor, other = ExampleSampler(lengths, seed=1, micro_tokens=64), Cursor(), Cursor()
    feed = mixed({"a": lengths})
    for _ in range(5):
        expected, cursor = alone.take(cursor, count)
        found, other = feed.take(other, count)
        assert [each.batch for each in found] == expected
        assert all(each.share == 1 for each in found)


@given(OWNERS, st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_a_cursor_finds_the_rest_whatever_was_taken_before(owners: dict[str, list[int]], counts: list[int]) -> None:
    whole, _ = mixed(owners, 3.0).take(Cursor(), sum(counts))
    cursor, parts = Cursor(), []
    for count in counts:
        found, cursor = mixed(owners, 3.0).take(cursor, count)
        parts += [(each.task, each.batch) for each in found]
    assert parts == [(each.task, each.batch) for each in whole]


@given(OWNERS, st.integers(1, 8))
def test_shares_of_a_step_add_up_to_one(owners: dict[str, list[int]], count: int) -> None:
    portions, _ = mixed(owners).take(Cursor(), count)
    assert abs(sum({each.task: each.share for each in portions}.values()) - 1) < 1e-9


def test_data_with_more_turns_are_gone_through_again_in_another_order() -> None:
    portions = a_pass(mixed({"large": [60] * 90, "small": [60] * 10}, temperature=2.0), 0)
    small = [each.batch.indices for each in portions if each.task == "small"]
    assert len(small) == 25
    assert sorted(small[:10]) == sorted(small[10:20])
    assert small[:10] != small[10:20]
