"""Change which heads a checkpoint has: those that it has already keep their weights, others begin fresh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from alembert.files.checkpoint import Checkpoint
from alembert.files.family import EMBED, Blueprint
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model


def with_heads(
    checkpoint: Checkpoint,
    heads: Mapping[str, HeadSpec],
    *,
    config: EncoderConfig | None = None,
    pooler: bool = True,
    seed: int = 0,
) -> Checkpoint:
    """Give a checkpoint exactly these heads, and another configuration of the same shapes if wanted.

    Without `pooler`, one that no head needs is left out.
    """
    old, fresh = checkpoint.blueprint, fresh_heads(checkpoint, heads)
    labels = {name: old.labels[name] for name in heads if name in old.labels and name not in fresh}
    blueprint = Blueprint(config=config or old.config, heads=heads, pooler=old.pooler and pooler, labels=labels)
    model = new_model(blueprint.config, blueprint.heads, pooler=blueprint.pooler, seed=seed)
    state = checkpoint.model.state_dict()
    kept = set(state) - _weights_of(fresh, checkpoint.model)
    model.load_state_dict({n: state[n] if n in kept else w for n, w in model.state_dict().items()}, assign=True)
    return replace(checkpoint, model=model.eval(), blueprint=blueprint, unexpected=())


def with_vectors(checkpoint: Checkpoint, pooling: str | None) -> Checkpoint:
    """Add a head that makes vectors of texts by a pooling without weights; without a pooling, change nothing."""
    if pooling is None:
        return checkpoint
    return with_heads(checkpoint, {EMBED: HeadSpec(kind=EMBED, pooling=pooling, dropout=0.0)})


def with_dropout(checkpoint: Checkpoint, hidden: float | None, attention: float | None) -> Checkpoint:
    """Give a model the dropout of a run (none: its own); what is saved should be the configuration that it had."""
    wanted = {"hidden_dropout_prob": hidden, "attention_probs_dropout_prob": attention}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    config = replace(checkpoint.blueprint.config, **changes)
    return with_heads(checkpoint, checkpoint.blueprint.heads, config=config)


def fresh_heads(checkpoint: Checkpoint, heads: Mapping[str, HeadSpec]) -> tuple[str, ...]:
    """Name the heads that the checkpoint does not have, or has of another shape or reading other states."""
    old = checkpoint.blueprint.heads

    def is_there(name: str, spec: HeadSpec) -> bool:
        return name in old and replace(old[name], dropout=spec.dropout) == spec

    return tuple(name for name, spec in heads.items() if not is_there(name, spec))


def _weights_of(heads: tuple[str, ...], model: Model) -> set[str]:
    return {name for name in model.state_dict() if any(name.startswith(f"heads.{head}.") for head in heads)}
