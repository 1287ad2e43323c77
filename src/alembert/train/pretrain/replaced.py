"""Replaced-token detection as in ELECTRA, and tags of entities by their type.

`rtd`: a generator, a masked LM of a quarter of the model's width that reads the model's token embedding, fills masked
tokens by drawing from what it predicts; the model decides for each token whether it is the one that stood there. Both
learn together: the generator by its own masked-LM loss, not by how well it deceives. It lives in the run alone.

`entity_swap`: the same decision without a generator; `data.masking` says what is replaced by what.

`entity_types`: BIO tags with the types of the corpus' entities. Dictionaries miss entities, so that a token outside of
all of them counts less.

What is drawn depends on random numbers that are made with the masks, by seed and address: a sequence that is read again
with the same weights is filled in the same way, in any batch and on any process.

Clark et al. 2020 (ELECTRA).
"""

# P answers, V vocabulary, C columns of a head, N tokens
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.corpus.shards import ENTITY_START, Shards
from alembert.data.feed import HeldOutSplit
from alembert.data.masking import ReplacementTable, SwapSettings, replace_units
from alembert.nn.dropout import HEADS, DropoutSeed
from alembert.nn.heads import HeadInputs, HeadSpec, LastHiddenStates
from alembert.nn.losses import cross_entropy
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.train.objective import LMTarget, MicroBatch
from alembert.train.pretrain.objectives import (
    InstanceLabels,
    LMObjective,
    MaskedLMObjective,
    TokenDecisionObjective,
    TrainingInstance,
    build_objectives,
)
from alembert.train.pretrain.settings import PretrainSettings

GENERATOR: Final = "generator"
"""Name of the generator's objective and head."""
DETECTION: Final = "rtd"
REPLACED_HEAD: Final = "replaced"


@dataclass(frozen=True, kw_only=True)
class GeneratorObjective(MaskedLMObjective):
    """Fill masked tokens by the generator."""

    name: str = GENERATOR

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="generator", dropout=0.0)

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        super().prepare(exercise, rng)
        answers = exercise.answers[self.name]
        draws = rng.random(len(answers.labels), np.float32)
        exercise.answers[self.name] = replace(answers, draws=draws)


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenObjective(TokenDecisionObjective):
    """Decide for each token whether the generator has replaced it; the labels follow when it has run."""

    name: str = DETECTION

    @property
    def head(self) -> str:
        return REPLACED_HEAD

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="replaced", dropout=0.0)

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        tokens = np.flatnonzero(~exercise.instance.special)
        exercise.answers[self.name] = InstanceLabels(np.zeros((len(tokens), 1), np.float32), tokens)


@dataclass(frozen=True, kw_only=True)
class EntitySwapObjective(ReplacedTokenObjective):
    """Decide for each token whether it was replaced, where entities and words give way to others.

    Tokens that masked LM asks for are neither replaced nor asked about.
    """

    name: str = "entity_swap"
    swaps: SwapSettings
    table: ReplacementTable | None

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        assert self.table is not None
        instance, masked = exercise.instance, _masked_tokens(exercise)
        exercise.ids = replace_units(instance, exercise.ids, self.table, self.swaps, rng, taken=masked)
        tokens = np.setdiff1d(np.flatnonzero(~instance.special), masked)
        labels = exercise.ids[tokens] != instance.ids[tokens]
        exercise.answers[self.name] = InstanceLabels(labels[:, None].astype(np.float32), tokens)


def _masked_tokens(exercise: TrainingInstance) -> npt.NDArray[np.int64]:
    answers = exercise.answers.get("masked_lm")
    return np.zeros(0, np.int64) if answers is None or answers.tokens is None else answers.tokens


@dataclass(frozen=True, kw_only=True)
class EntityTypeObjective(LMObjective):
    """Tag each token with the type of its entity: O, then B- and I- of each type."""

    name: str = "entity_types"
    types: tuple[str, ...]
    outside_weight: float

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="tag", outputs=len(self.tags))

    @property
    def tags(self) -> tuple[str, ...]:
        return ("O", *(f"{mark}-{name}" for name in self.types for mark in "BI"))

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        instance = exercise.instance
        assert instance.types is not None
        tokens = np.flatnonzero(~instance.special)
        types = instance.types[tokens].astype(np.int64)
        begins = instance.flags[tokens] & ENTITY_START != 0
        exercise.answers[self.name] = InstanceLabels(np.where(types > 0, 2 * types - begins, 0), tokens)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights_C = torch.ones(logits.shape[-1], device=logits.device)
        weights_C[0] = self.outside_weight
        return cross_entropy(logits, labels, weights=weights_C)

    def tally(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        said = logits.argmax(-1)
        counts = {"said": said > 0, "there": labels > 0, "both": (said == labels) & (labels > 0)}
        return super().tally(logits, labels) | {name: float(each.sum()) for name, each in counts.items()}

    def scores(self, tally: Mapping[str, float]) -> dict[str, float]:
        total = tally["said"] + tally["there"]
        return {**super().scores(tally), "f1": 2 * tally["both"] / total if total else 0.0}


def choose_objectives(
    settings: PretrainSettings, tokenizer: Tokenizer, shards: Shards, split: HeldOutSplit | None = None
) -> list[LMObjective]:
    """Make all objectives that have a weight, in the order in which they change a sequence.

    Without a split there is no table of replacements: the objectives know their heads and no more.
    """
    weights = settings.objectives.chosen()
    masks, mask_id, pieces = settings.masks, tokenizer.mask_id, tokenizer.vocabulary.pieces
    objectives = build_objectives(weights, masks=masks, mask_id=mask_id, vocab_size=tokenizer.vocab_size)
    if DETECTION in weights:
        objectives.append(GeneratorObjective(masks=masks, mask_id=mask_id, vocab_size=tokenizer.vocab_size))
        objectives.append(ReplacedTokenObjective(weight=weights[DETECTION]))
    if weight := settings.objectives.entity_swap:
        table = None if split is None else ReplacementTable.build(shards, split, pieces)
        objectives.append(EntitySwapObjective(weight=weight, swaps=settings.swaps, table=table))
    if weight := settings.objectives.entity_types:
        types, outside = shards.type_names, settings.outside_weight
        objectives.append(EntityTypeObjective(weight=weight, types=types, outside_weight=outside))
    return objectives


def collect_tags(objectives: list[LMObjective]) -> dict[str, tuple[str, ...]]:
    """Return the names of the outputs of heads that have names: head -> tags."""
    return {each.head: each.tags for each in objectives if isinstance(each, EntityTypeObjective)}


def fill_masks(
    model: Model, micro: MicroBatch, noise: DropoutSeed | None, *, train_embeddings: bool
) -> tuple[Tensor, MicroBatch]:
    """Run the generator on a masked micro-batch.

    Return its logits (P, V), and the micro-batch with what it draws in place of masked tokens and the labels of `rtd`.
    """
    asked: LMTarget = micro.targets[GENERATOR]
    logits_PV = _run_generator(model, micro, asked.places, noise, train_embeddings)
    assert asked.draws is not None
    drawn_P = sample_by_draws(logits_PV, asked.draws).to(micro.batch.ids_N.dtype)
    ids_N = micro.batch.ids_N.scatter(0, asked.places, drawn_P)
    replaced_N = torch.zeros(len(ids_N), device=ids_N.device)
    replaced_N[asked.places] = (drawn_P != asked.labels).float()
    targets = dict(_with_labels({n: t for n, t in micro.targets.items() if n != GENERATOR}, replaced_N))
    return logits_PV, replace(micro, batch=replace(micro.batch, ids_N=ids_N), targets=targets)


def _with_labels(targets: Mapping[str, LMTarget], replaced_N: Tensor) -> Iterator[tuple[str, LMTarget]]:
    for name, target in targets.items():
        yield name, replace(target, labels=replaced_N[target.places][:, None]) if name == DETECTION else target


def _run_generator(
    model: Model, micro: MicroBatch, places_P: Tensor, noise: DropoutSeed | None, train_embeddings: bool
) -> Tensor:
    embedding_VE = model.encoder.embeddings.token.weight
    states = HeadInputs(
        batch=micro.batch,
        last=LastHiddenStates(embedding_VE.new_zeros(0, 0)),
        pooled_BD=None,
        token_embedding_VE=embedding_VE if train_embeddings else embedding_VE.detach(),
        positions_P=places_P,
        noise=None if noise is None else noise.derive(HEADS, len(model.specs)),
    )
    logits_PV: Tensor = model.head(GENERATOR)(states)
    return logits_PV


def sample_by_draws(logits_PV: Tensor, draws_P: Tensor) -> Tensor:
    """Draw from the distribution of each row by a number from 0 to 1; the same number always draws the same.

    >>> sample_by_draws(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0.4, 0.6])).tolist()
    [0, 1]
    """
    with torch.no_grad():
        sums_PV = logits_PV.float().softmax(-1).cumsum(-1)
        # Sums of many rounded numbers do not end at 1 exactly.
        levels_P1 = draws_P[:, None] * sums_PV[:, -1:]
        return torch.searchsorted(sums_PV, levels_P1, right=True).squeeze(1).clamp(max=logits_PV.shape[1] - 1)
