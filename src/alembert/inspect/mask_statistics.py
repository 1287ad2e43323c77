"""Counts over masked sequences: how much is predicted, what became of it, and whether words and entities are whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.shards import ENTITY_START, IN_ENTITY, WORD_START
from alembert.data.masking import MaskedPositions
from alembert.data.sequences import Instance, TokenSpan

BARS: Final = (*map(str, range(1, 8)), "8+")
"""Names of the bars of the histogram of pieces."""
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Marked:
    """A training sequence, what is to be predicted in it, and what the model is given."""

    instance: Instance
    chosen: MaskedPositions
    seen: npt.NDArray[np.int32]
    mask_id: int


@dataclass
class Parts:
    """Words, or entities: how many there are, and how many are to be predicted whole, or only a part of them."""

    total: int = 0
    whole: int = 0
    partly: int = 0

    def add(self, places: npt.NDArray[np.int64], begins: Truths, chosen: Truths) -> None:
        """Count those that stand at some places of a sequence; each begins where `begins` is true, or after a gap."""
        if not len(places):
            return
        numbers = np.cumsum(begins[places] | (np.diff(places, prepend=-2) != 1)) - 1
        sizes = np.bincount(numbers)
        hits = np.bincount(numbers[chosen[places]], minlength=len(sizes))
        self.total += len(sizes)
        self.whole += int((hits == sizes).sum())
        self.partly += int(((hits > 0) & (hits < sizes)).sum())

    @property
    def chosen(self) -> int:
        return self.whole + self.partly


@dataclass
class Statistics:
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
    words: Parts = field(default_factory=Parts)
    entities: Parts = field(default_factory=Parts)
    unit_sizes: Counter[int] = field(default_factory=Counter)
    """How many units have so many pieces, of those that were chosen."""
    lengths: Counter[int] = field(default_factory=Counter)
    """How many sequences have so many tokens."""
    labels: Counter[int | None] = field(default_factory=Counter)
    """How many sequences have the label of a pair; none: no pair."""

    def add(self, stretch: TokenSpan, marked: Marked) -> None:
        """Count one sequence."""
        self.sequences += 1
        self.labels[stretch.label] += 1
        self.lengths[len(marked.instance)] += 1
        self.tokens += len(marked.instance)
        self._add_tokens(marked)
        self._add_parts(marked)

    def _add_tokens(self, marked: Marked) -> None:
        places = marked.chosen.positions
        seen, right = marked.seen[places], marked.instance.ids[places]
        masked = int((seen == marked.mask_id).sum())
        kept = int(((seen == right) & (seen != marked.mask_id)).sum())
        self.chosen += len(places)
        self.masked += masked
        self.kept += kept
        self.replaced += len(places) - masked - kept
        _, sizes = np.unique(marked.chosen.units, return_counts=True)
        self.unit_sizes.update(sizes.tolist())

    def _add_parts(self, marked: Marked) -> None:
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
        """Give the shares that people ask for, by name; 0 where there is nothing to have a share of."""
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
        """Give the share of chosen units of each size, for `BARS`."""
        last = len(BARS)
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
        found = f"whole {share['entities_whole']:.1%}, partly {share['entities_partly']:.1%}"
        inside = f"{share['chosen_in_entities']:.1%} of those to predict, {share['in_entities']:.1%} of all"
        return [
            ("entities to predict", f"{found} of {self.entities.total:,}"),
            ("tokens inside entities", inside),
        ]

    def _pair_rows(self, labels: tuple[str, str]) -> list[tuple[str, str]]:
        named: dict[int | None, str] = {0: labels[0], 1: labels[1], None: "single"}
        found = [f"{name} {self.labels[n] / self.sequences:.1%}" for n, name in named.items() if self.labels[n]]
        return [("pairs", ", ".join(found))] if self.labels.keys() - {None} else []
