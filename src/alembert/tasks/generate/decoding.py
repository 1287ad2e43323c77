"""How a model writes: the method of search, and what keeps texts from growing too long or repeating themselves.

A search grows one prompt, step by step, when somebody else computes the logits: it says which lines of tokens wait for
a next one (`active`), is given logits for them (`step`), and says at the end what it found (`best`). So any number of
prompts, each with a search of its own, share each pass of the model.

What may come next is decided on one row of scores over the vocabulary (logits or log probabilities), in numpy and
double precision: penalties and bans first, then the probabilities to draw from. The order of the steps and their
borders are those of transformers: repetition penalty (CTRL, Keskar et al. 2019), n-grams that may not repeat, the least
length, then temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting

DecodingMethod = Literal["greedy", "sample", "beam"]

_INTEGER_RANGES: Final = {
    "max_new_tokens": (1, 1_000_000),
    "top_k": (1, 10_000_000),
    "beams": (1, 1_000),
    "min_new_tokens": (0, 1_000_000),
    "no_repeat_ngram": (1, 1_000_000),
    "seed": (0, 2**63),
    "count": (1, 1_000),
}
_LARGEST_PENALTY: Final = 50
"""The length of the longest text to this power is still a number."""
_METHOD_BY_SETTING: Final = {
    "temperature": "sample",
    "top_k": "sample",
    "top_p": "sample",
    "beams": "beam",
    "length_penalty": "beam",
}


@dataclass(frozen=True, kw_only=True)
class DecodeSettings:
    """How text is generated."""

    method: DecodingMethod = "greedy"
    """Decoding: greedy, sample or beam."""
    max_new_tokens: int = 128
    """Maximum new tokens, within the limit of the model."""
    min_new_tokens: int = 0
    """Minimum new tokens before a text may end."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_k: int | None = None
    """Sampling: draw from the k most probable tokens."""
    top_p: float | None = None
    """Sampling: draw from the most probable tokens with this total probability (nucleus sampling)."""
    beams: int = 4
    """Beam search: number of beams."""
    length_penalty: float = 1.0
    """Beam search: log probabilities are divided by length ** penalty; larger values prefer longer texts."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that have occurred become less probable (CTRL)."""
    no_repeat_ngram: int | None = None
    """No n-gram of this many tokens may occur twice; none: off."""
    seed: int = 0
    """Random seed; a sample depends only on the seed, its prompt and its number."""
    count: int = 1
    """Texts per prompt: samples, or the best beams."""

    def __post_init__(self) -> None:
        if self.method not in get_args(DecodingMethod):
            methods = ", ".join(get_args(DecodingMethod))
            raise BadSetting(f"`method` is {self.method!r}; expected one of {methods}.")
        self._check_whole_numbers()
        self._check_numbers()
        self._check_method()
        if self.min_new_tokens > self.max_new_tokens:
            raise BadSetting(
                f"`min_new_tokens` is {self.min_new_tokens}, and `max_new_tokens` is {self.max_new_tokens}. Use less, or more."
            )

    def _check_whole_numbers(self) -> None:
        for name, (least, most) in _INTEGER_RANGES.items():
            value = getattr(self, name)
            if value is None and name in ("top_k", "no_repeat_ngram"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from {least} to {most:,}.")

    def _check_numbers(self) -> None:
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            if not _is_finite(value) or value <= 0:
                raise BadSetting(f"`{name}` is {value!r}; expected a number above 0.")
        if self.top_p is not None and not (_is_finite(self.top_p) and 0 < self.top_p <= 1):
            raise BadSetting(f"`top_p` is {self.top_p!r}; expected a number above 0, at most 1.")
        if not _is_finite(self.length_penalty) or abs(self.length_penalty) > _LARGEST_PENALTY:
            raise BadSetting(
                f"`length_penalty` is {self.length_penalty!r}; expected a number from -{_LARGEST_PENALTY} to "
                f"{_LARGEST_PENALTY}."
            )

    def _check_method(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name, method in _METHOD_BY_SETTING.items():
            if self.method != method and getattr(self, name) != usual[name]:
                raise BadSetting(
                    f"`{name}` is a setting of the method `{method}`, and the method is `{self.method}`. "
                    f"Leave it out, or use `{method}`."
                )
        most = {"greedy": 1, "beam": self.beams}.get(self.method, self.count)
        if self.count > most:
            raise BadSetting(
                f"`count` is {self.count}, and the method `{self.method}` finds {most} for each prompt. "
                "Use the method `sample`, or more beams."
            )

    @property
    def lines(self) -> int:
        """Lines that one prompt may need at once."""
        return self.beams if self.method == "beam" else self.count


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


TokenScores = npt.NDArray[np.float64]
"""One number for each piece of the vocabulary."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitsProcessor:
    """Which pieces may follow, whatever the method that chooses among them."""

    eos_id: int
    """The token that ends a text. If the rules leave nothing else it is allowed, so there is always a way on."""
    banned_ids: npt.NDArray[np.intp]
    """Ids that are no text."""
    repetition_penalty: float = 1.0
    """Above 1: what has occurred becomes less likely."""
    no_repeat: int | None = None
    """Length of the n-grams that may not occur twice."""
    shortest: int = 0
    """New tokens that a text has at least, before it ends."""

    def apply(self, scores: TokenScores, ids: Sequence[int], written: int = 0) -> TokenScores:
        """Return the scores of what may follow the ids, the last of which are `written`; minus infinity: it may not."""
        ruled = scores.copy()
        if self.repetition_penalty != 1:
            self._discourage(ruled, ids)
        ruled[self._repeats(ids)] = -np.inf
        ruled[self.banned_ids] = -np.inf
        if written < self.shortest:
            end, ruled[self.eos_id] = ruled[self.eos_id], -np.inf
            ruled[self.eos_id] = -np.inf if np.isfinite(ruled).any() else end
        return ruled

    def _discourage(self, scores: TokenScores, ids: Sequence[int]) -> None:
        seen = np.unique(np.array(ids, np.intp))
        before = scores[seen]
        # Division would make a negative score larger.
        scores[seen] = np.where(before < 0, before * self.repetition_penalty, before / self.repetition_penalty)

    def _repeats(self, ids: Sequence[int]) -> list[int]:
        if self.no_repeat is None:
            return []
        tail = len(ids) - self.no_repeat + 1
        begun = list(ids[max(0, tail) :])
        starts = (i for i in range(tail) if list(ids[i : i + len(begun)]) == begun)
        return [token for i in starts if (token := ids[i + len(begun)]) != self.eos_id]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenSampler:
    """Draws tokens at random, with a generator of its own."""

    rng: np.random.Generator
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __call__(self, scores: TokenScores) -> int:
        """Draw a token by its probability."""
        reached = np.cumsum(self.probabilities(scores))
        return int(np.searchsorted(reached / reached[-1], self.rng.random(), side="right"))

    def probabilities(self, scores: TokenScores) -> TokenScores:
        """Return what the sampler draws from; it sums to one."""
        scaled = scores / self.temperature
        if self.top_k is not None:
            place = max(0, scaled.size - self.top_k)
            scaled[scaled < np.partition(scaled, place)[place]] = -np.inf
        likely = np.exp(log_softmax(scaled))
        return likely if self.top_p is None else _keep_nucleus(likely, self.top_p)


def pick_most_likely(scores: TokenScores) -> int:
    """Return the token with the highest score, of equals the first."""
    return int(np.argmax(scores))


def log_softmax(scores: npt.NDArray[np.floating]) -> TokenScores:
    """Return the log probabilities that logits stand for."""
    shifted = np.asarray(scores, dtype=np.float64) - np.max(scores)
    logs: TokenScores = shifted - np.log(np.exp(shifted).sum())
    return logs


def _keep_nucleus(likely: TokenScores, share: float) -> TokenScores:
    """Keep the likeliest pieces that together reach the share."""
    order = np.argsort(-likely, kind="stable")
    reached = np.cumsum(likely[order])
    kept = likely.copy()
    kept[order[reached - likely[order] >= share]] = 0
    kept /= kept.sum()
    return kept


Logits = npt.NDArray[np.float32]
"""A number for each piece of the vocabulary, for each line."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
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


class DecodingSearch(Protocol):
    """What every search can do."""

    @property
    def active(self) -> Sequence[Hypothesis]:
        """The lines that need a next token; none: the search is over."""

    def step(self, logits: Logits) -> None:
        """Go on by one token, given the logits of the waiting lines."""

    def best(self, count: int) -> Sequence[Hypothesis]:
        """Return at most so many results, the best first where they have an order."""


class IndependentSearch:
    """Independent lines, each grown by a function that picks a token from scores: greedy search and sampling."""

    def __init__(
        self,
        prompt: Sequence[int],
        rules: LogitsProcessor,
        choosers: Sequence[Callable[[TokenScores], int]],
        *,
        longest: int,
    ) -> None:
        self._rules = rules
        self._choosers = choosers
        self._prompt = len(prompt)
        self._limit = len(prompt) + longest
        self._lines = [Hypothesis(tuple(prompt))] * len(choosers)

    @property
    def active(self) -> list[Hypothesis]:
        return [self._lines[number] for number in self._open()]

    def step(self, logits: Logits) -> None:
        for place, (number, own) in enumerate(zip(self._open(), logits, strict=True)):
            longer = self._longer(self._lines[number], own, self._choosers[number])
            self._lines[number] = replace(longer, parent=place)

    def best(self, count: int) -> list[Hypothesis]:
        return self._lines[:count]

    def _open(self) -> list[int]:
        lines = enumerate(self._lines)
        return [number for number, line in lines if not line.finished and len(line.ids) < self._limit]

    def _longer(
        self, line: Hypothesis, logits: npt.NDArray[np.float32], choose: Callable[[TokenScores], int]
    ) -> Hypothesis:
        written = len(line.ids) - self._prompt
        token = choose(self._rules.apply(logits.astype(np.float64), line.ids, written))
        score = line.score + float(log_softmax(logits)[token])
        return Hypothesis((*line.ids, token), score, score, finished=token == self._rules.eos_id)


class BeamSearch:
    """Beam search with the rules of transformers: the best `beams` lines go on side by side.

    A line that ends is kept if it is among the best `beams` of its step. The search is over when so many have ended and
    the best of the others, at its present length, is no better than the worst of them.
    """

    def __init__(
        self, prompt: Sequence[int], rules: LogitsProcessor, *, longest: int, beams: int, length_penalty: float
    ) -> None:
        self._rules = rules
        self._prompt = len(prompt)
        self._limit = len(prompt) + longest
        self._beams = beams
        self._length_penalty = length_penalty
        self._ended: list[Hypothesis] = []
        self.active: list[Hypothesis] = [Hypothesis(tuple(prompt))]

    def step(self, logits: Logits) -> None:
        candidates = self._candidates(logits)
        ended = [line for line in candidates[: self._beams] if self._ends(line)]
        self._ended = sorted(self._ended + ended, key=self._worth, reverse=True)[: self._beams]
        self.active = [line for line in candidates if not self._ends(line)][: self._beams]
        if self._is_settled():
            self.active = []

    def best(self, count: int) -> list[Hypothesis]:
        return self._ended[:count]

    def _candidates(self, logits: Logits) -> list[Hypothesis]:
        """Return the best continuations of all beams: twice as many, since at most one of each beam ends it."""
        logs = np.stack([log_softmax(own) for own in logits])
        pairs = zip(self.active, logs, strict=True)
        ranks = np.stack([line.rank + self._ruled(log, line) for line, log in pairs])
        places = _top_indices(ranks.ravel(), 2 * self._beams)
        found = (divmod(int(place), ranks.shape[1]) for place in places)
        return [self._longer(beam, token, logs, ranks) for beam, token in found]

    def _ruled(self, log: TokenScores, line: Hypothesis) -> TokenScores:
        return self._rules.apply(log, line.ids, len(line.ids) - self._prompt)

    def _longer(self, beam: int, token: int, logs: TokenScores, ranks: TokenScores) -> Hypothesis:
        line = self.active[beam]
        return Hypothesis(
            ids=(*line.ids, token),
            score=line.score + float(logs[beam, token]),
            rank=float(ranks[beam, token]),
            finished=token == self._rules.eos_id,
            parent=beam,
        )

    def _ends(self, line: Hypothesis) -> bool:
        return line.finished or len(line.ids) == self._limit

    def _worth(self, line: Hypothesis) -> float:
        worth: float = line.rank / (len(line.ids) - self._prompt) ** self._length_penalty
        return worth

    def _is_settled(self) -> bool:
        if not self.active or len(self._ended) < self._beams:
            return False
        return self._worth(self.active[0]) <= self._worth(self._ended[-1])


def _top_indices(values: TokenScores, count: int) -> npt.NDArray[np.intp]:
    """Return the places of the largest finite values, the largest first, of equals the first."""
    if count < values.size:
        border = np.partition(values, -count)[-count]
        places = np.flatnonzero(values >= border)
    else:
        places = np.arange(values.size)
    places = places[np.isfinite(values[places])]
    return places[np.argsort(-values[places], kind="stable")][:count]
