"""What a model costs, apart from any machine: numbers, bytes, layers, multiplications."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a model is."""

    parameters: int
    """Numbers in its weights, heads included."""
    bytes: int
    """What the weights take in memory."""
    layers: int
    width: int
    multiplications: int
    """Of the encoder, for one token of a text of `data.rows.USUAL_TOKENS`."""
