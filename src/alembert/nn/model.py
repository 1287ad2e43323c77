"""An encoder with its heads, and how new weights are drawn."""

# N tokens, P of them that are asked for, D width
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from alembert.errors import BadSetting
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import HEADS, DropoutSeed
from alembert.nn.encoder import Encoder, FeatureEmbedding, LayerMean
from alembert.nn.heads import HeadInputs, HeadSpec, LastHiddenStates, Pooler, build_head, find_required_tokens
from alembert.nn.kv_cache import KVCache, Prefill
from alembert.nn.tag_outputs import Crf
from alembert.nn.vocabulary_output import CopyMechanism


class Model(nn.Module):
    """One encoder, an optional pooler, and any number of named heads."""

    def __init__(
        self, config: EncoderConfig, heads: Mapping[str, HeadSpec] | None = None, *, pooler: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.specs = dict(heads or {})
        self.encoder = Encoder(config)
        needed = pooler or any(spec.needs_pooler for spec in self.specs.values())
        self.pooler = Pooler(config) if needed else None
        self.heads = nn.ModuleDict({name: build_head(name, config, spec) for name, spec in self.specs.items()})

    @classmethod
    def skeleton(
        cls, config: EncoderConfig, heads: Mapping[str, HeadSpec] | None = None, *, pooler: bool = False
    ) -> Model:
        """Make a model that has shapes and takes no memory, to be given its weights."""
        with torch.device("meta"):
            return cls(config, heads, pooler=pooler)

    def forward(
        self,
        batch: Batch,
        heads: Sequence[str] | None = None,
        *,
        predicted_P: Tensor | None = None,
        positions_P: Tensor | None = None,
        only: bool = False,
        attention: str | None = None,
        trace: ForwardTrace | None = None,
        noise: DropoutSeed | None = None,
        added_ND: Tensor | None = None,
        memory: KVCache | Prefill | None = None,
    ) -> dict[str, Tensor]:
        """Run the encoder once and the named heads (default: all) on its states, which are in the result as `hidden`.

        Heads of tokens answer at `positions_P`, masked-LM heads at `predicted_P` if it is given; none: at all tokens.
        With `only` just the heads' answers are in the result, and the last block computes no token that none of them
        reads. In training, dropout masks come from `noise`, or without it from torch's global generator. `added_ND`,
        which is as wide as the token embedding, is added to the embedded tokens. `memory` is the encoder's.
        """
        specs = {name: self.spec(name) for name in (self.specs if heads is None else heads)}
        asked = {"predicted_P": predicted_P, "positions_P": positions_P}
        selected_P = find_required_tokens(specs.values(), batch, **asked) if only else None
        layers = LayerMean() if any(spec.pooling == "layers" for spec in specs.values()) else None
        hidden_PD = self.encoder(
            batch,
            attention=attention,
            trace=trace,
            noise=noise,
            added_ND=added_ND,
            layers=layers,
            selected_P=selected_P,
            memory=memory,
        )
        pooling = not only or any(spec.needs_pooler for spec in specs.values())
        states = self._build_head_inputs(batch, LastHiddenStates(hidden_PD, selected_P), layers, pooling=pooling)
        states = replace(states, memory=memory)
        outputs = {
            name: self.head(name)(
                replace(
                    states, positions_P=spec.positions_read(batch, **asked), noise=self._head_dropout_seed(name, noise)
                )
            )
            for name, spec in specs.items()
        }
        if not only:
            outputs["hidden"] = hidden_PD
            if states.pooled_BD is not None:
                outputs["pooled"] = states.pooled_BD
        return outputs

    def _build_head_inputs(
        self, batch: Batch, last: LastHiddenStates, layers: LayerMean | None, *, pooling: bool
    ) -> HeadInputs:
        pooler = self.pooler if pooling else None
        return HeadInputs(
            batch=batch,
            last=last,
            pooled_BD=None if pooler is None else pooler(last.at(batch.starts_B)),
            token_embedding_VE=self.encoder.embeddings.token.weight,
            layers_ND=None if layers is None else layers.value(),
        )

    def head(self, name: str) -> nn.Module:
        """Return a head by its name."""
        self.spec(name)
        return self.heads[name]

    def spec(self, name: str) -> HeadSpec:
        """Return what a head predicts, by its name."""
        if name not in self.specs:
            there = ", ".join(self.specs) or "none"
            raise BadSetting(f"The model has no head `{name}`; it has: {there}.")
        return self.specs[name]

    def _head_dropout_seed(self, head: str, noise: DropoutSeed | None) -> DropoutSeed | None:
        return None if noise is None else noise.derive(HEADS, list(self.specs).index(head))


def initialise(module: nn.Module, std: float, generator: torch.Generator | None = None) -> None:
    """Draw new weights as BERT does: a normal cut off at two deviations, biases zero, layer norms one.

    A CRF begins with zeros: every move is as good as any other. So does the embedding of features. A gate begins nearly
    closed.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, Crf | FeatureEmbedding):
            for weight in part.parameters():
                nn.init.zeros_(weight)
        bias = getattr(part, "bias", None)
        if isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)
        if isinstance(part, CopyMechanism):
            part.start()


def new_model(
    config: EncoderConfig,
    heads: Mapping[str, HeadSpec] | None = None,
    *,
    pooler: bool = False,
    seed: int = 0,
) -> Model:
    """Make a model with fresh weights that depend on the seed alone."""
    model = Model.skeleton(config, heads, pooler=pooler).to_empty(device="cpu")
    initialise(model, config.initializer_range, torch.Generator().manual_seed(seed))
    return model
