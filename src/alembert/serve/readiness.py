"""Readiness: each model is asked a known text from time to time, and must answer as it did when the service started.

The question goes through the queue like any other, so that it finds what a client would find. `/readyz` reads the last
result and never waits: a question that has been under way for too long counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from alembert.serve.admission import estimate_tokens
from alembert.serve.batcher import Batcher
from alembert.serve.guards import log_bug
from alembert.serve.models import Computation, ServedModel, ServiceInput, is_same_answer

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
        self._questions = [(model, model.prediction(), model.probe) for model in models if model.probe is not None]
        self._expected: dict[str, Any] = {}
        self._asked_at: float | None = None
        self.problem = "the service is starting"
        """Why the service is not ready; empty if it is."""

    async def start(self) -> None:
        """Note the answers that are expected from now on, and measure the speed of the slowest model."""
        rates = []
        for model, computation, probe in self._questions:
            self._expected[model.name] = await self._ask(computation, probe)
            rates.append(await self._measure(computation, probe))
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
