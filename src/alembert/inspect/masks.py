"""What the trainer masks: training sequences with marks, and counts over many of them.

In: documents as numbers (shards, or an excerpt), a tokenizer, and a `Plan` that says how sequences are cut and masked.
Out: a `Survey` of the first sequences of a run with this seed, in their order. Sequences and masks are made by the code
that training uses, from the same addresses of chance, so what is shown here is what the model is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from alembert.corpus.shards import ENTITY_START, IN_ENTITY, WORD_START, TokenArrays
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler, SequenceSpec
from alembert.data.masking import MaskSettings, choose_positions, corrupt
from alembert.data.order import make_rng
from alembert.data.sequences import TokenSpan, build_instance
from alembert.errors import BadSetting
from alembert.inspect.mask_statistics import Marked, Statistics
from alembert.text.tokenizer import Tokenizer

Mark = Literal["mask", "random", "kept"]
SEQUENCES = 2000
"""Sequences that are counted, at most."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How training sequences are made."""

    cutting: SequenceSpec
    masks: MaskSettings
    seed: int = 1
    micro_tokens: int = 2048
    """Tokens of a micro-batch, which has a part in the order."""
    held_out: float = 0.01
    """Share of the documents that are not trained on."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of a sequence."""

    text: str
    """The right answer."""
    seen: str
    """What the model is given instead; the same where nothing was hidden."""
    mark: Mark | None
    """What became of it if it is to be predicted."""
    unit: int | None
    """A number that it shares with what is masked together with it."""
    word: bool
    """Whether a word begins here."""
    entity: Literal["first", "inside"] | None
    segment: int
    special: bool
    """Whether it is `[CLS]` or `[SEP]`."""


@dataclass(frozen=True)
class MaskedSequence:
    """One training sequence."""

    document: int
    """Number of its document in the shards."""
    label: int | None
    """0: B follows A. 1: B is random, or the two are swapped. None: a single sequence."""
    pieces: tuple[Piece, ...]

    @property
    def chosen(self) -> int:
        """How many tokens are to be predicted."""
        return sum(piece.mark is not None for piece in self.pieces)


@dataclass(frozen=True)
class Survey:
    """The first sequences of a run, and counts over more of them."""

    plan: Plan
    sequences: tuple[MaskedSequence, ...]
    statistics: Statistics
    held_out: int
    """Documents that are not trained on."""

    @property
    def labels(self) -> tuple[str, str]:
        """What the labels 0 and 1 of a pair say."""
        swapped = self.plan.cutting.pairs == "sentence_order"
        return ("in order", "swapped") if swapped else ("B follows A", "B is random")

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        return {
            "plan": asdict(self.plan),
            "statistics": self.statistics.as_json(),
            "sequences": [asdict(sequence) for sequence in self.sequences],
        }


def survey(tokens: TokenArrays, tokenizer: Tokenizer, plan: Plan, *, count: int = 5, most: int = SEQUENCES) -> Survey:
    """Show the first `count` sequences of a run, and count over its first `most`, within the first pass."""
    shown: list[MaskedSequence] = []
    statistics = Statistics()
    split = _split(tokens, plan)
    for copy, stretch in islice(_first_pass(tokens, split, plan), max(count, most)):
        marked = _masked(stretch, copy, tokens, tokenizer, plan)
        statistics.add(stretch, marked)
        if len(shown) < count:
            shown.append(MaskedSequence(stretch.document, stretch.label, tuple(_pieces(marked, tokenizer))))
    return Survey(plan, tuple(shown), statistics, split.held_out_count)


def _first_pass(tokens: TokenArrays, split: HeldOutSplit, plan: Plan) -> Iterator[tuple[int, TokenSpan]]:
    """Give the sequences of a run's first pass over the documents, each with its set of chance."""
    feed = SequenceSampler(tokens, split, seed=plan.seed, micro_tokens=plan.micro_tokens)
    cursor = Cursor()
    while cursor.epoch == 0:
        (portion,), cursor = feed.take(cursor, 1, plan.cutting)
        if portion.at.epoch == 0:
            yield from ((portion.copy, stretch) for stretch in portion.stretches)


def _split(tokens: TokenArrays, plan: Plan) -> HeldOutSplit:
    """Hold documents out; without enough others, there would be no end to looking for one."""
    needed = 2 if plan.cutting.pairs == "next_sentence" else 1
    split = HeldOutSplit(tokens, plan.held_out if len(tokens) else 0.0)
    if len(tokens) - split.held_out_count < needed:
        raise BadSetting(
            f"Of the {len(tokens)} document(s) with text {split.held_out_count} are held out, and training needs at "
            f"least {needed}. Give more documents, or lower the `share` of [evaluation]."
        )
    return split


def _masked(stretch: TokenSpan, copy: int, tokens: TokenArrays, tokenizer: Tokenizer, plan: Plan) -> Marked:
    instance = build_instance(stretch, tokens.ids, tokens.flags, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    rng = make_rng(plan.seed, "masks", copy, stretch.document, stretch.a[0])
    chosen = choose_positions(instance, plan.masks, rng)
    seen = corrupt(instance.ids, chosen, plan.masks, rng, mask_id=tokenizer.mask_id, vocab_size=tokenizer.vocab_size)
    return Marked(instance, chosen, seen, tokenizer.mask_id)


def _pieces(marked: Marked, tokenizer: Tokenizer) -> Iterator[Piece]:
    instance, chosen = marked.instance, marked.chosen
    units = dict(zip(chosen.positions.tolist(), chosen.units.tolist(), strict=True))
    texts, seen = tokenizer.tokens(instance.ids), tokenizer.tokens(marked.seen)
    for place, (flags, segment) in enumerate(zip(instance.flags.tolist(), instance.segments.tolist(), strict=True)):
        yield Piece(
            texts[place],
            seen[place],
            _mark(int(instance.ids[place]), int(marked.seen[place]), marked.mask_id) if place in units else None,
            units.get(place),
            bool(flags & WORD_START),
            ("first" if flags & ENTITY_START else "inside") if flags & IN_ENTITY else None,
            segment,
            bool(instance.special[place]),
        )


def _mark(right: int, seen: int, mask_id: int) -> Mark:
    """Say what the model sees: a random token that happens to be the right one counts as kept."""
    if seen == mask_id:
        return "mask"
    return "kept" if seen == right else "random"
