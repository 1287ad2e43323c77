"""Charts of rows: intervals of shares, what is drawn of a table, and that a table without a picture stays one."""

import math
import re

import pytest

from alembert.infer.evaluate import ConfusionMatrix
from alembert.inspect.row_charts import Estimate, build_estimate_chart, build_stack_chart, render_drawn_table
from alembert.inspect.tables import Table, describe_source, render_confusion

SCORES = Table(
    name="scores",
    title="By <type>",
    header=("type", "gold", "recall"),
    rows=(("Gene", 10, 0.5), ("Cell", 0, None)),
    shares={"recall": "gold"},
)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (3, 10), (960, 960)])
def test_the_ends_of_an_interval_are_the_roots_of_the_score_test(right: int, count: int) -> None:
    share = right / count
    estimate = Estimate.of_share(share, count)
    for end in (estimate.low, estimate.high):
        # At an end, the share is 1.96 standard errors away; where the end is a bound, there is none beyond.
        away = abs(share - end)
        assert away == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / count), abs=1e-9)


def test_a_share_of_nothing_is_not_drawn() -> None:
    html = render_drawn_table(SCORES)
    assert re.findall(r"<circle.*?<title>(.*?)</title>", html) == ["Gene: 0.5000, 0.2366 to 0.7634"]
    assert ">Cell</text>" in html


def test_numbers_stand_beside_the_picture() -> None:
    html = render_drawn_table(SCORES)
    assert html.index("<svg") < html.index("<table")
    assert 'aria-label="By &lt;type&gt;"' in html


def test_a_table_that_names_no_columns_is_not_drawn() -> None:
    assert "<svg" not in render_drawn_table(Table(name="t", title="t", header=("a", "n"), rows=(("x", 1),)))


def test_bars_follow_one_another_and_end_with_their_sum() -> None:
    svg = build_stack_chart("t", ["Gene"], {"missed": [3], "type": [0], "spurious": [1]}).svg()
    bars = [tuple(map(float, found)) for found in re.findall(r'<rect x="([\d.]+)".*? width="([\d.]+)"', svg)]
    (first, width), (second, other) = bars
    assert second == pytest.approx(first + width, abs=0.2)
    assert width == pytest.approx(3 * other, abs=0.3)
    assert ">4</text>" in svg


def test_rows_that_would_dwarf_the_others_are_in_the_table_alone() -> None:
    rows = (("right", 900), ("missed", 3))
    html = render_drawn_table(
        Table(name="t", title="t", header=("kind", "count"), rows=rows, stacked=("count",), undrawn=("right",))
    )
    assert re.findall(r"<rect.*?<title>(.*?)</title>", html) == ["missed: 3"]
    assert ">900<" in html


def test_several_series_of_a_row_do_not_cover_each_other() -> None:
    one = Estimate(0.5, 0.4, 0.6)
    svg = build_estimate_chart("t", ["recall", "precision"], [("Gene", [one, one])]).svg()
    first, second = map(float, re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', svg))
    assert second - first >= 10


def test_no_estimate_leaves_an_empty_chart() -> None:
    assert "<svg" in build_estimate_chart("t", ["recall"], []).svg()


def test_a_confusion_matrix_is_shaded_by_row_and_says_so_if_it_is_too_large() -> None:
    html = render_confusion(ConfusionMatrix(labels=("a", "b"), counts=((3, 1), (0, 0))))
    assert re.findall(r'title="(\d+) %"', html) == ["75", "25", "0", "0"]
    many = tuple(map(str, range(41)))
    assert "41 labels are too many" in render_confusion(ConfusionMatrix(labels=many, counts=()))


def test_a_page_says_what_it_is_about() -> None:
    assert describe_source("ner", "tag", ["a.tsv", "b.tsv"]) == "Model ner, task tag, on a.tsv, b.tsv."
