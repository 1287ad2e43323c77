"""The arithmetic of a training step, to say what share of the machine's measured matmul peak a run reaches.

Matrix products alone are counted: they are nearly all the work, and what the peak is measured with. What the last block
leaves out, because no head reads it, is not counted. Padding, work that
is done twice to save memory, and the halves of causal attention that a kernel may skip do not change the count, so the
share says what the run gets out of the machine, not how busy it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from alembert.nn.config import EncoderConfig, count_multiplications


def multiply_adds(config: EncoderConfig, lengths: Sequence[int], predictions: int, wanted: int | None = None) -> int:
    """Count multiply-adds of a forward pass: documents of these lengths, masked-LM logits at `predictions` tokens.

    `wanted` says how many tokens the last block is asked for; none: all.

    >>> from alembert.nn.config import preset
    >>> multiply_adds(preset("base", vocab_size=30522), [512], 77) // 10**9
    50
    >>> multiply_adds(preset("base", vocab_size=30522), [512], 77, wanted=77) // 10**9
    47
    """
    narrow = config.embedding_width
    head = predictions * (config.hidden_size * narrow + narrow * config.vocab_size)
    return count_multiplications(config, lengths, wanted) + head


def training_flop(config: EncoderConfig, lengths: Sequence[int], predictions: int, wanted: int | None = None) -> int:
    """Count floating-point operations of forward and backward pass.

    The backward pass has two products for each of the forward pass; a multiply-add is two operations.
    """
    return 6 * multiply_adds(config, lengths, predictions, wanted)
