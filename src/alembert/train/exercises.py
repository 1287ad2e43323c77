"""From stretches of the shards to a micro-batch of tensors, by way of what the objectives ask of each sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from alembert.corpus.shards import Shards
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan, build_instance
from alembert.nn.batch import Batch
from alembert.text.tokenizer import Tokenizer
from alembert.train.lesson import Micro, Target
from alembert.train.objectives import Answers, Exercise, Objective

Address = tuple[int | str, ...]


@dataclass(frozen=True)
class Assembler:
    """Makes micro-batches of shards."""

    shards: Shards
    tokenizer: Tokenizer
    padded: bool = False
    """Pad to a rectangle instead of packing."""

    def micro(
        self, stretches: Sequence[TokenSpan], objectives: Sequence[Objective], attention: str, address: Address
    ) -> Micro:
        """Make a micro-batch; chance is decided by the address and by where each sequence begins."""
        exercises = [self._exercise(stretch, objectives, address) for stretch in stretches]
        batch = _padded(exercises, attention) if self.padded else _packed(exercises, attention)
        return Micro(batch, attention, _targets(exercises, batch.starts_B.numpy()))

    def _exercise(self, stretch: TokenSpan, objectives: Sequence[Objective], address: Address) -> Exercise:
        instance = build_instance(
            stretch,
            self.shards.ids,
            self.shards.flags,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
        )
        exercise = Exercise(instance, instance.ids)
        rng = make_rng(*address, stretch.document, stretch.a[0])
        for objective in objectives:
            objective.prepare(exercise, rng)
        return exercise


def _packed(exercises: Sequence[Exercise], attention: str) -> Batch:
    ids = [exercise.ids for exercise in exercises]
    segments = [exercise.instance.segments for exercise in exercises]
    return Batch.packed(ids, segments, prefixes=_prefixes(exercises, attention))


def _padded(exercises: Sequence[Exercise], attention: str) -> Batch:
    def rectangle(rows: Sequence[npt.NDArray[np.generic]]) -> torch.Tensor:
        tensors = [torch.from_numpy(row.astype(np.int64)) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)

    return Batch.padded(
        rectangle([exercise.ids for exercise in exercises]),
        rectangle([np.ones_like(exercise.ids) for exercise in exercises]),
        rectangle([exercise.instance.segments for exercise in exercises]),
        prefixes=_prefixes(exercises, attention),
    )


def _prefixes(exercises: Sequence[Exercise], attention: str) -> list[int] | None:
    return [exercise.prefix or 0 for exercise in exercises] if attention == "prefix" else None


def _targets(exercises: Sequence[Exercise], starts: npt.NDArray[np.int64]) -> dict[str, Target]:
    names = dict.fromkeys(name for exercise in exercises for name in exercise.answers)
    return {
        name: _target([(n, each.answers[name]) for n, each in enumerate(exercises) if name in each.answers], starts)
        for name in names
    }


def _target(answers: Sequence[tuple[int, Answers]], starts: npt.NDArray[np.int64]) -> Target:
    """Join the answers of all sequences; places count tokens of the flat row, or documents."""
    places = [np.array([n]) if each.tokens is None else each.tokens + starts[n] for n, each in answers]
    inside = [each.in_entity for _, each in answers if each.in_entity is not None]
    return Target(
        places=torch.from_numpy(np.concatenate(places)),
        labels=torch.from_numpy(np.concatenate([each.labels for _, each in answers])),
        in_entity=torch.from_numpy(np.concatenate(inside)) if inside else None,
    )
