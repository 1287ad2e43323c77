"""Searches: how one prompt grows, step by step, when somebody else computes the logits.

A search says which lines of tokens wait for a next one (`waiting`), is given logits for them (`step`), and says at the
end what it found (`best`). So any number of prompts, each with a search of its own, share each pass of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from alembert.tasks.decoding.rules import Rules, Scores, log_softmax

Logits = npt.NDArray[np.float32]
"""A number for each piece of the vocabulary, for each line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A prompt and what was written after it."""

    ids: tuple[int, ...]
    score: float = 0.0
    """Sum of the log probabilities that the model gives the new tokens."""
    rank: float = 0.0
    """The same after penalties: what beams are compared by."""
    finished: bool = False
    """Its last token ends the text."""
    parent: int = 0
    """Number, among the lines that waited before, of the one that it goes on from; at first, the prompt."""


class Search(Protocol):
    """What every search can do."""

    @property
    def waiting(self) -> Sequence[Line]:
        """The lines that need a next token; none: the search is over."""

    def step(self, logits: Logits) -> None:
        """Go on by one token, given the logits of the waiting lines."""

    def best(self, count: int) -> Sequence[Line]:
        """Return at most so many results, the best first where they have an order."""


class Lines:
    """Independent lines, each grown by a function that picks a token from scores: greedy search and sampling."""

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
        self._prompt = len(prompt)
        self._limit = len(prompt) + longest
        self._lines = [Line(tuple(prompt))] * len(choosers)

    @property
    def waiting(self) -> list[Line]:
        return [self._lines[number] for number in self._open()]

    def step(self, logits: Logits) -> None:
        for place, (number, own) in enumerate(zip(self._open(), logits, strict=True)):
            longer = self._longer(self._lines[number], own, self._choosers[number])
            self._lines[number] = replace(longer, parent=place)

    def best(self, count: int) -> list[Line]:
        return self._lines[:count]

    def _open(self) -> list[int]:
        lines = enumerate(self._lines)
        return [number for number, line in lines if not line.finished and len(line.ids) < self._limit]

    def _longer(self, line: Line, logits: npt.NDArray[np.float32], choose: Callable[[Scores], int]) -> Line:
        written = len(line.ids) - self._prompt
        token = choose(self._rules.apply(logits.astype(np.float64), line.ids, written))
        score = line.score + float(log_softmax(logits)[token])
        return Line((*line.ids, token), score, score, finished=token == self._rules.end)


class Beams:
    """Beam search with the rules of transformers: the best `beams` lines go on side by side.

    A line that ends is kept if it is among the best `beams` of its step. The search is over when so many have ended and
    the best of the others, at its present length, is no better than the worst of them.
    """

    def __init__(self, prompt: Sequence[int], rules: Rules, *, longest: int, beams: int, length_penalty: float) -> None:
        self._rules = rules
        self._prompt = len(prompt)
        self._limit = len(prompt) + longest
        self._beams = beams
        self._length_penalty = length_penalty
        self._ended: list[Line] = []
        self.waiting: list[Line] = [Line(tuple(prompt))]

    def step(self, logits: Logits) -> None:
        candidates = self._candidates(logits)
        ended = [line for line in candidates[: self._beams] if self._ends(line)]
        self._ended = sorted(self._ended + ended, key=self._worth, reverse=True)[: self._beams]
        self.waiting = [line for line in candidates if not self._ends(line)][: self._beams]
        if self._is_settled():
            self.waiting = []

    def best(self, count: int) -> list[Line]:
        return self._ended[:count]

    def _candidates(self, logits: Logits) -> list[Line]:
        """Return the best continuations of all beams: twice as many, since at most one of each beam ends it."""
        logs = np.stack([log_softmax(own) for own in logits])
        pairs = zip(self.waiting, logs, strict=True)
        ranks = np.stack([line.rank + self._ruled(log, line) for line, log in pairs])
        places = _largest(ranks.ravel(), 2 * self._beams)
        found = (divmod(int(place), ranks.shape[1]) for place in places)
        return [self._longer(beam, token, logs, ranks) for beam, token in found]

    def _ruled(self, log: Scores, line: Line) -> Scores:
        return self._rules.apply(log, line.ids, len(line.ids) - self._prompt)

    def _longer(self, beam: int, token: int, logs: Scores, ranks: Scores) -> Line:
        line = self.waiting[beam]
        return Line(
            ids=(*line.ids, token),
            score=line.score + float(logs[beam, token]),
            rank=float(ranks[beam, token]),
            finished=token == self._rules.end,
            parent=beam,
        )

    def _ends(self, line: Line) -> bool:
        return line.finished or len(line.ids) == self._limit

    def _worth(self, line: Line) -> float:
        worth: float = line.rank / (len(line.ids) - self._prompt) ** self._length_penalty
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
