"""Pages: readable in both themes and on a small screen, safe, self-contained; marks that need no colours."""

import re

import pytest

from alembert.charts import Curve, build_bar_chart, build_curve_chart, render_figure
from alembert.html import (
    COLOURS,
    DARK,
    LIGHT,
    STYLE,
    EntityMark,
    Html,
    PageSection,
    colour_by_label,
    render_columns,
    render_details,
    render_fragment,
    render_legend,
    render_page,
    render_runs,
    render_score_legend,
    render_table,
    render_text,
    render_tiles,
    split_runs,
)
from page_checks import check_page

TEXT = "breast <cancer> again"
MARKS = [EntityMark(0, 15, "Disease", "gold", "boundary"), EntityMark(7, 15, "Disease", "guess", "boundary", 0.5)]


def marked(marks: list[EntityMark]) -> str:
    return render_runs(split_runs(TEXT, marks), lambda run: len(run.inside))


def mixed(colour: str, other: str, share: float) -> str:
    pairs = ((int(colour[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(one * share + two * (1 - share)):02x}" for one, two in pairs)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_everything_written_or_drawn_has_enough_contrast(theme: dict[str, str]) -> None:
    assert all(contrast(theme[name], theme["paper"]) >= 4.5 for name in ("ink", "dim", *COLOURS))
    shares = [int(share) / 100 for share in re.findall(r"var\(--colour\) (\d+)%", STYLE)]
    assert shares
    backgrounds = [mixed(theme[name], theme["paper"], share) for name in COLOURS for share in shares]
    assert all(contrast(theme["ink"], background) >= 4.5 for background in backgrounds)
    # The darkest shade of a confusion matrix.
    assert contrast(theme["ink"], mixed(theme["a"], theme["paper"], 0.5)) >= 4.5


def test_both_themes_have_the_same_names_and_every_name_in_use_is_one_of_them() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert set(re.findall(r"var\(--(\w+)\)", STYLE)) <= {*LIGHT, "colour", "share"}


@pytest.mark.parametrize("font", ["Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei"])
def test_fonts_for_chinese_are_named(font: str) -> None:
    assert f'"{font}"' in STYLE


def test_the_style_of_a_fragment_reaches_only_the_fragment() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", render_fragment(""), re.DOTALL)
    selectors = [selector.strip() for selector in re.findall(r"([^{}]+)\{[^{}]*", style) if selector.strip()]
    assert selectors
    assert all(part.strip().startswith(".alembert") for rule in selectors for part in re.split(r",(?![^(]*\))", rule))


def test_a_page_escapes_its_title_and_fetches_nothing() -> None:
    page = render_page("<b>", "<i>", "")
    assert "<title>&lt;b&gt;</title>" in page
    assert "<h1>&lt;i&gt;</h1>" in page
    assert re.findall(r"https?:|<script|<link|<img|<iframe|@import|url\(", page) == []


def test_a_table_scrolls_in_its_own_box_and_aligns_words_left() -> None:
    html = render_table(("", "n"), [("<b>", "1"), (Html("<i>x</i>"), "2")])
    assert re.match(r'<div class="scroll" role="region" aria-label="n" tabindex="0"><table>', html)
    assert '<td class="words">&lt;b&gt;</td><td>1</td>' in html
    assert '<td class="words"><i>x</i></td><td>2</td>' in html
    assert html.count("<th ") == 1


def test_a_table_without_names_of_columns_has_no_head() -> None:
    assert "<thead>" not in render_table((), [("a", "1")])


def test_a_single_colour_needs_no_legend() -> None:
    assert render_legend({"a": 0}) == ""
    assert render_legend({"<a>": 0, "b": 7}).count("<i class=") == 2


def test_a_chart_has_a_name_and_tooltips_that_are_escaped() -> None:
    bars = build_bar_chart("<t>", ["<1>"], {"<s>": [0.5]}).svg()
    assert 'role="img" aria-label="&lt;t&gt;"' in bars
    assert "<title>&lt;s&gt;, &lt;1&gt;: 50.00%</title>" in bars
    curves = build_curve_chart("t", [Curve("<c>", [(1.0, 2.0), (2.0, 3.0)])], str)
    assert "&lt;c&gt;, 1: 2.0" in curves.svg()
    assert "<figcaption>&lt;what&gt;</figcaption>" in render_figure(curves, "<what>")


def test_a_chart_of_counts_has_whole_numbers_and_leaves_out_names_that_would_touch() -> None:
    names = [str(number) for number in range(30)]
    svg = build_bar_chart("t", names, {"documents": [float(n * 1000) for n in range(30)]}, counts=True).svg()
    labels = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    assert "10k" in labels
    assert svg.count("<rect") == 30
    assert len([label for label in labels if label in names]) <= 10


def test_right_ones_have_a_line_below_and_guesses_one_above() -> None:
    first, second = (set(names.split()) for names in re.findall(r'<mark class="([^"]*)"', marked(MARKS)))
    assert ("gold" in first, "guess" in first) == (True, False)
    assert ("gold" in second, "guess" in second) == (True, True)
    assert ".alembert mark.gold { border-bottom: 3px" in STYLE
    assert ".alembert mark.guess { border-top: 3px" in STYLE


def test_the_page_chooses_the_colour_of_each_run() -> None:
    assert re.findall(r'<mark class="(\w) ', marked(MARKS)) == ["b", "c"]


def test_the_text_is_whole_and_escaped() -> None:
    without_labels = re.sub(r"<su[bp].*?</su[bp]>", "", marked(MARKS))
    assert re.sub(r"<[^>]*>", "", without_labels) == "breast &lt;cancer&gt; again"


def test_an_entity_that_nothing_is_compared_with_has_its_label_once() -> None:
    assert '<mark class="b" title="Part">breast<small>Part</small></mark>' in marked([EntityMark(0, 6, "Part")])


def test_a_score_is_under_the_pointer_and_spoken() -> None:
    html = marked([EntityMark(0, 6, "Part", score=0.25)])
    label = '<small>Part<span class="spoken"> 0.25</span></small>'
    assert f'<mark class="b unsure" title="Part (0.25)">breast{label}</mark>' in html


@pytest.mark.parametrize(
    ("score", "name"), [(1.0, "sure"), (0.9, "sure"), (0.89, "likely"), (0.6, "likely"), (0.59, "unsure"), (None, "")]
)
def test_the_line_below_an_entity_says_how_sure_the_model_is(score: float | None, name: str) -> None:
    assert EntityMark(0, 6, "Part", score=score).score_range == name
    assert f".alembert mark.{name} {{ border-bottom: " in STYLE or not name
    assert f'<mark class="a {name}">{name}</mark>' in render_score_legend() or not name


def test_a_guess_beside_right_entities_has_no_line_for_its_score() -> None:
    assert "unsure" not in marked([EntityMark(0, 6, "Part", "guess", score=0.25)])


def test_of_overlapping_entities_the_last_gives_colour_and_line() -> None:
    html = marked([EntityMark(0, 15, "x", score=0.95), EntityMark(7, 15, "y", score=0.7)])
    assert re.findall(r'<mark class="([^"]*)"', html) == ["b sure", "c likely"]


def test_details_are_closed_unless_they_are_to_be_open() -> None:
    assert render_details("a", "b").startswith("<details><summary><h3>a</h3></summary>")
    assert render_details("a", "b", is_open=True).startswith("<details open>")
    check_page(render_page("t", "t", f"<h2>x</h2>{render_details('a', 'b')}"))


def test_tiles_are_escaped() -> None:
    assert "<li><b>1 &lt; 2</b>&lt;n&gt;</li>" in render_tiles({"<n>": "1 < 2"})


def test_empty_parts_have_no_column() -> None:
    assert render_columns(["<p>a</p>", ""]) == '<div class="several"><div><p>a</p></div></div>'


def test_labels_have_the_colours_of_their_order() -> None:
    runs = split_runs(TEXT, [EntityMark(0, 6, "y"), EntityMark(7, 15, "x")])
    assert re.findall(r'<mark class="(\w)"', render_runs(runs, colour_by_label(["x", "y"]))) == ["b", "a"]


def test_a_text_says_its_language() -> None:
    assert render_text(Html("x"), "zh").startswith('<div class="text" lang="zh">')
    assert "lang=" not in render_text(Html("x"))


def test_the_list_of_contents_leads_to_each_section() -> None:
    page = render_page("t", "t", "", [PageSection("By <length>", "one"), PageSection("Notes & more", "two", "Notes")])
    check_page(page)
    assert re.findall(r'<a href="#([^"]*)">([^<]*)</a>', page) == [
        ("by-length", "By &lt;length&gt;"),
        ("notes", "Notes"),
    ]
    assert '<section id="notes">\n<h2>Notes &amp; more</h2>' in page


def test_a_single_section_needs_no_list_of_contents() -> None:
    assert "<nav" not in render_page("t", "t", "", [PageSection("One", "")])


def test_a_printed_page_is_light_and_has_no_list_of_contents() -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in STYLE
    assert "@media print { nav { display: none }" in STYLE
