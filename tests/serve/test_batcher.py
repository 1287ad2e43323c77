"""The queue: inputs of several requests are joined, take turns, and leave it with their client."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from alembert.serve.admission import Admission, DrainRate
from alembert.serve.batcher import Batcher, Ticket
from alembert.serve.models import BatchAnswer


@dataclass(frozen=True)
class Doubler:
    """Doubles numbers when the test says so, fails on 13, and remembers its batches."""

    key: tuple[str, ...] = ("doubler",)
    may_go: threading.Event = field(default_factory=threading.Event, compare=False)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0), compare=False)
    batches: list[list[int]] = field(default_factory=list, compare=False)

    def compute(self, examples: Sequence[int]) -> BatchAnswer:
        self.batches.append(list(examples))
        self.entered.release()
        assert self.may_go.wait(60)
        if 13 in examples:
            raise ValueError("13")
        return BatchAnswer([2 * each for each in examples], 0.25, 0.5)


Scenario = Callable[[Batcher, Doubler], Awaitable[None]]


def play(scenario: Scenario, budget: int = 100, seconds: float = 1000) -> Doubler:
    """Run a scenario with a queue of one lane."""
    doubler = Doubler()

    async def run() -> None:
        batcher = Batcher(Admission(DrainRate(budget, 1.0), seconds), budget, lanes=1)
        try:
            await scenario(batcher, doubler)
            assert batcher.admission.tokens == 0
        finally:
            doubler.may_go.set()
            await batcher.close()

    asyncio.run(run())
    return doubler


async def entered(doubler: Doubler) -> None:
    await asyncio.to_thread(doubler.entered.acquire)


async def answers(ticket: Ticket) -> list[Any]:
    return [answer async for answer in ticket.results()]


def test_requests_that_wait_are_computed_together() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        first = batcher.submit(doubler, [1], [1])
        await entered(doubler)
        others = [batcher.submit(doubler, [number], [1]) for number in (2, 3, 4)]
        doubler.may_go.set()
        assert [await answers(ticket) for ticket in (first, *others)] == [[2], [4], [6], [8]]
        assert others[0].tokenise_seconds == 0.25

    assert play(scenario).batches == [[1], [2, 3, 4]]


def test_a_short_request_does_not_wait_for_a_long_one_before_it() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        long = batcher.submit(doubler, [1, 2, 3, 4, 5], [1] * 5)
        await entered(doubler)
        short = batcher.submit(doubler, [9], [1])
        doubler.may_go.set()
        assert await answers(long) == [2, 4, 6, 8, 10]
        assert await answers(short) == [18]

    assert play(scenario, budget=2).batches == [[1, 2], [3, 9], [4, 5]]


def test_an_input_above_the_budget_is_computed_alone() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        doubler.may_go.set()
        assert await answers(batcher.submit(doubler, [1, 2, 3], [1, 50, 1])) == [2, 4, 6]

    assert play(scenario, budget=10).batches == [[1], [2], [3]]


def test_an_input_that_fails_does_not_spoil_the_others() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        doubler.may_go.set()
        one, other = batcher.submit(doubler, [1, 13], [1, 1]), batcher.submit(doubler, [2], [1])
        first, failed = await answers(one)
        assert (first, type(failed), await answers(other)) == (2, ValueError, [4])

    play(scenario)


def test_models_are_computed_apart() -> None:
    other = Doubler(key=("other",), may_go=threading.Event())
    other.may_go.set()

    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        doubler.may_go.set()
        tickets = [batcher.submit(each, [1], [1]) for each in (doubler, other, doubler)]
        assert [await answers(ticket) for ticket in tickets] == [[2]] * 3

    assert sorted(map(len, play(scenario).batches)) == [2]
    assert other.batches == [[1]]


def test_a_request_that_is_cancelled_leaves_the_queue() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        first = batcher.submit(doubler, [1], [1])
        await entered(doubler)
        gone = batcher.submit(doubler, [5, 6], [10, 10])
        stays = batcher.submit(doubler, [2], [1])
        assert (batcher.waiting, batcher.admission.tokens) == (3, 22)
        batcher.cancel(gone)
        assert (batcher.waiting, batcher.admission.tokens) == (1, 2)
        doubler.may_go.set()
        assert await answers(first) == [2]
        assert await answers(stays) == [4]

    assert play(scenario).batches == [[1], [2]]


def test_a_request_without_inputs_is_answered_at_once() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        doubler.may_go.set()
        assert await answers(batcher.submit(doubler, [], [])) == []
        assert await answers(batcher.submit(doubler, [1], [1])) == [2]

    play(scenario)


def test_what_is_cancelled_while_it_is_computed_is_forgotten() -> None:
    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        gone = batcher.submit(doubler, [1], [7])
        await entered(doubler)
        batcher.cancel(gone)
        doubler.may_go.set()
        assert await answers(batcher.submit(doubler, [2], [1])) == [4]

    play(scenario)


def test_a_batch_that_goes_wrong_does_not_end_its_lane() -> None:
    class Forgetful(Doubler):
        def compute(self, examples: Sequence[int]) -> BatchAnswer:
            return BatchAnswer([])

    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        (answer,) = await answers(batcher.submit(Forgetful(("forgetful",)), [1], [1]))
        assert isinstance(answer, ValueError)
        doubler.may_go.set()
        assert await answers(batcher.submit(doubler, [1], [1])) == [2]

    play(scenario)


def test_a_panic_of_a_library_does_not_end_its_lane() -> None:
    class Panic(BaseException):
        """As tokenizers raises it, whose base is no Exception."""

    class Panicking(Doubler):
        def compute(self, examples: Sequence[int]) -> BatchAnswer:
            raise Panic("text of a user")

    async def scenario(batcher: Batcher, doubler: Doubler) -> None:
        asked = batcher.submit(Panicking(("panicking",)), [1, 2], [1, 1])
        first, second = await asyncio.wait_for(answers(asked), 60)
        assert isinstance(first, RuntimeError)
        assert str(second) == "Panic"
        doubler.may_go.set()
        assert await answers(batcher.submit(doubler, [1], [1])) == [2]

    play(scenario)
