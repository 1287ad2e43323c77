"""Give a model the rows that a changed vocabulary needs.

In: a Checkpoint, its new tokenizer, and where each row comes from. Out: a Checkpoint whose token embedding (and with
it the tied output) and output bias have been resized; every other weight is the very same tensor. A new row is the
mean of the rows of the pieces that its word had before, so that the model starts from what it knew of the word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from alembert.files.checkpoint import Checkpoint
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer

EMBEDDING: Final = "encoder.embeddings.token.weight"


def with_new_rows(checkpoint: Checkpoint, tokenizer: Tokenizer, sources: Mapping[int, Sequence[int]]) -> Checkpoint:
    """Add rows, or refill unused ones: id of a new piece -> ids of the pieces that it stands for."""
    size = max(checkpoint.blueprint.config.vocab_size, tokenizer.vocab_size)
    state = dict(checkpoint.model.state_dict())
    for name in _by_piece(checkpoint.model):
        state[name] = _grown(state[name], size, sources)
    return _with_weights(checkpoint, tokenizer, state)


def with_markers(checkpoint: Checkpoint, tokenizer: Tokenizer, markers: Mapping[str, str]) -> Checkpoint:
    """Add special pieces, each beginning as the word that it is named with: marker -> word."""
    grown = tokenizer.with_markers(markers)
    fresh = [piece for piece in markers if piece not in tokenizer.vocabulary]
    sources = {grown.id_of(piece): tokenizer.encode(markers[piece], add_special_tokens=False).ids for piece in fresh}
    return with_new_rows(checkpoint, grown, sources) if fresh else checkpoint


def with_kept_rows(checkpoint: Checkpoint, tokenizer: Tokenizer, kept: Sequence[int]) -> Checkpoint:
    """Keep the rows of the given old ids, in this order; rows beyond the vocabulary (padding) go too."""
    state = dict(checkpoint.model.state_dict())
    for name in _by_piece(checkpoint.model):
        state[name] = state[name][torch.tensor(kept)]
    return _with_weights(checkpoint, tokenizer, state)


def _by_piece(model: Model) -> list[str]:
    """Name the weights that have one row for each piece; the output is tied, so only its bias is one of them."""
    biases = [f"heads.{name}.bias" for name, spec in model.specs.items() if spec.kind == "masked_lm"]
    return [EMBEDDING, *biases]


def _grown(rows: Tensor, size: int, sources: Mapping[int, Sequence[int]]) -> Tensor:
    result = rows.new_zeros((size, *rows.shape[1:]))
    result[: len(rows)] = rows
    for number, pieces in sources.items():
        result[number] = rows[torch.tensor(pieces)].mean(dim=0, dtype=torch.float32).to(rows.dtype)
    return result


def _with_weights(checkpoint: Checkpoint, tokenizer: Tokenizer, state: Mapping[str, Tensor]) -> Checkpoint:
    config = replace(checkpoint.blueprint.config, vocab_size=len(state[EMBEDDING]))
    blueprint = replace(checkpoint.blueprint, config=config)
    model = Model.skeleton(config, blueprint.heads, pooler=blueprint.pooler)
    model.load_state_dict(state, assign=True)
    extra = dict(checkpoint.extra)
    if "pad_token_id" in extra:
        extra["pad_token_id"] = tokenizer.pad_id
    return replace(checkpoint, model=model.eval(), blueprint=blueprint, tokenizer=tokenizer, extra=extra, unexpected=())
