"""Marked text for a page: lines, labels and colours."""

import re

from alembert.inspect.marked import EntityMark, render_marked_text, render_text_box

TEXT = "breast <cancer> again"
MARKS = [EntityMark(0, 15, "Disease", "gold", "boundary"), EntityMark(7, 15, "Disease", "guess", "boundary", 0.5)]


def test_right_ones_have_a_line_below_and_guesses_one_above() -> None:
    first, second = re.findall(r'<span style="([^"]*)"', render_marked_text(TEXT, MARKS, lambda run: 0))
    assert ("border-bottom" in first, "border-top" in first) == (True, False)
    assert ("border-bottom" in second, "border-top" in second) == (True, True)


def test_the_page_chooses_the_colour_of_each_stretch() -> None:
    html = render_marked_text(TEXT, MARKS, lambda run: len(run.inside))
    assert re.findall(r"[;\"]color:var\(--(\w)\)", html) == ["b", "c"]


def test_the_text_is_whole_and_escaped() -> None:
    without_labels = re.sub(r"<su[bp].*?</su[bp]>", "", render_marked_text(TEXT, MARKS, lambda run: 0))
    assert re.sub(r"<[^>]*>", "", without_labels) == "breast &lt;cancer&gt; again"


def test_a_text_says_its_language() -> None:
    assert render_text_box("x", "zh").startswith('<div lang="zh" ')
    assert "lang=" not in render_text_box("x")
