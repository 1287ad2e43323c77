"""A survey of a corpus as one HTML page that needs nothing else: no script, no font, no picture from outside.

In: a `CorpusStatistics` and some documents. Out: the page as text. Plots are small inline SVGs drawn here; colours follow the
reader's light or dark setting by CSS alone. Every text of a document is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from alembert.corpus.statistics import (
    READ_COUNT_NAMES,
    CorpusStatistics,
    Histogram,
    LabelStatistics,
)
from alembert.corpus.store import CorpusDocument, CorpusEntity

_LONGEST_TEXT = 3000
_LABEL_HUES = (210, 330, 140, 35, 270, 0, 180, 60)
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #e3e6eb; --paper: #fbfbfd; --card: #fff;
        --bar: #3b6fd4; --tint: 92%; --tone: 28%; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #98a2b3; --line: #2b303b; --paper: #14171d;
        --card: #1b1f27; --bar: #7aa2f7; --tint: 24%; --tone: 86%; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
       font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
small { color: var(--soft); font-weight: 400; white-space: nowrap; }
.lead { color: var(--soft); margin: .2rem 0 1.5rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin-bottom: .75rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .75rem; margin-bottom: .75rem; }
section, .tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.1rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .22rem .4rem; text-align: left; vertical-align: top; }
tr + tr td { border-top: 1px solid var(--line); } th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg rect { fill: var(--bar); } svg line { stroke: var(--line); }
mark { color: hsl(var(--hue) 60% var(--tone)); background: hsl(var(--hue) 70% var(--tint)); border-radius: 4px;
       padding: 0 .2em; } mark.gold { outline: 1px solid currentColor; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; } .wide { margin-bottom: .75rem; overflow-x: auto; }
"""


def render_corpus_page(survey: CorpusStatistics, entries: Sequence[CorpusDocument]) -> str:
    """Write the page."""
    labels = list(dict.fromkeys(label.name for label in survey.labels))
    body = [
        f"<h1>{escape(survey.name)}</h1><p class='lead'>A corpus of alembert: what it holds, and what was dropped.</p>",
        _tiles(survey),
        _plots(survey),
        _tables(survey),
        _entities(survey.labels, labels),
        *(_document(entry, labels) for entry in entries),
    ]
    head = (
        f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(survey.name)}</title>"
    )
    return f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"


def _tiles(survey: CorpusStatistics) -> str:
    found = sum(label.count for label in survey.labels if not label.gold)
    numbers = [(name, survey.counts[name]) for name in ("documents", "sentences", "words", "characters")]
    tiles = [
        f"<div class='tile'><b>{n:,}</b><span>{name}</span></div>" for name, n in [*numbers, ("entities found", found)]
    ]
    return f"<div class='tiles'>{''.join(tiles)}</div>"


def _plots(survey: CorpusStatistics) -> str:
    plots = [
        ("Sentences per document", survey.per_document),
        ("Characters per sentence", survey.characters),
        ("Words per sentence", survey.words),
    ]
    cards = [
        f"<section><h2>{name} <small>mean {each.mean:.1f}</small></h2>{render_histogram(each)}</section>"
        for name, each in plots
    ]
    return f"<div class='grid'>{''.join(cards)}</div>"


def render_histogram(histogram: Histogram) -> str:
    """Draw a histogram: upright bars over their bins, the count of each as a tooltip."""
    bins = histogram.bins()
    highest = max(1, *(count for _, count in bins))
    width = 400 / len(bins)
    every = -(-len(bins) // 9)
    drawn = []
    for number, (name, count) in enumerate(bins):
        height = 130 * count / highest
        left = number * width
        drawn.append(
            f"<rect x='{left + 1:.1f}' y='{140 - height:.1f}' width='{width - 2:.1f}' height='{height:.1f}' rx='2'>"
            f"<title>{name}: {count:,}</title></rect>"
        )
        if number % every == 0 or number == len(bins) - 1:
            label = name.split("-")[0]
            drawn.append(f"<text x='{left + width / 2:.1f}' y='156' text-anchor='middle'>{label}</text>")
    axis = "<line x1='0' x2='400' y1='140.5' y2='140.5'/>"
    return f"<svg viewBox='-8 0 416 162' role='img' aria-label='histogram'>{''.join(drawn)}{axis}</svg>"


def _tables(survey: CorpusStatistics) -> str:
    cards = [
        _table("Read", survey.get_counts(READ_COUNT_NAMES)),
        _table("Dropped, documents", survey.get_counts_with_prefix("dropped: ")),
        _table("Set aside, by reason", survey.get_counts_with_prefix("set aside: ")),
        _table("Cleaned", survey.get_counts_with_prefix("cleaned: ")),
        _table("Remarks", survey.get_counts_with_prefix("remark: ")),
        _table("Languages, documents", survey.languages.most_common(15)),
        _table("Sources, documents", list(survey.sources.items())[:40]),
    ]
    return f"<div class='grid'>{''.join(cards)}</div>"


def _table(title: str, rows: Iterable[tuple[str, int]]) -> str:
    lines = [f"<tr><td>{escape(name)}</td><td class='n'>{number:,}</td></tr>" for name, number in rows]
    return f"<section><h2>{title}</h2><table>{''.join(lines)}</table></section>" if lines else ""


def _entities(found: Sequence[LabelStatistics], labels: Sequence[str]) -> str:
    if not found:
        return ""
    rows = [
        f"<tr><td>{_mark(label.name, CorpusEntity(0, 0, label.name, (), label.gold), labels)}</td><td class='n'>{label.count:,}</td>"
        f"<td class='n'>{label.distinct:,}</td><td>{_render_top_surfaces(label)}</td></tr>"
        for label in found
    ]
    head = "<tr><th>label</th><th class='n'>found</th><th class='n'>different</th><th>most frequent</th></tr>"
    return f"<section class='wide'><h2>Entities</h2><table>{head}{''.join(rows)}</table></section>"


def _render_top_surfaces(label: LabelStatistics) -> str:
    return ", ".join(f"{escape(surface)} {times:,}" for surface, times in label.top)


def _document(entry: CorpusDocument, labels: Sequence[str]) -> str:
    document = entry.document
    title = f"{document.id} · {entry.source} · {entry.language} · sentences: {len(entry.sentences)}"
    return f"<section class='wide'><h2>{escape(title)}</h2><div class='text'>{_marked(entry, labels)}</div></section>"


def _marked(entry: CorpusDocument, labels: Sequence[str]) -> str:
    """Write the beginning of a text with its entities marked; of two that overlap, the first."""
    text, at, pieces = entry.document.text, 0, []
    for mention in entry.entities:
        if at <= mention.start and mention.end <= _LONGEST_TEXT:
            surface = text[mention.start : mention.end]
            pieces += [escape(text[at : mention.start]), _mark(surface, mention, labels)]
            at = mention.end
    rest = f" … ({len(text) - _LONGEST_TEXT:,} more characters)" if len(text) > _LONGEST_TEXT else ""
    return "".join(pieces) + escape(text[at:_LONGEST_TEXT]) + rest


def _mark(surface: str, mention: CorpusEntity, labels: Sequence[str]) -> str:
    hue = _LABEL_HUES[labels.index(mention.label) % len(_LABEL_HUES)]
    kind = " class='gold'" if mention.gold else ""
    title = escape(" ".join((mention.label, *mention.concepts)), quote=True)
    return f"<mark{kind} style='--hue:{hue}' title='{title}'>{escape(surface)}</mark>"
