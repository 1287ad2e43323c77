"""Weights between two checkpoints: a model, and what further training has made of it.

In: two Checkpoints of one shape. Out: one on the straight line between them, which often keeps what the first knew and
gains what the second has learnt (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903). Rows of the vocabulary are
matched by their piece. What only one of the two has, such as a head or new pieces, is taken from it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final

import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import list_piece_weights
from alembert.nn.config import EncoderConfig
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer

_NO_SHAPE: Final = (
    "vocab_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "attention",
)
"""Parts of a configuration that may differ: they change neither the other weights' shapes nor what these compute."""
_UNUSED_PIECE: Final = "[unused"
"""How pieces of published vocabularies begin that stand for nothing; an extension may have replaced them."""


def interpolate(start: Tensor, adapted: Tensor, share: float) -> Tensor:
    """Return the weights between two; the share 0 gives exactly `start`, 1 exactly `adapted`.

    >>> interpolate(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.0]), 0.25)
    tensor([1.5000, 2.0000])
    """
    return torch.lerp(start, adapted, share)


def check_mix_share(share: float) -> None:
    """Refuse a share that lies beyond the two models."""
    if not 0 <= share <= 1:
        raise BadSetting(f"The share is {share}; expected a number from 0 (the start) to 1 (the adapted model).")


def mix_checkpoints(start: Checkpoint, adapted: Checkpoint, share: float) -> Checkpoint:
    """Mix two checkpoints; `share` is the part of `adapted`, whose tokenizer the result has."""
    check_mix_share(share)
    _check_shapes(start.blueprint.config, adapted.blueprint.config)
    _check_heads(start.blueprint, adapted.blueprint)
    blueprint = _merge_blueprints(start.blueprint, adapted.blueprint)
    model = Model.skeleton(blueprint.config, blueprint.heads, pooler=blueprint.pooler)
    after = adapted.model.state_dict()
    before = _align_rows(start, adapted, after)
    state = {
        name: interpolate(before[name], after[name], share)
        if name in before and name in after
        else (before.get(name, after.get(name)))
        for name in model.state_dict()
    }
    model.load_state_dict(state, assign=True)
    return replace(adapted, model=model.eval(), blueprint=blueprint, unexpected=())


def _check_shapes(start: EncoderConfig, adapted: EncoderConfig) -> None:
    one, two = asdict(start), asdict(adapted)
    different = [name for name in one if name not in _NO_SHAPE and one[name] != two[name]]
    if different:
        listed = ", ".join(f"`{name}` is {one[name]!r} and {two[name]!r}" for name in different)
        raise BadSetting(
            f"The two models have different shapes: {listed}. Mix a model with one that was trained further from it."
        )


def _check_heads(start: Blueprint, adapted: Blueprint) -> None:
    for name in start.heads.keys() & adapted.heads.keys():
        one, two = start.heads[name], adapted.heads[name]
        if replace(one, dropout=two.dropout) != two or start.labels.get(name) != adapted.labels.get(name):
            raise BadSetting(
                f"Both models have a head `{name}`, of different kinds or labels. Mix models for the same task, or models "
                "without it."
            )


def _merge_blueprints(start: Blueprint, adapted: Blueprint) -> Blueprint:
    heads = {**start.heads, **adapted.heads}
    pooler = not heads and (
        start.pooler or adapted.pooler
    )  # no head: both are bare encoders, and it may be read as it is
    return Blueprint(config=adapted.config, heads=heads, pooler=pooler, labels={**start.labels, **adapted.labels})


def _align_rows(start: Checkpoint, adapted: Checkpoint, after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of `start` with the vocabulary of `adapted`; rows that only that one has are its own."""
    state = dict(start.model.state_dict())
    ids = _match_pieces(start, adapted)
    size = adapted.blueprint.config.vocab_size
    for name in list_piece_weights(start.model):
        rows = state[name]
        aligned = after[name].clone() if name in after else rows.new_zeros((size, *rows.shape[1:]))
        aligned[torch.tensor([new for _, new in ids])] = rows[torch.tensor([old for old, _ in ids])]
        state[name] = aligned
    return state


def _match_pieces(start: Checkpoint, adapted: Checkpoint) -> list[tuple[int, int]]:
    """Pair the rows of both embeddings that stand for the same piece."""
    if start.tokenizer is None and adapted.tokenizer is None:
        sizes = start.blueprint.config.vocab_size, adapted.blueprint.config.vocab_size
        if sizes[0] != sizes[1]:
            raise BadSetting(
                f"The models have {sizes[0]:,} and {sizes[1]:,} rows of pieces, and no tokenizer that would match them."
            )
        return [(row, row) for row in range(sizes[0])]
    if start.tokenizer is None or adapted.tokenizer is None:
        raise BadSetting("One of the two models has no tokenizer, so their pieces cannot be matched. Add its files.")
    _check_tokenizers(start.tokenizer, adapted.tokenizer)
    ids = adapted.tokenizer.vocabulary.ids
    return [(old, ids[piece]) for piece, old in start.tokenizer.vocabulary.ids.items() if piece in ids]


def _check_tokenizers(start: Tokenizer, adapted: Tokenizer) -> None:
    missing = [
        piece for piece in start.vocabulary if piece not in adapted.vocabulary and not piece.startswith(_UNUSED_PIECE)
    ]
    if missing:
        raise BadSetting(
            f"The tokenizers differ: {len(missing):,} of the {len(start.vocabulary):,} pieces of the start are not in the "
            "vocabulary of the adapted model, which may only have more. Mix models of one vocabulary, or exchange them."
        )
    one, two = (replace(each.parts.settings, model_max_length=None) for each in (start, adapted))
    if one != two:
        raise BadSetting(
            "The tokenizers differ in how they normalise text (lower case, accents, Chinese characters). Mix models of "
            "one tokenizer."
        )
