"""The loop: a run that was stopped ends as one that was not, to the bit, and the clock, the best and bad numbers are minded."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from alembert import hardware
from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor
from alembert.errors import BadSetting
from alembert.nn.config import preset
from alembert.nn.model import new_model
from alembert.text.tokenizer import Tokenizer
from alembert.train import loop as loop_module
from alembert.train.loop import TrainingLoop
from alembert.train.objective import EvalResult, LMTarget, MicroBatch
from alembert.train.pretrain.lm import PretrainObjective
from alembert.train.pretrain.settings import HeldOutSettings, ObjectiveWeights, PretrainSettings
from alembert.train.progress import MAX_SKIPPED_STEPS
from alembert.train.runlog import RunLog, TrainingProgress
from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings, SavingSettings, ScheduleSettings
from alembert.train.state import RunStates

USUAL = PretrainSettings(
    steps=7,
    batch=BatchSettings(tokens=128, micro_tokens=64),
    optimiser=OptimiserSettings(learning_rate=1e-3),
    schedule=ScheduleSettings(warmup=0.2),
    evaluation=HeldOutSettings(share=0.1, tokens=200, times=3),
    saving=SavingSettings(steps=2, log_every=3),
)
OF_THE_CLOCK = ("seconds", "tokens_per_second", "peak_share")
Make = Callable[..., TrainingLoop]


class Killed(Exception):
    """Stands for a kill in the middle of a run."""


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture
def make(shards: Shards, tokenizer: Tokenizer, tmp_path: Path) -> Make:
    """Give a function that makes a loop over a folder, always with the same fresh model."""

    def made(
        settings: PretrainSettings = USUAL,
        folder: str = "run",
        lesson: type[PretrainObjective] = PretrainObjective,
        **options: Any,
    ) -> TrainingLoop:
        taught = lesson(shards, tokenizer, settings)
        heads = {each.head: each.spec for each in taught.objectives.values()}
        sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48}
        config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128, **sizes)
        states, log = RunStates(tmp_path / folder / "state"), RunLog(tmp_path / folder, tensorboard=False)
        return TrainingLoop(new_model(config, heads, seed=3), taught, settings, states=states, log=log, **options)

    return made


def killed_at(step: int) -> Callable[[TrainingProgress], None]:
    def on_progress(progress: TrainingProgress) -> None:
        if progress.step == step:
            raise Killed

    return on_progress


def all_tensors(loop: TrainingLoop) -> Iterator[tuple[str, Tensor]]:
    yield from loop.model.state_dict().items()
    yield from loop.optimiser.state().items()
    if loop.average is not None:
        yield from loop.average.state().items()


def rows(loop: TrainingLoop) -> list[dict[str, Any]]:
    return [{n: v for n, v in row.items() if n not in OF_THE_CLOCK} for row in loop.log.rows()]


def assert_same(one: TrainingLoop, two: TrainingLoop) -> None:
    first, second = dict(all_tensors(one)), dict(all_tensors(two))
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


# -- resumed = uninterrupted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"saving": replace(USUAL.saving, ema_decay=0.9)},
        {"saving": replace(USUAL.saving, ema_decay=0.9, towards_start=0.4)},
        {"optimiser": OptimiserSettings(learning_rate=1e-3, half_heads=True)},
        {"optimiser": OptimiserSettings(learning_rate=1e-3, update_every=(4, 2, 1))},
        {"optimiser": OptimiserSettings(name="lamb", learning_rate=1e-3, layer_decay=0.8)},
        {"model": ModelSettings(first=("heads",), first_share=0.6)},
        {
            "model": ModelSettings(first=("heads",), first_share=0.6, first_learning_rate=1e-2),
            "schedule": ScheduleSettings(warmup=0.2, restart=True),
        },
        {"model": ModelSettings(frozen=("layers:1",), unfreeze_share=0.8)},
        {"model": ModelSettings(recompute=True)},
        {"model": ModelSettings(precision="bfloat16")},
        {"objectives": ObjectiveWeights(masked_lm=1.0, next_sentence=1.0, boundaries=0.3, causal=0.5)},
        {"objectives": ObjectiveWeights(masked_lm=0.0, rtd=50.0, entity_types=1.0)},
        {
            "objectives": ObjectiveWeights(masked_lm=0.0, rtd=50.0),
            "optimiser": OptimiserSettings(learning_rate=1e-3, half_heads=True),
        },
        {"objectives": ObjectiveWeights(masked_lm=1.0, entity_swap=50.0, entity_types=1.0)},
    ],
    ids=[
        "plain",
        "average",
        "towards start",
        "half heads",
        "update every",
        "lamb",
        "first parts",
        "restart",
        "thawing",
        "recompute",
        "bfloat16",
        "objectives",
        "generator",
        "generator and half heads",
        "swaps",
    ],
)
def test_a_run_that_was_killed_ends_like_one_that_was_not(make: Make, changes: dict[str, Any]) -> None:
    settings = replace(USUAL, **changes)
    whole = make(settings, "whole")
    whole.run()
    with pytest.raises(Killed):
        make(settings, "parts", on_progress=killed_at(5)).run()
    continued = make(settings, "parts")
    continued.run()
    assert_same(whole, continued)
    assert rows(whole) == rows(continued)


def test_a_run_killed_before_its_first_step_and_again_and_again_is_the_same(make: Make) -> None:
    whole = make(folder="whole")
    whole.run()
    for step in (1, 1, 3, 4, 7):
        with pytest.raises(Killed):
            make(folder="parts", on_progress=killed_at(step)).run()
    continued = make(folder="parts")
    continued.run()
    assert_same(whole, continued)
    assert rows(whole) == rows(continued)


def test_a_run_killed_after_its_end_ends_again_in_the_same_way(make: Make) -> None:
    once = make()
    verdict = once.run()
    before = rows(once)
    again = make()
    assert again.run().scores == verdict.scores
    assert_same(once, again)
    assert rows(again) == before


def test_a_continued_run_begins_where_the_last_state_is(make: Make) -> None:
    settings = replace(USUAL, evaluation=replace(USUAL.evaluation, times=0))
    with pytest.raises(Killed):
        make(settings, on_progress=killed_at(6)).run()
    steps: list[int] = []
    make(settings, on_progress=lambda progress: steps.append(progress.step)).run()
    assert steps == [5, 6, 7]


def test_dropout_is_drawn_anew_in_every_step(make: Make) -> None:
    loop = make()
    (portion, *_), _ = loop.objective.sample(Cursor(), 1, 0.0)
    micro = loop.objective.collate(portion)
    totals = {"masked_lm": 1.0}
    losses = []
    for step in (0, 0, 1):
        loop.position.done = replace(loop.position.done, step=step)
        losses.append(float(loop._loss(0, micro, totals, {}).detach()))
    assert losses[0] == losses[1] != losses[2]


def test_products_have_the_type_that_is_fastest_here_unless_another_is_asked_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(hardware.detect_capabilities(), training_type="bfloat16")
    monkeypatch.setattr(hardware, "detect_capabilities", lambda: machine)
    assert make().half == "bfloat16"
    assert make(replace(USUAL, model=ModelSettings(precision="float32"))).half is None


# -- what must not matter


def test_the_number_of_streams_does_not_change_a_bit(make: Make) -> None:
    runs = [make(folder=str(streams)) for streams in (1, 2, 3)]
    for streams, loop in enumerate(runs, 1):
        loop.streams = streams
        loop.run()
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


def test_looking_at_held_out_text_does_not_change_training(make: Make) -> None:
    often = make(replace(USUAL, evaluation=replace(USUAL.evaluation, times=7)), "often")
    never = make(replace(USUAL, evaluation=replace(USUAL.evaluation, times=0)), "never")
    for loop in (often, never):
        loop.run()
    assert_same(often, never)


def test_gradients_do_not_depend_on_how_a_step_is_cut_into_micro_batches(make: Make) -> None:
    settings = replace(USUAL, objectives=ObjectiveWeights(masked_lm=1.0, next_sentence=0.5, boundaries=0.3))
    found = []
    for pieces in (1, 3):
        loop = make(settings, str(pieces))
        loop.model.eval()  # dropout is drawn by micro-batch
        portions, _ = loop.objective.sample(Cursor(), 4, 0.0)
        cut = [replace(p, spans=p.spans[n::pieces]) for p in portions for n in range(pieces)]
        loop._gradients([portion for portion in cut if portion.spans])
        found.append({name: p.grad for name, p in loop.model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("micro_batches", [1, 16])
def test_weights_of_passes_do_not_depend_on_the_micro_batches_of_a_step(make: Make, micro_batches: int) -> None:
    weights = ObjectiveWeights(masked_lm=1.0, next_sentence=0.5, causal=0.25)
    batch = BatchSettings(tokens=64 * micro_batches, micro_tokens=64)
    loop = make(replace(USUAL, objectives=weights, batch=batch))
    assert isinstance(loop.objective, PretrainObjective)
    portions, _ = loop.objective.sample(Cursor(), 640, 0.0)
    share: dict[str, float] = dict.fromkeys(weights.chosen(), 0.0)
    for portion in portions:
        for name, target in loop.objective.collate(portion).targets.items():
            count = len(target.labels)
            share[name] += count * loop.objective._factor(loop.objective.objectives[name], count, count)
    steps = len(portions) / micro_batches
    assert {name: total / steps for name, total in share.items()} == pytest.approx(weights.chosen(), rel=0.2)


# -- what is trained and what comes out


def test_only_the_first_parts_change_at_first(make: Make) -> None:
    loop = make(replace(USUAL, model=ModelSettings(first=("heads",), first_share=1.0)))
    before = {name: weight.clone() for name, weight in loop.model.state_dict().items()}
    loop.run()
    moved = {n for n, weight in loop.model.state_dict().items() if not torch.equal(weight, before[n])}
    assert moved
    assert all(name.startswith("heads.") for name in moved)


@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_run_killed_around_the_freeing_of_parts_ends_like_one_that_was_not(make: Make, stop: int) -> None:
    plateau = {"first_plateau": 1.0, "first_plateau_steps": 2}
    model = ModelSettings(first=("heads",), first_share=0.9, first_learning_rate=1e-2, **plateau)
    settings = replace(USUAL, model=model, schedule=ScheduleSettings(warmup=0.2, restart=True))
    settings = replace(settings, saving=replace(settings.saving, steps=1))
    whole = make(settings, "whole")
    whole.run()
    assert whole.position.plateaued
    assert whole.position.freed is not None
    assert whole.position.freed.step == 4
    with pytest.raises(Killed):
        make(settings, "parts", on_progress=killed_at(stop)).run()
    continued = make(settings, "parts")
    continued.run()
    assert_same(whole, continued)
    assert rows(whole) == rows(continued)


def test_parts_that_are_freed_begin_at_the_rate_zero_without_moments(make: Make) -> None:
    model = ModelSettings(first=("heads",), first_share=0.5, first_learning_rate=1e-2)
    schedule = ScheduleSettings(warmup=0.5, restart=True)
    saving = replace(USUAL.saving, log_every=1)
    loop = make(replace(USUAL, steps=8, model=model, schedule=schedule, saving=saving))
    loop.run()
    rates = [row["rate"] for row in loop.log.rows("step")]
    assert rates == pytest.approx([0, 5e-3, 1e-2, 1e-2, 0, 5e-4, 5e-4, 2.5e-4])
    counts = {int(step) for name, step in loop.optimiser.state().items() if name.startswith("step/")}
    assert counts == {4}
    assert [row["step"] for row in loop.log.rows("held_out")].count(4) == 1


def test_the_written_encoder_lies_towards_the_start(make: Make) -> None:
    exact = replace(USUAL, model=ModelSettings(precision="float32"))
    plain, mixed = make(exact, "plain"), make(replace(exact, saving=SavingSettings(towards_start=0.75)), "mixed")
    start = {name: weight.clone() for name, weight in plain.model.state_dict().items()}
    plain.run()
    verdict = mixed.run()
    for name, weight in mixed.model.state_dict().items():
        trained = plain.model.state_dict()[name]
        expected = torch.lerp(start[name], trained, 0.25) if name.startswith("encoder.") else trained
        assert torch.equal(weight, expected)
    assert mixed.objective.summarise([mixed.objective.evaluate(mixed.model)]).scores == verdict.scores


def test_the_average_is_what_comes_out(make: Make) -> None:
    loop = make(replace(USUAL, saving=replace(USUAL.saving, ema_decay=0.9)))
    loop.run()
    assert loop.average is not None
    average = loop.average.state()
    assert all(torch.equal(p, average[f"average/{name}"]) for name, p in loop.model.named_parameters())


def test_the_average_is_not_the_last_weights(make: Make) -> None:
    plain, averaged = (
        make(folder="plain"),
        make(replace(USUAL, saving=replace(USUAL.saving, ema_decay=0.9)), "averaged"),
    )
    for loop in (plain, averaged):
        loop.run()
    pairs = zip(plain.model.parameters(), averaged.model.parameters(), strict=True)
    assert any(not torch.equal(one, two) for one, two in pairs)


def test_the_verdict_is_that_of_the_weights_that_come_out(make: Make) -> None:
    exact = ModelSettings(precision="float32")  # what the loop would choose by itself is left out below
    loop = make(replace(USUAL, model=exact, saving=replace(USUAL.saving, ema_decay=0.9)))
    verdict = loop.run()
    again = loop.objective.summarise([loop.objective.evaluate(loop.model)])
    assert again.loss == pytest.approx(verdict.loss, rel=1e-6)


# -- the log


def test_rows_come_as_often_as_asked_for(make: Make) -> None:
    loop = make()
    loop.run()
    assert [row["step"] for row in loop.log.rows("step")] == [3, 6]
    # At the beginning, when a third and two thirds are done, and at the end.
    assert [row["step"] for row in loop.log.rows("held_out")] == [0, 3, 5, 7]


def test_a_row_has_the_mean_loss_since_the_row_before(make: Make) -> None:
    every = make(replace(USUAL, saving=replace(USUAL.saving, log_every=1)), "every")
    third = make(folder="third")
    for loop in (every, third):
        loop.run()
    losses = [row["loss"] for row in every.log.rows("step")]
    row = next(third.log.rows("step"))
    assert min(losses[:3]) < row["loss"] < max(losses[:3])
    assert row["losses"] == {"masked_lm": row["loss"]}


class Unmasked(PretrainObjective):
    """No unit is short enough to be masked."""

    def collate(self, portion: Any) -> MicroBatch:
        nothing = torch.zeros(0, dtype=torch.int64)
        return replace(super().collate(portion), targets={"masked_lm": LMTarget(nothing, nothing)})


def test_a_step_without_anything_to_predict_is_no_accident(make: Make) -> None:
    loop = make(replace(USUAL, steps=2, saving=SavingSettings(log_every=1)), lesson=Unmasked)
    loop.run()
    assert [row["losses"] for row in loop.log.rows("step")] == [{}, {}]


# -- the clock


class Clock(SimpleNamespace):
    """A clock that moves when work is done, not by itself."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Timed(PretrainObjective):
    """A step takes a second, an evaluation three or as many as a test says."""

    clock: Clock
    evaluation = 3.0

    def sample(self, cursor: Cursor, count: int, progress: float) -> Any:
        self.clock.now += 1.0
        return super().sample(cursor, count, progress)

    def evaluate(self, *arguments: Any) -> Any:
        self.clock.now += self.evaluation
        return super().evaluate(*arguments)


@pytest.fixture
def timed(make: Make, monkeypatch: pytest.MonkeyPatch) -> TrainingLoop:
    """A loop of a minute in which saving takes two seconds, every ten."""
    clock = Timed.clock = Clock()
    monkeypatch.setattr(loop_module, "time", clock)
    small = BatchSettings(tokens=64, micro_tokens=64)  # what a step learns does not matter here
    settings = replace(
        USUAL, steps=None, hours=1 / 60, batch=small, saving=SavingSettings(minutes=10 / 60, log_every=1)
    )
    loop = make(settings, lesson=Timed)
    save = loop.states.save

    def slow_save(*arguments: Any, **options: Any) -> None:
        clock.now += 2.0
        save(*arguments, **options)

    monkeypatch.setattr(loop.states, "save", slow_save)
    return loop


def test_hours_end_on_time(timed: TrainingLoop) -> None:
    timed.run()
    assert 50 < Timed.clock.now <= 60


def test_hours_too_few_for_a_step_are_refused(timed: TrainingLoop) -> None:
    timed.settings = replace(timed.settings, hours=6 / 3600)
    with pytest.raises(BadSetting, match=r"over before the first step.*Give more hours"):
        timed.run()


@pytest.mark.parametrize("seconds", [1.0, 6.0, 12.0])
def test_training_takes_four_fifths_of_the_time_between_evaluations(
    timed: TrainingLoop, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(Timed, "evaluation", seconds)
    timed.settings = replace(
        timed.settings, hours=2 / 60, evaluation=replace(USUAL.evaluation, times=20), saving=SavingSettings()
    )
    timed.run()
    steps = [row["step"] for row in timed.log.rows("held_out")]
    between = [after - before for before, after in pairwise(steps)]
    assert len(between) > 1
    assert min(between[:-1]) >= 4 * seconds
    assert 100 < Timed.clock.now <= 120


def test_long_evaluations_do_not_end_a_run_early(timed: TrainingLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timed, "evaluation", 16.0)
    timed.run()
    assert timed.position.done.step > 10


def test_a_run_that_goes_on_from_its_best_state_ends_on_time(timed: TrainingLoop, make: Make) -> None:
    settings = replace(timed.settings, evaluation=replace(USUAL.evaluation, times=0))
    timed.settings, timed.on_progress = settings, killed_at(1)
    with pytest.raises(Killed):
        timed.run()
    Timed.clock.now = Timed.evaluation  # the state is that of the first evaluation
    make(settings, lesson=Timed).run()
    assert 50 < Timed.clock.now <= 60


def test_going_back_to_the_best_weights_takes_no_time_back(timed: TrainingLoop) -> None:
    timed.settings = replace(timed.settings, saving=replace(timed.settings.saving, keep="best"))
    timed.run()
    assert timed.position.done.seconds == pytest.approx(Timed.clock.now)


def test_all_time_is_counted(timed: TrainingLoop) -> None:
    timed.run()
    assert timed.position.done.seconds == pytest.approx(Timed.clock.now)


def test_the_rate_is_near_zero_when_the_hours_are_over(timed: TrainingLoop) -> None:
    timed.run()
    *_, last = timed.log.rows("step")
    assert last["rate"] < 0.1 * USUAL.optimiser.learning_rate


def test_states_are_saved_by_the_minute(timed: TrainingLoop) -> None:
    timed.run()
    latest = timed.states.latest()
    assert latest is not None
    assert timed.position.done.seconds - latest[0].facts["done"]["seconds"] < 20


def test_a_clock_that_stands_still_is_no_accident(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "time", Clock())
    assert make(replace(USUAL, steps=3)).run().loss > 0


# -- the best


class Judged(PretrainObjective):
    """Says in advance how good the model will be found."""

    losses: Iterator[float]

    def summarise(self, found: Any) -> EvalResult:
        return EvalResult({}, next(self.losses))


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ((5.0, 3.0, 4.0, 6.0), 3),
        ((5.0, 3.0, 3.0, 6.0), 5),
        ((5.0, float("nan"), 4.0, 4.5), 5),
        ((1.0, 2.0, 2.0, 2.0), 0),
    ],
)
def test_the_best_state_is_kept(make: Make, losses: tuple[float, ...], best: int) -> None:
    Judged.losses = iter(losses)
    loop = make(replace(USUAL, saving=replace(USUAL.saving, steps=1)), lesson=Judged)
    loop.run()
    found = loop.states.best()
    assert found is not None
    assert found.step == best


@pytest.mark.parametrize(("keep", "kept"), [("best", 3), ("last", 7)])
def test_a_run_says_which_weights_it_keeps(make: Make, keep: str, kept: int) -> None:
    Judged.losses = iter([5.0, 3.0, 4.0, 6.0])
    loop = make(replace(USUAL, saving=replace(USUAL.saving, steps=1, keep=keep)), lesson=Judged)
    loop.run()
    assert loop.kept == kept


def test_a_model_that_cannot_be_judged_is_trained_all_the_same(make: Make) -> None:
    Judged.losses = iter([float("nan")] * 4)
    loop = make(lesson=Judged)
    loop.run()
    assert loop.position.done.step == 7
    assert loop.position.best is None


# -- numbers that are not finite


class Poisoned(PretrainObjective):
    """Its loss is not a number in some steps."""

    bad: Callable[[], bool]

    def loss(self, *arguments: Any) -> tuple[Tensor, dict[str, float]]:
        loss, sums = super().loss(*arguments)
        return (loss * float("nan"), dict.fromkeys(sums, float("nan"))) if self.bad() else (loss, sums)


def poisoned(make: Make, settings: PretrainSettings, steps: range) -> TrainingLoop:
    loop = make(settings, lesson=Poisoned)
    assert isinstance(loop.objective, Poisoned)
    loop.objective.bad = lambda: loop.position.done.step in steps
    return loop


def test_a_step_whose_gradients_are_not_finite_is_left_out_and_said(make: Make) -> None:
    loop = poisoned(make, USUAL, range(2, 4))
    loop.run()
    events = list(loop.log.rows("event"))
    assert [event["step"] for event in events] == [3, 4]
    assert {event["what"] for event in events} == {"skipped step"}
    assert all(torch.isfinite(weight).all() for weight in loop.model.parameters())
    assert loop.position.skipped == 0


def test_a_step_that_is_left_out_moves_nothing(make: Make) -> None:
    settings = replace(USUAL, steps=3, saving=replace(USUAL.saving, ema_decay=0.9))
    loop = poisoned(make, settings, range(3))
    before = {name: tensor.clone() for name, tensor in all_tensors(loop)}
    loop.run()
    after = dict(all_tensors(loop))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_without_finite_gradients_stops_and_keeps_its_last_state(make: Make) -> None:
    loop = poisoned(make, replace(USUAL, steps=100), range(5, 100))
    with pytest.raises(BadSetting, match=f"gradients of {MAX_SKIPPED_STEPS} steps in a row.*lower rate"):
        loop.run()
    latest = loop.states.latest()
    assert loop.position.done.step == 5 + MAX_SKIPPED_STEPS
    assert latest is not None
    assert all(torch.isfinite(weight).all() for weight in latest[0].tensors["model"].values())


def test_bad_steps_that_are_not_in_a_row_do_not_stop_a_run(make: Make) -> None:
    settings = replace(USUAL, steps=2 * MAX_SKIPPED_STEPS + 2, saving=SavingSettings(log_every=5))
    loop = make(settings, lesson=Poisoned)
    assert isinstance(loop.objective, Poisoned)
    loop.objective.bad = lambda: loop.position.done.step % 2 == 0
    loop.run()
    assert len(list(loop.log.rows("event"))) == MAX_SKIPPED_STEPS + 1
