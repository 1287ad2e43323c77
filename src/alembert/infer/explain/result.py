"""An explanation of a decision: its scores, how faithful they are, and a page that shows them.

The page shades the words of the texts by score and shows the scores as bars; explanations of two models stand side by
side. What speaks for the answer has a solid line below it, what speaks against it a dashed one, so that both can be told
apart without colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

from alembert.artifact import atomic_write
from alembert.html import Html, render_columns, render_fragment, render_list, render_page, render_table, render_text
from alembert.text.sentences import Span

Method = Literal["gradients", "occlusion"]
MAX_RESIDUE: Final = 0.01
DEFAULT_NOTE: Final = "No span or label was given, so this is the answer that the model is least sure of."
BORDER_NOTE: Final = (
    "The highest score is that of a word beside the span: it may be about its borders, not about what it is."
)
_SHOWN: Final = 10
"""Words, and features, that are printed."""
_LEAST_SHARE: Final = 0.03
"""Of the highest score; words below it are not shaded, and features not listed."""


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

    def verdict(self) -> str:
        """Return in words whether the picture can be trusted."""
        return "better than random words" if self.better_than_random else "no better than random words: do not trust it"

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
        if self.leans_on_border():
            notes.append(BORDER_NOTE)
        attention = faithful.attention_comprehensiveness
        if attention is not None and attention > faithful.comprehensiveness:
            notes.append("The words with the highest attention matter more than those with the highest scores.")
        return notes

    def to_lines(self) -> list[str]:
        """Return lines for people."""
        widest = max((abs(word.score) for word in self.words), default=0) or 1
        lines = [
            f"{self.question}: {self.describe_margin()}",
            *(
                f"{word.score:8.2f}  {_bar(word.score / widest):10}  {word.start}-{word.end}  {word.text}"
                for word in self.strongest_words(_SHOWN)
            ),
        ]
        lines += [f"{each.score:8.2f}  {'':10}  of which {each.name}" for each in self.strongest_features(_SHOWN)]
        return [*lines, *self.faithfulness_lines(), *self.warnings(), *([DEFAULT_NOTE] if self.is_default else [])]

    def summary(self) -> str:
        """Return the strongest words in one line, and what that is worth."""
        named = ", ".join(f'"{word.text}" {word.score:+.2f}' for word in self.strongest_words(_SUMMARY_WORDS))
        return f"{self.question}: margin {self.margin:.2f}; {named}; {self.faithfulness.verdict()}"

    def leans_on_border(self) -> bool:
        """Whether the highest score is that of a word beside the span."""
        words = [word for word in self.words if word.part == 0]
        if self.span is None or not words:
            return False
        before = [word for word in words if word.end <= self.span[0]][-1:]
        after = [word for word in words if word.start >= self.span[1]][:1]
        return max(words, key=lambda word: word.score) in (*before, *after)

    def describe_margin(self) -> str:
        """Return the margin and how the scores were computed."""
        residue = "" if self.residue is None else f", residue {self.residue:.2%} after {self.steps} steps"
        return f"margin {self.margin:.2f}, by {self.method}{residue}"

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
        return render_explanations([self])

    def write(self, path: str | Path) -> None:
        """Write the page to a file."""
        atomic_write(Path(path), self.to_html().encode())

    def _repr_html_(self) -> str:
        return render_explanation_fragment(self)


def _without_part(word: WordScore) -> dict[str, Any]:
    return {"text": word.text, "start": word.start, "end": word.end, "score": word.score}


def _bar(share: float) -> str:
    return ("+" if share > 0 else "-") * round(10 * abs(share))


# -- the page

_MARGIN_CHARACTERS: Final = 200
"""Text that is shown before the first word and after the last one."""
_MAX_ROWS: Final = 12
_SUMMARY_WORDS, _NEAR_WORDS = 5, 30
"""Words of a summary: the strongest, which are named with their scores, and those around the answer that are shown."""
EXPLANATION_STYLE: Final = """<style>
.alembert .for, .alembert .against { border-radius: .2em; padding: .05em .1em; color: var(--ink);
  background: color-mix(in srgb, var(--colour) var(--share), var(--paper)); border-bottom: 2px solid var(--colour) }
.alembert .for { --colour: var(--a) } .alembert .against { --colour: var(--e); border-bottom-style: dashed }
.alembert .asked { text-decoration: overline 3px; text-underline-offset: .2em }
.alembert .bar { display: block; width: 6rem; height: .8rem }
.alembert .bar i { display: block; height: 100%; width: var(--share); background: var(--colour) }
.alembert .bar .against { background: repeating-linear-gradient(45deg, var(--colour) 0 3px, var(--paper) 3px 5px) }
.alembert .why { margin-top: .6rem; padding-left: .8rem; border-left: 3px solid var(--line); font-size: .92rem }
.alembert .warning { border-left: 4px solid var(--e); padding-left: .8rem; color: var(--ink) }
</style>"""


def render_explanations(explanations: Sequence[Explanation]) -> str:
    """Return a page of one explanation, or of several side by side."""
    first = explanations[0]
    parts = (f"<h2>{escape(each.model)}</h2>\n{_render(each)}" for each in explanations)
    body = render_columns(parts) if len(explanations) > 1 else next(parts)
    return render_page(
        f"{first.question} - alembert", _capitalise(first.question), EXPLANATION_STYLE + body + _render_help(first)
    )


def render_explanation_fragment(explanation: Explanation) -> str:
    """Return an explanation for a notebook."""
    return render_fragment(f"{EXPLANATION_STYLE}<p>{escape(explanation.question)}</p>{_render(explanation)}")


def render_explanation_summary(explanation: Explanation) -> str:
    """Return the strongest words, the words around the answer and what that is worth; for pages with EXPLANATION_STYLE."""
    _, _, rest = explanation.summary().partition(f"{explanation.question}: ")
    note = f" {BORDER_NOTE}" if explanation.leans_on_border() else ""
    head = f"<p><strong>{escape(_capitalise(explanation.question))}</strong> {escape(rest)}.{note}</p>"
    centre = next((word for word in explanation.words if _is_inside(word, explanation.span)), None)
    centre = centre or max(explanation.words, key=lambda word: abs(word.score), default=None)
    return f'<div class="why">\n{head}\n{_render_near(explanation, centre) if centre else ""}\n</div>'


def _render_near(explanation: Explanation, centre: WordScore) -> str:
    words = [word for word in explanation.words if word.part == centre.part]
    at = words.index(centre)
    near = words[max(0, at - _NEAR_WORDS) : at + _NEAR_WORDS]
    return render_text(Html("".join(_render_words(explanation.texts[centre.part], near, explanation, margin=0))))


def _is_inside(word: WordScore, span: Span | None) -> bool:
    return span is not None and word.start < span[1] and span[0] < word.end


def _capitalise(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:] + "?"


def _render(explanation: Explanation) -> str:
    residue = "" if explanation.residue is None else f" Residue {explanation.residue:.2%}, {explanation.steps} steps."
    return "\n".join(
        (
            f"<p>{escape(_capitalise(explanation.question))} The margin over the best other answer is "
            f"<strong>{explanation.margin:.2f}</strong>, by {explanation.method}.{residue}</p>",
            f"<p>{DEFAULT_NOTE}</p>" if explanation.is_default else "",
            *(f'<p class="warning">{escape(warning)}</p>' for warning in explanation.warnings()),
            *_render_texts(explanation),
            render_table(("word", "place", "score", ""), _word_rows(explanation), {0, 1, 3}),
            _render_features(explanation),
            _render_faithfulness(explanation),
        )
    )


def _highest(explanation: Explanation) -> float:
    return max((abs(word.score) for word in explanation.words), default=0) or 1.0


def _render_texts(explanation: Explanation) -> Iterator[str]:
    for number, text in enumerate(explanation.texts):
        words = [word for word in explanation.words if word.part == number]
        if words:
            yield render_text(Html("".join(_render_words(text, words, explanation))))


def _render_words(
    text: str, words: Sequence[WordScore], explanation: Explanation, margin: int = _MARGIN_CHARACTERS
) -> Iterator[str]:
    start = max(0, words[0].start - margin)
    end = min(len(text), words[-1].end + margin)
    yield "… " if start else ""
    at, highest = start, _highest(explanation)
    for word in words:
        yield escape(text[at : word.start])
        yield _render_word(word, highest, _is_inside(word, explanation.span))
        at = word.end
    yield escape(text[at:end]) + (" …" if end < len(text) else "")


def _render_word(word: WordScore, highest: float, in_span: bool) -> str:
    share = abs(word.score) / highest
    side = "" if share < _LEAST_SHARE else "for" if word.score > 0 else "against"
    shown = escape(word.text)
    if side:
        title = f"{word.score:+.2f}, {side} the answer"
        shown = f'<span class="{side}" style="--share: {45 * share:.0f}%" title="{title}">{shown}</span>'
    return f'<b class="asked">{shown}</b>' if in_span else shown


def _word_rows(explanation: Explanation) -> Iterable[Sequence[str]]:
    highest = _highest(explanation)
    for word in explanation.strongest_words(_MAX_ROWS):
        yield word.text, f"{word.start}-{word.end}", f"{word.score:+.2f}", _render_bar(word.score, highest)


def _render_bar(score: float, highest: float) -> Html:
    side = "for" if score > 0 else "against"
    return Html(
        f'<span class="bar"><i class="{side}" style="--share: {100 * min(1, abs(score) / highest):.0f}%"></i></span>'
    )


def _render_features(explanation: Explanation) -> str:
    shown, highest = explanation.strongest_features(_MAX_ROWS), _highest(explanation)
    if not shown:
        return ""
    rows = ((each.name, f"{each.score:+.2f}", _render_bar(each.score, highest)) for each in shown)
    return f"<h3>Of which letter case and lexicons</h3>{render_table(('feature', 'score', ''), rows, {0, 2})}"


def _render_faithfulness(explanation: Explanation) -> str:
    own = explanation.faithfulness
    rows = [
        ("comprehensiveness ↑", own.comprehensiveness, own.random_comprehensiveness, own.attention_comprehensiveness),
        ("sufficiency ↓", own.sufficiency, own.random_sufficiency, own.attention_sufficiency),
    ]
    cells = [[name, *(f"{value:.2f}" for value in values if value is not None)] for name, *values in rows]
    header = ("", "picture", "random", "attention")[: len(cells[0])]
    return f"<h3>How faithful it is</h3>{render_table(header, cells)}"


def _render_help(explanation: Explanation) -> str:
    gradients = "Gradients are integrated from a text of masks; the residue is what the scores miss of the change."
    occlusion = "The score of a word is what the margin loses if the word is masked."
    lines = [
        "The margin is the score of the answer less that of the best other one; if the question is why not, it is by how "
        "much what was asked about loses.",
        gradients if explanation.method == "gradients" else occlusion,
        "A solid line below a word marks what speaks for the answer, a dashed one what speaks against it; the words of the "
        "answer itself are bold, with a line above them.",
        "Comprehensiveness (higher is better) is what the margin loses without the highest words, sufficiency (lower is "
        "better) what it loses with these alone: means over 5, 10, 20 and 50 % of the words. In a faithful picture both are "
        "better than with the words in random order.",
    ]
    return f"<h2>How to read this</h2>{render_list(lines)}"
