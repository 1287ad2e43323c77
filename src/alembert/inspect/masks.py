"""What the trainer masks: training sequences with marks, and counts over many of them.

In: documents as token ids (shards, or an excerpt), a tokenizer, and a `MaskingPlan` that says how sequences are cut and masked.
Out: a `MaskReport` of the first sequences of a run with this seed, in their order: what is predicted, what became of it, and
whether words and entities are masked whole. Sequences and masks are made by the code that training uses, with the same
random numbers, so what is shown here is what the model reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.corpus.shards import ENTITY_START, IN_ENTITY, WORD_START, TokenArrays
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler, SequenceSpec
from alembert.data.masking import MaskedPositions, MaskSettings, choose_positions, corrupt
from alembert.data.order import make_rng
from alembert.data.sequences import Instance, TokenSpan, build_instance
from alembert.errors import BadSetting
from alembert.text.tokenizer import Tokenizer

PIECE_BARS: Final = (*map(str, range(1, 8)), "8+")
"""Names of the bars of the histogram of pieces."""
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MaskedInstance:
    """A training sequence, what is to be predicted in it, and what the model reads."""

    instance: Instance
    chosen: MaskedPositions
    input_ids: npt.NDArray[np.int32]
    mask_id: int


@dataclass
class UnitCounts:
    """Words, or entities: how many there are, and how many are to be predicted whole, or only a part of them."""

    total: int = 0
    whole: int = 0
    partly: int = 0

    def add(self, positions: npt.NDArray[np.int64], begins: BoolArray, chosen: BoolArray) -> None:
        """Count the units at some positions of a sequence; a unit begins where `begins` is true, or after a gap."""
        if not len(positions):
            return
        numbers = np.cumsum(begins[positions] | (np.diff(positions, prepend=-2) != 1)) - 1
        sizes = np.bincount(numbers)
        hits = np.bincount(numbers[chosen[positions]], minlength=len(sizes))
        self.total += len(sizes)
        self.whole += int((hits == sizes).sum())
        self.partly += int(((hits > 0) & (hits < sizes)).sum())

    @property
    def chosen(self) -> int:
        return self.whole + self.partly


@dataclass
class MaskStatistics:
    """Sums over sequences."""

    sequences: int = 0
    tokens: int = 0
    """With `[CLS]` and `[SEP]`."""
    in_entities: int = 0
    """Tokens inside of entities."""
    chosen: int = 0
    """Tokens to be predicted."""
    masked: int = 0
    replaced: int = 0
    kept: int = 0
    chosen_in_entities: int = 0
    words: UnitCounts = field(default_factory=UnitCounts)
    entities: UnitCounts = field(default_factory=UnitCounts)
    unit_sizes: Counter[int] = field(default_factory=Counter)
    """How many units have so many pieces, of those that were chosen."""
    lengths: Counter[int] = field(default_factory=Counter)
    """How many sequences have so many tokens."""
    labels: Counter[int | None] = field(default_factory=Counter)
    """How many sequences have the label of a pair; none: no pair."""

    def add(self, span: TokenSpan, marked: MaskedInstance) -> None:
        """Count one sequence."""
        self.sequences += 1
        self.labels[span.label] += 1
        self.lengths[len(marked.instance)] += 1
        self.tokens += len(marked.instance)
        self._add_tokens(marked)
        self._add_parts(marked)

    def _add_tokens(self, marked: MaskedInstance) -> None:
        positions = marked.chosen.positions
        read, right = marked.input_ids[positions], marked.instance.ids[positions]
        masked = int((read == marked.mask_id).sum())
        kept = int(((read == right) & (read != marked.mask_id)).sum())
        self.chosen += len(positions)
        self.masked += masked
        self.kept += kept
        self.replaced += len(positions) - masked - kept
        _, sizes = np.unique(marked.chosen.units, return_counts=True)
        self.unit_sizes.update(sizes.tolist())

    def _add_parts(self, marked: MaskedInstance) -> None:
        flags = marked.instance.flags
        chosen = np.zeros(len(flags), np.bool_)
        chosen[marked.chosen.positions] = True
        inside = flags & IN_ENTITY > 0
        self.in_entities += int(inside.sum())
        self.chosen_in_entities += int((inside & chosen).sum())
        self.words.add(np.flatnonzero(~marked.instance.special), flags & WORD_START > 0, chosen)
        self.entities.add(np.flatnonzero(inside), flags & ENTITY_START > 0, chosen)

    @property
    def units(self) -> int:
        """Chosen pieces, words, spans or entities."""
        return self.unit_sizes.total()

    @property
    def mean_length(self) -> float:
        return self.tokens / max(1, self.sequences)

    def shares(self) -> dict[str, float]:
        """Return the shares that people ask for, by name; 0 where there is nothing to have a share of."""
        pairs = {
            "chosen": (self.chosen, self.tokens),
            "masked": (self.masked, self.chosen),
            "replaced": (self.replaced, self.chosen),
            "kept": (self.kept, self.chosen),
            "chosen_words_whole": (self.words.whole, self.words.chosen),
            "chosen_entities_whole": (self.entities.whole, self.entities.chosen),
            "entities_whole": (self.entities.whole, self.entities.total),
            "entities_partly": (self.entities.partly, self.entities.total),
            "in_entities": (self.in_entities, self.tokens),
            "chosen_in_entities": (self.chosen_in_entities, self.chosen),
        }
        return {name: part / whole if whole else 0.0 for name, (part, whole) in pairs.items()}

    def histogram(self) -> list[float]:
        """Return the share of chosen units of each size, for `PIECE_BARS`."""
        last = len(PIECE_BARS)
        long = sum(count for size, count in self.unit_sizes.items() if size >= last)
        counts = [*(self.unit_sizes[size] for size in range(1, last)), long]
        return [count / max(1, self.units) for count in counts]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        return {
            **{name: value for name, value in vars(self).items() if isinstance(value, int)},
            "words": asdict(self.words),
            "entities": asdict(self.entities),
            "unit_sizes": {str(size): self.unit_sizes[size] for size in sorted(self.unit_sizes)},
            "lengths": {"min": min(self.lengths), "mean": self.mean_length, "max": max(self.lengths)},
            "labels": {"none" if label is None else str(label): n for label, n in self.labels.items()},
            "units": self.units,
            "pieces_per_unit": self.chosen / max(1, self.units),
            "shares": self.shares(),
        }

    def rows(self, labels: tuple[str, str]) -> list[tuple[str, str]]:
        """Return names and values for people; `labels` name the two kinds of pairs."""
        share, mean = self.shares(), self.chosen / max(1, self.units)
        became = f"[MASK] {share['masked']:.1%}, another piece {share['replaced']:.1%}, kept {share['kept']:.1%}"
        whole = f"{share['chosen_words_whole']:.1%} of them whole"
        rows = [
            ("sequences", f"{self.sequences:,}"),
            (
                "tokens in each",
                f"{min(self.lengths)} to {max(self.lengths)}, {self.mean_length:.1f} on average",
            ),
            ("tokens to predict", f"{share['chosen']:.1%} of {self.tokens:,}"),
            ("of these", became),
            ("units to predict", f"{self.units:,}, {mean:.2f} pieces each on average"),
            ("words to predict", f"{self.words.chosen:,} of {self.words.total:,}, {whole}"),
        ]
        return rows + self._entity_rows(share) + self._pair_rows(labels)

    def _entity_rows(self, share: dict[str, float]) -> list[tuple[str, str]]:
        if not self.entities.total:
            return []
        chosen = f"whole {share['entities_whole']:.1%}, partly {share['entities_partly']:.1%}"
        inside = f"{share['chosen_in_entities']:.1%} of those to predict, {share['in_entities']:.1%} of all"
        return [
            ("entities to predict", f"{chosen} of {self.entities.total:,}"),
            ("tokens inside entities", inside),
        ]

    def _pair_rows(self, labels: tuple[str, str]) -> list[tuple[str, str]]:
        named: dict[int | None, str] = {0: labels[0], 1: labels[1], None: "single"}
        shares = [f"{name} {self.labels[n] / self.sequences:.1%}" for n, name in named.items() if self.labels[n]]
        return [("pairs", ", ".join(shares))] if self.labels.keys() - {None} else []


MaskAction = Literal["mask", "random", "kept"]
MAX_SEQUENCES = 2000
"""Sequences that are counted, at most."""


@dataclass(frozen=True, kw_only=True)
class MaskingPlan:
    """How training sequences are made."""

    cutting: SequenceSpec
    masks: MaskSettings
    seed: int = 1
    micro_tokens: int = 2048
    """Tokens of a micro-batch, which has a part in the order."""
    held_out: float = 0.01
    """Share of the documents that are not trained on."""


@dataclass(frozen=True, slots=True)
class MaskedToken:
    """One token of a sequence."""

    text: str
    """The right answer."""
    seen: str
    """What the model reads instead; the same where nothing was hidden."""
    mark: MaskAction | None
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
    pieces: tuple[MaskedToken, ...]

    @property
    def chosen(self) -> int:
        """How many tokens are to be predicted."""
        return sum(piece.mark is not None for piece in self.pieces)


@dataclass(frozen=True)
class MaskReport:
    """The first sequences of a run, and counts over more of them."""

    plan: MaskingPlan
    sequences: tuple[MaskedSequence, ...]
    statistics: MaskStatistics
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


def report_masks(
    tokens: TokenArrays, tokenizer: Tokenizer, plan: MaskingPlan, *, count: int = 5, most: int = MAX_SEQUENCES
) -> MaskReport:
    """Show the first `count` sequences of a run, and count over its first `most`, within the first pass."""
    shown: list[MaskedSequence] = []
    statistics = MaskStatistics()
    split = _split(tokens, plan)
    for copy, span in islice(_first_pass(tokens, split, plan), max(count, most)):
        marked = _mask_sequence(span, copy, tokens, tokenizer, plan)
        statistics.add(span, marked)
        if len(shown) < count:
            shown.append(MaskedSequence(span.document, span.label, tuple(_pieces(marked, tokenizer))))
    return MaskReport(plan, tuple(shown), statistics, split.held_out_count)


def _first_pass(tokens: TokenArrays, split: HeldOutSplit, plan: MaskingPlan) -> Iterator[tuple[int, TokenSpan]]:
    """Yield the sequences of a run's first pass over the documents, each with the number of its masking."""
    sampler = SequenceSampler(tokens, split, seed=plan.seed, micro_tokens=plan.micro_tokens)
    cursor = Cursor()
    while cursor.epoch == 0:
        (batch,), cursor = sampler.take(cursor, 1, plan.cutting)
        if batch.cursor.epoch == 0:
            yield from ((batch.copy, span) for span in batch.spans)


def _split(tokens: TokenArrays, plan: MaskingPlan) -> HeldOutSplit:
    """Hold documents out; without enough others, there would be no end to looking for one."""
    needed = 2 if plan.cutting.pairs == "next_sentence" else 1
    split = HeldOutSplit(tokens, plan.held_out if len(tokens) else 0.0)
    if len(tokens) - split.held_out_count < needed:
        raise BadSetting(
            f"Of the {len(tokens)} document(s) with text {split.held_out_count} are held out, and training needs at "
            f"least {needed}. Give more documents, or lower the `share` of [evaluation]."
        )
    return split


def _mask_sequence(
    span: TokenSpan, copy: int, tokens: TokenArrays, tokenizer: Tokenizer, plan: MaskingPlan
) -> MaskedInstance:
    instance = build_instance(span, tokens.ids, tokens.flags, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    rng = make_rng(plan.seed, "masks", copy, span.document, span.a[0])
    chosen = choose_positions(instance, plan.masks, rng)
    input_ids = corrupt(
        instance.ids, chosen, plan.masks, rng, mask_id=tokenizer.mask_id, vocab_size=tokenizer.vocab_size
    )
    return MaskedInstance(instance, chosen, input_ids, tokenizer.mask_id)


def _pieces(marked: MaskedInstance, tokenizer: Tokenizer) -> Iterator[MaskedToken]:
    instance, chosen = marked.instance, marked.chosen
    units = dict(zip(chosen.positions.tolist(), chosen.units.tolist(), strict=True))
    texts, seen = tokenizer.tokens(instance.ids), tokenizer.tokens(marked.input_ids)
    for position, (flags, segment) in enumerate(zip(instance.flags.tolist(), instance.segments.tolist(), strict=True)):
        right, read = int(instance.ids[position]), int(marked.input_ids[position])
        yield MaskedToken(
            texts[position],
            seen[position],
            _mask_action(right, read, marked.mask_id) if position in units else None,
            units.get(position),
            bool(flags & WORD_START),
            ("first" if flags & ENTITY_START else "inside") if flags & IN_ENTITY else None,
            segment,
            bool(instance.special[position]),
        )


def _mask_action(right: int, read: int, mask_id: int) -> MaskAction:
    """Name what was done to a token; a random one that happens to be the right one counts as kept."""
    if read == mask_id:
        return "mask"
    return "kept" if read == right else "random"
