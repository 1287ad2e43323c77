"""How fast models answer on this machine, measured side by side: from text to answer, tokenizer and decoding included.

In: models and the examples that they are scored on. Out: texts and tokens a second, and how long single texts take.
Models take turns over the same sample, in one order and then in the other, so that whatever else the machine does falls
on all of them alike; the middle of several rounds counts. The sample grows until the slowest model needs a fair share
of the time that is allowed, so a slow model is measured on fewer texts, not for longer. Nothing but these numbers
depends on a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Final, Protocol

from alembert.corpus.jobs import Progress
from alembert.errors import BadSetting
from alembert.tasks.example import EncodedExample

MEASURE_SECONDS: Final = 10.0
"""What measuring may take for each model, about."""
MIN_ROUNDS, MAX_ROUNDS = 3, 7
MIN_LATENCY_TEXTS: Final = 10
"""Texts that are asked one at a time, even if that takes longer than it may."""
_ROUNDS_PER_BUDGET: Final = 10
"""A round of the slowest model takes at least this part of its time, if there are texts enough."""

Clock = Callable[[], float]
ProgressCallback = Callable[[Progress], None]


class ExamplePredictor(Protocol):
    """What is measured: a `TaskModel`, or anything else that reads and answers examples."""

    def encode(self, examples: Sequence[Any]) -> Sequence[EncodedExample]:
        """Turn examples into what the model reads."""

    def predict(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Answer examples."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a model answered the same texts several times."""

    texts: int
    tokens: int
    """Tokens of these texts as this model reads them, special ones and overlaps of windows included."""
    seconds: tuple[float, ...]
    """What each round took."""

    @property
    def texts_per_second(self) -> float:
        return self.texts / median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / median(self.seconds)

    @property
    def relative_range(self) -> float:
        """How far the slowest round is from the fastest, as a share of the middle one."""
        return (max(self.seconds) - min(self.seconds)) / median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """How long a model took for single texts, one after the other, each of them alone."""

    seconds: tuple[float, ...]
    """What each text took, in their order."""

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of the texts was answered.

        >>> Latency(seconds=(0.3, 0.1, 0.2, 0.4)).percentile(0.5)
        0.2
        """
        ranked = sorted(self.seconds)
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def measure_speeds(
    models: Sequence[ExamplePredictor],
    examples: Sequence[Any],
    *,
    seconds: float = MEASURE_SECONDS,
    clock: Clock = perf_counter,
    on_progress: ProgressCallback = lambda _: None,
) -> list[Speed]:
    """Measure models in turn; each takes about `seconds` at most, but for three rounds of at least one text."""
    if seconds <= 0:
        raise BadSetting(f"The time to measure speed is {seconds:g} seconds; expected more than 0.")
    sample = _choose_sample(models, examples, seconds / _ROUNDS_PER_BUDGET, clock)
    took: list[list[float]] = [[] for _ in models]
    turns = list(range(len(models)))
    while len(took[0]) < MIN_ROUNDS or (len(took[0]) < MAX_ROUNDS and _is_time_left(took, seconds)):
        on_progress(Progress("measuring speed", len(took[0]), MAX_ROUNDS))
        for number in turns:
            took[number].append(_time_prediction(models[number], sample, clock))
        turns.reverse()
    return [
        Speed(texts=len(sample), tokens=_count_tokens(model, sample), seconds=tuple(each))
        for model, each in zip(models, took, strict=True)
    ]


def measure_latencies(
    models: Sequence[ExamplePredictor],
    examples: Sequence[Any],
    *,
    seconds: float = MEASURE_SECONDS,
    clock: Clock = perf_counter,
    on_progress: ProgressCallback = lambda _: None,
) -> list[Latency]:
    """Ask models for one text at a time, in turn, until the slowest has had about `seconds`."""
    took: list[list[float]] = [[] for _ in models]
    turns = list(range(len(models)))
    for model in models:
        model.predict(examples[:1])  # what is compiled for single texts is not part of answering them
    for number, example in enumerate(examples):
        if number >= MIN_LATENCY_TEXTS and max(map(sum, took)) >= seconds:
            break
        on_progress(Progress("single texts", number, len(examples)))
        for turn in turns:
            took[turn].append(_time_prediction(models[turn], [example], clock))
        turns.reverse()
    return [Latency(seconds=tuple(each)) for each in took]


def _choose_sample(
    models: Sequence[ExamplePredictor], examples: Sequence[Any], share: float, clock: Clock
) -> Sequence[Any]:
    """Double the texts until the slowest model needs its share of the time, or all are in."""
    count = 1
    while count < len(examples):
        drawn = take_evenly(examples, count)
        slowest = max(_time_prediction(model, drawn, clock) for model in models)
        if slowest >= share:
            return drawn
        # A guess from almost no time would be none: at most four times as many at once.
        count *= 4 if slowest < share / 8 else 2
    return examples


def take_evenly(examples: Sequence[Any], count: int) -> list[Any]:
    """Take examples from everywhere in their order.

    >>> take_evenly("abcdefgh", 3)
    ['a', 'c', 'f']
    """
    return [examples[number * len(examples) // count] for number in range(count)]


def _time_prediction(model: ExamplePredictor, sample: Sequence[Any], clock: Clock) -> float:
    start = clock()
    model.predict(sample)
    return clock() - start


def _is_time_left(took: Sequence[Sequence[float]], seconds: float) -> bool:
    """Return whether another round of the slowest model ends in time; what the sample took is left out."""
    return max(sum(each) + median(each) for each in took) <= seconds * (1 - 2 / _ROUNDS_PER_BUDGET)


def _count_tokens(model: ExamplePredictor, sample: Sequence[Any]) -> int:
    return sum(each.tokens for each in model.encode(sample))


def describe_machine(device: str) -> str:
    """Name what computes, in a few words."""
    if device != "cpu":
        return device
    from alembert.hardware.environment import read_cpu
    from alembert.hardware.torch_settings import choose_threads

    threads = choose_threads().count
    return f"{read_cpu().model}, {threads} thread{'s' * (threads > 1)}"
