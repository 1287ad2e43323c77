"""Speed is measured in turn, over the same texts, within its time; with a clock that the models themselves move."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.infer.speed import (
    MAX_ROUNDS,
    MIN_LATENCY_TEXTS,
    MIN_ROUNDS,
    Latency,
    Speed,
    describe_machine,
    measure_latencies,
    measure_speeds,
    take_evenly,
)


@dataclass
class Clock:
    """Time, which passes only while a model works, and who worked when on how many texts."""

    now: float = 0.0
    turns: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now


@dataclass
class Read:
    tokens: int = 5


@dataclass
class Worker:
    """A model that takes so many seconds for a text."""

    name: str
    seconds: float
    clock: Clock

    def predict(self, sample: Sequence[Any]) -> None:
        self.clock.now += self.seconds * len(sample)
        self.clock.turns.append((self.name, len(sample)))

    def encode(self, sample: Sequence[Any]) -> list[Read]:
        return [Read() for _ in sample]


def measured(*each: float, texts: int = 1000, seconds: float = 10.0) -> tuple[list[Speed], Clock]:
    clock = Clock()
    workers: list[Any] = [Worker(str(number), one, clock) for number, one in enumerate(each)]
    return measure_speeds(workers, range(texts), seconds=seconds, clock=clock), clock


def test_texts_and_tokens_a_second_are_those_of_the_clock() -> None:
    (slow, fast), _ = measured(0.1, 0.025)
    assert (slow.texts_per_second, fast.texts_per_second) == (pytest.approx(10), pytest.approx(40))
    assert (slow.tokens_per_second, fast.tokens_per_second) == (pytest.approx(50), pytest.approx(200))


def test_all_models_read_the_same_texts_as_often() -> None:
    found, clock = measured(0.1, 0.025, 0.001)
    assert len({(speed.texts, len(speed.seconds)) for speed in found}) == 1
    assert {count for _, count in clock.turns[-9:]} == {found[0].texts}


def test_models_take_turns_in_both_orders() -> None:
    found, clock = measured(0.1, 0.1)
    rounds = len(found[0].seconds)
    names = [name for name, _ in clock.turns[-2 * rounds :]]
    assert names == ["0", "1", "1", "0"] * (rounds // 2) + ["0", "1"] * (rounds % 2)


@given(
    each=st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=4),
    texts=st.integers(1, 2000),
    seconds=st.floats(5, 20),
)
def test_measuring_keeps_to_its_time(each: list[float], texts: int, seconds: float) -> None:
    found, clock = measured(*each, texts=texts, seconds=seconds)
    spent = max(
        sum(count * one for name, count in clock.turns if name == str(number)) for number, one in enumerate(each)
    )
    # One text three times, twice to find the sample, is the least that can be done.
    assert spent <= max(1.3 * seconds, 5 * max(each))
    assert MIN_ROUNDS <= len(found[0].seconds) <= MAX_ROUNDS


def test_a_text_that_takes_longer_than_its_time_is_still_measured() -> None:
    (found,), _ = measured(60.0)
    assert (found.texts, len(found.seconds)) == (1, MIN_ROUNDS)


def test_few_texts_are_all_read() -> None:
    (found,), _ = measured(1e-4, texts=12)
    assert (found.texts, len(found.seconds)) == (12, MAX_ROUNDS)


def test_the_middle_round_counts() -> None:
    found = Speed(texts=10, tokens=70, seconds=(1.0, 30.0, 2.0))
    assert (found.texts_per_second, found.tokens_per_second, found.relative_range) == (5.0, 35.0, 14.5)


@given(st.integers(1, 50), st.data())
def test_a_sample_has_no_text_twice_and_keeps_the_order(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, size))
    drawn = take_evenly(range(size), count)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == count


def test_no_time_is_refused() -> None:
    with pytest.raises(BadSetting, match="0 seconds; expected more than 0"):
        measured(0.1, seconds=0)


def test_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert describe_machine("cpu").endswith(", 1 thread")
    assert describe_machine("cuda:1") == "cuda:1"


def singles(*each: float, texts: int = 1000, seconds: float = 10.0) -> tuple[list[Latency], Clock]:
    clock = Clock()
    workers: list[Any] = [Worker(str(number), one, clock) for number, one in enumerate(each)]
    return measure_latencies(workers, range(texts), seconds=seconds, clock=clock), clock


def test_single_texts_are_asked_one_at_a_time_in_turn() -> None:
    found, clock = singles(0.5, 0.25, texts=3)
    assert [latency.seconds for latency in found] == [(0.5,) * 3, (0.25,) * 3]
    assert clock.turns == [(name, 1) for name in "01" + "01" + "10" + "01"]  # the first answers are not counted


def test_single_texts_end_when_the_slowest_has_had_its_time() -> None:
    found, _ = singles(0.5, 0.25, seconds=10.0)
    assert {len(latency.seconds) for latency in found} == {20}


def test_a_few_single_texts_are_asked_whatever_they_take() -> None:
    (found,), _ = singles(60.0, seconds=10.0)
    assert len(found.seconds) == MIN_LATENCY_TEXTS


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_percentile_is_the_first_that_covers_its_share(seconds: list[float], share: float) -> None:
    found = Latency(seconds=tuple(seconds)).percentile(share)
    assert sum(each <= found for each in seconds) >= share * len(seconds)
    assert sum(each < found for each in seconds) < share * len(seconds)
