"""The objectives of pre-training, and the collator that makes their micro-batches.

All behind one interface. `prepare` works on numbers of one sequence: it sets its right answers and, if it hides tokens,
changes the input. `loss` and `tally` work on the logits of a whole micro-batch.

The collator takes stretches of the shards, and makes micro-batches with the answers of the objectives.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, Shards
from alembert.data.masking import MaskSettings, choose_positions, corrupt
from alembert.data.order import make_rng
from alembert.data.sequences import Instance, TokenSpan, build_instance
from alembert.nn.batch import Batch
from alembert.nn.heads import HeadSpec
from alembert.nn.vocabulary_output import vocabulary_loss
from alembert.text.tokenizer import Tokenizer
from alembert.train.objective import LMTarget, MicroBatch

# P answers, V vocabulary, C columns of a head


@dataclass(frozen=True, eq=False)
class InstanceLabels:
    """Right answers of one objective in one sequence, and the tokens they belong to; none: the sequence as a whole."""

    labels: npt.NDArray[np.generic]
    tokens: npt.NDArray[np.int64] | None = None
    in_entity: npt.NDArray[np.bool_] | None = None
    draws: npt.NDArray[np.float32] | None = None
    """A random number from 0 to 1 for each answer, by which a generator draws what stands in its place."""


@dataclass
class TrainingInstance:
    """A sequence on its way to the model: objectives change its ids and add their answers."""

    instance: Instance
    ids: npt.NDArray[np.int32]
    prefix: int | None = None
    answers: dict[str, InstanceLabels] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LMObjective(ABC):
    """One thing to learn."""

    name: str
    weight: float = 1.0
    attention: ClassVar[str] = "bidirectional"

    @property
    def head(self) -> str:
        """Name of the head that answers."""
        return self.name

    @property
    @abstractmethod
    def spec(self) -> HeadSpec:
        """What kind of head that is."""

    @abstractmethod
    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        """Add the right answers to a sequence, and hide what is to be found."""

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum the loss over all answers."""
        return vocabulary_loss(logits, labels)

    def tally(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Count what scores are made of; tallies of many micro-batches are added up."""
        gold = (logits.argmax(-1) == labels).sum()
        return {"loss": float(self.loss(logits, labels)), "count": len(labels), "right": float(gold)}

    def scores(self, tally: Mapping[str, float]) -> dict[str, float]:
        """Turn counts into scores."""
        count = max(tally["count"], 1)
        loss = tally["loss"] / count
        return {"loss": loss, "accuracy": tally["right"] / count, "predictions": tally["count"]}


@dataclass(frozen=True, kw_only=True)
class MaskedLMObjective(LMObjective):
    """Find masked tokens (Devlin et al. 2018)."""

    name: str = "masked_lm"
    masks: MaskSettings
    mask_id: int
    vocab_size: int

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="masked_lm", dropout=0.0)

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        instance = exercise.instance
        chosen = choose_positions(instance, self.masks, rng)
        exercise.ids = corrupt(exercise.ids, chosen, self.masks, rng, mask_id=self.mask_id, vocab_size=self.vocab_size)
        inside = (instance.flags[chosen.positions] & IN_ENTITY) > 0
        labels = instance.ids[chosen.positions].astype(np.int64)
        exercise.answers[self.name] = InstanceLabels(labels, chosen.positions, inside)

    def scores(self, tally: Mapping[str, float]) -> dict[str, float]:
        scores = super().scores(tally)
        return {**scores, "perplexity": perplexity(scores["loss"])}


@dataclass(frozen=True, kw_only=True)
class SentencePairObjective(LMObjective):
    """Predict whether the second part follows the first: `next_sentence`, or `sentence_order` (Lan et al. 2020)."""

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="next_sentence", dropout=0.0)

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        if exercise.instance.label is not None:
            exercise.answers[self.name] = InstanceLabels(np.array([exercise.instance.label], np.int64))


@dataclass(frozen=True, kw_only=True)
class TokenDecisionObjective(LMObjective):
    """Decide one or several questions about each token with yes (1) or no (0)."""

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        each_PC = functional.binary_cross_entropy_with_logits(logits.float(), labels, reduction="none")
        return each_PC.mean(-1).sum()

    def tally(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        predicted, gold = logits > 0, labels > 0
        counts = {"predicted": predicted.sum(), "gold": gold.sum(), "both": (predicted & gold).sum()}
        sums = {"loss": float(self.loss(logits, labels)), "count": float(len(labels))}
        sums["right"] = float((predicted == gold).all(-1).sum())
        return sums | {name: float(count) for name, count in counts.items()}

    def scores(self, tally: Mapping[str, float]) -> dict[str, float]:
        total = tally["predicted"] + tally["gold"]
        return {**super().scores(tally), "f1": 2 * tally["both"] / total if total else 0.0}


@dataclass(frozen=True, kw_only=True)
class EntityBoundaryObjective(TokenDecisionObjective):
    """Predict for each token whether an entity begins and whether one ends there."""

    name: str = "boundaries"

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="boundary")

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        tokens = np.flatnonzero(~exercise.instance.special)
        flags = exercise.instance.flags[tokens]
        labels = np.stack([flags & ENTITY_START, flags & ENTITY_END], axis=1) > 0
        exercise.answers[self.name] = InstanceLabels(labels.astype(np.float32), tokens)


@dataclass(frozen=True, kw_only=True)
class CausalLMObjective(LMObjective):
    """Predict each token from those before it."""

    name: str = "causal"
    attention: ClassVar[str] = "causal"

    @property
    def head(self) -> str:
        return "masked_lm"

    @property
    def spec(self) -> HeadSpec:
        return HeadSpec(kind="masked_lm", dropout=0.0)

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        self._ask_from(0, exercise)

    def _ask_from(self, start: int, exercise: TrainingInstance) -> None:
        tokens = np.arange(start, len(exercise.ids) - 1)
        exercise.answers[self.name] = InstanceLabels(exercise.ids[start + 1 :].astype(np.int64), tokens)

    def scores(self, tally: Mapping[str, float]) -> dict[str, float]:
        scores = super().scores(tally)
        return {**scores, "perplexity": perplexity(scores["loss"])}


@dataclass(frozen=True, kw_only=True)
class PrefixLMObjective(CausalLMObjective):
    """Predict the tokens after a prefix, whose own tokens see each other both ways (Dong et al. 2019).

    UniLM finds masked tokens under this attention; here each token after the prefix is predicted from those before it,
    which is what generation does.
    """

    name: str = "prefix"
    attention: ClassVar[str] = "prefix"

    def prepare(self, exercise: TrainingInstance, rng: np.random.Generator) -> None:
        exercise.prefix = int(rng.integers(1, max(2, len(exercise.ids) - 1)))
        self._ask_from(exercise.prefix - 1, exercise)


def build_objectives(
    weights: Mapping[str, float], *, masks: MaskSettings, mask_id: int, vocab_size: int
) -> list[LMObjective]:
    """Make the objectives that have a weight, without those that need more than these values."""
    made: dict[str, LMObjective] = {
        "masked_lm": MaskedLMObjective(masks=masks, mask_id=mask_id, vocab_size=vocab_size),
        "next_sentence": SentencePairObjective(name="next_sentence"),
        "sentence_order": SentencePairObjective(name="sentence_order"),
        "boundaries": EntityBoundaryObjective(),
        "causal": CausalLMObjective(),
        "prefix": PrefixLMObjective(),
    }
    return [replace(made[name], weight=weight) for name, weight in weights.items() if name in made]


def perplexity(loss: float) -> float:
    """Return e to the loss; beyond what a float holds, infinity."""
    return math.exp(loss) if loss < 700 else math.inf


def select_answers(logits: Tensor, labels: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """Keep the answers at which `where` is true."""
    kept = torch.nonzero(where).squeeze(1)
    return logits[kept], labels[kept]


SeedAddress = tuple[int | str, ...]


@dataclass(frozen=True)
class Collator:
    """Makes micro-batches of shards."""

    shards: Shards
    tokenizer: Tokenizer
    padded: bool = False
    """Pad to a rectangle instead of packing."""

    def micro(
        self, stretches: Sequence[TokenSpan], objectives: Sequence[LMObjective], attention: str, address: SeedAddress
    ) -> MicroBatch:
        """Make a micro-batch; chance is decided by the address and by where each sequence begins."""
        instances = [self._prepare(stretch, objectives, address) for stretch in stretches]
        batch = _padded(instances, attention) if self.padded else _packed(instances, attention)
        return MicroBatch(batch, attention, _targets(instances, batch.starts_B.numpy()))

    def _prepare(self, stretch: TokenSpan, objectives: Sequence[LMObjective], address: SeedAddress) -> TrainingInstance:
        sequence = build_instance(
            stretch,
            self.shards.ids,
            self.shards.flags,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
            shards_types=self.shards.types,
        )
        instance = TrainingInstance(sequence, sequence.ids)
        rng = make_rng(*address, stretch.document, stretch.a[0])
        for objective in objectives:
            objective.prepare(instance, rng)
        return instance


def _packed(instances: Sequence[TrainingInstance], attention: str) -> Batch:
    ids = [instance.ids for instance in instances]
    segments = [instance.instance.segments for instance in instances]
    return Batch.packed(ids, segments, prefixes=_prefixes(instances, attention))


def _padded(instances: Sequence[TrainingInstance], attention: str) -> Batch:
    def rectangle(rows: Sequence[npt.NDArray[np.generic]]) -> torch.Tensor:
        tensors = [torch.from_numpy(row.astype(np.int64)) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    return Batch.padded(
        rectangle([instance.ids for instance in instances]),
        rectangle([np.ones_like(instance.ids) for instance in instances]),
        rectangle([instance.instance.segments for instance in instances]),
        prefixes=_prefixes(instances, attention),
    )


def _prefixes(instances: Sequence[TrainingInstance], attention: str) -> list[int] | None:
    return [instance.prefix or 0 for instance in instances] if attention == "prefix" else None


def _targets(instances: Sequence[TrainingInstance], starts: npt.NDArray[np.int64]) -> dict[str, LMTarget]:
    names = dict.fromkeys(name for instance in instances for name in instance.answers)
    return {
        name: _target(
            [(n, instance.answers[name]) for n, instance in enumerate(instances) if name in instance.answers], starts
        )
        for name in names
    }


def _target(answers: Sequence[tuple[int, InstanceLabels]], starts: npt.NDArray[np.int64]) -> LMTarget:
    """Join the answers of all sequences; places count tokens of the flat row, or documents."""
    places = [np.array([n]) if answer.tokens is None else answer.tokens + starts[n] for n, answer in answers]
    inside = [answer.in_entity for _, answer in answers if answer.in_entity is not None]
    draws = [answer.draws for _, answer in answers if answer.draws is not None]
    return LMTarget(
        places=torch.from_numpy(np.concatenate(places)),
        labels=torch.from_numpy(np.concatenate([answer.labels for _, answer in answers])),
        in_entity=torch.from_numpy(np.concatenate(inside)) if inside else None,
        draws=torch.from_numpy(np.concatenate(draws)) if draws else None,
    )
