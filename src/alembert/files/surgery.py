"""Changes of a checkpoint's heads, dropout, vocabulary or weights that leave everything else alone.

Heads that a checkpoint has already keep their weights; others begin fresh, but for language models that come to copy
or cease to. A changed vocabulary resizes the token embedding (and with it the tied output) and the output bias; every
other weight is the very same tensor. A new row is the mean of the rows of the pieces that its word had before, so that
the model starts from what it knew of the word.

Two Checkpoints of one shape are mixed: the result is on the straight line between them, which often keeps what the
first knew and gains what the second has learnt (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903). Rows of the
vocabulary are matched by their piece. What only one of the two has, such as a head or new pieces, is taken from it as
it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import EMBED_HEAD, Blueprint
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import LANGUAGE_MODEL_KINDS, HeadSpec
from alembert.nn.model import Model, new_model
from alembert.text.tokenizer import Tokenizer

_FEATURE_TABLE: Final = "encoder.embeddings.features.weight"


def with_heads(
    checkpoint: Checkpoint,
    heads: Mapping[str, HeadSpec],
    *,
    config: EncoderConfig | None = None,
    pooler: bool = True,
    seed: int = 0,
) -> Checkpoint:
    """Return a checkpoint with exactly these heads, and `config` of the same shapes if there is one.

    Without `pooler`, one that no head needs is left out.
    """
    old, fresh = checkpoint.blueprint, find_fresh_heads(checkpoint, heads)
    labels = {name: old.labels[name] for name in heads if name in old.labels and name not in fresh}
    blueprint = Blueprint(config=config or old.config, heads=heads, pooler=old.pooler and pooler, labels=labels)
    model = new_model(blueprint.config, blueprint.heads, pooler=blueprint.pooler, seed=seed)
    state = checkpoint.model.state_dict()
    inherited = {n: w for n, w in state.items() if n not in _weights_of(fresh, checkpoint.model)}
    for name in fresh:
        inherited |= _language_model_weights(checkpoint, name, heads[name])
    model.load_state_dict({n: inherited.get(n, w) for n, w in model.state_dict().items()}, assign=True)
    return replace(checkpoint, model=model.eval(), blueprint=blueprint, unexpected=())


def with_embedding_head(checkpoint: Checkpoint, pooling: str | None) -> Checkpoint:
    """Add a head that makes vectors of texts by a pooling without weights; without a pooling, change nothing."""
    if pooling is None:
        return checkpoint
    return with_heads(checkpoint, {EMBED_HEAD: HeadSpec(kind=EMBED_HEAD, pooling=pooling, dropout=0.0)})


def with_dropout(checkpoint: Checkpoint, hidden: float | None, attention: float | None) -> Checkpoint:
    """Return a checkpoint with the dropout of a run (none: its own); save it with the configuration that it had."""
    rates = {"hidden_dropout_prob": hidden, "attention_probs_dropout_prob": attention}
    changes: dict[str, Any] = {name: value for name, value in rates.items() if value is not None}
    config = replace(checkpoint.blueprint.config, **changes)
    return with_heads(checkpoint, checkpoint.blueprint.heads, config=config)


def with_token_features(checkpoint: Checkpoint, blocks: Mapping[str, int], old: Mapping[str, int]) -> Checkpoint:
    """Return a checkpoint that reads features of tokens, given as rows by what they stand for, in place of old ones.

    Those that it reads already keep their rows; others begin as zeros.
    """
    if list(blocks.items()) == list(old.items()):
        return checkpoint
    heads, bare = checkpoint.blueprint.heads, replace(checkpoint.blueprint.config, token_features=None)
    without = with_heads(checkpoint, heads, config=bare)
    if not blocks:
        return without
    made = with_heads(without, heads, config=replace(bare, token_features=sum(blocks.values())))
    if (table := checkpoint.model.encoder.embeddings.features) is not None:
        kept = _place_blocks(blocks, old)
        with torch.no_grad():
            made.model.get_parameter(_FEATURE_TABLE)[list(kept)] = table.weight[list(kept.values())]
    return made


def _place_blocks(blocks: Mapping[str, int], old: Mapping[str, int]) -> dict[int, int]:
    """Return for each row of a table that another one has, too, where it is there."""
    new_rows, old_rows = ([(name, n) for name, rows in each.items() for n in range(rows)] for each in (blocks, old))
    places = {row: place for place, row in enumerate(old_rows)}
    return {place: places[row] for place, row in enumerate(new_rows) if row in places and blocks[row[0]] == old[row[0]]}


def find_fresh_heads(checkpoint: Checkpoint, heads: Mapping[str, HeadSpec]) -> tuple[str, ...]:
    """Name the heads that the checkpoint does not have, or has of another shape or reading other states."""
    old = checkpoint.blueprint.heads

    def is_there(name: str, spec: HeadSpec) -> bool:
        return name in old and replace(old[name], dropout=spec.dropout) == spec

    return tuple(name for name, spec in heads.items() if not is_there(name, spec))


def _weights_of(heads: tuple[str, ...], model: Model) -> set[str]:
    return {name for name in model.state_dict() if any(name.startswith(f"heads.{head}.") for head in heads)}


def _language_model_weights(checkpoint: Checkpoint, name: str, spec: HeadSpec) -> dict[str, Tensor]:
    """Return what a fresh head over the vocabulary has from one of the other kind: it copies from now on, or no longer."""
    others = (
        old for old, own in checkpoint.blueprint.heads.items() if {own.kind, spec.kind} == {*LANGUAGE_MODEL_KINDS}
    )
    if (old := next(others, None)) is None:
        return {}
    parts = checkpoint.model.head(old).state_dict()
    return {f"heads.{name}.{part}": weight for part, weight in parts.items()}


TOKEN_EMBEDDING: Final = "encoder.embeddings.token.weight"  # noqa: S105 (no password)


def with_added_pieces(checkpoint: Checkpoint, tokenizer: Tokenizer, sources: Mapping[int, Sequence[int]]) -> Checkpoint:
    """Add rows, or refill unused ones: id of a new piece -> ids of the pieces that it stands for."""
    size = max(checkpoint.blueprint.config.vocab_size, tokenizer.vocab_size)
    state = dict(checkpoint.model.state_dict())
    for name in list_piece_weights(checkpoint.model):
        state[name] = _grow_rows(state[name], size, sources)
    return _with_weights(checkpoint, tokenizer, state)


def with_markers(checkpoint: Checkpoint, tokenizer: Tokenizer, markers: Mapping[str, str]) -> Checkpoint:
    """Add special pieces, each beginning as the word that it is named with: marker -> word."""
    grown = tokenizer.with_markers(markers)
    fresh = [piece for piece in markers if piece not in tokenizer.vocabulary]
    sources = {grown.id_of(piece): tokenizer.encode(markers[piece], add_special_tokens=False).ids for piece in fresh}
    return with_added_pieces(checkpoint, grown, sources) if fresh else checkpoint


def with_kept_pieces(checkpoint: Checkpoint, tokenizer: Tokenizer, ids: Sequence[int]) -> Checkpoint:
    """Keep the rows of these old ids, in this order; rows beyond the vocabulary (padding) go too."""
    state = dict(checkpoint.model.state_dict())
    for name in list_piece_weights(checkpoint.model):
        state[name] = state[name][torch.tensor(ids)]
    return _with_weights(checkpoint, tokenizer, state)


def list_piece_weights(model: Model) -> list[str]:
    """Name the weights that have one row for each piece; the output is tied, so only its bias is one of them."""
    biases = [f"heads.{name}.bias" for name, spec in model.specs.items() if spec.kind in LANGUAGE_MODEL_KINDS]
    return [TOKEN_EMBEDDING, *biases]


def _grow_rows(rows: Tensor, size: int, sources: Mapping[int, Sequence[int]]) -> Tensor:
    result = rows.new_zeros((size, *rows.shape[1:]))
    result[: len(rows)] = rows
    for number, pieces in sources.items():
        result[number] = rows[torch.tensor(pieces)].mean(dim=0, dtype=torch.float32).to(rows.dtype)
    return result


def _with_weights(checkpoint: Checkpoint, tokenizer: Tokenizer, state: Mapping[str, Tensor]) -> Checkpoint:
    config = replace(checkpoint.blueprint.config, vocab_size=len(state[TOKEN_EMBEDDING]))
    blueprint = replace(checkpoint.blueprint, config=config)
    model = Model.skeleton(config, blueprint.heads, pooler=blueprint.pooler)
    model.load_state_dict(state, assign=True)
    extra = dict(checkpoint.extra)
    if "pad_token_id" in extra:
        extra["pad_token_id"] = tokenizer.pad_id
    return replace(checkpoint, model=model.eval(), blueprint=blueprint, tokenizer=tokenizer, extra=extra, unexpected=())


# -- mixing

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
