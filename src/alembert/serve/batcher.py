"""The queue: inputs of several requests are computed together, in threads, while the event loop goes on.

Requests take turns: a batch takes one input of each request that waits, then the next of each, up to a budget of tokens,
so that a short request does not wait for a long one before it. Everything here but `compute` runs on the event loop, so
nothing needs a lock. A request that is cancelled leaves the queue; what is being computed of it is not waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from alembert.serve.admission import Admission
from alembert.serve.models import BatchAnswer, Computation, compute_each

LANES: Final = 2
"""Batches under way at a time: one keeps the engine busy while the other is tokenised or decoded."""


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """An input that waits, the tokens that it may have, and where its answer goes."""

    example: Any
    tokens: int
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class Ticket:
    """A request in the queue: its answers as they come, and where its time went."""

    computation: Computation
    submitted: float
    waiting: deque[QueuedInput] = field(default_factory=deque)
    answers: list[asyncio.Future[Any]] = field(default_factory=list)
    queue_seconds: float | None = None
    tokenise_seconds: float = 0.0
    compute_seconds: float = 0.0

    async def results(self) -> AsyncIterator[Any]:
        """Yield the answers in the order of the inputs: records, and exceptions in place of some."""
        for answer in self.answers:
            yield await answer

    def note_times(self, answered: BatchAnswer) -> None:
        """Add the times of a batch that had inputs of this request."""
        self.tokenise_seconds += answered.tokenise_seconds
        self.compute_seconds += answered.compute_seconds


Batch = list[tuple[Ticket, QueuedInput]]
BatchObserver = Callable[[int, BatchAnswer], None]


class Batcher:
    """Joins inputs of requests to batches and computes them."""

    def __init__(
        self,
        admission: Admission,
        batch_tokens: int,
        *,
        lanes: int = LANES,
        clock: Callable[[], float] = time.monotonic,
        on_batch: BatchObserver = lambda size, answered: None,
    ) -> None:
        self.admission = admission
        self.batch_tokens = batch_tokens
        self._clock = clock
        self._on_batch = on_batch
        self._queue: deque[Ticket] = deque()
        self._arrived = asyncio.Event()
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="alembert-serve")
        self._lanes = [asyncio.ensure_future(self._work()) for _ in range(lanes)]

    @property
    def waiting(self) -> int:
        """Inputs that wait."""
        return sum(len(ticket.waiting) for ticket in self._queue)

    def submit(
        self, computation: Computation, examples: Sequence[Any], tokens: Sequence[int], *, check: bool = True
    ) -> Ticket:
        """Put a request into the queue, or raise `Overloaded`; `check` is off for the service's own questions."""
        if check:
            self.admission.admit(sum(tokens))
        else:
            self.admission.tokens += sum(tokens)
        loop = asyncio.get_running_loop()
        ticket = Ticket(computation, self._clock())
        for example, size in zip(examples, tokens, strict=True):
            queued = QueuedInput(example, size, loop.create_future())
            ticket.waiting.append(queued)
            ticket.answers.append(queued.answer)
        if ticket.waiting:
            self._queue.append(ticket)
            self._arrived.set()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Take what still waits of a request out of the queue; its client has gone."""
        if ticket.waiting:  # otherwise it has left the queue, which may be long
            self.admission.release(sum(queued.tokens for queued in ticket.waiting))
            ticket.waiting.clear()
            self._queue.remove(ticket)
        for answer in ticket.answers:
            answer.cancel()

    async def close(self) -> None:
        """Stop; the batches under way are finished."""
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _work(self) -> None:
        """Compute batches for as long as the service runs."""
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            batch = self._take()
            try:
                await self._compute(batch)
            except Exception as problem:  # a lane that ended would leave its share of the requests without an answer
                for _, queued in batch:
                    if not queued.answer.done():
                        queued.answer.set_result(problem)

    def _take(self) -> Batch:
        """Take a batch: inputs for the computation of the first request, in turns, up to the budget."""
        key = self._queue[0].computation.key
        batch: Batch = []
        size = 0
        turns = deque(ticket for ticket in self._queue if ticket.computation.key == key)
        while turns:
            ticket = turns.popleft()
            if batch and size + ticket.waiting[0].tokens > self.batch_tokens:
                break
            queued = ticket.waiting.popleft()
            batch.append((ticket, queued))
            size += queued.tokens
            if ticket.waiting:
                turns.append(ticket)
        self._requeue({id(ticket): ticket for ticket, _ in batch})
        return batch

    def _requeue(self, served: dict[int, Ticket]) -> None:
        """Let requests that had their turn, and are not done, stand at the end."""
        others = [ticket for ticket in self._queue if id(ticket) not in served]
        self._queue = deque([*others, *(ticket for ticket in served.values() if ticket.waiting)])
        for ticket in served.values():
            if ticket.queue_seconds is None:
                ticket.queue_seconds = self._clock() - ticket.submitted

    async def _compute(self, batch: Batch) -> None:
        """Compute a batch in a thread and hand out its answers, also if this task is cancelled meanwhile."""
        tokens = sum(queued.tokens for _, queued in batch)
        self.admission.rate.begin(self._clock())
        computation = batch[0][0].computation
        loop = asyncio.get_running_loop()
        examples = [queued.example for _, queued in batch]
        try:
            answered = await loop.run_in_executor(self._pool, compute_each, computation.compute, examples)
        finally:
            self.admission.rate.finish(tokens, self._clock())
            self.admission.release(tokens)
        self._on_batch(len(batch), answered)
        for ticket in {id(ticket): ticket for ticket, _ in batch}.values():
            ticket.note_times(answered)
        for (_, queued), answer in zip(batch, answered.answers, strict=True):
            if not queued.answer.done():
                queued.answer.set_result(answer)
