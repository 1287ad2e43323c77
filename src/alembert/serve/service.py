"""The service behind the routes: models, queue, limits, readiness and metrics of a server process.

It is made on the event loop of its process. In: the inputs of a request. Out: a ticket in the queue whose answers come one
by one; or a `RequestProblem` that says why the request is refused.

For `Readiness`, each model is asked a known text from time to time, and must answer as it did when the service started.
The question goes through the queue like any other, so that it finds what a client would find. `/readyz` reads the last
result and never waits: a question that has been under way for too long counts as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from alembert.errors import UserError
from alembert.serve import ServeSettings
from alembert.serve.admission import Admission, DrainRate, Overloaded, count_characters, estimate_tokens
from alembert.serve.batcher import Batcher, Ticket
from alembert.serve.guards import log_bug, to_busy
from alembert.serve.labels import LabelFile
from alembert.serve.metrics import Metrics
from alembert.serve.models import PROBE_TEXT, BatchAnswer, Computation, ServedModel, ServiceInput, is_same_answer
from alembert.serve.wire import RequestProblem

_MAX_ROUNDS: Final = 3
"""A question may take this many times the interval, since a queue may stand before it."""
_MEASURED_TOKENS: Final = 1024
"""Of the batch whose speed is measured at the start."""


class Readiness:
    """Whether the service answers, and answers right."""

    def __init__(
        self, models: Iterable[ServedModel], batcher: Batcher, interval: float, clock: Callable[[], float]
    ) -> None:
        self._batcher = batcher
        self._interval = interval
        self._clock = clock
        every = list(models)
        self._questions = [(model, model.prediction(), model.probe) for model in every if model.probe is not None]
        self._embeddings = [model.embedding() for model in every if model.embedder is not None]
        self._expected: dict[str, Any] = {}
        self._asked_at: float | None = None
        self.problem = "the service is starting"
        """Why the service is not ready; empty if it is."""

    async def start(self) -> None:
        """Note the answers that are expected from now on, and measure the speed of the slowest model.

        Vectors are made, too, so that the first client need not wait until their graph is compiled.
        """
        rates = []
        for model, computation, probe in self._questions:
            self._expected[model.name] = await self._ask(computation, probe)
            rates.append(await self._measure(computation, probe))
        for embedding in self._embeddings:
            await self._ask(embedding, PROBE_TEXT)
            rates.append(await self._measure(embedding, PROBE_TEXT))
        if rates:
            self._batcher.admission.rate.reset(min(rates))
        self.problem = ""

    async def _measure(self, computation: Computation, probe: ServiceInput) -> float:
        """Return the tokens a second of a batch of the known text."""
        tokens = estimate_tokens(probe)
        copies = max(1, min(self._batcher.batch_tokens, _MEASURED_TOKENS) // tokens)
        begun = self._clock()
        examples = computation.prepare([probe]) * copies
        ticket = self._batcher.submit(computation, examples, [tokens] * copies, check=False)
        async for answer in ticket.results():
            _raise(answer)
        return copies * tokens / max(self._clock() - begun, 1e-6)

    async def watch(self) -> None:
        """Ask again and again."""
        while True:
            await asyncio.sleep(self._interval)
            await self.check()

    async def check(self) -> None:
        """Ask each model once."""
        self._asked_at = self._clock()
        try:
            for model, computation, probe in self._questions:
                answer = await self._ask(computation, probe)
                if not is_same_answer(answer, self._expected[model.name]):
                    self.problem = f"the model {model.name} answers a known text otherwise than at the start"
                    return
            self.problem = ""
        except Exception as bug:
            log_bug(bug)
            self.problem = "a model failed on a known text"
        finally:
            self._asked_at = None

    async def _ask(self, computation: Computation, probe: ServiceInput) -> Any:
        ticket = self._batcher.submit(computation, computation.prepare([probe]), [estimate_tokens(probe)], check=False)
        return _raise(await ticket.answers[0])

    def find_problem(self) -> str:
        """Return why the service is not ready, without waiting; empty if it is."""
        asked = self._asked_at
        if asked is not None and self._clock() - asked > _MAX_ROUNDS * self._interval:
            return "a known text has been waiting for its answer for too long"
        return self.problem


def _raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


Result = TypeVar("Result")


class Service:
    """All that the routes of a server process share."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        settings: ServeSettings,
        *,
        labels: LabelFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = models
        self.settings = settings
        self.labels = labels
        self.metrics = Metrics()
        self.clock = clock
        self.is_stopping = False
        self.batcher: Batcher
        self.readiness: Readiness
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make the queue, measure the speed, and ask the known texts."""
        settings = self.settings
        admission = Admission(DrainRate(settings.batch_tokens), settings.max_queue_seconds)
        self.batcher = Batcher(admission, settings.batch_tokens, clock=self.clock, on_batch=self._note_batch)
        self.readiness = Readiness(self.models.values(), self.batcher, settings.probe_seconds, self.clock)
        self.metrics.gauge("queue_tokens", "Tokens that wait or are being computed.", lambda: admission.tokens)
        self.metrics.gauge("queue_inputs", "Inputs that wait.", lambda: self.batcher.waiting)
        self.metrics.gauge("drain_tokens_per_second", "Measured speed.", lambda: admission.rate.tokens_per_second)
        self.metrics.gauge("ready", "1 if /readyz says yes.", lambda: not self.find_problem())
        await self.readiness.start()
        self._watch = asyncio.create_task(self.readiness.watch())

    async def stop(self) -> None:
        """End the queue."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        await self.batcher.close()

    def find_problem(self) -> str:
        """Return why the service is not ready; empty if it is."""
        return "the service is stopping" if self.is_stopping else self.readiness.find_problem()

    def find_model(self, name: str | None) -> ServedModel:
        """Return the model of a name, or the only one."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is not None and name in self.models:
            return self.models[name]
        there = ", ".join(self.models)
        found = "The request names no model" if name is None else "The request names a model that is not here"
        raise RequestProblem(404, "no_model", f"{found}. Set `model` to one of: {there}.")

    def check_size(self, inputs: Sequence[Any]) -> None:
        """Refuse a request with too many texts or characters, or with none."""
        settings = self.settings
        if not inputs:
            raise RequestProblem(422, "bad_request", "The request has no inputs. Put at least one text into `inputs`.")
        if len(inputs) > settings.max_texts:
            raise self._too_large(f"{len(inputs):,} texts", f"{settings.max_texts:,}")
        characters = sum(map(count_characters, inputs))
        if characters > settings.max_characters:
            raise self._too_large(f"texts of {characters:,} characters", f"{settings.max_characters:,}")

    def _too_large(self, found: str, limit: str) -> RequestProblem:
        sentence = f"The request has {found}; this server takes at most {limit}. Send the texts in several requests."
        return RequestProblem(413, "too_large", sentence)

    def submit(
        self,
        computation: Computation,
        inputs: Sequence[ServiceInput],
        examples: Sequence[Any],
        tokens: Sequence[int] | None = None,
    ) -> Ticket:
        """Put examples into the queue, or say when there will be room; their tokens are estimated if they are not given."""
        self._check_running()
        try:
            costs = [estimate_tokens(item) for item in inputs] if tokens is None else tokens
            ticket = self.batcher.submit(computation, examples, costs)
        except Overloaded as full:
            raise to_busy(full) from None
        self.metrics.count("characters_total", sum(map(count_characters, inputs)))
        return ticket

    def check_queue(self, size: int) -> None:
        """Refuse a request by the bytes of its body if there is no room for as little, or the service stops."""
        self._check_running()
        full = self.find_overload(size)
        if full is not None:
            raise to_busy(full)

    def find_overload(self, size: int) -> Overloaded | None:
        """Return the refusal of a body of so many bytes, if the queue is full; not of a service that stops."""
        return None if self.is_stopping else self.batcher.admission.find_overload(size)

    def _check_running(self) -> None:
        if self.is_stopping:
            headers = {"connection": "close", "retry-after": "5"}
            raise RequestProblem(503, "stopping", "The server is stopping. Send the request again.", headers)

    def finish(self, ticket: Ticket) -> None:
        """Take a request out of the queue, answered or not, and note its times."""
        if any(not answer.done() for answer in ticket.answers):
            self.metrics.count("cancelled_total")
        self.batcher.cancel(ticket)
        if ticket.queue_seconds is not None:
            self.metrics.observe("queue_seconds", ticket.queue_seconds)
        self.metrics.observe("request_seconds", self.clock() - ticket.submitted)

    def _note_batch(self, size: int, answered: BatchAnswer) -> None:
        failed = sum(isinstance(answer, Exception) for answer in answered.answers)
        self.metrics.count("texts_total", size - failed)
        self.metrics.count("failed_texts_total", failed)
        self.metrics.observe("batch_inputs", size)
        self.metrics.observe("compute_seconds", answered.compute_seconds)


def to_problem(error: BaseException) -> RequestProblem:
    """Return the refusal that an error of a model is to its client; only errors that a user can mend have a sentence."""
    if isinstance(error, RequestProblem):
        return error
    if isinstance(error, UserError):
        return RequestProblem(422, "bad_input", str(error))
    log_bug(error)
    return RequestProblem(
        500,
        "bug",
        "The model failed on this input; that is a bug, and the log of the server has the place in the code.",
    )


async def unless_disconnected(work: Awaitable[Result], disconnected: Awaitable[Any]) -> Result | None:
    """Wait for work, or until the client goes away; then the work is cancelled, and there is no result."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected)
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


def server_timing(ticket: Ticket) -> str:
    """Return the times of a request in milliseconds as the header Server-Timing has them."""
    times = {
        "queue": ticket.queue_seconds or 0.0,
        "tokenise": ticket.tokenise_seconds,
        "compute": ticket.compute_seconds,
    }
    return ", ".join(f"{name};dur={1000 * seconds:.2f}" for name, seconds in times.items())
