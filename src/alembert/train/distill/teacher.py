"""A teacher, and what it computes for a batch: states and attention of chosen layers, and answers of its head.

Its outputs are one table with a line for each token and one with a line for each answer, in half precision: small
enough to be kept on the disk, and the same numbers whether they come from there or are computed on the spot. The
teacher is in evaluation mode, always: dropout would teach noise.
"""

# N tokens, W numbers a token, P answers, C outputs of the head, D width, H heads, K head size
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from alembert.nn.attention import LayerRecorder
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.model import Model
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import DistillLossSettings
from alembert.tasks.task import AnyTask
from alembert.train.gradients import autocast


@dataclass(frozen=True)
class TeacherRequest:
    """What a teacher is asked to compute."""

    states: tuple[int, ...] = ()
    """Hidden states, by number: 0 are the embeddings, 1 what the first layer gives."""
    attention: tuple[int, ...] = ()
    """Layers, from 0, whose queries and keys are needed."""
    relations: tuple[int, ...] = ()
    """Layers, from 0, whose queries, keys and values are needed."""
    answers: bool = False

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers, from 0, whose attention is recorded."""
        return tuple(sorted({*self.attention, *self.relations}))

    @property
    def is_empty(self) -> bool:
        return not (self.answers or self.has_layers)

    @property
    def has_layers(self) -> bool:
        """Whether anything but answers is asked for."""
        return bool(self.states or self.layers)

    def union(self, other: TeacherRequest) -> TeacherRequest:
        """Return what two requests ask for together."""
        return TeacherRequest(
            tuple(sorted({*self.states, *other.states})),
            tuple(sorted({*self.attention, *other.attention})),
            tuple(sorted({*self.relations, *other.relations})),
            self.answers or other.answers,
        )

    def parts(self, layer: int) -> int:
        """Count what is recorded of a layer: queries and keys, or values too."""
        return 3 if layer in self.relations else 2

    def width(self, config: EncoderConfig) -> int:
        """Count the numbers a token."""
        parts = len(self.states) + sum(self.parts(layer) for layer in self.layers)
        return parts * config.hidden_size


@dataclass(frozen=True, eq=False)
class TeacherOutputs:
    """What a teacher computes for a batch."""

    request: TeacherRequest
    config: EncoderConfig
    """The teacher's."""
    tokens_NW: Tensor
    """A line for each token of the flat row: the states one after the other, then the layers."""
    answers_PC: Tensor | None = None
    """A line for each of the head's outputs, as `Task.taught` has it."""

    def state(self, number: int) -> Tensor:
        """Return a hidden state (N, D)."""
        start = self.request.states.index(number) * self.config.hidden_size
        return self.tokens_NW[:, start : start + self.config.hidden_size].float()

    def attention(self, layer: int) -> Tensor:
        """Return queries, keys and, if they were requested, values of a layer (N, 2 or 3, H, K)."""
        before = [self.request.parts(other) for other in self.request.layers if other < layer]
        start = (len(self.request.states) + sum(before)) * self.config.hidden_size
        width = self.request.parts(layer) * self.config.hidden_size
        flat_NW = self.tokens_NW[:, start : start + width].float()
        return torch.unflatten(flat_NW, 1, (-1, self.config.num_attention_heads, self.config.head_size))

    def to(self, device: torch.device) -> TeacherOutputs:
        answers = None if self.answers_PC is None else self.answers_PC.to(device)
        return TeacherOutputs(self.request, self.config, self.tokens_NW.to(device), answers)


@dataclass(frozen=True)
class Teacher:
    """A model that is imitated, with the task that it was fine-tuned for, if any."""

    model: Model
    task: AnyTask | None = None
    head: str | None = None
    settings: DistillLossSettings = field(default_factory=DistillLossSettings)
    half: str | None = None
    """Narrow type of its matrix products; none: float32, also where the student is computed in half precision."""

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    @cached_property
    def config(self) -> EncoderConfig:
        return self.model.config

    def forward(self, batch: Batch, request: TeacherRequest, target: TaskBatch | None = None) -> TeacherOutputs:
        """Read a batch, unless nothing is asked for; answers need the target, which says where the head is asked."""
        if request.is_empty:
            return TeacherOutputs(request, self.config, _concatenate_outputs(None, request, len(batch.ids_N)))
        watch = LayerRecorder(layers=request.layers) if request.has_layers else None
        attention = None if self.task is None else self.task.attention_pattern
        heads = [self.head] if request.answers and self.head else []
        places = None if target is None else target.positions
        device = batch.ids_N.device
        products = autocast(device, self.half) if self.half else torch.autocast(device.type, enabled=False)
        with torch.no_grad(), products:
            outputs = self.model(batch, heads, positions_P=places, only=watch is None, attention=attention, trace=watch)
            answers = self._answers(outputs, target) if heads else None
        return TeacherOutputs(request, self.config, _concatenate_outputs(watch, request, len(batch.ids_N)), answers)

    def _answers(self, outputs: dict[str, Tensor], target: TaskBatch | None) -> Tensor:
        assert self.task is not None
        assert self.head is not None
        assert target is not None
        taught = self.task.teacher_targets(self.model.head(self.head), outputs[self.head], target, self.settings)
        return to_half(taught)


def _concatenate_outputs(watch: LayerRecorder | None, request: TeacherRequest, tokens: int) -> Tensor:
    if watch is None:
        return torch.empty(tokens, 0, dtype=torch.float16)
    states = [watch.hidden[number] for number in request.states]
    layers = [watch.qkv[layer][:, : request.parts(layer)].flatten(1) for layer in request.layers]
    return to_half(torch.cat([*states, *layers], dim=1))


def to_half(values: Tensor) -> Tensor:
    """Round to half precision; what is beyond its range is put at its end."""
    limit = torch.finfo(torch.float16).max
    return values.clamp(-limit, limit).to(torch.float16)
