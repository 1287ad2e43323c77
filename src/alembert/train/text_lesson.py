"""The lesson of pre-training: shards in, the loss of the chosen objectives out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from alembert.corpus.shards import Shards
from alembert.data.feed import (
    Cursor,
    HeldOutSplit,
    SequenceBatchPlan,
    SequenceSampler,
    SequenceSpec,
)
from alembert.data.masking import MaskSettings
from alembert.data.order import make_rng
from alembert.errors import BadSetting
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import find_required_tokens
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.train.exercises import Assembler
from alembert.train.held_out import Exam, Tallies, add_up, exams, held_out_stretches
from alembert.train.lesson import Micro, Target, Verdict
from alembert.train.objectives import Objective, build_objectives
from alembert.train.settings import PretrainSettings


class TextLesson:
    """Learn from plain text."""

    def __init__(self, shards: Shards, tokenizer: Tokenizer, settings: PretrainSettings) -> None:
        self.settings = settings
        self.split = HeldOutSplit(shards, settings.evaluation.share)
        self._check_split(len(shards))
        self.assembler = Assembler(shards, tokenizer, settings.batch.padded)
        self.feed = SequenceSampler(
            shards,
            self.split,
            seed=settings.seed,
            micro_tokens=settings.batch.micro_tokens,
            static_copies=settings.sequences.static_masks,
        )
        self.objectives = {each.name: each for each in self._objectives(settings.masks)}
        self.passes = _by_attention(self.objectives.values())
        self.heaviest = {kind: max(each.weight for each in group) for kind, group in self.passes.items()}

    def _check_split(self, documents: int) -> None:
        training = documents - self.split.held_out_count
        needed = 2 if self.settings.objectives.next_sentence else 1
        if training < needed:
            raise BadSetting(
                f"Of {documents} documents with text, {self.split.held_out_count} are held out and {training} are left to "
                f"train on; at least {needed} are needed. Give more documents, or a smaller `share` of the evaluation."
            )

    def take(self, cursor: Cursor, count: int, progress: float) -> tuple[list[SequenceBatchPlan], Cursor]:
        return self.feed.take(cursor, count, self.cutting(progress))

    def cutting(self, progress: float) -> SequenceSpec:
        """Say how documents are cut at this point of the run."""
        return self.settings.sequences.cutting(progress, self.settings.objectives.pairs)

    def micro(self, portion: SequenceBatchPlan) -> Micro:
        at, seed = portion.at, self.settings.seed
        attention = self._pass_of(make_rng(seed, "pass", at.epoch, at.window, at.micro).random())
        objectives = [self._for_length(each, portion.cutting.length) for each in self.passes[attention]]
        micro = self.assembler.micro(portion.stretches, objectives, attention, (seed, "masks", portion.copy))
        specs = [self.objectives[name].spec for name in micro.targets]
        return micro.wanting(find_required_tokens(specs, micro.batch, **self._places(micro)))

    def loss(
        self, model: Model, micro: Micro, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        total = torch.zeros((), device=micro.batch.ids_N.device)
        sums: dict[str, float] = {}
        for objective, logits, target in self._answers(model, micro, noise):
            loss = objective.loss(logits, target.labels)
            sums[objective.name] = float(loss.detach())
            total = total + loss * self._factor(objective, len(target.labels), totals[objective.name])
        return total, sums

    def _factor(self, objective: Objective, answers: int, total: float) -> float:
        """Say how much each answer counts, so that a step adds up to the mean of each objective times its weight.

        No answer at all is possible: no unit may have been short enough to be masked.
        """
        if len(self.passes) == 1:
            return objective.weight / max(total, 1)
        # How many passes of a kind a step has is left to chance. The mean over those that it has would give a rare kind
        # its full weight in one step and none in the next, so each micro-batch has its fixed share instead.
        chance = self.heaviest[objective.attention] / sum(self.heaviest.values())
        return objective.weight / chance / self.settings.batch.micro_batches / max(answers, 1)

    def examine(self, model: Model, part: int = 0, parts: int = 1) -> Tallies:
        """Count right answers on held-out text; of several processes each takes its part."""
        device = next(model.parameters()).device
        with torch.inference_mode():
            return add_up(
                counted
                for exam in self._exams[part::parts]
                for objective, logits, target in self._answers(model, exam.micro.to(device), None)
                for counted in exam.tallies(objective, logits, target)
            )

    def verdict(self, found: Sequence[Tallies]) -> Verdict:
        tallies = add_up(pair for part in found for pair in part.items())
        scores = {
            name: self.objectives[name.partition(",")[0]].scores(tally)
            for name, tally in tallies.items()
            if tally["count"]
        }
        weights = self.settings.objectives.chosen()
        return Verdict(scores, sum(weights[name] * scores[name]["loss"] for name in weights if name in scores))

    @cached_property
    def _exams(self) -> list[Exam]:
        tokens = self.settings.evaluation.tokens
        stretches = held_out_stretches(self.assembler, self.split, self.cutting(0.0), tokens)
        return list(exams(self.assembler, stretches, self.passes, self.settings.batch.micro_tokens))

    def _answers(
        self, model: Model, micro: Micro, noise: DropoutSeed | None
    ) -> Iterator[tuple[Objective, Tensor, Target]]:
        """Run the model once, and give the logits that each objective asked for."""
        asked = {self.objectives[name]: target for name, target in micro.targets.items()}
        heads = list(dict.fromkeys(objective.head for objective in asked))
        outputs = model(micro.batch, heads, **self._places(micro), only=True, attention=micro.attention, noise=noise)
        for objective, target in asked.items():
            logits = outputs[objective.head]
            yield objective, logits if objective.spec.per_token else logits[target.places], target

    def _places(self, micro: Micro) -> dict[str, Tensor | None]:
        """Say at which tokens the model is asked."""
        places = {self.objectives[name].head: target.places for name, target in micro.targets.items()}
        return {"predicted_P": places.get("masked_lm"), "places_P": places.get("boundaries")}

    def _objectives(self, masks: MaskSettings) -> list[Objective]:
        tokenizer = self.assembler.tokenizer
        return build_objectives(
            self.settings.objectives.chosen(),
            masks=masks,
            mask_id=tokenizer.mask_id,
            vocab_size=tokenizer.vocab_size,
        )

    def _pass_of(self, draw: float) -> str:
        """Choose a kind of pass by its weight: that of the heaviest objective in it."""
        weights = list(self.heaviest.values())
        place = int(np.searchsorted(np.cumsum(weights), draw * sum(weights), side="right"))
        return list(self.passes)[place]

    def _for_length(self, objective: Objective, length: int) -> Objective:
        """Let the most predictions of a sequence grow with the length, as the published settings for 512 do."""
        masks: MaskSettings | None = getattr(objective, "masks", None)
        if masks is None or masks.max_predictions is None or length == self.settings.sequences.length:
            return objective
        most = round(masks.max_predictions * length / self.settings.sequences.length)
        return replace(objective, masks=replace(masks, max_predictions=most))  # type: ignore[call-arg]


def _by_attention(objectives: Iterable[Objective]) -> dict[str, list[Objective]]:
    groups: dict[str, list[Objective]] = defaultdict(list)
    for objective in objectives:
        groups[objective.attention].append(objective)
    return dict(groups)
