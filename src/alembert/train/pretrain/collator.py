"""The collator of pre-training: stretches of the shards in, micro-batches with the answers of the objectives out."""

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
from alembert.train.objective import LMTarget, MicroBatch
from alembert.train.pretrain.objectives import (
    InstanceLabels,
    LMObjective,
    TrainingInstance,
)

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
