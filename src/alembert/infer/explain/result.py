"""An explanation as it is handed out: scores of words and features, the margin, and how faithful the picture is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from alembert.artifact import atomic_write
from alembert.text.sentences import Span

Method = Literal["gradients", "occlusion"]
MAX_RESIDUE: Final = 0.01
DEFAULT_NOTE: Final = "No span or label was given, so this is the answer that the model is least sure of."
_SHOWN: Final = 10
"""Words, and features, that are printed."""
_LEAST_SHARE: Final = 0.03
"""Of the highest score; features below it are not shown."""


@dataclass(frozen=True, slots=True)
class WordScore:
    """How much a word adds to the margin: below 0 it speaks against the answer."""

    text: str
    start: int
    end: int
    score: float
    part: int = 0
    """The number of its text, if the input has several, from 0."""


@dataclass(frozen=True, slots=True)
class FeatureScore:
    """How much the letter case of a word, or a match of a lexicon, adds to the margin."""

    name: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Faithfulness:
    """What the margin loses without the words that score highest, against other orders of the words.

    Each number is the mean over the first 5, 10, 20 and 50 % of an order.
    """

    comprehensiveness: float
    """Loss of the margin without the first words: higher is better."""
    sufficiency: float
    """Loss of the margin with the first words alone: lower is better."""
    random_comprehensiveness: float
    random_sufficiency: float
    """The means of random orders."""
    attention_comprehensiveness: float | None = None
    attention_sufficiency: float | None = None
    """Those of the words that the decision attends to most; none: an Export, which keeps its attention to itself."""

    @property
    def better_than_random(self) -> bool:
        """Whether the order is better than random ones by both measures."""
        return self.comprehensiveness > self.random_comprehensiveness and self.sufficiency < self.random_sufficiency

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "better_than_random": self.better_than_random}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Which words made a decision of a model; `model.explain` returns it."""

    model: str
    texts: tuple[str, ...]
    question: str
    """What is explained: why 8:16 "diabetes" is Disease."""
    span: Span | None
    label: str
    method: Method
    margin: float
    """The score of the answer less that of the best other one; of what is no answer of the model, by how much it loses."""
    words: tuple[WordScore, ...]
    """In the order of the text."""
    features: tuple[FeatureScore, ...] = ()
    """Part of the scores of the words; the highest first."""
    residue: float | None = None
    """Share of the change that the scores of gradients leave unexplained; none for occlusion."""
    steps: int | None = None
    """Points at which gradients were computed."""
    faithfulness: Faithfulness
    is_default: bool = False
    """Whether the answer was chosen here, as nothing was asked about: the one that the model is least sure of."""

    @property
    def text(self) -> str:
        """The text, or the first of several."""
        return self.texts[0]

    def strongest_words(self, count: int) -> list[WordScore]:
        """Return the words that decide most, for the answer or against it; the highest scores first."""
        strongest = sorted(self.words, key=lambda word: -abs(word.score))[:count]
        return sorted(strongest, key=lambda word: -word.score)

    def strongest_features(self, count: int) -> list[FeatureScore]:
        """Return the features that decide most, without those that hardly count; the highest scores first."""
        least = _LEAST_SHARE * max((abs(word.score) for word in self.words), default=0)
        strongest = sorted(self.features, key=lambda each: -abs(each.score))[:count]
        return sorted((each for each in strongest if abs(each.score) > least), key=lambda each: -each.score)

    def record(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        several = {"texts": list(self.texts)} if len(self.texts) > 1 else {}
        return {
            "text": self.text,
            **several,
            "question": self.question,
            "span": None if self.span is None else list(self.span),
            "label": self.label,
            "method": self.method,
            "margin": self.margin,
            "words": [asdict(word) if several else _without_part(word) for word in self.words],
            "features": [asdict(feature) for feature in self.features],
            "residue": self.residue,
            "steps": self.steps,
            "faithfulness": self.faithfulness.to_dict(),
        }

    def warnings(self) -> list[str]:
        """List in sentences why the picture may mislead."""
        faithful = self.faithfulness
        notes = []
        if self.residue is not None and self.residue > MAX_RESIDUE:
            notes.append(
                f"The scores miss {self.residue:.1%} of the change that they should add up to, after {self.steps} steps: "
                "do not trust small differences."
            )
        if not faithful.better_than_random:
            notes.append("This picture is no better than a random order of the words: do not trust it.")
        attention = faithful.attention_comprehensiveness
        if attention is not None and attention > faithful.comprehensiveness:
            notes.append("The words with the highest attention matter more than those with the highest scores.")
        return notes

    def to_lines(self) -> list[str]:
        """Return lines for people."""
        widest = max((abs(word.score) for word in self.words), default=0) or 1
        lines = [
            f"{self.question}: margin {self.margin:.2f}, by {self.method}{self._residue_text()}",
            *(
                f"{word.score:8.2f}  {_bar(word.score / widest):10}  {word.start}-{word.end}  {word.text}"
                for word in self.strongest_words(_SHOWN)
            ),
        ]
        lines += [f"{each.score:8.2f}  {'':10}  of which {each.name}" for each in self.strongest_features(_SHOWN)]
        return [*lines, *self.faithfulness_lines(), *self.warnings(), *([DEFAULT_NOTE] if self.is_default else [])]

    def _residue_text(self) -> str:
        return "" if self.residue is None else f", residue {self.residue:.2%} after {self.steps} steps"

    def faithfulness_lines(self) -> list[str]:
        """Return what the picture is worth, in two sentences."""
        parts: Sequence[tuple[str, str, float, float, float | None]] = (
            ("without the first words", "comprehensiveness, higher is better",
             self.faithfulness.comprehensiveness, self.faithfulness.random_comprehensiveness,
             self.faithfulness.attention_comprehensiveness),
            ("with the first words alone", "sufficiency, lower is better",
             self.faithfulness.sufficiency, self.faithfulness.random_sufficiency,
             self.faithfulness.attention_sufficiency),
        )  # fmt: skip
        return [
            f"{what} the margin falls by {own:.2f}; in random order by {chance:.2f}"
            + ("" if attention is None else f"; in the order of attention by {attention:.2f}")
            + f" ({name})"
            for what, name, own, chance, attention in parts
        ]

    def to_html(self) -> str:
        """Return a page that shows the explanation."""
        from alembert.infer.explain.page import render_explanations

        return render_explanations([self])

    def write(self, path: str | Path) -> None:
        """Write the page to a file."""
        atomic_write(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        from alembert.infer.explain.page import render_explanation_fragment

        return render_explanation_fragment(self)


def _without_part(word: WordScore) -> dict[str, Any]:
    return {"text": word.text, "start": word.start, "end": word.end, "score": word.score}


def _bar(share: float) -> str:
    return ("+" if share > 0 else "-") * round(10 * abs(share))
