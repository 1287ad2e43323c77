"""The page of explanations: the texts with their words shaded by score, the scores as bars, and what the picture is worth.

Explanations of two models stand side by side. What speaks for the answer has a solid line below it, what speaks against
it a dashed one, so that both can be told apart without colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from alembert.html import Html, render_columns, render_fragment, render_list, render_page, render_table, render_text
from alembert.infer.explain.result import DEFAULT_NOTE, Explanation, WordScore

_MARGIN_CHARACTERS: Final = 200
"""Text that is shown before the first word and after the last one."""
_MAX_ROWS: Final = 12
_LEAST_SHARE: Final = 0.03
"""Of the highest score; words below it are not shaded."""
_STYLE: Final = """<style>
.alembert .for, .alembert .against { border-radius: .2em; padding: .05em .1em; color: var(--ink);
  background: color-mix(in srgb, var(--colour) var(--share), var(--paper)); border-bottom: 2px solid var(--colour) }
.alembert .for { --colour: var(--a) } .alembert .against { --colour: var(--e); border-bottom-style: dashed }
.alembert .asked { text-decoration: overline 3px; text-underline-offset: .2em }
.alembert .bar { display: block; width: 6rem; height: .8rem }
.alembert .bar i { display: block; height: 100%; width: var(--share); background: var(--colour) }
.alembert .bar .against { background: repeating-linear-gradient(45deg, var(--colour) 0 3px, var(--paper) 3px 5px) }
.alembert .warning { border-left: 4px solid var(--e); padding-left: .8rem; color: var(--ink) }
</style>"""


def render_explanations(explanations: Sequence[Explanation]) -> str:
    """Return a page of one explanation, or of several side by side."""
    first = explanations[0]
    parts = (f"<h2>{escape(each.model)}</h2>\n{_render(each)}" for each in explanations)
    body = render_columns(parts) if len(explanations) > 1 else next(parts)
    return render_page(f"{first.question} - alembert", _capitalise(first.question), _STYLE + body + _render_help(first))


def render_explanation_fragment(explanation: Explanation) -> str:
    """Return an explanation for a notebook."""
    return render_fragment(f"{_STYLE}<p>{escape(explanation.question)}</p>{_render(explanation)}")


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


def _render_words(text: str, words: Sequence[WordScore], explanation: Explanation) -> Iterator[str]:
    start = max(0, words[0].start - _MARGIN_CHARACTERS)
    end = min(len(text), words[-1].end + _MARGIN_CHARACTERS)
    yield "… " if start else ""
    at, highest, span = start, _highest(explanation), explanation.span
    for word in words:
        yield escape(text[at : word.start])
        inside = span is not None and word.start < span[1] and span[0] < word.end
        yield _render_word(word, highest, inside)
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
