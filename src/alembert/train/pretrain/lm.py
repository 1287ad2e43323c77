"""The objective of pre-training: shards in, the loss of the chosen objectives out.

Held-out documents are never trained on, and are masked always in the same way, so that runs can be compared. Masked
tokens are scored as BERT masks them (pieces, 15 %), whatever the run itself masks, together and apart for tokens inside
and outside of entities; and once more with whole entities masked, every second one of the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor

from alembert.corpus.shards import IN_ENTITY, Shards
from alembert.data.feed import (
    Cursor,
    HeldOutSplit,
    SequenceBatchPlan,
    SequenceSampler,
    SequenceSpec,
    batch_sequences,
    build_sequences,
)
from alembert.data.masking import MaskSettings
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan
from alembert.errors import BadSetting
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import HeadSpec, find_required_tokens
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.train.objective import EvalResult, LMTarget, MicroBatch
from alembert.train.pretrain.objectives import Collator, LMObjective, MaskedLMObjective, select_answers
from alembert.train.pretrain.replaced import (
    GENERATOR,
    EntitySwapObjective,
    GeneratorObjective,
    choose_objectives,
    fill_masks,
)
from alembert.train.pretrain.settings import PretrainSettings

HELD_OUT: Final = "held out"
WHOLE_ENTITIES: Final = "masked_lm, whole entities"
_WHOLE_ENTITY_MASKS: Final = MaskSettings(unit="entity", entity_rate=0.5, mask_share=1.0, random_share=0.0)
GENERAL_TEXT: Final = "general text"
LMTallies = dict[str, dict[str, float]]


@dataclass(frozen=True)
class EvalBatch:
    """A held-out micro-batch; `whole`: one in which whole entities are masked; `general`: not of the corpus."""

    micro: MicroBatch
    whole: bool = False
    general: bool = False

    def tallies(
        self, objective: LMObjective, logits: Tensor, target: LMTarget
    ) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Count what one objective got right, under the names by which it is reported."""
        labels = target.labels
        if self.general:
            yield f"{objective.name}, {GENERAL_TEXT}", objective.tally(logits, labels)
        elif target.in_entity is None:
            yield objective.name, objective.tally(logits, labels)
        elif self.whole:
            yield WHOLE_ENTITIES, objective.tally(*select_answers(logits, labels, target.in_entity))
        else:
            yield objective.name, objective.tally(logits, labels)
            for where, kept in (("in entities", target.in_entity), ("elsewhere", ~target.in_entity)):
                yield f"{objective.name}, {where}", objective.tally(*select_answers(logits, labels, kept))


def build_eval_batches(
    assembler: Collator,
    stretches: Sequence[TokenSpan],
    passes: Mapping[str, Sequence[LMObjective]],
    micro_tokens: int,
) -> Iterator[EvalBatch]:
    """Make the held-out micro-batches: attention -> objectives says which passes there are."""
    parts = list(batch_sequences(stretches, micro_tokens))
    for attention, objectives in passes.items():
        for standard in _split_swaps([_with_masks(objective, MaskSettings()) for objective in objectives]):
            yield from (EvalBatch(assembler.micro(part, standard, attention, (0, HELD_OUT))) for part in parts)
        whole = [
            _with_masks(objective, _WHOLE_ENTITY_MASKS) for objective in objectives if objective.name == "masked_lm"
        ]
        marked = [s for s in stretches if (assembler.shards.flags[slice(*s.a)] & IN_ENTITY).any()]
        if whole and marked:
            for part in batch_sequences(marked, micro_tokens):
                yield EvalBatch(assembler.micro(part, whole, attention, (0, HELD_OUT, "whole")), whole=True)


def build_general_batches(
    assembler: Collator,
    stretches: Sequence[TokenSpan],
    passes: Mapping[str, Sequence[LMObjective]],
    micro_tokens: int,
) -> Iterator[EvalBatch]:
    """Make micro-batches of general text, on which predictions of tokens alone are scored."""
    for attention, objectives in passes.items():
        of_tokens = [_with_masks(each, MaskSettings()) for each in objectives if each.spec.kind == "masked_lm"]
        for part in batch_sequences(stretches, micro_tokens) if of_tokens else ():
            yield EvalBatch(assembler.micro(part, of_tokens, attention, (0, HELD_OUT)), general=True)


def cut_held_out_spans(assembler: Collator, split: HeldOutSplit, cutting: SequenceSpec, tokens: int) -> list[TokenSpan]:
    """Cut held-out documents into sequences, up to a number of tokens."""
    stretches: list[TokenSpan] = []
    for document in split.held_out():
        if sum(stretch.length for stretch in stretches) >= tokens:
            break
        rng = make_rng(0, HELD_OUT, document)
        stretches += build_sequences(assembler.shards, document, cutting, rng, split)
    return stretches


def sum_tallies(counts: Iterable[tuple[str, Mapping[str, float]]]) -> LMTallies:
    """Add counts of the same name."""
    total: LMTallies = defaultdict(lambda: defaultdict(float))
    for name, tally in counts:
        for key, value in tally.items():
            total[name][key] += value
    return {name: dict(tally) for name, tally in total.items()}


def _with_masks(objective: LMObjective, masks: MaskSettings) -> LMObjective:
    """Mask for the model itself; replaced tokens come at the rate that it was trained for, which it knows by heart."""
    if isinstance(objective, MaskedLMObjective) and not isinstance(objective, GeneratorObjective):
        return replace(objective, masks=masks)
    return objective


def _split_swaps(objectives: Sequence[LMObjective]) -> list[list[LMObjective]]:
    """Let replaced tokens have a pass of their own: others are scored on the same text with and without them."""
    groups: tuple[list[LMObjective], list[LMObjective]] = ([], [])
    for objective in objectives:
        groups[isinstance(objective, EntitySwapObjective)].append(objective)
    return [group for group in groups if group]


class PretrainObjective:
    """Learn from plain text."""

    def __init__(
        self, shards: Shards, tokenizer: Tokenizer, settings: PretrainSettings, general: Shards | None = None
    ) -> None:
        self.settings = settings
        self.general = None if general is None else Collator(general, tokenizer, settings.batch.padded)
        self.split = HeldOutSplit(shards, settings.evaluation.share)
        self._check_split(len(shards))
        self.assembler = Collator(shards, tokenizer, settings.batch.padded)
        self.feed = SequenceSampler(
            shards,
            self.split,
            seed=settings.seed,
            micro_tokens=settings.batch.micro_tokens,
            static_copies=settings.sequences.static_masks,
        )
        chosen = choose_objectives(settings, tokenizer, shards, self.split)
        self.objectives = {objective.name: objective for objective in chosen}
        self.passes = _group_by_attention(self.objectives.values())
        self.heaviest = {kind: max(objective.weight for objective in group) for kind, group in self.passes.items()}

    def _check_split(self, documents: int) -> None:
        training = documents - self.split.held_out_count
        needed = 2 if self.settings.objectives.next_sentence else 1
        if training < needed:
            raise BadSetting(
                f"Of {documents} documents with text, {self.split.held_out_count} are held out and {training} are left to "
                f"train on; at least {needed} are needed. Give more documents, or a smaller `share` of the evaluation."
            )

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[list[SequenceBatchPlan], Cursor]:
        return self.feed.take(cursor, count, self.cutting(progress))

    def cutting(self, progress: float) -> SequenceSpec:
        """Choose how documents are cut at this point of the run."""
        return self.settings.sequences.cutting(progress, self.settings.objectives.pairs)

    def collate(self, portion: SequenceBatchPlan) -> MicroBatch:
        at, seed = portion.cursor, self.settings.seed
        attention = self._pass_of(make_rng(seed, "pass", at.epoch, at.window, at.micro).random())
        objectives = [self._for_length(objective, portion.cutting.length) for objective in self.passes[attention]]
        micro = self.assembler.micro(portion.spans, objectives, attention, (seed, "masks", portion.copy))
        specs = [self.objectives[name].spec for name in micro.targets if name != GENERATOR]
        return micro.with_tokens_read(find_required_tokens(specs, micro.batch, **self._places(micro)))

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        total = torch.zeros((), device=micro.batch.ids_N.device)
        sums: dict[str, float] = {}
        for objective, logits, target in self._answers(model, micro, noise):
            loss = objective.loss(logits, target.labels)
            sums[objective.name] = float(loss.detach())
            total = total + loss * self._factor(objective, len(target.labels), totals[objective.name])
        return total, sums

    def _factor(self, objective: LMObjective, answers: int, total: float) -> float:
        """Compute how much each answer counts, so that a step adds up to the mean of each objective times its weight.

        No answer at all is possible: no unit may have been short enough to be masked.
        """
        if len(self.passes) == 1:
            return objective.weight / max(total, 1)
        # How many passes of a kind a step has is left to chance. The mean over those that it has would give a rare kind
        # its full weight in one step and none in the next, so each micro-batch has its fixed share instead.
        chance = self.heaviest[objective.attention] / sum(self.heaviest.values())
        return objective.weight / chance / self.settings.batch.micro_batches / max(answers, 1)

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> LMTallies:
        """Count right answers on held-out text; of several processes each takes its part."""
        device = next(model.parameters()).device
        with torch.inference_mode():
            return sum_tallies(
                counted
                for exam in self._exams[part::parts]
                for objective, logits, target in self._answers(model, exam.micro.to(device), None)
                for counted in exam.tallies(objective, logits, target)
            )

    def summarise(self, parts: Sequence[LMTallies]) -> EvalResult:
        tallies = sum_tallies(pair for part in parts for pair in part.items())
        scores = {
            name: self.objectives[name.partition(",")[0]].scores(tally)
            for name, tally in tallies.items()
            if tally["count"]
        }
        objectives = [objective for name, objective in self.objectives.items() if name in scores]
        return EvalResult(scores, sum(objective.weight * scores[objective.name]["loss"] for objective in objectives))

    @cached_property
    def _exams(self) -> list[EvalBatch]:
        tokens, micro_tokens = self.settings.evaluation.tokens, self.settings.batch.micro_tokens
        stretches = cut_held_out_spans(self.assembler, self.split, self.cutting(0.0), tokens)
        exams = list(build_eval_batches(self.assembler, stretches, self.passes, micro_tokens))
        if self.general is not None:
            everything = HeldOutSplit(self.general.shards, 1.0)
            single = self.settings.sequences.cutting(0.0)  # pairs would need text to train on
            stretches = cut_held_out_spans(self.general, everything, single, tokens)
            exams += build_general_batches(self.general, stretches, self.passes, micro_tokens)
        return exams

    def _answers(
        self, model: Model, micro: MicroBatch, noise: DropoutSeed | None
    ) -> Iterator[tuple[LMObjective, Tensor, LMTarget]]:
        """Run the generator, if there is one, and the model once; give the logits that each objective asked for."""
        if masked := micro.targets.get(GENERATOR):
            train_embeddings = self.settings.generator_embeddings == "trained"
            filled, micro = fill_masks(model, micro, noise, train_embeddings=train_embeddings)
            yield self.objectives[GENERATOR], filled, masked
        asked = {self.objectives[name]: target for name, target in micro.targets.items()}
        heads = list(dict.fromkeys(objective.head for objective in asked))
        places = self._places(micro)
        outputs = model(micro.batch, heads, **places, only=True, attention=micro.attention, noise=noise)
        for objective, target in asked.items():
            logits = outputs[objective.head]
            yield objective, select_rows(logits, objective.spec, target.places, places["positions_P"]), target

    def _places(self, micro: MicroBatch) -> dict[str, Tensor | None]:
        """Choose at which tokens the model is asked."""
        places = {
            self.objectives[name].head: target.places for name, target in micro.targets.items() if name != GENERATOR
        }
        predicted = places.pop("masked_lm", None)
        specs = {objective.head: objective.spec for objective in self.objectives.values()}
        return {
            "predicted_P": predicted,
            "positions_P": join_places([p for n, p in places.items() if specs[n].per_token]),
        }

    def _pass_of(self, draw: float) -> str:
        """Choose a kind of pass by its weight: that of the heaviest objective in it."""
        weights = list(self.heaviest.values())
        index = int(np.searchsorted(np.cumsum(weights), draw * sum(weights), side="right"))
        return list(self.passes)[index]

    def _for_length(self, objective: LMObjective, length: int) -> LMObjective:
        """Let the most predictions of a sequence grow with the length, as the published settings for 512 do."""
        masks: MaskSettings | None = getattr(objective, "masks", None)
        if masks is None or masks.max_predictions is None or length == self.settings.sequences.max_length:
            return objective
        most = round(masks.max_predictions * length / self.settings.sequences.max_length)
        return replace(objective, masks=replace(masks, max_predictions=most))  # type: ignore[call-arg]


def join_places(places: Sequence[Tensor]) -> Tensor | None:
    """Return the tokens that any of several heads is asked at: as they are if these are the same, or in ascending order."""
    if not places or all(torch.equal(each, places[0]) for each in places):
        return places[0] if places else None
    joined: Tensor = torch.unique(torch.cat(list(places)))
    return joined


def select_rows(logits: Tensor, spec: HeadSpec, places_P: Tensor, positions_P: Tensor | None) -> Tensor:
    """Return the answers of a head at some tokens or documents, of those at which it was asked."""
    if not spec.per_token:
        return logits[places_P]
    if spec.kind == "masked_lm" or positions_P is None or torch.equal(places_P, positions_P):
        return logits
    return logits[torch.searchsorted(positions_P, places_P)]


def _group_by_attention(objectives: Iterable[LMObjective]) -> dict[str, list[LMObjective]]:
    groups: dict[str, list[LMObjective]] = defaultdict(list)
    for objective in objectives:
        groups[objective.attention].append(objective)
    return dict(groups)
