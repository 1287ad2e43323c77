"""Pages: one frame with a list of contents, one style sheet, tables, legends, and texts with entities marked in them.

In: names, numbers and texts. Out: HTML that fetches and runs nothing, follows the reader's light or dark setting and
can be printed. Charts come from `alembert.charts`. Notebooks get the same marks and tables as a fragment that brings
its own style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final, Literal

COLOURS: Final = "abcdef"
"""Names of the colours of series and labels. Each has a contrast of at least 4.5 with the paper of its theme."""
LIGHT: Final = {
    "ink": "#1c2430", "dim": "#566070", "line": "#d9dee6", "paper": "#ffffff",
    "a": "#2a69ad", "b": "#ad5d0b", "c": "#1f7a4d", "d": "#7d4bb0", "e": "#b13a52", "f": "#6d6a10",
}  # fmt: skip
DARK: Final = {
    "ink": "#e6eaf0", "dim": "#9aa5b4", "line": "#333c48", "paper": "#14181e",
    "a": "#6aa5e3", "b": "#eda65a", "c": "#63c393", "d": "#bd93e6", "e": "#e7818f", "f": "#c6bf62",
}  # fmt: skip


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


# A class of our own, so that the style of a fragment cannot change the notebook that it stands in. Its marks are light on
# any ground, since a notebook may be light where the system is dark. No line ends before a label, since 2060 is a
# word joiner, and whoever copies text copies no labels.
FRAGMENT_STYLE: Final = f"""
.alembert {{ {_variables(LIGHT)} }}
{" ".join(f".alembert .{name} {{ --colour: var(--{name}) }}" for name in COLOURS)}
.alembert mark {{ color: var(--ink); background: color-mix(in srgb, var(--colour) 22%, var(--paper)); border-radius: .2em;
  padding: .1em .2em; box-decoration-break: clone; -webkit-box-decoration-break: clone }}
.alembert mark.gold {{ border-bottom: 3px solid var(--colour) }} .alembert mark.guess {{ border-top: 3px double var(--colour) }}
.alembert mark.sure {{ border-bottom: 3px solid var(--colour) }} .alembert mark.likely {{ border-bottom: 1px solid var(--colour) }}
.alembert mark.unsure {{ border-bottom: 2px dotted var(--colour) }}
.alembert mark.likely {{ background: color-mix(in srgb, var(--colour) 14%, var(--paper)) }} .alembert mark.unsure {{ background: var(--paper) }}
.alembert .spoken {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }}
.alembert mark :is(small, sub, sup) {{ margin-left: .3em; font-size: .7em; font-weight: 600; line-height: 1; user-select: none }}
.alembert mark :is(small, sub, sup)::before {{ content: "\\2060" }}
.alembert .text {{ line-height: 2.2; white-space: pre-wrap; overflow-wrap: anywhere }}
.alembert .scroll {{ overflow-x: auto; max-width: 100% }} .alembert td.words, .alembert th.words {{ text-align: left }}
"""
STYLE: Final = f"""{FRAGMENT_STYLE}
@media screen and (prefers-color-scheme: dark) {{ .alembert {{ {_variables(DARK)} }} }}
:root {{ color-scheme: light dark; scroll-padding-top: 4rem }} * {{ box-sizing: border-box }}
body {{ margin: 0 auto; max-width: 66rem; padding: 0 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC",
  "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "WenQuanYi Micro Hei", sans-serif; overflow-wrap: anywhere }}
nav {{ position: sticky; top: 0; z-index: 1; margin: 0 -1rem; background: var(--paper); border-bottom: 1px solid var(--line); overflow-x: auto }}
nav ul {{ display: flex; gap: 1.2rem; margin: 0; padding: 0 1rem; list-style: none; white-space: nowrap; font-size: .92rem }}
nav a {{ display: block; padding: .6rem 0; color: var(--dim); text-decoration: none }}
nav a:is(:hover, :focus-visible) {{ color: var(--ink); text-decoration: underline }}
:is(a, summary, .scroll, nav):focus-visible {{ outline: 2px solid var(--a); outline-offset: -2px }}
main {{ padding-top: .5rem; min-width: 0 }}
@media screen and (min-width: 72rem) {{
  :root {{ scroll-padding-top: 1rem }} body:has(> nav) {{ display: grid; grid-template-columns: 12rem minmax(0, 1fr); gap: 2.5rem; max-width: 84rem }}
  nav {{ top: 0; margin: 1.6rem 0 0; padding: .2rem 0; align-self: start; max-height: 100vh; overflow: auto; border: 0 }}
  nav ul {{ display: block; padding: 0; white-space: normal }} nav a {{ padding: .25rem .7rem; border-left: 2px solid var(--line) }}
  nav a:is(:hover, :focus-visible) {{ border-color: var(--a) }} }}
h1 {{ font-size: 1.6rem; line-height: 1.25 }} h2 {{ font-size: 1.15rem; margin-top: 2.6rem }} h3 {{ font-size: 1rem }}
p, li, .text {{ max-width: 50rem }} p, small, figcaption, .legend {{ color: var(--dim) }} p strong {{ color: var(--ink) }} small {{ font-weight: 400 }}
mark small {{ color: inherit }} figcaption, .legend, table {{ font-size: .92rem }}
table {{ border-collapse: collapse }}
th, td {{ padding: .2rem .65rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  font-variant-numeric: tabular-nums; white-space: nowrap; overflow-wrap: normal }}
th {{ color: var(--dim); font-weight: 600 }} :is(th, td):first-child {{ padding-left: 0 }}
td.long {{ white-space: normal; min-width: 9rem; max-width: 36rem; overflow-wrap: break-word }}
.share {{ display: block; margin: -.2rem -.65rem; padding: .2rem .65rem;
  background: color-mix(in srgb, var(--a) var(--share), var(--paper)) }}
.several :is(th, td):not(:first-child) {{ padding: .2rem .45rem }} .several .share {{ margin: -.2rem -.45rem; padding: .2rem .45rem }}
.several {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem }}
@media (min-width: 64rem) {{ .numbers {{ grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); align-items: center }} }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; padding: 0; list-style: none }}
.tiles li {{ border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; color: var(--dim) }}
.tiles b {{ display: block; font-size: 1.35rem; color: var(--ink); font-variant-numeric: tabular-nums }}
details {{ max-width: 50rem; border-top: 1px solid var(--line) }} details[open] {{ padding-bottom: .8rem }}
summary {{ padding: .4rem 0; cursor: pointer }} summary h3 {{ display: inline; font-weight: 600; line-height: 1.9 }}
pre {{ white-space: pre-wrap; border-left: 3px solid var(--line); padding-left: .8rem }}
pre, code {{ font: .88rem/1.5 ui-monospace, Menlo, Consolas, "Noto Sans Mono CJK SC", monospace }}
.legend {{ line-height: 1.9 }} .legend span {{ display: inline-block; margin-right: 1rem }} .legend + details {{ margin-top: 1rem }}
.legend i {{ display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; background: var(--colour) }}
article h3 {{ margin: 1.8rem 0 0 }} article p {{ margin: 0 0 .4rem }}
figure {{ margin: 1rem 0; container-type: inline-size }} figure + .legend {{ margin-top: -.7rem }}
svg {{ display: block; width: 100%; max-width: 42rem; height: auto; overflow: visible }}
svg text {{ font-size: 12px; fill: var(--dim); stroke: var(--paper); stroke-width: 3px; paint-order: stroke }}
svg text.ink {{ fill: var(--ink) }} .whole svg {{ min-width: 30rem }}
@media (max-width: 40rem) {{ th, td {{ padding: .2rem .3rem }} .share {{ margin: -.2rem -.3rem }} table {{ font-size: .85rem }} }}
@container (max-width: 32rem) {{ figure:not(.whole) svg text {{ font-size: 18px }} }}
.underlined {{ border-bottom: 2px solid var(--colour); padding-bottom: .25em }}
@media print {{ nav {{ display: none }} body {{ max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact }}
  h2, h3, summary {{ break-after: avoid }} figure, tr, article {{ break-inside: avoid }} .scroll {{ overflow: visible }}
  details::details-content {{ content-visibility: visible; block-size: auto }} }}
"""

SVG_STYLE: Final = f"""svg {{ {_variables(LIGHT)} background: var(--paper) }}
@media (prefers-color-scheme: dark) {{ svg {{ {_variables(DARK)} }} }}
text {{ font: 12px system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; fill: var(--dim); stroke: var(--paper);
  stroke-width: 3px; paint-order: stroke }} text.ink {{ fill: var(--ink) }}
"""
"""Style of a chart that is a file of its own."""

_MAX_UNBROKEN: Final = 26
"""Letters of a cell of text that stay on one line."""


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of a page under its own heading, by which the list of contents leads to it."""

    title: str
    body: str
    """HTML."""
    name: str = ""
    """What the list of contents says instead of a long title."""

    @property
    def anchor(self) -> str:
        """The name of its place in the page.

        >>> PageSection("By length of the entity", "").anchor
        'by-length-of-the-entity'
        """
        return re.sub(r"\W+", "-", self.name or self.title).strip("-").lower()

    def html(self) -> str:
        return f'<section id="{escape(self.anchor)}">\n<h2>{escape(self.title)}</h2>\n{self.body}\n</section>'


def render_page(
    title: str, heading: str, body: str, sections: Sequence[PageSection] = (), *, style: str = "", script: str = ""
) -> str:
    """Return a whole page: the body under its heading, then the sections; `style` and `script` are written into it."""
    last = f"<script>\n{script}</script>\n" if script else ""
    parts = "\n".join([body, *(section.html() for section in sections)])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n"
        f'<body class="alembert">\n{_contents(sections)}<main>\n<h1>{escape(heading)}</h1>\n{parts}\n'
        f"</main>\n{last}</body>\n</html>\n"
    )


def _contents(sections: Sequence[PageSection]) -> str:
    links = (f'<li><a href="#{escape(part.anchor)}">{escape(part.name or part.title)}</a></li>' for part in sections)
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>\n' if len(sections) > 1 else ""


def render_fragment(body: str) -> str:
    """Return a body with its style, for notebooks."""
    return f'<style>{FRAGMENT_STYLE}</style><div class="alembert">{body}</div>'


def render_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    text_columns: Container[int] = frozenset({0}),
    label: str = "",
) -> str:
    """Return a table that scrolls in its own box; `text_columns` are aligned left, the others, numbers, right.

    Screen readers speak the label, which should differ from those of the page's other tables.
    """
    head = f"<thead>{_render_row('th', header, text_columns)}</thead>\n" if any(header) else ""
    body = "\n".join(_render_row("td", row, text_columns) for row in rows)
    table = f"<table>\n{head}<tbody>\n{body}\n</tbody>\n</table>"
    label = label or ", ".join(filter(None, header)) or "table"
    # Focusable, so that it can be scrolled with the keyboard.
    return f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">{table}</div>'


def _render_row(tag: str, cells: Sequence[str], text_columns: Container[int]) -> str:
    parts = []
    for number, cell in enumerate(cells):
        kind = f' class="words{" long" * (len(cell) > _MAX_UNBROKEN)}"' if number in text_columns else ""
        scope = ' scope="col"' if tag == "th" and cell else ""
        name = tag if cell else "td"
        parts.append(f"<{name}{scope}{kind}>{cell if isinstance(cell, Html) else escape(cell)}</{name}>")
    return f"<tr>{''.join(parts)}</tr>"


def render_legend(names: Mapping[str, int]) -> str:
    """Return the names of colours, given by number; nothing for a single one."""
    keys = (f'<span><i class="{colour_name(colour)}"></i>{escape(name)}</span>' for name, colour in names.items())
    return f'<div class="legend">{"".join(keys)}</div>' if len(names) > 1 else ""


def render_score_legend() -> str:
    """Return what the lines below entities say of the model's confidence."""
    ranges = {"sure": f"{SURE:g} and above", "likely": f"{LIKELY:g} to {SURE:g}", "unsure": f"below {LIKELY:g}"}
    keys = (f'<span><mark class="a {name}">{name}</mark> score {values}</span>' for name, values in ranges.items())
    return f'<div class="legend">{"".join(keys)}</div>'


def render_details(summary: str, body: str, *, is_open: bool = False) -> str:
    """Return a body that the reader opens and closes below its heading, both HTML already."""
    return f"<details{' open' * is_open}><summary><h3>{summary}</h3></summary>\n{body}\n</details>"


def render_tiles(numbers: Mapping[str, str]) -> str:
    """Return a row of tiles, each a number with its name."""
    tiles = (f"<li><b>{escape(number)}</b>{escape(name)}</li>" for name, number in numbers.items())
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def render_columns(parts: Iterable[str]) -> str:
    """Return parts side by side where there is room, and one below the other where there is not."""
    return f'<div class="several">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def render_beside(picture: str, table: str) -> str:
    """Return a picture with its numbers beside it where there is room, and below it where there is not."""
    return f'<div class="several numbers"><div>{picture}</div><div>{table}</div></div>'


def render_list(lines: Iterable[str]) -> str:
    """Return a list with a bullet for each line."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def colour_name(number: int) -> str:
    """Return the name of a colour; numbers beyond the last begin again."""
    return COLOURS[number % len(COLOURS)]


MarkSide = Literal["", "gold", "guess"]
MarkState = Literal["plain", "agreed", "other", "gold", "guess"]
"""Of a run: no entity, both sides with the same label, both with different ones, only right, only guessed."""
ScoreRange = Literal["", "sure", "likely", "unsure"]
SURE: Final = 0.9
LIKELY: Final = 0.6
"""Scores from which the line below an entity is that of sure ones, and of likely ones."""


def name_score_range(score: float | None) -> ScoreRange:
    """Return the name of the range that a score is in; none without a score."""
    if score is None:
        return ""
    return "sure" if score >= SURE else "likely" if score >= LIKELY else "unsure"


@dataclass(frozen=True, slots=True)
class EntityMark:
    """An entity in a text: right, guessed, or neither if there is nothing to compare it with."""

    start: int
    end: int
    label: str
    side: MarkSide = ""
    kind: str = ""
    """What became of it, or what else is known of it."""
    score: float | None = None
    """How sure the model is of a guess."""

    @property
    def score_range(self) -> ScoreRange:
        """The range of the score; none without a score, or beside right entities, whose lines say something else."""
        return "" if self.side else name_score_range(self.score)

    @property
    def tooltip(self) -> str:
        side = {"": "", "gold": "right: ", "guess": "guessed: "}[self.side]
        score = "" if self.score is None else f" ({self.score:.2f})"
        return f"{side}{self.label}{score}" + (f", {self.kind}" if self.kind else "")


@dataclass(frozen=True, slots=True)
class TextRun:
    """A stretch of text inside the same marks."""

    text: str
    inside: tuple[EntityMark, ...]
    opens: tuple[EntityMark, ...]
    closes: tuple[EntityMark, ...]

    @property
    def state(self) -> MarkState:
        gold, guess = ({mark.label for mark in self.inside if mark.side == side} for side in ("gold", "guess"))
        if gold and guess:
            return "agreed" if gold & guess else "other"
        return "gold" if gold else "guess" if guess else "plain"


ColourFunction = Callable[[TextRun], int]
"""Returns the number of a colour for a run inside marks."""


def split_runs(text: str, marks: Sequence[EntityMark], start: int = 0, end: int | None = None) -> Iterator[TextRun]:
    """Cut text[start:end] at the borders of marks."""
    end = len(text) if end is None else end
    here = [mark for mark in marks if mark.start < end and mark.end > start]
    borders = {border for mark in here for border in (mark.start, mark.end) if start < border < end}
    for low, high in pairwise(sorted({start, end, *borders})):
        inside = tuple(mark for mark in here if mark.start <= low and mark.end >= high)
        yield TextRun(
            text[low:high],
            inside,
            tuple(mark for mark in inside if mark.start == low),
            tuple(mark for mark in inside if mark.end == high),
        )


def render_runs(runs: Iterable[TextRun], colour: ColourFunction) -> Html:
    """Return text with its marks: a right entity has a line below it, a guess a line above it, and both their labels.

    If there is nothing to compare guesses with, the line below one says how sure the model is. So everything can be
    told apart without colours.
    """
    return Html("".join(_render_run(run, colour) for run in runs))


def _render_run(run: TextRun, colour: ColourFunction) -> str:
    if not run.inside:
        return escape(run.text)
    sides = dict.fromkeys(mark.side for mark in run.inside if mark.side)
    ranges = [mark.score_range for mark in run.inside if mark.score_range][-1:]  # of the mark that gives the colour
    title = "; ".join(mark.tooltip for mark in run.inside)
    labels = "".join(_render_labels(run))
    names = " ".join((colour_name(colour(run)), *sides, *ranges))
    return f'<mark class="{names}" title="{escape(title)}">{escape(run.text)}{labels}</mark>'


def _render_labels(run: TextRun) -> Iterator[str]:
    """Yield the labels of what ends here, right ones below and guesses above; the same label once."""
    right = [mark.label for mark in run.closes if mark.side == "gold"]
    for mark in run.closes:
        tag = {"": "small", "gold": "sub", "guess": "sup"}[mark.side]
        if mark.side != "guess" or mark.label not in right:
            spoken = (
                f'<span class="spoken"> {mark.score:.2f}</span>' if mark.score is not None and not mark.side else ""
            )
            yield f"<{tag}>{escape(mark.label)}{spoken}</{tag}>"


def colour_by_label(labels: Iterable[str]) -> ColourFunction:
    """Return a function that colours by label; where marks overlap, by that of the last."""
    numbers = {label: number for number, label in enumerate(labels)}
    return lambda run: numbers[run.inside[-1].label]


def render_text(content: Html, language: str = "") -> str:
    """Return marked text in a box of its own; long words, or Chinese without spaces, do not widen the page."""
    spoken = f' lang="{escape(language)}"' if language else ""
    return f'<div class="text"{spoken}>{content}</div>'
