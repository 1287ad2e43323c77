"""When parts that are trained alone at first are joined by the others, and at which rate."""

import pytest

from alembert.train.parts import add_first_loss, get_learning_rate, has_plateaued, is_first_step_over
from alembert.train.settings import ModelSettings, OptimiserSettings, RunSettings, ScheduleSettings, get_rate_factor

PLATEAU_STEPS = 50


def settings(*, restart: bool = True, first_rate: float | None = 1e-3) -> RunSettings:
    return RunSettings(
        model=ModelSettings(first=("heads",), first_share=0.2, first_learning_rate=first_rate),
        optimiser=OptimiserSettings(learning_rate=5e-5),
        schedule=ScheduleSettings(warmup=0.1, restart=restart),
    )


@pytest.mark.parametrize(
    ("losses", "improvement", "expected"),
    [
        ([5.0] * (2 * PLATEAU_STEPS), None, False),
        ([5.0] * (2 * PLATEAU_STEPS - 1), 0.01, False),
        ([5.0] * (2 * PLATEAU_STEPS), 0.01, True),
        ([5.0] * PLATEAU_STEPS + [4.9] * PLATEAU_STEPS, 0.01, False),
        ([5.0] * PLATEAU_STEPS + [4.96] * PLATEAU_STEPS, 0.01, True),
        ([5.0] * PLATEAU_STEPS + [5.5] * PLATEAU_STEPS, 0.01, True),
        ([9.0] * 30 + [5.0] * (2 * PLATEAU_STEPS), 0.01, True),
    ],
    ids=["off", "too few", "level", "falling", "hardly falling", "rising", "only the last count"],
)
def test_a_plateau_is_seen_by_the_means_of_many_steps(
    losses: list[float], improvement: float | None, expected: bool
) -> None:
    assert has_plateaued(losses, improvement, PLATEAU_STEPS) is expected


def test_only_the_losses_that_are_compared_are_remembered() -> None:
    losses: list[float] = []
    for number in range(300):
        add_first_loss(losses, float(number), PLATEAU_STEPS)
    assert losses == [float(number) for number in range(300 - 2 * PLATEAU_STEPS, 300)]


def test_the_first_step_ends_with_its_share_of_the_run_or_at_a_plateau() -> None:
    model = ModelSettings(first=("heads",), first_share=0.25, first_plateau=0.01, first_plateau_steps=PLATEAU_STEPS)
    level = [5.0] * (2 * PLATEAU_STEPS)
    assert [is_first_step_over(at, [], model) for at in (0.0, 0.249, 0.25)] == [False, False, True]
    assert is_first_step_over(0.1, level, model)


def test_each_step_of_a_run_has_a_warm_up_of_its_own() -> None:
    alone = [get_learning_rate(at, None, settings()) for at in (0.0, 0.01, 0.02, 0.19)]
    assert alone == pytest.approx([0.0, 5e-4, 1e-3, 1e-3])
    freed = [get_learning_rate(at, 0.15, settings()) for at in (0.15, 0.1925, 0.32, 0.575, 1.0)]
    assert freed == pytest.approx([0.0, 2.5e-5, 4e-5, 2.5e-5, 0.0])


@pytest.mark.parametrize("freed", [None, 0.0, 0.2])
def test_without_a_restart_the_schedule_is_one_for_the_whole_run(freed: float | None) -> None:
    plain = settings(restart=False, first_rate=None)
    for at in (0.0, 0.05, 0.3, 1.0):
        assert get_learning_rate(at, freed, plain) == 5e-5 * get_rate_factor(at, plain.schedule)


def test_a_run_that_frees_nothing_late_keeps_its_rates_to_the_bit() -> None:
    for at in (0.0, 0.05, 1 / 3, 0.7):
        assert get_learning_rate(at, 0.0, settings()) == 5e-5 * get_rate_factor(at, settings().schedule)
