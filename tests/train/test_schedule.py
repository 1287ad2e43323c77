"""The rate over a run: the published schedule, and the shapes beside it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.train.settings import ScheduleSettings, get_rate_factor

SHARES = st.floats(0, 1, allow_subnormal=False)


def published(step: int, steps: int, warmup_steps: int) -> float:
    """BERT's schedule, in steps: https://github.com/google-research/bert."""
    return step / warmup_steps if step < warmup_steps else 1 - step / steps


@given(st.integers(2, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
def test_linear_is_the_published_schedule(run: tuple[int, int, int]) -> None:
    step, steps, warmup = run
    got = get_rate_factor(step / steps, ScheduleSettings(warmup=warmup / steps))
    assert math.isclose(got, published(step, steps, warmup), abs_tol=1e-9)


def test_linear_steps_down_where_warm_up_ends() -> None:
    settings = ScheduleSettings(warmup=0.1)
    assert get_rate_factor(0.1 - 1e-9, settings) == pytest.approx(1)
    assert get_rate_factor(0.1, settings) == pytest.approx(0.9)


@pytest.mark.parametrize("kind", ["cosine", "constant"])
def test_others_reach_the_full_rate_after_warm_up(kind: str) -> None:
    assert get_rate_factor(0.25, ScheduleSettings(kind=kind, warmup=0.25)) == 1


def test_cosine_is_halfway_in_the_middle() -> None:
    assert get_rate_factor(0.6, ScheduleSettings(kind="cosine", warmup=0.2, final=0.5)) == pytest.approx(0.75)


@given(st.sampled_from(["linear", "cosine"]), SHARES, SHARES)
def test_the_end_is_final(kind: str, warmup: float, final: float) -> None:
    assert get_rate_factor(1.0, ScheduleSettings(kind=kind, warmup=warmup, final=final)) == final


@given(st.sampled_from(["linear", "cosine"]), SHARES, SHARES, SHARES, SHARES)
def test_the_rate_never_rises_after_warm_up(kind: str, warmup: float, final: float, one: float, two: float) -> None:
    settings = ScheduleSettings(kind=kind, warmup=warmup, final=final)
    early, late = sorted(warmup + (1 - warmup) * share for share in (one, two))
    assert get_rate_factor(late, settings) <= get_rate_factor(early, settings) + 1e-12


@given(st.sampled_from(["linear", "cosine", "constant"]), SHARES, st.floats(-1, 3, allow_subnormal=False))
def test_the_rate_is_a_share(kind: str, warmup: float, progress: float) -> None:
    assert 0 <= get_rate_factor(progress, ScheduleSettings(kind=kind, warmup=warmup)) <= 1


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "step"}, {"warmup": 1.5}, {"final": -0.1}, {"warmup": math.nan}, {"kind": "constant", "final": 0.1}],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSetting):
        ScheduleSettings(**wrong)
