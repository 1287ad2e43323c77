"""The curves of a run: a page that needs nothing else, a picture, the right numbers, small however long the run."""

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.charts import Curve, build_curve_chart, choose_ticks, thin_points, value_range
from alembert.train import curves
from alembert.train.curves import build_panels, render_curves_page, smooth, write_curves
from alembert.train.runlog import RunLog
from page_checks import check_page

finite = st.floats(-1e9, 1e9, allow_subnormal=False)


@pytest.fixture(autouse=True)
def _real_pictures(monkeypatch: pytest.MonkeyPatch, draw_png: Callable[..., bytes | None]) -> None:
    monkeypatch.setattr(curves, "render_panels_png", draw_png)


class Elements(HTMLParser):
    """All that a page opens, and the cells of its tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.attributes += attrs
        if tag == "tbody":  # the head may have a cell without a name
            self.cells = []
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells and self.lasttag == "td":
            self.cells[-1] += data.strip()

    def rows(self) -> dict[str, list[str]]:
        return {self.cells[n]: self.cells[n + 1 : n + 5] for n in range(0, len(self.cells), 5)}


def written(folder: Path, steps: int, *, objectives: tuple[str, ...] = ("masked_lm",)) -> RunLog:
    log = RunLog(folder, tensorboard=False)
    for step in range(1, steps + 1):
        loss = 2 + 8 / step
        losses = dict.fromkeys(objectives, loss)
        log.write("step", step=step, tokens=100 * step, seconds=1.0 * step, rate=1e-4, norm=1.0,
                  loss=loss * len(losses), losses=losses, tokens_per_second=100.0, peak_share=None)  # fmt: skip
        if step % max(1, steps // 4) == 0:
            score = {"loss": loss + 1, "accuracy": step / steps / 2, "predictions": 100}
            log.write("held_out", step=step, scores={"masked_lm": score, "masked_lm, entities": score})
    return log


def page_of(log: RunLog) -> str:
    return render_curves_page(build_panels(log), "a run", "")


def test_the_page_fetches_and_runs_nothing(tmp_path: Path) -> None:
    check_page(page_of(written(tmp_path, 20)))
    elements = Elements(page_of(written(tmp_path, 20)))
    assert not {"script", "link", "img", "iframe"} & set(elements.opened)
    assert not [name for name, _ in elements.attributes if name == "src" or name.startswith("on")]


def test_the_table_has_first_last_and_best(tmp_path: Path) -> None:
    log = written(tmp_path, 4)
    log.write("held_out", step=5, scores={"masked_lm": {"loss": 9.0, "accuracy": 0.1}})
    rows = Elements(page_of(log)).rows()
    assert rows["Loss of masked_lm, held out"] == ["11", "9", "5", "4"]
    assert rows["Held-out accuracy, masked_lm"] == ["12.5 %", "10 %", "50 %", "4"]
    assert rows["Learning rate"] == ["0.0001", "0.0001", "", ""]


def test_the_last_number_of_a_long_run_is_its_last(tmp_path: Path) -> None:
    log = written(tmp_path, 3000)
    log.write("step", step=3001, rate=5e-5)
    assert Elements(page_of(log)).rows()["Learning rate"][1] == "5e-05"


def test_every_objective_has_a_panel_and_so_has_their_sum(tmp_path: Path) -> None:
    log = written(tmp_path, 20, objectives=("masked_lm", "next_sentence"))
    assert [panel.title for panel in build_panels(log)] == [
        "Training loss",
        "Loss of masked_lm",
        "Loss of next_sentence",
        "Held-out accuracy",
        "Learning rate",
        "Norm of the gradient",
        "Tokens a second",
    ]


def test_one_objective_is_not_drawn_twice(tmp_path: Path) -> None:
    assert "Training loss" not in [panel.title for panel in build_panels(written(tmp_path, 20))]


def test_parts_of_a_score_stand_beside_the_whole(tmp_path: Path) -> None:
    panel = build_panels(written(tmp_path, 20))[0]
    assert [curve.name for curve in panel.named_curves] == ["training", "held out", "held out, entities"]


def test_a_long_run_has_a_small_page(tmp_path: Path) -> None:
    log = written(tmp_path, 5000, objectives=("masked_lm", "next_sentence"))
    assert len(page_of(log)) < 150_000


def test_an_empty_log_has_a_page(tmp_path: Path) -> None:
    written_first = write_curves(RunLog(tmp_path / "nothing"), tmp_path, "a run")[0]
    assert "No step has been logged yet." in written_first.read_text()


def test_the_page_says_how_far_the_run_is(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    log.write("event", what="resumed", step=3)
    [path, *_] = write_curves(log, tmp_path, "a run")
    assert "<p>Step 3, 300 tokens, 0.00 hours, resumed 1 time.</p>" in path.read_text()


def test_a_loss_that_was_no_number_leaves_a_hole(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    log.write("step", step=4, loss=float("nan"), losses={"masked_lm": float("nan")})
    assert build_panels(log)[0].curves[0].points[-1][0] == 3


def test_the_title_is_escaped() -> None:
    assert "<h1>a &lt;b&gt;</h1>" in render_curves_page([], "a <b>", "")


def test_without_matplotlib_there_is_only_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert write_curves(written(tmp_path, 3), tmp_path, "a run") == [tmp_path / "loss.html"]


@pytest.mark.parametrize("steps", [0, 1, 30])
def test_the_picture_is_the_same_for_the_same_log(steps: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the PNG")
    log = written(tmp_path, steps)
    one, two = (write_curves(log, tmp_path / name, "运行")[1].read_bytes() for name in ("one", "two"))
    assert one.startswith(b"\x89PNG")
    assert one == two


def test_a_users_style_does_not_change_the_picture(tmp_path: Path) -> None:
    mpl = pytest.importorskip("matplotlib", reason="matplotlib draws the PNG")
    log = written(tmp_path, 5)
    plain = write_curves(log, tmp_path / "one", "a run")[1].read_bytes()
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        styled = write_curves(log, tmp_path / "two", "a run")[1].read_bytes()
        assert mpl.rcParams["font.size"] == 30
    assert plain == styled


@given(st.lists(finite, min_size=1, max_size=300), st.integers(4, 50))
def test_thinning_keeps_ends_and_extremes(values: list[float], most: int) -> None:
    points = [(float(x), y) for x, y in enumerate(values)]
    kept = thin_points(points, most)
    assert len(kept) <= most + 4
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(values), max(values)} <= {y for _, y in kept}
    assert set(kept) <= set(points)
    assert kept == sorted(kept)


@given(st.lists(finite, min_size=1, max_size=300))
def test_smoothing_stays_inside_the_values(values: list[float]) -> None:
    smoothed = [y for _, y in smooth([(float(x), y) for x, y in enumerate(values)])]
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert smoothed[0] == values[0]
    assert min(values) - slack <= min(smoothed)
    assert max(smoothed) <= max(values) + slack


@given(finite, st.floats(1e-3, 1e9))
def test_ticks_lie_inside_and_are_few(low: float, width: float) -> None:
    found = choose_ticks(low, low + width)
    slack = 1e-6 * max(abs(low), width)
    assert 1 <= len(found) <= 9
    assert low - slack <= found[0]
    assert found[-1] <= low + width + slack


@given(st.lists(st.tuples(st.integers(0, 10**6), finite), max_size=20))
def test_any_curve_can_be_drawn(points: list[tuple[float, float]]) -> None:
    chart = build_curve_chart("t", [Curve("c", sorted(points))], str).svg()
    assert chart.startswith("<svg")
    assert "nan" not in chart


def test_rare_peaks_of_a_faint_curve_do_not_set_the_scale() -> None:
    points = [(x, 1000.0 if x == 500 else 1.0 + x % 2) for x in range(1000)]
    assert value_range([Curve("c", points, faint=True)]) == (1.0, 2.0)
    assert value_range([Curve("c", points)]) == (1.0, 1000.0)


def test_a_task_is_drawn_by_its_scores(tmp_path: Path) -> None:
    log = RunLog(tmp_path, tensorboard=False)
    for step in (1, 2):
        log.write("step", step=step, loss=1 / step, losses={"tag": 1 / step})
        log.write("held_out", step=step, scores={"dev": {"f1": step / 4, "mse": 0.5, "support": 5}})
    drawn = {panel.title: [curve.name for curve in panel.curves] for panel in build_panels(log)}
    assert drawn["Scores on dev"] == ["f1"]
