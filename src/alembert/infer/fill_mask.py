"""What a masked language model expects at the masks of a text.

In: an engine (see `MaskEngine`) and a text. Out: the likeliest pieces for each mask, with character offsets into the text as
it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from alembert.errors import BadInput
from alembert.text.tokenizer import Tokenizer


class TokenEngine(Protocol):
    """What computes with a language model; it knows token ids and numbers, not texts."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""


class MaskEngine(TokenEngine, Protocol):
    """What predicts masked tokens."""

    def vocabulary_probabilities(self, ids: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return a row over the vocabulary for each position."""


@dataclass(frozen=True)
class MaskCandidate:
    """One piece that could stand at a mask."""

    token: str
    id: int
    score: float
    """Its probability."""


@dataclass(frozen=True)
class FilledMask:
    """A `[MASK]` of the text and what the model expects there, the likeliest first."""

    start: int
    end: int
    candidates: tuple[MaskCandidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def fill_mask(engine: MaskEngine, text: str, top: int = 5) -> tuple[FilledMask, ...]:
    """Say what could stand at each `[MASK]` of a text."""
    tokenizer = engine.tokenizer
    encoding = tokenizer.encode(text)
    positions = [i for i, token in enumerate(encoding.ids) if token == tokenizer.mask_id]
    if not positions:
        mask = tokenizer.vocabulary.special.mask
        raise BadInput(f"The text has no {mask}. Write {mask} where a word is to be found.")
    if len(encoding) > engine.longest:
        raise BadInput(
            f"The text has {len(encoding):,} tokens, and the model reads {engine.longest:,} at once. "
            "Give a shorter passage around the mask."
        )
    rows = engine.vocabulary_probabilities(encoding.ids, positions)
    return tuple(
        FilledMask(*encoding.offsets[position], _best(row[: tokenizer.vocab_size], tokenizer, top))
        for position, row in zip(positions, rows, strict=True)
    )


def _best(row: npt.NDArray[np.float32], tokenizer: Tokenizer, top: int) -> tuple[MaskCandidate, ...]:
    ids = [int(i) for i in np.argsort(-row, kind="stable")[:top]]
    return tuple(MaskCandidate(token, i, float(row[i])) for i, token in zip(ids, tokenizer.tokens(ids), strict=True))
