"""How far a run is, and when it is over."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.feed import Cursor
from alembert.errors import BadFile
from alembert.train.progress import Budget, RunTotals, TrainerState

HALF = RunTotals(step=50, tokens=5000, seconds=1800.0)


@pytest.mark.parametrize("budget", [Budget(steps=100), Budget(tokens=10_000), Budget(hours=1.0)])
def test_progress_is_the_share_of_what_was_asked_for(budget: Budget) -> None:
    assert budget.progress(RunTotals()) == 0
    assert budget.progress(HALF) == 0.5
    assert budget.progress(RunTotals(step=200, tokens=20_000, seconds=7200.0)) == 1


def test_the_reserve_is_no_part_of_the_time_to_train() -> None:
    assert Budget(hours=1.0, reserve=600.0).progress(RunTotals(step=1, seconds=1500.0)) == 0.5


def test_a_reserve_beyond_the_hours_leaves_no_time() -> None:
    budget = Budget(hours=0.001, reserve=10.0)
    assert budget.progress(RunTotals(step=1, seconds=0.1)) == 1
    assert budget.is_over(RunTotals())


@pytest.mark.parametrize("budget", [Budget(steps=100), Budget(tokens=10_000)])
def test_steps_and_tokens_are_over_when_they_are_reached(budget: Budget) -> None:
    assert not budget.is_over(RunTotals(step=99, tokens=9_999, seconds=1e9))
    assert budget.is_over(RunTotals(step=100, tokens=10_000))


@given(step=st.floats(0.01, 50.0), hours=st.floats(0.05, 3.0), reserve=st.integers(0, 60))
def test_hours_end_before_the_deadline_and_not_long_before(step: float, hours: float, reserve: int) -> None:
    budget, done = Budget(hours=hours, reserve=reserve), RunTotals()
    # All steps but the last few at once: each takes the same time.
    steps = max(0, int((hours * 3600 - reserve) / step) - 3)
    done = RunTotals(step=steps, seconds=steps * step)
    while not budget.is_over(done):
        done = RunTotals(step=done.step + 1, seconds=done.seconds + step)
    assert done.seconds <= hours * 3600 - reserve + 1e-6
    assert done.seconds >= hours * 3600 - reserve - 2 * step - 1e-6


def test_time_left_follows_from_the_pace_so_far() -> None:
    assert Budget(steps=100).seconds_left(HALF) == 1800
    assert Budget(steps=100).seconds_left(RunTotals()) == float("inf")


def test_time_left_of_a_continued_run_follows_from_its_pace_since_then() -> None:
    since = RunTotals(step=50, tokens=0, seconds=90_000)  # it had stood still for a day
    done = RunTotals(step=60, tokens=0, seconds=90_100)
    assert Budget(steps=100).seconds_left(done, since) == pytest.approx(400)
    assert Budget(steps=100).seconds_left(since, since) == float("inf")
    assert Budget(hours=50).seconds_left(done, since) == pytest.approx(50 * 3600 - 90_100)


def test_a_position_comes_back_from_its_facts() -> None:
    position = TrainerState(cursor=Cursor(1, 2, 3), evaluations=4, judged=6, best=0.5, skipped=2, sums={"tokens": 7.0})
    assert TrainerState.of_facts(json.loads(json.dumps(position.as_facts()))) == position


def test_a_state_of_another_version_is_named() -> None:
    facts = TrainerState().as_facts()
    del facts["skipped"]
    with pytest.raises(BadFile, match="another version of alembert"):
        TrainerState.of_facts(facts)
