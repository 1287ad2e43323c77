"""Masked LM beside a task: the rows of each micro-batch are masked anew and read once more, by a masked-LM head.

In: any objective of fine-tuning, with its settings. Out: the same objective, whose loss has the weighted mean of
masked LM added to it, as SimCSE was published with. Masks are drawn as in pre-training (80 % [MASK], 10 % random, 10 %
kept), never at special pieces, and are found by seed, pass and row, so a run can go on anywhere. The head is that of
the checkpoint if it has one, else a fresh one, tied to the embedding; it is a means, and is not part of the model that
is written. The price is one more pass through the encoder, and that all rows of the embedding are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.data.feed import Cursor
from alembert.data.masking import MaskSettings
from alembert.data.order import make_rng
from alembert.data.sequences import Instance
from alembert.files.family import Blueprint
from alembert.nn.batch import Batch
from alembert.nn.dropout import HEADS, DropoutSeed
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.settings import MaskedLMSettings
from alembert.train.objective import EvalResult, LMTarget, MicroBatch, Objective
from alembert.train.pretrain.objectives import MaskedLMObjective, TrainingInstance

OBJECTIVE_NAME: Final = "masked_lm"
"""What the objective is called in the log, and a fresh head in the model."""
_MASKED_PASS: Final = HEADS + 3
"""A place of the noise beside those of the model and of `regularise`."""


@dataclass(frozen=True, eq=False)
class MaskedRows:
    """The rows of a micro-batch with masks, and what stood there."""

    batch: Batch
    target: LMTarget

    @property
    def count(self) -> int:
        return self.target.count

    def to(self, device: torch.device) -> MaskedRows:
        return MaskedRows(self.batch.to(device), self.target.to(device))


def get_masked_lm_head(blueprint: Blueprint) -> tuple[str, HeadSpec]:
    """Find the masked-LM head of a model, or describe a fresh one."""
    there = ((name, spec) for name, spec in blueprint.heads.items() if spec.kind == "masked_lm")
    return next(there, (OBJECTIVE_NAME, HeadSpec(kind="masked_lm", dropout=0.0)))


class AuxiliaryMaskedLM:
    """An objective of fine-tuning with masked LM beside it."""

    def __init__(
        self, objective: Objective, tokenizer: Tokenizer, settings: MaskedLMSettings, *, head: str, seed: int
    ) -> None:
        self.task_objective = objective
        self.weight = settings.weight
        self.head = head
        self.seed = seed
        self.objective = MaskedLMObjective(
            masks=MaskSettings(rate=settings.rate),
            mask_id=tokenizer.mask_id,
            vocab_size=tokenizer.vocab_size,
        )
        self.special = _special_ids(tokenizer)

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[Sequence[Any], Cursor]:
        return self.task_objective.sample(cursor, count, progress)

    def collate(self, portion: Any) -> MicroBatch:
        micro = self.task_objective.collate(portion)
        return replace(micro, targets={**micro.targets, OBJECTIVE_NAME: self.masked(micro.batch, portion.address)})

    def masked(self, batch: Batch, address: tuple[int | str, ...]) -> MaskedRows:
        """Mask the rows of a batch; chance is decided by the address and by the row."""
        ids_N = batch.ids_N.clone()
        places, labels = [], []
        for number, (start, length) in enumerate(zip(batch.starts_B.tolist(), batch.lengths, strict=True)):
            row = slice(start, start + length)
            exercise = self._exercise(batch.ids_N[row].numpy(), (*address, number))
            ids_N[row] = torch.from_numpy(exercise.ids).to(ids_N)
            answers = exercise.answers[self.objective.name]
            assert answers.tokens is not None
            places.append(answers.tokens + start)
            labels.append(answers.labels)
        targets = [torch.from_numpy(np.concatenate(parts)) for parts in (places, labels)]
        return MaskedRows(replace(batch, ids_N=ids_N), LMTarget(*targets))

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        loss, sums = self.task_objective.loss(model, micro, totals, noise)
        rows: MaskedRows = micro.targets[OBJECTIVE_NAME]
        if not rows.count:  # nothing but special pieces
            return loss, {**sums, OBJECTIVE_NAME: 0.0}
        logits = model(
            rows.batch,
            [self.head],
            predicted_P=rows.target.places,
            only=True,
            attention=self.objective.attention,
            noise=None if noise is None else noise.derive(_MASKED_PASS),
        )[self.head]
        plain = self.objective.loss(logits, rows.target.labels)
        return loss + self.weight / totals[OBJECTIVE_NAME] * plain, {**sums, OBJECTIVE_NAME: float(plain.detach())}

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> Any:
        """Judge the task alone."""
        return self.task_objective.evaluate(model, part, parts)

    def summarise(self, parts: Sequence[Any]) -> EvalResult:
        return self.task_objective.summarise(parts)

    def _exercise(self, ids: npt.NDArray[np.int64], address: tuple[int | str, ...]) -> TrainingInstance:
        small = ids.astype(np.int32)
        unknown = np.zeros(len(ids), np.uint8)
        instance = Instance(small, segments=unknown, flags=unknown, special=np.isin(ids, self.special))
        exercise = TrainingInstance(instance, small)
        self.objective.prepare(exercise, make_rng(self.seed, "masks", *address))
        return exercise


def _special_ids(tokenizer: Tokenizer) -> list[int]:
    """List the pieces that stand for no text, markers of tasks among them."""
    return [tokenizer.id_of(added.content) for added in tokenizer.parts.added if added.special]
