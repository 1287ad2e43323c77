"""Runs are found wherever they are, read as far as they came, and sorted; what is damaged is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

import alembert
from alembert.errors import BadFile
from alembert.train import runs
from alembert.train.runs import build_run_charts, list_run_rows, list_setting_rows, render_runs_page
from page_checks import check_page

SHA = "0" * 64


def write_run(
    folder: Path,
    verb: str = "finetune",
    *,
    score: float | None = None,
    rows: list[dict[str, Any]] | None = None,
    record: str = "manifest.json",
    **config: Any,
) -> None:
    (folder / "run").mkdir(parents=True)
    tasks = {"tasks": {"tag": {"task": "tag"}}} if verb == "finetune" else {}
    manifest = {
        "kind": "Checkpoint",
        "format": 1,
        "versions": {},
        "seed": 1,
        "config": {"verb": verb, **tasks, **config},
        "inputs": [{"name": "train.tsv", "sha256": SHA}],
        "counts": {"steps": 20, "tokens": 900, "seconds": 61} if record == "manifest.json" else {},
        "files": {},
    }
    (folder / record).write_text(json.dumps(manifest))
    lines = logged() if rows is None else rows
    (folder / "run/log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    if score is not None:
        (folder / "run/scores.json").write_text(json.dumps({"main": "f1", "measures": {"f1": score}}))


def logged(scores: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    totals = {"step": 10, "tokens": 450, "seconds": 30.5}
    return [
        {"kind": "step", **totals, "loss": 0.5, "losses": {"tag": 0.5}},
        {"kind": "held_out", **totals, "scores": scores or {"dev": {"precision": 0.9, "f1": 0.25}}},
    ]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_run(tmp_path / "work/low", score=0.5, optimiser={"learning_rate": 0.001})
    write_run(tmp_path / "work/deep/high", score=0.75, optimiser={"learning_rate": 0.002})
    write_run(tmp_path / "work/stopped.partial", record=".draft.json", optimiser={"learning_rate": 0.003})
    held_out = {"masked_lm": {"loss": 2.5, "accuracy": 0.4}}
    write_run(tmp_path / "work/adapted", "pretrain", rows=logged(held_out))
    return tmp_path / "work"


def test_runs_are_sorted_by_score_and_those_of_a_loss_come_last(work: Path) -> None:
    found = [(run.name, run.measure, run.score) for run in alembert.list_runs(work).runs]
    assert found == [
        ("deep/high", "f1", 0.75),
        ("low", "f1", 0.5),
        ("stopped.partial", "f1", 0.25),
        ("adapted", "masked_lm loss", 2.5),
    ]


def test_a_stopped_run_is_read_as_far_as_it_came(work: Path) -> None:
    run = next(run for run in alembert.list_runs(work).runs if not run.finished)
    assert (run.steps, run.tokens, run.seconds, run.data) == (10, 450, 30.5, ("train.tsv",))
    assert (list(run.loss), list(run.scores)) == ([(10, 0.5)], [(10, 0.25)])


def test_a_complete_run_has_the_counts_of_its_manifest(work: Path) -> None:
    run = alembert.list_runs(work).runs[0]
    assert (run.finished, run.kind, run.steps, run.tokens, run.seconds) == (True, "finetune tag", 20, 900, 61)


def test_settings_that_differ_are_listed_by_kind(work: Path) -> None:
    overview = alembert.list_runs(work)
    assert overview.differing_settings("finetune tag") == {"optimiser.learning_rate": ("0.002", "0.001", "0.003")}
    assert list_setting_rows(overview, "finetune tag")[0] == ("setting of finetune tag", "1", "2", "3")
    assert overview.differing_settings("pretrain") == {}


def test_a_folder_that_is_a_run_is_listed_itself(work: Path) -> None:
    assert [run.name for run in alembert.list_runs(work / "low").runs] == ["."]


def test_seeds_are_part_of_their_run(work: Path) -> None:
    for seed, score in enumerate((0.7, 0.75), 1):
        (work / f"deep/high/seeds/{seed}/run").mkdir(parents=True)
        (work / f"deep/high/seeds/{seed}/run/log.jsonl").write_text("")
        table = {"main": "f1", "measures": {"f1": score}}
        (work / f"deep/high/seeds/{seed}/run/scores.json").write_text(json.dumps(table))
    overview = alembert.list_runs(work)
    assert overview.runs[0].seed_scores == (0.7, 0.75)
    assert list_run_rows(overview)[0][4] == "f1 0.7500 (0.7000 to 0.7500)"
    assert overview.unreadable == ()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("manifest.json", "{"),
        ("manifest.json", '{"format": 1, "kind": "Checkpoint"}'),
        ("manifest.json", '{"format": 99}'),
        ("log.jsonl", "no row"),
    ],
)
def test_what_is_damaged_is_listed_and_stops_nothing(file: str, content: str, work: Path) -> None:
    (work / "damaged").mkdir()
    (work / "damaged" / file).write_text(content)
    overview = alembert.list_runs(work)
    assert len(overview.runs) == 4
    assert [reason.partition(":")[0] for reason in overview.unreadable] == ["damaged"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run/log.jsonl", "nonsense\n"),
        ("run/log.jsonl", '{"kind": "held_out", "step": 1, "scores": 7}\n'),
        ("run/scores.json", "{}"),
        ("run/scores.json", '{"main": "f1", "measures": {"f1": "good"}}'),
    ],
)
def test_a_run_whose_files_are_damaged_is_listed_as_such(file: str, content: str, work: Path) -> None:
    (work / "low" / file).write_text(content)
    overview = alembert.list_runs(work)
    assert [run.name for run in overview.runs] == ["deep/high", "stopped.partial", "adapted"]
    assert len(overview.unreadable) == 1


def test_the_last_line_of_a_run_under_way_may_be_half_written(work: Path) -> None:
    with (work / "stopped.partial/run/log.jsonl").open("a") as log:
        log.write('{"kind": "st')
    assert len(alembert.list_runs(work).runs) == 4


def test_other_results_are_counted(work: Path) -> None:
    write_run(work / "corpus", "corpus build")
    assert alembert.list_runs(work).others == 1


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="There is no run below"):
        alembert.list_runs(tmp_path)
    with pytest.raises(BadFile, match="There is no folder"):
        alembert.list_runs(tmp_path / "nowhere")


def test_the_page_is_whole_and_safe(work: Path) -> None:
    write_run(work / "<script>alert(1)", score=0.1)
    page = render_runs_page(alembert.list_runs(work))
    check_page(page)
    assert "&lt;script&gt;alert(1)" in page


def test_curves_lie_over_each_other_and_the_best_have_colours(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overview = alembert.list_runs(work)
    titles = [chart.title for chart in build_run_charts(overview)]
    assert titles[:2] == ["f1 on held-out data", "masked_lm loss on held-out data"]
    assert titles[2:] == ["Training loss of finetune tag", "Training loss of pretrain"]
    monkeypatch.setattr(runs, "MAX_CURVES", 2)
    assert "The best 2 of 3 runs are drawn." in render_runs_page(overview)
