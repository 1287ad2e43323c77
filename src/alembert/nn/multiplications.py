"""How many multiplications an encoder takes, to compare models apart from any machine.

Matrix products alone are counted: they are nearly all the work.
"""

from __future__ import annotations

from collections.abc import Sequence

from alembert.nn.config import EncoderConfig


def encoder_multiplications(config: EncoderConfig, tokens: int = 128) -> int:
    """Count multiplications for each token of a text of `tokens`, the products of attention among them.

    >>> from alembert.nn.config import preset
    >>> teacher, student = (encoder_multiplications(preset(name, vocab_size=30522)) for name in ("base", "4x312"))
    >>> f"{teacher / student:.1f}x fewer"
    '17.9x fewer'
    """
    return multiplications_of(config, [tokens]) // tokens


def multiplications_of(config: EncoderConfig, lengths: Sequence[int], wanted: int | None = None) -> int:
    """Count those of documents of these lengths; `wanted`: how many tokens leave the last block (none: all)."""
    width, tokens = config.hidden_size, sum(lengths)
    widen = 0 if config.embedding_size is None else tokens * config.embedding_size * width
    # Queries, keys and values are three squares; scores and mixing: every token with every token of its document, twice.
    before = tokens * 3 * width * width + 2 * width * sum(length * length for length in lengths)
    # The output of attention is a square; the two sides of the feed-forward part are equal.
    after = width * width + 2 * width * config.intermediate_size
    layers = len(config.layer_order)
    finished = tokens * (layers - 1) + (tokens if wanted is None else wanted)
    return widen + layers * before + finished * after
