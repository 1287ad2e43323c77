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
    """Count those of documents of these lengths; `wanted`: how many tokens leave the last block (none: all).

    If these alone look at the others there, they are taken to be spread evenly over all tokens.
    """
    width, tokens, layers = config.hidden_size, sum(lengths), len(config.layer_order)
    widen = 0 if config.embedding_size is None else tokens * config.embedding_size * width
    leaving = tokens if wanted is None else wanted
    looking = leaving if look_alone(leaving, tokens) else tokens
    # Keys and values are two squares, and so is the query of each token that looks; scores and mixing: every token that
    # looks with every token of its document, twice.
    seen = tokens * 2 * width * width
    look = tokens * width * width + 2 * width * sum(length * length for length in lengths)
    # The output of attention is a square; the two sides of the feed-forward part are equal.
    after = width * width + 2 * width * config.intermediate_size
    finished = tokens * (layers - 1) + leaving
    return widen + layers * seen + (layers - 1) * look + look * looking // max(tokens, 1) + finished * after


def look_alone(wanted: int, tokens: int) -> bool:
    """Whether so few tokens are wanted of the last block that it pays to let these alone look at the others."""
    return 2 * wanted <= tokens
