"""Jobs that workers do: every result once, in order, a bounded number ahead, whoever dies; and an end to dying."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadFile, UserError
from alembert.workers.pool import MAX_WORKER_DEATHS, OrderedPool, WorkerLost


@dataclass
class Scripted:
    """Workers without a cluster: a script says which news comes next, and who dies of it."""

    dies: Callable[[Any, int], bool] = lambda job, times: False
    stillborn: Callable[[int], bool] = lambda worker: False
    never: frozenset[int] = frozenset()
    """Workers that never get ready."""
    choose: Callable[[int], int] = lambda many: 0
    numbers: Iterator[int] = field(default_factory=count)
    tries: dict[Any, int] = field(default_factory=dict)
    tickets: dict[int, tuple[int, Any]] = field(default_factory=dict)
    queues: dict[int, deque[int]] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    alive: set[int] = field(default_factory=set)

    def start(self) -> tuple[int, int]:
        worker = next(self.numbers)
        self.alive.add(worker)
        self.queues[worker] = deque()
        return worker, self.submit(worker, "open")

    def submit(self, worker: int, job: Any) -> int:
        ticket = next(self.numbers)
        self.tickets[ticket] = (worker, job)
        self.queues[worker].append(ticket)
        return ticket

    def wait(self, tickets: Sequence[int]) -> int:
        heads = [queue[0] for worker, queue in self.queues.items() if queue and worker not in self.never]
        told = [ticket for ticket in tickets if ticket in self.results]
        if told:
            return told[self.choose(len(told))]
        self._work(heads[self.choose(len(heads))])
        return self.wait(tickets)

    def _work(self, ticket: int) -> None:
        worker, job = self.tickets[ticket]
        self.tries[job] = times = self.tries.get(job, 0) + 1
        if self.stillborn(times) if job == "open" else self.dies(job, times):
            self._kill(worker)
        else:
            self.queues[worker].popleft()
            self.results[ticket] = None if job == "open" else f"done {job}"

    def _kill(self, worker: int) -> None:
        for ticket in self.queues[worker]:
            self.results[ticket] = WorkerLost()
        self.queues[worker].clear()

    def result(self, ticket: int) -> Any:
        result = self.results[ticket]
        if isinstance(result, Exception):
            raise result
        return result

    def stop(self, worker: int) -> None:
        self.alive.remove(worker)
        self._kill(worker)


def run(hands: Scripted, jobs: int, workers: int = 2) -> list[str]:
    return list(OrderedPool[int, str](hands, workers, lambda job: f"job {job}").run(iter(range(jobs))))


def expected(jobs: int) -> list[str]:
    return [f"done {job}" for job in range(jobs)]


@given(data=st.data(), jobs=st.integers(0, 20), workers=st.integers(1, 4))
def test_every_result_comes_once_in_order_whoever_dies(data: st.DataObject, jobs: int, workers: int) -> None:
    deaths = {job: data.draw(st.integers(0, MAX_WORKER_DEATHS - 1), f"deaths of {job}") for job in range(jobs)}
    hands = Scripted(
        dies=lambda job, times: times <= deaths[job],
        choose=lambda many: data.draw(st.integers(0, many - 1), "who is next"),
    )
    assert run(hands, jobs, workers) == expected(jobs)
    assert not hands.alive


@given(data=st.data(), workers=st.integers(1, 4))
def test_jobs_are_taken_a_few_ahead_and_no_more(data: st.DataObject, workers: int) -> None:
    taken: list[int] = []
    jobs = (taken.append(job) or job for job in range(30))
    hands = Scripted(choose=lambda many: data.draw(st.integers(0, many - 1), "who is next"))
    results = OrderedPool[int, str](hands, workers, str).run(jobs)
    ahead = [len(taken) - given for given, _ in enumerate(results)]
    assert max(ahead) <= 3 * workers


def test_a_job_that_kills_every_worker_is_named_and_ends_the_run() -> None:
    hands = Scripted(dies=lambda job, times: job == 3)
    with pytest.raises(UserError, match=rf"{MAX_WORKER_DEATHS} workers have died one after the other on job 3;"):
        run(hands, 9)
    assert hands.tries[3] == MAX_WORKER_DEATHS
    assert not hands.alive


def test_a_job_behind_the_one_that_kills_is_not_blamed() -> None:
    hands = Scripted(dies=lambda job, times: job == 0 and times < MAX_WORKER_DEATHS)
    assert run(hands, 6, workers=1) == expected(6)
    assert hands.tries[1] == 1


def test_workers_that_die_before_they_are_ready_end_the_run() -> None:
    hands = Scripted(stillborn=lambda times: True)
    with pytest.raises(UserError, match="before they were ready"):
        run(hands, 3)
    assert hands.tries["open"] == MAX_WORKER_DEATHS


def test_a_worker_that_is_ready_late_is_forgiven() -> None:
    hands = Scripted(stillborn=lambda times: times % MAX_WORKER_DEATHS != 0, dies=lambda job, times: times < 3)
    assert run(hands, 5, workers=1) == expected(5)


def test_what_has_no_room_on_the_cluster_is_not_waited_for() -> None:
    first = Scripted(never=frozenset({2}))  # the second worker
    assert run(first, 7) == expected(7)


def test_what_a_worker_refuses_is_refused() -> None:
    class Refusing(Scripted):
        def result(self, ticket: int) -> Any:
            if self.tickets[ticket][1] == 2:
                raise BadFile("The disk is full.")
            return super().result(ticket)

    hands = Refusing()
    with pytest.raises(BadFile, match="The disk is full"):
        run(hands, 5)
    assert not hands.alive


def test_workers_go_when_nobody_wants_more() -> None:
    hands = Scripted()
    results = OrderedPool[int, str](hands, 3, str).run(iter(range(100)))
    assert next(results) == "done 0"
    results.close()
    assert not hands.alive
