"""Admission: how much work is waiting, how fast it is done, and whether a request can be answered in time.

Work is counted in tokens, estimated from the bytes of a text, since a request may have one word or a thousand pages. The
rate is measured while the service is busy, on full batches and those that overlap: a lone short text says little about how fast a queue drains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

_BYTES_PER_TOKEN: Final = 4
_SPECIAL_TOKENS: Final = 2
_WINDOW_SECONDS: Final = 20.0
"""Computing time that the measured rate remembers."""


class Overloaded(Exception):
    """The queue is too long for a request; `retry_after` is in how many seconds there will be room."""

    def __init__(self, waiting_seconds: float, limit: float) -> None:
        super().__init__("the queue is full")
        self.waiting_seconds = waiting_seconds
        self.limit = limit
        self.retry_after = max(1, math.ceil(waiting_seconds - limit))


def estimate_tokens(item: Any) -> int:
    """Estimate the tokens of an input from its bytes: four a token in English, and a Chinese character has three.

    >>> estimate_tokens("Imatinib inhibits BCR-ABL1.")
    9
    """
    return _SPECIAL_TOKENS + _count_bytes(item) // _BYTES_PER_TOKEN + 1


def _count_bytes(item: Any) -> int:
    if isinstance(item, str):
        return len(item.encode("utf8", "surrogatepass"))
    values = item.values() if isinstance(item, Mapping) else item if isinstance(item, Sequence) else ()
    return sum(_count_bytes(value) for value in values)


def count_characters(item: Any) -> int:
    """Count the characters of all texts in an input.

    >>> count_characters({"question": "why?", "choices": ["a", "bc"]})
    7
    """
    if isinstance(item, str):
        return len(item)
    values = item.values() if isinstance(item, Mapping) else item if isinstance(item, Sequence) else ()
    return sum(count_characters(value) for value in values)


class DrainRate:
    """Tokens a second that the service computes while it is busy."""

    def __init__(self, batch_tokens: int, tokens_per_second: float = 1000.0) -> None:
        """Begin with a guess, which counts as one second of measuring."""
        self._batch_tokens = batch_tokens
        self._tokens, self._seconds = tokens_per_second, 1.0
        self._active = 0
        self._since = 0.0

    @property
    def tokens_per_second(self) -> float:
        return self._tokens / self._seconds

    def reset(self, tokens_per_second: float) -> None:
        """Forget what was measured."""
        self._tokens, self._seconds = max(1.0, tokens_per_second), 1.0

    def begin(self, now: float) -> None:
        """Note that a batch is being computed; the clock runs from the first of those under way."""
        if not self._active:
            self._since = now
        self._active += 1

    def finish(self, tokens: int, now: float) -> None:
        """Note that a batch is done, and how large it was.

        One that is less than half full, with no other under way, is not counted: the service was not busy.
        """
        self._active -= 1
        seconds, self._since = max(now - self._since, 1e-6), now
        if 2 * tokens < self._batch_tokens and not self._active:
            return
        self._tokens += tokens
        self._seconds += seconds
        if self._seconds > _WINDOW_SECONDS:
            share = _WINDOW_SECONDS / self._seconds
            self._tokens, self._seconds = self._tokens * share, self._seconds * share


class Admission:
    """Tokens that were admitted and are not done, and whether more would be done in time."""

    def __init__(self, rate: DrainRate, max_seconds: float) -> None:
        self.rate = rate
        self.max_seconds = max_seconds
        self.tokens = 0
        """Waiting or being computed."""
        self._refused: int | None = None
        """The fewest tokens that were refused since there was last room."""

    def admit(self, tokens: int) -> None:
        """Take tokens into account, or refuse them; an idle service takes what the limits of a request allow."""
        seconds = self.seconds_for(tokens)
        if self.tokens and seconds > self.max_seconds:
            self._refused = tokens if self._refused is None else min(tokens, self._refused)
            raise Overloaded(seconds, self.max_seconds)
        self.tokens += tokens

    def find_overload(self, size: int) -> Overloaded | None:
        """Return the refusal of a body by its bytes alone, if as little was refused before and nothing has been done since.

        A refusal takes time from what was admitted, so that most of them must cost less than reading a request.
        """
        tokens = size // _BYTES_PER_TOKEN
        if self._refused is None or tokens < self._refused:
            return None
        return Overloaded(self.seconds_for(tokens), self.max_seconds)

    def seconds_for(self, tokens: int) -> float:
        """Estimate in how many seconds these tokens, and all before them, will be done."""
        return (self.tokens + tokens) / self.rate.tokens_per_second

    def release(self, tokens: int) -> None:
        """Forget tokens that are done, or whose client has gone."""
        if tokens:
            self.tokens -= tokens
            self._refused = None
