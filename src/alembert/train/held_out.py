"""Held-out text: documents that are never trained on, masked always in the same way, so that runs can be compared.

Masked tokens are scored as BERT masks them (pieces, 15 %), whatever the run itself masks, together and apart for tokens
inside and outside of entities; and once more with whole entities masked, every second one of the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from torch import Tensor

from alembert.corpus.shards import IN_ENTITY
from alembert.data.feed import HeldOutSplit, SequenceSpec, batch_sequences, build_sequences
from alembert.data.masking import MaskSettings
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan
from alembert.train.exercises import Assembler
from alembert.train.lesson import Micro, Target
from alembert.train.objectives import MaskedLM, Objective, restrict

NAME: Final = "held out"
WHOLE: Final = "masked_lm, whole entities"
_WHOLE_MASKS: Final = MaskSettings(unit="entity", entity_rate=0.5, mask_share=1.0, random_share=0.0)
Tallies = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Exam:
    """A held-out micro-batch; `whole`: one in which whole entities are masked."""

    micro: Micro
    whole: bool = False

    def tallies(
        self, objective: Objective, logits: Tensor, target: Target
    ) -> Iterator[tuple[str, Mapping[str, float]]]:
        """Count what one objective got right, under the names by which it is reported."""
        labels = target.labels
        if target.in_entity is None:
            yield objective.name, objective.tally(logits, labels)
        elif self.whole:
            yield WHOLE, objective.tally(*restrict(logits, labels, target.in_entity))
        else:
            yield objective.name, objective.tally(logits, labels)
            for where, kept in (("in entities", target.in_entity), ("elsewhere", ~target.in_entity)):
                yield f"{objective.name}, {where}", objective.tally(*restrict(logits, labels, kept))


def exams(
    assembler: Assembler,
    stretches: Sequence[TokenSpan],
    passes: Mapping[str, Sequence[Objective]],
    micro_tokens: int,
) -> Iterator[Exam]:
    """Make the held-out micro-batches: attention -> objectives says which passes there are."""
    parts = list(batch_sequences(stretches, micro_tokens))
    for attention, objectives in passes.items():
        standard = [_masked_by(each, MaskSettings()) for each in objectives]
        yield from (Exam(assembler.micro(part, standard, attention, (0, NAME))) for part in parts)
        whole = [_masked_by(each, _WHOLE_MASKS) for each in objectives if isinstance(each, MaskedLM)]
        marked = [s for s in stretches if (assembler.shards.flags[slice(*s.a)] & IN_ENTITY).any()]
        if whole and marked:
            for part in batch_sequences(marked, micro_tokens):
                yield Exam(assembler.micro(part, whole, attention, (0, NAME, "whole")), whole=True)


def held_out_stretches(
    assembler: Assembler, split: HeldOutSplit, cutting: SequenceSpec, tokens: int
) -> list[TokenSpan]:
    """Cut held-out documents into sequences, up to a number of tokens."""
    stretches: list[TokenSpan] = []
    for document in split.held_out():
        if sum(stretch.length for stretch in stretches) >= tokens:
            break
        rng = make_rng(0, NAME, document)
        stretches += build_sequences(assembler.shards, document, cutting, rng, split)
    return stretches


def add_up(counts: Iterable[tuple[str, Mapping[str, float]]]) -> Tallies:
    """Add counts of the same name."""
    total: Tallies = defaultdict(lambda: defaultdict(float))
    for name, tally in counts:
        for key, value in tally.items():
            total[name][key] += value
    return {name: dict(tally) for name, tally in total.items()}


def _masked_by(objective: Objective, masks: MaskSettings) -> Objective:
    return replace(objective, masks=masks) if isinstance(objective, MaskedLM) else objective
