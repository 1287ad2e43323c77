"""Which part of a model a parameter belongs to, by its name: what is frozen, what decays, which rate it gets.

The parts are what people freeze (embeddings, layers, heads); the depth orders them from the input to the output.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.model import Model
from alembert.train.settings import PARTS

_BEGINNINGS: Final = {
    "encoder.embeddings.": "embeddings",
    "encoder.blocks.": "layers",
    "encoder.final_norm.": "layers",
    "pooler.": "heads",
    "heads.": "heads",
}


def part_of(name: str) -> str:
    """Tell the part of a parameter: `embeddings`, `layers` or `heads`.

    >>> part_of("encoder.blocks.3.inner.weight"), part_of("pooler.dense.bias")
    ('layers', 'heads')
    """
    for beginning, part in _BEGINNINGS.items():
        if name.startswith(beginning):
            return part
    raise ValueError(f"{name} is no parameter of a model")


def depth_of(name: str, layers: int) -> int:
    """Tell how far a parameter is from the input: 0 embeddings, 1 the first block, `layers` + 1 pooler and heads.

    The norm after the last block has the block's depth. Blocks that are applied several times count once.

    >>> depth_of("encoder.blocks.3.inner.weight", 12), depth_of("heads.tags.linear.bias", 12)
    (4, 13)
    """
    part = part_of(name)
    if part == "embeddings":
        return 0
    if part == "heads":
        return layers + 1
    _, kind, number, *_ = name.split(".")
    return int(number) + 1 if kind == "blocks" else layers


def decays(name: str, parameter: Tensor) -> bool:
    """Tell whether weight decay applies: everywhere but on biases and layer norms, as in BERT.

    What a layer norm holds, and nothing else beside biases, has one dimension.
    """
    return parameter.ndim > 1 and not name.endswith("bias")


def by_heads(name: str, tensor: Tensor, heads: int) -> Tensor | None:
    """View a parameter (or its gradient) of attention with the heads as second dimension; none: it has no heads.

    The bias of the output projection belongs to no head.
    """
    if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
        return torch.unflatten(tensor, 0, (3, heads, -1))
    if name.endswith("attention.out.weight"):
        return torch.unflatten(tensor, 1, (heads, -1))
    return None


def select(model: Model, parts: Collection[str] | None) -> None:
    """Let only the named parts train; none: all of them."""
    chosen = PARTS if parts is None else parts
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown or not chosen:
        found = ", ".join(unknown) or "nothing"
        raise BadSetting(f"The parts to train are {found}; expected some of {', '.join(PARTS)}.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(part_of(name) in chosen)
