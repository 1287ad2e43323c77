"""Losses between the layers of a student and its teacher: those of the intermediate and of the general stage.

In: weights and the shapes of both models. Out: what the teacher must compute, which projections the student needs,
and the loss of a micro-batch. A loss is one class, which knows what it needs of both models, what it is a mean over,
and how far they are apart; to add one, write it here, list it in `LOSSES`, and give it a weight in `LayerLossWeights`.
Projections are heads of the student that no forward pass calls: they are trained and saved with it like any other
weights, and left out of what is written.
"""

# N tokens, D the student's width, W the teacher's
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.attention import LayerRecorder
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.encoder import mean_pool
from alembert.nn.heads import HeadSpec
from alembert.nn.losses import (
    attention_loss,
    contrastive_distillation_loss,
    count_attention_pairs,
    hidden_state_loss,
    relation_loss,
)
from alembert.nn.model import Model
from alembert.train.distill.settings import LAYER_LOSSES, LayerLossWeights
from alembert.train.distill.teacher import TeacherOutputs, TeacherRequest

PROJECTION: Final = "projection"


def map_layers(weights: LayerLossWeights, student: int, teacher: int) -> tuple[int, ...]:
    """Return, for each of the student's layers, the number (from 1) of the teacher's layer that it imitates.

    The state after student layer i goes with the state after that layer, and its attention with that layer's: layer
    i k of the teacher, counted from 1, where k is the ratio of the depths.

    >>> map_layers(LayerLossWeights(hidden=1), 4, 12)
    (3, 6, 9, 12)
    >>> map_layers(LayerLossWeights(hidden=1, layer_map="last"), 4, 12)
    (9, 10, 11, 12)
    """
    if student > teacher:
        raise BadSetting(
            f"The student has {student} layers and its teacher {teacher}; a student cannot be deeper than its teacher. "
            f"Choose one of up to {teacher} layers."
        )
    if weights.layer_map == "last":
        return tuple(range(teacher - student + 1, teacher + 1))
    if weights.layer_map == "uniform":
        return tuple((layer + 1) * teacher // student for layer in range(student))
    layers = weights.layers
    rises = all(one < other for one, other in pairwise(layers))
    if len(layers) != student or not rises or not 1 <= layers[0] <= layers[-1] <= teacher:
        raise BadSetting(
            f"`layers` is {list(layers)}; expected {student} rising numbers from 1 to {teacher}, the teacher's layer for "
            "each of the student's."
        )
    return layers


@dataclass(frozen=True)
class ModelPair:
    """The shapes of a student and its teacher, and which of their layers go together."""

    settings: LayerLossWeights
    student: EncoderConfig
    teacher: EncoderConfig
    attention: str
    """Which tokens attend to which."""

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The teacher's layer, from 1, for each of the student's."""
        return map_layers(self.settings, len(self.student.layer_order), len(self.teacher.layer_order))

    def projection(self, state: int) -> str | None:
        """Name the projection of a state; none: it is compared as it is."""
        how = self.settings.projection
        if how == "auto" and self.student.hidden_size == self.teacher.hidden_size:
            return None
        return PROJECTION if how == "shared" else f"{PROJECTION}-{state}"


@dataclass(frozen=True, eq=False)
class StudentOutputs:
    """What a student has computed for a micro-batch."""

    pair: ModelPair
    model: Model
    recorder: LayerRecorder
    _projected: dict[int, Tensor] = field(default_factory=dict)

    def state(self, number: int) -> Tensor:
        """Return a hidden state (N, W), projected once for all losses that compare it."""
        if number not in self._projected:
            self._projected[number] = self._project(number)
        return self._projected[number]

    def _project(self, number: int) -> Tensor:
        name, state_ND = self.pair.projection(number), self.recorder.hidden[number]
        if name is None:
            return state_ND
        head: Any = self.model.head(name)
        state_NW: Tensor = head.linear(state_ND)
        return state_NW

    def attention(self, layer: int) -> Tensor:
        """Return queries, keys and values of a layer, from 0 (N, 3, H, K)."""
        return self.recorder.qkv[layer]


class LayerLoss(ABC):
    """A distance between a student and its teacher while both read the same tokens."""

    name: ClassVar[str]
    """That of its weight."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair = pair

    def check(self) -> None:  # noqa: B027 (most losses compare any two models)
        """Refuse models that cannot be compared."""

    @property
    def states(self) -> dict[int, int]:
        """Hidden states that are compared: the student's number -> the teacher's."""
        return {}

    @property
    def student_layers(self) -> tuple[int, ...]:
        """The student's layers, from 0, whose queries, keys and values are compared."""
        return ()

    @property
    def request(self) -> TeacherRequest:
        """What the teacher must compute beside those states."""
        return TeacherRequest()

    def count(self, batch: Batch) -> int:
        """Return what the loss of a batch is a sum over."""
        return sum(batch.lengths)

    @abstractmethod
    def compute(self, student: StudentOutputs, teacher: TeacherOutputs, batch: Batch) -> Tensor:
        """Return the sum over a batch."""


class AttentionLoss(LayerLoss):
    """Squared differences of attention scores before the softmax (TinyBERT)."""

    name = "attention"

    def check(self) -> None:
        ours, theirs = self.pair.student.num_attention_heads, self.pair.teacher.num_attention_heads
        if ours != theirs:
            raise BadSetting(
                f"The student has {ours} attention heads and its teacher {theirs}, so "
                "their attention scores cannot be compared. Give the student as many heads ([student] heads), or use "
                "`relations` instead of `attention`."
            )

    @property
    def student_layers(self) -> tuple[int, ...]:
        return tuple(range(len(self.pair.student.layer_order)))

    @property
    def request(self) -> TeacherRequest:
        return TeacherRequest(attention=tuple(layer - 1 for layer in self.pair.layers))

    def count(self, batch: Batch) -> int:
        return count_attention_pairs(batch, self.pair.attention)

    def compute(self, student: StudentOutputs, teacher: TeacherOutputs, batch: Batch) -> Tensor:
        losses = [
            attention_loss(student.attention(ours), teacher.attention(theirs - 1), batch, self.pair.attention)
            for ours, theirs in enumerate(self.pair.layers)
        ]
        return torch.stack(losses).sum()


class RelationLoss(LayerLoss):
    """How tokens relate by queries, keys and values of the last layer (MiniLM)."""

    name = "relations"

    def check(self) -> None:
        pair, heads, layer = self.pair, self.pair.settings.relation_heads, self.pair.settings.relation_layer
        for name, config in (("student", pair.student), ("teacher", pair.teacher)):
            if config.hidden_size % heads:
                raise BadSetting(
                    f"`relation_heads` is {heads}, which does not divide the width of the {name}, {config.hidden_size}. "
                    "Choose a number that divides both."
                )
        depth = len(pair.teacher.layer_order)
        if layer is not None and not 1 <= layer <= depth:
            raise BadSetting(f"`relation_layer` is {layer}; the teacher has layers 1 to {depth}.")

    @property
    def student_layers(self) -> tuple[int, ...]:
        return (len(self.pair.student.layer_order) - 1,)

    @property
    def teacher_layer(self) -> int:
        """The teacher's layer, from 0."""
        return (self.pair.settings.relation_layer or len(self.pair.teacher.layer_order)) - 1

    @property
    def request(self) -> TeacherRequest:
        return TeacherRequest(relations=(self.teacher_layer,))

    def compute(self, student: StudentOutputs, teacher: TeacherOutputs, batch: Batch) -> Tensor:
        ours_N3HK, theirs_N3HK = student.attention(*self.student_layers), teacher.attention(self.teacher_layer)
        return relation_loss(ours_N3HK, theirs_N3HK, batch, self.pair.settings.relation_heads)


class StateLoss(LayerLoss):
    """Squared differences of hidden states, added up over pairs of them (TinyBERT)."""

    def compute(self, student: StudentOutputs, teacher: TeacherOutputs, batch: Batch) -> Tensor:
        losses = (
            hidden_state_loss(student.state(ours), teacher.state(theirs), batch) for ours, theirs in self.states.items()
        )
        return reduce(torch.add, losses)


class EmbeddingLoss(StateLoss):
    name = "embeddings"

    @property
    def states(self) -> dict[int, int]:
        return {0: 0}


class HiddenLoss(StateLoss):
    name = "hidden"

    @property
    def states(self) -> dict[int, int]:
        return dict(enumerate(self.pair.layers, start=1))


class ContrastiveLoss(LayerLoss):
    """Contrastive loss between a text's mean state and the teacher's mean states of the batch."""

    name = "contrastive"

    @property
    def states(self) -> dict[int, int]:
        return {len(self.pair.layers): self.pair.layers[-1]}

    def count(self, batch: Batch) -> int:
        return len(batch.lengths)

    def compute(self, student: StudentOutputs, teacher: TeacherOutputs, batch: Batch) -> Tensor:
        ((ours, theirs),) = self.states.items()
        student_BW, teacher_BW = mean_pool(student.state(ours), batch), mean_pool(teacher.state(theirs), batch)
        return contrastive_distillation_loss(student_BW, teacher_BW, self.pair.settings.temperature)


LOSSES: Final[tuple[type[LayerLoss], ...]] = (AttentionLoss, RelationLoss, EmbeddingLoss, HiddenLoss, ContrastiveLoss)
"""In the order in which they are computed and added up, which decides about the last bits."""


class LayerLosses:
    """The losses with a weight, between a student of one shape and a teacher of another.

    `attention` says which tokens attend to which, if the student's configuration does not.
    """

    def __init__(
        self,
        settings: LayerLossWeights,
        student: EncoderConfig,
        teacher: EncoderConfig,
        attention: str | None = None,
    ) -> None:
        weights = settings.chosen()
        self.pair = ModelPair(settings, student, teacher, attention or student.attention)
        self.chosen = tuple(loss(self.pair) for loss in LOSSES if loss.name in weights)
        for loss in self.chosen:
            loss.check()

    @cached_property
    def states(self) -> dict[int, int]:
        """Hidden states that are compared: the student's number -> the teacher's."""
        return dict(sorted({pair for loss in self.chosen for pair in loss.states.items()}))

    def teacher_request(self, *, answers: bool = False) -> TeacherRequest:
        """Join what the teacher must compute for all losses."""
        states = TeacherRequest(states=tuple(sorted(set(self.states.values()))))
        return replace(reduce(TeacherRequest.union, (loss.request for loss in self.chosen), states), answers=answers)

    def layer_recorder(self) -> LayerRecorder | None:
        """Make what records the student; none: no loss compares layers."""
        if not self.chosen:
            return None
        return LayerRecorder(layers=tuple(sorted({layer for loss in self.chosen for layer in loss.student_layers})))

    @cached_property
    def heads(self) -> dict[str, HeadSpec]:
        """Projections that the student has while it is trained."""
        names = dict.fromkeys(name for state in self.states if (name := self.pair.projection(state)))
        spec = HeadSpec(kind="tag", outputs=self.pair.teacher.hidden_size, dropout=0.0)
        return dict.fromkeys(names, spec)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return what each loss of a batch is a sum over, in the order of the weights, which the log has too."""
        counts = {loss.name: loss.count(batch) for loss in self.chosen}
        return {name: counts[name] for name in LAYER_LOSSES if name in counts}

    def compute(
        self, model: Model, recorder: LayerRecorder, teacher: TeacherOutputs, batch: Batch
    ) -> dict[str, Tensor]:
        """Return the sum of each loss over a micro-batch."""
        student = StudentOutputs(self.pair, model, recorder)
        return {loss.name: loss.compute(student, teacher, batch) for loss in self.chosen}


def combine_losses(
    losses: Mapping[str, Tensor], weights: Mapping[str, float], totals: Mapping[str, float]
) -> tuple[Tensor, dict[str, float]]:
    """Add up the means of losses by their weights; return the plain sums too."""
    parts = [weights[name] / max(totals[name], 1) * loss for name, loss in losses.items()]
    return torch.stack(parts).sum(), {name: float(loss.detach()) for name, loss in losses.items()}
