"""Models side by side: the numbers of real tiny models, and what is written of them."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alembert.charts import CircleMark, TextMark
from alembert.errors import BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.engines import ModelSize
from alembert.infer.evaluate import evaluate
from alembert.infer.scoring import score_models
from alembert.infer.speed import Speed
from alembert.infer.task_model import TaskModel
from alembert.inspect.comparison import (
    ComparisonReport,
    ModelSummary,
    build_comparison,
    compare_models,
)
from alembert.inspect.report_pages import build_comparison_chart, render_comparison_page, write_comparison
from alembert.inspect.reports import comparison_lines, comparison_sentences, comparison_table
from alembert.inspect.scatter import choose_log_ticks
from alembert.nn.config import EncoderConfig
from alembert.tasks import metrics
from alembert.tasks.files import write_tasks
from alembert.tasks.metrics import Interval
from page_checks import check_page
from scripted_models import Engine, tagger, write_tagged

DOCUMENTS: dict[str, Any] = {
    "1": ("breast cancer", [(0, 13, "Disease")]),
    "2": ("aspirin helps", [(0, 7, "Drug")]),
    "3": ("the patient has cancer", [(16, 22, "Disease")]),
}
GUESSES: dict[str, Any] = {
    "1": [(0, 13, "Disease", 0.9)],
    "2": [(0, 7, "Drug", 0.8)],
    "3": [(16, 22, "Disease", 0.4)],
}
LAYERS = {"teacher": 4, "student": 2}
TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tagged(tmp_path_factory.mktemp("data") / "test.jsonl", DOCUMENTS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A teacher and a student with random weights."""
    place, task = tmp_path_factory.mktemp("models"), tagger({}).task
    head, tokenizer = task.head(), Engine().tokenizer
    for name, layers in LAYERS.items():
        config = EncoderConfig(vocab_size=tokenizer.vocab_size, num_hidden_layers=layers, **TINY)
        plan = Blueprint(config=config, heads={head.kind: head}, labels={head.kind: task.labels})
        Checkpoint.new(plan, tokenizer).save(place / name)
        write_tasks(place / name, {task.name: (task, {})})
    return {name: place / name for name in LAYERS}


@pytest.fixture(scope="module")
def found(folders: dict[str, Path], file: Path) -> ComparisonReport:
    return compare_models(folders, [file], rounds=20, speed_seconds=0.01)


def scripted(*scores: float, reference: int = 0, speed: bool = True) -> ComparisonReport:
    """A comparison with these scores, the first model being the largest and slowest."""
    models = tuple(
        ModelSummary(
            name=f"model-{number}",
            folder=f"work/{number}",
            score=score,
            interval=Interval(score - 0.02, score + 0.01),
            size=ModelSize(
                parameters=12_000_000 // number,
                bytes=48_000_000 // number,
                layers=12 // number,
                width=96,
                multiplications=2_400_000 // number,
            ),
            speed=Speed(texts=50, tokens=600, seconds=(5.0 / number,) * 3) if speed else None,
            against=None
            if number == reference + 1
            else metrics.PairedComparison(difference=0.0, interval=Interval(-0.1, 0.1), p_value=0.5),
        )
        for number, score in enumerate(scores, 1)
    )
    about = {"task": "tag", "files": ("dev.tsv",), "set_aside": 0, "measure": "f1"}
    about |= {"examples": 50, "documents": 50}
    machine = "a CPU, 2 threads" if speed else None
    return ComparisonReport(**about, rounds=20, against=reference, models=models, machine=machine)


def test_scores_are_those_of_an_evaluation(found: ComparisonReport, folders: dict[str, Path], file: Path) -> None:
    for model in found.models:
        alone = evaluate(TaskModel.open(folders[model.name]), [file], rounds=20)
        assert (model.score, model.interval) == (alone.scores.value, alone.interval)


def test_sizes_are_those_of_the_files(found: ComparisonReport, folders: dict[str, Path]) -> None:
    for model in found.models:
        opened = checkpoints.open(folders[model.name])
        stored = (folders[model.name] / "model.safetensors").stat().st_size
        assert (model.size.parameters, model.size.bytes) == (opened.parameters, 4 * opened.parameters)
        assert 0 <= stored - model.size.bytes < 10_000
        assert (model.size.layers, model.size.width) == (LAYERS[model.name], 16)


def test_half_the_layers_have_half_the_multiplications(found: ComparisonReport) -> None:
    assert [found.multiplication_ratio(model) for model in found.models] == [1.0, 2.0]


def test_speed_is_measured_for_all_in_the_same_rounds(found: ComparisonReport) -> None:
    teacher, student = (model.speed for model in found.models)
    assert teacher is not None
    assert student is not None
    assert (teacher.texts, teacher.tokens, len(teacher.seconds)) == (
        student.texts,
        student.tokens,
        len(student.seconds),
    )
    assert found.speed_up(found.reference) == 1.0


def test_scores_do_not_depend_on_speed(found: ComparisonReport, folders: dict[str, Path], file: Path) -> None:
    without = compare_models(folders, [file], rounds=20, speed_seconds=None)
    timeless = tuple(replace(model, speed=None) for model in found.models)
    assert replace(found, models=timeless, machine=None) == without


def test_the_reference_is_the_first(found: ComparisonReport) -> None:
    assert found.reference.name == "teacher"
    assert [model.against is None for model in found.models] == [True, False]


def test_a_difference_is_that_of_the_model_to_the_reference(file: Path) -> None:
    worse = tagger({**GUESSES, "1": [], "2": []}, folder=Path("worse"))
    contest = score_models([tagger(GUESSES), worse], [file], rounds=20)
    first, second = build_comparison(contest, ["a", "b"], speed_seconds=None).models
    assert second.against is not None
    assert (first.score, second.score) == (1.0, pytest.approx(0.5))
    assert second.against.difference == pytest.approx(-0.5)


def test_another_reference_can_be_chosen(file: Path) -> None:
    worse = tagger({**GUESSES, "1": [], "2": []}, folder=Path("worse"))
    contest = score_models([tagger(GUESSES), worse], [file], rounds=20)
    compared = build_comparison(contest, ["a", "b"], reference=1, speed_seconds=None)
    assert (compared.reference.name, compared.score_ratio(compared.models[0])) == ("b", pytest.approx(2.0))


def test_nothing_can_be_kept_of_a_score_of_nothing() -> None:
    compared = scripted(0.0, 0.5)
    assert [compared.score_ratio(model) for model in compared.models] == [None, None]
    assert comparison_table(compared).records()[2] == {"": "share kept", "model-1": "-", "model-2": "-"}


def test_every_model_must_answer_the_same_question(file: Path) -> None:
    strange = tagger({}, types=("Disease", "Gene"), folder=Path("strange"))
    with pytest.raises(BadSetting, match="ner and strange cannot be compared: they differ in their types"):
        score_models([tagger(GUESSES), tagger(GUESSES), strange], [file])


def test_no_model_is_refused(file: Path) -> None:
    with pytest.raises(BadSetting, match="There is no model to compare"):
        compare_models({}, [file])


def test_a_model_of_one_task_is_compared_with_one_task_of_several(
    folders: dict[str, Path], file: Path, tmp_path: Path
) -> None:
    task, tokenizer = tagger({}).task, Engine().tokenizer
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, num_hidden_layers=1, **TINY)
    plan = Blueprint(config=config, heads={"ner": task.head()}, labels={"ner": task.labels})
    Checkpoint.new(plan, tokenizer).save(tmp_path / "several")
    write_tasks(tmp_path / "several", {"ner": (task, {})}, {"ner": "ner"})
    models = {"several": tmp_path / "several", "one": folders["student"]}
    compared = compare_models(models, [file], task="ner", rounds=5, speed_seconds=None)
    assert [model.size.layers for model in compared.models] == [1, 2]


def test_the_keys_of_the_json_are_stable(found: ComparisonReport) -> None:
    record = json.loads(json.dumps(found.to_table()))
    about = {"task", "files", "examples", "documents", "set_aside", "measure", "rounds", "reference"}
    about |= {"machine", "models"}
    assert set(record) == about
    assert record["reference"] == "teacher"
    plain = {"name", "folder", "score", "interval", "size", "speed", "against"}
    for model in record["models"]:
        assert set(model) == plain | {"kept", "fewer_multiplications", "speed_up"}
        assert set(model["size"]) == {"parameters", "bytes", "layers", "width", "multiplications"}
        rates = {"texts_per_second", "tokens_per_second"}
        assert set(model["speed"]) == rates | {"texts", "tokens", "seconds"}
    assert set(record["models"][1]["against"]) == {"difference", "interval", "p_value"}


def test_the_table_has_a_column_for_each_model() -> None:
    drawn = comparison_lines(scripted(0.8, 0.76, 0.6))
    assert drawn[1].split() == ["model-1", "model-2", "model-3"]
    cells = {line[:17].strip(): line[17:].split() for line in drawn[2:13]}
    assert cells["f1"] == ["0.8000", "0.7600", "0.6000"]
    assert cells["share kept"] == ["100.0%", "95.0%", "75.0%"]
    assert cells["weights"] == ["48.0", "MB", "24.0", "MB", "16.0", "MB"]
    assert cells["layers x width"] == ["12", "x", "96", "6", "x", "96", "4", "x", "96"]
    assert cells["texts a second"] == ["10", "20", "30"]
    assert cells["tokens a second"] == ["120", "240", "360"]
    assert cells["speed-up"] == ["1.00x", "2.00x", "3.00x"]


def test_multiplications_say_how_many_times_fewer_or_more() -> None:
    rows = {str(row[0]): row[1:] for row in comparison_table(scripted(0.8, 0.7, 0.6, reference=1)).rows}
    assert rows["multiplications"] == ("2.40 M (2.0x more)", "1.20 M", "800 k (1.5x fewer)")


def test_the_machine_is_named_beside_its_speed() -> None:
    assert "measured on this machine (a CPU, 2 threads)" in " ".join(comparison_sentences(scripted(0.8, 0.7)))
    unmeasured = comparison_lines(scripted(0.8, 0.7, speed=False))
    assert "Speed was not measured." in unmeasured
    assert not any(line.startswith(("texts a second", "speed-up")) for line in unmeasured)


def test_what_was_set_aside_is_told() -> None:
    told = [*comparison_sentences(replace(scripted(0.8), set_aside=3))]
    assert told[-1] == "3 items of the files were set aside and are not in the scores."


def test_the_plot_is_higher_for_better_and_further_right_for_faster() -> None:
    found = scripted(0.8, 0.7)
    names = [model.name for model in found.models]
    dots = [
        mark
        for mark in build_comparison_chart(found, names).marks
        if isinstance(mark, CircleMark) and mark.opacity == 1
    ]
    (slow, good), (fast, worse) = (dot.at for dot in dots)
    assert slow < fast
    assert good < worse


def test_the_area_of_a_circle_is_the_number_of_parameters() -> None:
    found = scripted(0.8, 0.7)
    names = [model.name for model in found.models]
    large, small = (
        mark.radius
        for mark in build_comparison_chart(found, names).marks
        if isinstance(mark, CircleMark) and mark.opacity < 1
    )
    assert large**2 / small**2 == pytest.approx(2.0)


def test_without_speed_the_plot_is_over_multiplications() -> None:
    found = scripted(0.8, 0.7, speed=False)
    words = [mark.text for mark in build_comparison_chart(found, ["a", "b"]).marks if isinstance(mark, TextMark)]
    assert "million multiplications of the encoder for a token, logarithmic" in words


def test_of_a_long_name_the_end_is_shown() -> None:
    found = scripted(0.8, 0.7)
    words = [
        mark.text
        for mark in build_comparison_chart(found, ["a", f"{'x' * 60}/seeds/1"]).marks
        if isinstance(mark, TextMark)
    ]
    (shown,) = (text for text in words if text.endswith("/seeds/1"))
    assert (len(shown), shown[0]) == (32, "…")


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.5), (9.0, 11.5), (40.0, 62.0), (1.0, 30_000.0)])
def test_a_logarithmic_axis_has_a_few_numbers(low: float, high: float) -> None:
    found = choose_log_ticks(low, high)
    assert 1 <= len(found) <= 10
    assert found == sorted(found)
    assert low <= found[0] <= found[-1] <= high


def test_a_comparison_is_written_as_three_files(found: ComparisonReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = write_comparison(found, tmp_path / "new")
    assert [path.name for path in written] == ["comparison.json", "comparison.html", "comparison.png"]
    assert json.loads(written[0].read_text(encoding="utf8")) == json.loads(json.dumps(found.to_table()))
    assert written[2].read_bytes().startswith(b"\x89PNG")


def test_the_page_needs_nothing_else(found: ComparisonReport) -> None:
    html = render_comparison_page(replace(found, files=("<b>.tsv",)))
    assert html.startswith("<!doctype html>")
    assert html.count("<svg") == 1
    check_page(html)
    assert not any(foreign in html for foreign in ("http", "<script", "<b>", "<img"))


def test_without_matplotlib_there_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [path.suffix for path in write_comparison(scripted(0.8, 0.7), tmp_path)] == [".json", ".html"]


def test_the_same_comparison_gives_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    named = scripted(0.8, 0.7)
    student = replace(named.models[1], name="学生 $x_1")
    chinese = replace(named, models=(named.models[0], student))
    one, two = (write_comparison(chinese, tmp_path / place)[2].read_bytes() for place in ("one", "two"))
    assert one == two
