"""Searches: how one prompt grows, step by step, when somebody else computes the logits.

A search says which rows of tokens wait for a next one (`waiting`), is given logits for them (`step`), and says at the
end what it found (`best`). So any number of prompts, each with a search of its own, share each pass of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from alembert.infer.next_token import Rules, Scores, log_softmax

Logits = npt.NDArray[np.float32]
"""A row over the vocabulary for each row of tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and what was written after it."""

    ids: tuple[int, ...]
    score: float = 0.0
    """Sum of the log probabilities that the model gives the new tokens."""
    rank: float = 0.0
    """The same after penalties: what beams are compared by."""
    finished: bool = False
    """Its last token ends the text."""


class Search(Protocol):
    """What every search can do."""

    @property
    def waiting(self) -> Sequence[Row]:
        """The rows that need a next token; none: the search is over."""

    def step(self, logits: Logits) -> None:
        """Go on by one token, given the logits of the waiting rows."""

    def best(self, count: int) -> Sequence[Row]:
        """Return at most so many results, the best first where they have an order."""


class Lines:
    """Independent rows, each grown by a function that picks a token from scores: greedy search and sampling."""

    def __init__(
        self,
        prompt: Sequence[int],
        rules: Rules,
        choosers: Sequence[Callable[[Scores], int]],
        *,
        longest: int,
    ) -> None:
        self._rules = rules
        self._choosers = choosers
        self._limit = len(prompt) + longest
        self._rows = [Row(tuple(prompt))] * len(choosers)

    @property
    def waiting(self) -> list[Row]:
        return [self._rows[number] for number in self._open()]

    def step(self, logits: Logits) -> None:
        for number, row_logits in zip(self._open(), logits, strict=True):
            self._rows[number] = self._longer(self._rows[number], row_logits, self._choosers[number])

    def best(self, count: int) -> list[Row]:
        return self._rows[:count]

    def _open(self) -> list[int]:
        return [
            number for number, row in enumerate(self._rows) if not row.finished and len(row.ids) < self._limit
        ]

    def _longer(self, row: Row, logits: npt.NDArray[np.float32], choose: Callable[[Scores], int]) -> Row:
        token = choose(self._rules.apply(logits.astype(np.float64), row.ids))
        score = row.score + float(log_softmax(logits)[token])
        return Row((*row.ids, token), score, score, finished=token == self._rules.end)


class Beams:
    """Beam search with the rules of transformers: the best `beams` rows go on side by side.

    A row that ends is kept if it is among the best `beams` of its step. The search is over when so many have ended and
    the best of the others, at its present length, is no better than the worst of them.
    """

    def __init__(
        self, prompt: Sequence[int], rules: Rules, *, longest: int, beams: int, length_penalty: float
    ) -> None:
        self._rules = rules
        self._prompt = len(prompt)
        self._limit = len(prompt) + longest
        self._beams = beams
        self._length_penalty = length_penalty
        self._ended: list[Row] = []
        self.waiting: list[Row] = [Row(tuple(prompt))]

    def step(self, logits: Logits) -> None:
        candidates = self._candidates(logits)
        ended = [row for row in candidates[: self._beams] if self._ends(row)]
        self._ended = sorted(self._ended + ended, key=self._worth, reverse=True)[: self._beams]
        self.waiting = [row for row in candidates if not self._ends(row)][: self._beams]
        if self._is_settled():
            self.waiting = []

    def best(self, count: int) -> list[Row]:
        return self._ended[:count]

    def _candidates(self, logits: Logits) -> list[Row]:
        """Return the best continuations of all beams: twice as many, since at most one of each beam ends it."""
        logs = np.stack([log_softmax(row_logits) for row_logits in logits])
        ranks = np.stack(
            [row.rank + self._rules.apply(log, row.ids) for row, log in zip(self.waiting, logs, strict=True)]
        )
        places = _largest(ranks.ravel(), 2 * self._beams)
        found = (divmod(int(place), ranks.shape[1]) for place in places)
        return [self._longer(beam, token, logs, ranks) for beam, token in found]

    def _longer(self, beam: int, token: int, logs: Scores, ranks: Scores) -> Row:
        row = self.waiting[beam]
        return Row(
            ids=(*row.ids, token),
            score=row.score + float(logs[beam, token]),
            rank=float(ranks[beam, token]),
            finished=token == self._rules.end,
        )

    def _ends(self, row: Row) -> bool:
        return row.finished or len(row.ids) == self._limit

    def _worth(self, row: Row) -> float:
        worth: float = row.rank / (len(row.ids) - self._prompt) ** self._length_penalty
        return worth

    def _is_settled(self) -> bool:
        if not self.waiting or len(self._ended) < self._beams:
            return False
        return self._worth(self.waiting[0]) <= self._worth(self._ended[-1])


def _largest(values: Scores, count: int) -> npt.NDArray[np.intp]:
    """Return the places of the largest finite values, the largest first, of equals the first."""
    if count < values.size:
        border = np.partition(values, -count)[-count]
        places = np.flatnonzero(values >= border)
    else:
        places = np.arange(values.size)
    places = places[np.isfinite(values[places])]
    return places[np.argsort(-values[places], kind="stable")][:count]
