"""What happens inside a student and its teacher, compared: the losses of the intermediate and of the general stage.

In: weights and the shapes of both models. Out: what the teacher must say, which projections the student needs, and the
weighted loss of a micro-batch. Projections are heads of the student that no forward pass asks: they are trained and
saved with it like any other weights, and left out of what is written.

Which of the teacher's layers each layer of a student imitates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

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


def map_layers(weights: LayerLossWeights, student: int, teacher: int) -> tuple[int, ...]:
    """Give, for each of the student's layers, the number (from 1) of the teacher's layer that it imitates.

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
    given = weights.layers
    rises = all(one < other for one, other in pairwise(given))
    if len(given) != student or not rises or not 1 <= given[0] <= given[-1] <= teacher:
        raise BadSetting(
            f"`layers` is {list(given)}; expected {student} rising numbers from 1 to {teacher}, the teacher's layer for "
            "each of the student's."
        )
    return given


# N tokens, D the student's width, W the teacher's


PROJECTION: Final = "projection"


@dataclass(frozen=True)
class LayerLosses:
    """Which losses bind a student of one shape to a teacher of another."""

    settings: LayerLossWeights
    student: EncoderConfig
    teacher: EncoderConfig
    attention: str | None = None
    """Which tokens look at which; none: as the student's configuration says."""

    def __post_init__(self) -> None:
        chosen = self.weights
        ours, theirs = self.student, self.teacher
        if "attention" in chosen and ours.num_attention_heads != theirs.num_attention_heads:
            raise BadSetting(
                f"The student has {ours.num_attention_heads} attention heads and its teacher {theirs.num_attention_heads}, so "
                "their attention scores cannot be compared. Give the student as many heads ([student] heads), or use "
                "`relations` instead of `attention`."
            )
        if "relations" in chosen:
            self._check_relations()

    def _check_relations(self) -> None:
        heads, last = self.settings.relation_heads, self.settings.relation_layer
        for name, config in (("student", self.student), ("teacher", self.teacher)):
            if config.hidden_size % heads:
                raise BadSetting(
                    f"`relation_heads` is {heads}, which does not divide the width of the {name}, {config.hidden_size}. "
                    "Choose a number that divides both."
                )
        if last is not None and not 1 <= last <= len(self.teacher.layer_order):
            raise BadSetting(
                f"`relation_layer` is {last}; the teacher has layers 1 to {len(self.teacher.layer_order)}."
            )

    @property
    def weights(self) -> dict[str, float]:
        """The losses inside that have a weight."""
        return {name: weight for name, weight in self.settings.chosen().items() if name in LAYER_LOSSES}

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The teacher's layer, from 1, for each of the student's."""
        return map_layers(self.settings, len(self.student.layer_order), len(self.teacher.layer_order))

    @cached_property
    def states(self) -> dict[int, int]:
        """Which hidden states are compared: the student's number -> the teacher's."""
        chosen = self.weights
        pairs = dict(enumerate(self.layers, start=1)) if "hidden" in chosen else {}
        if "embeddings" in chosen:
            pairs[0] = 0
        if "contrastive" in chosen:
            pairs[len(self.layers)] = self.layers[-1]
        return dict(sorted(pairs.items()))

    @property
    def relation_layer(self) -> int:
        """The teacher's layer, from 0, whose relations are imitated."""
        return (self.settings.relation_layer or len(self.teacher.layer_order)) - 1

    def teacher_request(self, *, answers: bool = False) -> TeacherRequest:
        """Say what the teacher must tell."""
        chosen = self.weights
        return TeacherRequest(
            states=tuple(sorted(set(self.states.values()))),
            attention=tuple(layer - 1 for layer in self.layers) if "attention" in chosen else (),
            relations=(self.relation_layer,) if "relations" in chosen else (),
            answers=answers,
        )

    def layer_recorder(self) -> LayerRecorder | None:
        """Make what records the student; none: no loss looks inside."""
        chosen = self.weights
        if not chosen:
            return None
        depth = len(self.student.layer_order)
        layers = range(depth) if "attention" in chosen else [depth - 1] if "relations" in chosen else []
        return LayerRecorder(layers=tuple(layers))

    # -- projections

    @cached_property
    def heads(self) -> dict[str, HeadSpec]:
        """Projections that the student is given for the time of training."""
        names = dict.fromkeys(name for state in self.states if (name := self.projection(state)))
        spec = HeadSpec(kind="tag", outputs=self.teacher.hidden_size, dropout=0.0)
        return dict.fromkeys(names, spec)

    def projection(self, state: int) -> str | None:
        """Name the projection of a state; none: it is compared as it is."""
        how = self.settings.projection
        if how == "auto" and self.student.hidden_size == self.teacher.hidden_size:
            return None
        return PROJECTION if how == "shared" else f"{PROJECTION}-{state}"

    def projected(self, model: Model, states_ND: Tensor, state: int) -> Tensor:
        """Give a state of the student in the teacher's width."""
        name = self.projection(state)
        if name is None:
            return states_ND
        head: Any = model.head(name)
        projected: Tensor = head.linear(states_ND)
        return projected

    # -- losses

    @property
    def _attention_kind(self) -> str:
        return self.attention or self.student.attention

    def counts(self, batch: Batch) -> dict[str, int]:
        """Say what each loss is a mean over."""
        tokens = sum(batch.lengths)
        known = {"attention": count_attention_pairs(batch, self._attention_kind), "contrastive": len(batch.lengths)}
        return {name: known.get(name, tokens) for name in self.weights}

    def losses(self, model: Model, watch: LayerRecorder, said: TeacherOutputs, batch: Batch) -> dict[str, Tensor]:
        """Give the sum of each loss over a micro-batch."""
        found: dict[str, Tensor] = {}
        chosen = self.weights
        if "attention" in chosen:
            found["attention"] = torch.stack(
                [
                    attention_loss(watch.qkv[ours], said.attention(theirs - 1), batch, self._attention_kind)
                    for ours, theirs in enumerate(self.layers)
                ]
            ).sum()
        if "relations" in chosen:
            ours_N3HK, theirs_N3HK = watch.qkv[len(self.layers) - 1], said.attention(self.relation_layer)
            found["relations"] = relation_loss(ours_N3HK, theirs_N3HK, batch, self.settings.relation_heads)
        return found | self._errors_of_states(model, watch, said, batch)

    def _errors_of_states(
        self, model: Model, watch: LayerRecorder, said: TeacherOutputs, batch: Batch
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for ours, theirs in self.states.items():
            states_NW, taught_NW = self.projected(model, watch.hidden[ours], ours), said.state(theirs)
            name = "hidden" if ours else "embeddings"
            if name in self.weights:
                error = hidden_state_loss(states_NW, taught_NW, batch)
                found[name] = found[name] + error if name in found else error
            if "contrastive" in self.weights and ours == len(self.layers):
                one, other = mean_pool(states_NW, batch), mean_pool(taught_NW, batch)
                found["contrastive"] = contrastive_distillation_loss(one, other, self.settings.temperature)
        return found


def combine_losses(
    errors: Mapping[str, Tensor], weights: Mapping[str, float], totals: Mapping[str, float]
) -> tuple[Tensor, dict[str, float]]:
    """Add up the means of losses by their weights; give the plain sums too."""
    parts = [weights[name] / max(totals[name], 1) * error for name, error in errors.items()]
    return torch.stack(parts).sum(), {name: float(error.detach()) for name, error in errors.items()}
