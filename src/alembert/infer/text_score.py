"""How probable a language model finds a text, token by token; and whether a sentence follows another.

A causal model (or one with prefix attention, which reads the text as a continuation of nothing) gives the exact probability
of a text: the product of the probabilities of its tokens, each given those before it, and of its end. A masked language
model has no such product; its score is the pseudo-log-likelihood of Salazar et al. 2020: each token is masked in turn and
predicted from all others, at the cost of reading the text once for each of its tokens.
"""

# P places, V vocabulary
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Row
from alembert.errors import BadInput
from alembert.infer.fill_mask import TokenEngine

ScoreKind = Literal["exact", "pseudo"]


class LanguageModelEngine(TokenEngine, Protocol):
    """What computes the outputs of heads."""

    @property
    def attention(self) -> str:
        """Which tokens see each other: `bidirectional`, `causal` or `prefix`."""

    def head_outputs(self, kind: str, rows: Sequence[Row]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield the number of each row and the outputs of the head of this kind at its places."""


@dataclass(frozen=True)
class ScoredToken:
    """A token of a text, and the logarithm of its probability; the end of a text has an empty span."""

    token: str
    start: int
    end: int
    log_probability: float


@dataclass(frozen=True)
class TextScore:
    """How probable a model finds a text."""

    text: str
    tokens: tuple[ScoredToken, ...]
    kind: ScoreKind
    """`exact` for causal models, `pseudo` for masked ones, whose sum is no probability."""

    @property
    def log_probability(self) -> float:
        """Sum over the tokens, natural logarithm."""
        return math.fsum(token.log_probability for token in self.tokens)

    @property
    def perplexity(self) -> float:
        """Exponential of the negative mean; with pseudo-log-likelihoods it is called pseudo-perplexity."""
        return math.exp(-self.log_probability / len(self.tokens))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        sums = {"log_probability": self.log_probability, "perplexity": self.perplexity}
        return {
            "text": self.text,
            "kind": self.kind,
            **sums,
            "tokens": [asdict(token) for token in self.tokens],
        }


def score_text(engine: LanguageModelEngine, text: str) -> TextScore:
    """Say how probable the model finds a text."""
    encoding = engine.tokenizer.encode(text)
    if len(encoding) <= 2:
        raise BadInput("The text has no tokens to score: it is empty or blank.")
    _check_length(engine, len(encoding))
    ids = np.array(encoding.ids, np.int64)
    is_causal = engine.attention != "bidirectional"
    places, logs = _causal(engine, ids) if is_causal else _masked(engine, ids)
    pieces = engine.tokenizer.tokens([int(each) for each in ids])
    tokens = tuple(
        ScoredToken(pieces[place], *_span(encoding.offsets[place], text, is_end=place == len(ids) - 1), log)
        for place, log in zip(places, logs, strict=True)
    )
    return TextScore(text, tokens, "exact" if is_causal else "pseudo")


def next_sentence(engine: LanguageModelEngine, first: str, second: str) -> float:
    """Return the probability that the second sentence follows the first, as the next-sentence head has it."""
    tokenizer = engine.tokenizer
    sides = [tokenizer.encode(side, add_special_tokens=False).ids for side in (first, second)]
    if not all(sides):
        raise BadInput("A sentence is empty. Give two sentences.")
    ids = [tokenizer.cls_id, *sides[0], tokenizer.sep_id, *sides[1], tokenizer.sep_id]
    _check_length(engine, len(ids))
    segments = np.array([0] * (len(sides[0]) + 2) + [1] * (len(sides[1]) + 1), np.int64)
    row = Row(np.array(ids, np.int64), np.zeros(1, np.int64), segments=segments)
    ((_, logits_P2),) = engine.head_outputs("next_sentence", [row])
    is_next, is_random = logits_P2[0].astype(np.float64)
    return float(1 / (1 + np.exp(is_random - is_next)))


def _causal(engine: LanguageModelEngine, ids: npt.NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Score each token after the first from what stands before it."""
    row = Row(ids, np.arange(len(ids) - 1), prefix=1)
    ((_, logits_PV),) = engine.head_outputs("masked_lm", [row])
    return list(range(1, len(ids))), _log_probabilities(logits_PV, ids[1:])


def _masked(engine: LanguageModelEngine, ids: npt.NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Score each token but the special ones at the ends, masked, from all others."""
    places = list(range(1, len(ids) - 1))
    rows = []
    for place in places:
        masked = ids.copy()
        masked[place] = engine.tokenizer.mask_id
        rows.append(Row(masked, np.array([place])))
    logs = [0.0] * len(rows)
    for number, logits_PV in engine.head_outputs("masked_lm", rows):
        logs[number] = _log_probabilities(logits_PV, ids[places[number] : places[number] + 1])[0]
    return places, logs


def _log_probabilities(logits_PV: npt.NDArray[np.float32], ids_P: npt.NDArray[np.int64]) -> list[float]:
    logits = logits_PV.astype(np.float64)
    highest = logits.max(-1)
    sums = highest + np.log(np.exp(logits - highest[:, None]).sum(-1))
    logs: list[float] = (logits[np.arange(len(ids_P)), ids_P] - sums).tolist()
    return logs


def _span(offsets: tuple[int, int], text: str, *, is_end: bool) -> tuple[int, int]:
    return (len(text), len(text)) if is_end else offsets


def _check_length(engine: LanguageModelEngine, length: int) -> None:
    if length > engine.longest:
        raise BadInput(
            f"The text has {length:,} tokens, and the model reads {engine.longest:,} at once. Give a shorter text."
        )
