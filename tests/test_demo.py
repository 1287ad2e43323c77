"""The demo's page, its table and its commands, made of folders that no model was trained for."""

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from alembert import sample
from alembert.corpus.document import Document, Entity
from alembert.demo import DemoFolders, DemoStep, format_command
from alembert.demo.page import SHOWN_DOCUMENTS, render_demo_page
from alembert.infer.annotate_chunks import write_part
from alembert.infer.engines import ModelSize
from alembert.infer.speed import Speed
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.reports import comparison_sentences, model_table
from alembert.tasks.metrics.bootstrap import Interval
from alembert.train.runlog import RunLog
from page_checks import check_page

MODELS = {"teacher": 2, "student": 1, "student without distillation": 1, "student, int8": 1}
COMMAND = "alembert distill 'my teacher' --student 1x96"


def standing(name: str, layers: int) -> ModelSummary:
    size = ModelSize(parameters=layers * 1000, bytes=layers * 2_000_000, layers=layers, width=96, multiplications=9)
    speed = Speed(texts=10, tokens=1000, seconds=(0.5 * layers,))
    return ModelSummary(name=name, folder=name, score=0.4, interval=Interval(low=0.3, high=0.5), size=size, speed=speed)


@pytest.fixture(scope="module")
def comparison() -> ComparisonReport:
    return ComparisonReport(
        task="tag",
        files=("test.jsonl",),
        examples=31,
        documents=31,
        set_aside=0,
        measure="f1",
        rounds=1000,
        against=0,
        models=tuple(standing(name, layers) for name, layers in MODELS.items()),
        machine="a CPU",
    )


def found_in(passage: sample.SamplePassage) -> Document:
    """A document in which all but the last entity was found."""
    entities = enumerate(passage.entities[:-1])
    found = [Entity(id=f"T{n}", label=each.label, spans=((each.start, each.end),)) for n, each in entities]
    return Document(id=passage.id, text=passage.text, entities=tuple(found))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> DemoFolders:
    """What annotation and training leave behind, as far as the page reads it."""
    made = DemoFolders(tmp_path_factory.mktemp("demo"))
    made.annotated.mkdir()
    write_part(made.annotated, 0, [found_in(each) for each in sample.load_passages(split="test")], "jsonl")
    for folder in (made.pretrained, made.tagger, made.classifier, made.student):
        log = RunLog(folder / "run", tensorboard=False)
        for step in (1, 2):
            log.write("step", step=step, loss=2.0 / step, rate=0.1)
    return made


@pytest.fixture(scope="module")
def html(folders: DemoFolders, comparison: ComparisonReport) -> str:
    steps = [
        DemoStep("1. <Distilled>", ("a line & more",), (COMMAND,), 61.0),
        DemoStep("2. Compared", ("a table",), comparison=comparison),
    ]
    return render_demo_page(folders, steps, ("alembert predict next",))


def shown() -> list[sample.SamplePassage]:
    return [each for language in ("en", "zh") for each in sample.load_passages(language, "test")[:SHOWN_DOCUMENTS]]


def test_the_page_fetches_and_runs_nothing(html: str) -> None:
    assert re.findall(r"https?:|<script|<link|<img|<iframe|@import|url\(|\b(?:src|href)=", html) == []
    check_page(html)


@pytest.mark.parametrize("passage", shown(), ids=lambda passage: passage.id)
def test_every_entity_of_a_shown_document_is_marked_with_its_label(html: str, passage: sample.SamplePassage) -> None:
    for entity in passage.entities:
        surface = escape(passage.text[entity.start : entity.end])
        assert re.search(
            rf'<mark class="\w gold[^"]*" title="right: {entity.label}[^"]*">{re.escape(surface)}<sub>{entity.label}<',
            html,
        )


def test_what_was_found_and_what_was_missed_look_different(html: str) -> None:
    marked = re.findall(r'<mark class="([^"]*)" title="right: \w+, (\w+)', html)
    assert {kind for _, kind in marked} == {"right", "missed"}
    assert all(("guess" in classes.split()) == (kind == "right") for classes, kind in marked)


def test_an_entity_has_the_colour_of_its_label(html: str) -> None:
    colours = re.findall(r'<mark class="(\w) [^"]*" title="right: (\w+)', html)
    assert set(colours) == {("a", "disease"), ("b", "chemical"), ("c", "gene")}


@pytest.mark.parametrize("name", MODELS)
def test_the_table_has_every_model(html: str, name: str) -> None:
    layers = MODELS[name]
    row = re.search(rf"<tr><td[^>]*>{name}</td>(.*?)</tr>", html)
    assert row is not None
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row[1])
    assert cells == [
        "0.4000",
        "0.3000 to 0.5000",
        f"{layers} x 96",
        f"{2 * layers}.0 MB",
        f"{20 // layers}",
        f"{2000 // layers:,}",
        f"{2 / layers:.2f}x",
    ]


def test_the_table_without_speed_has_no_column_for_it(comparison: ComparisonReport) -> None:
    models = tuple(replace(model, speed=None) for model in comparison.models)
    table = model_table(replace(comparison, models=models, machine=None))
    assert table.header == ("model", "f1", "95 % interval", "layers x width", "weights")
    assert {len(row) for row in table.rows} == {5}


def test_a_brief_table_explains_only_what_it_has(comparison: ComparisonReport) -> None:
    brief, whole = (" ".join(comparison_sentences(comparison, brief=each)) for each in (True, False))
    assert "Multiplications" not in brief
    assert "Multiplications" in whole


def test_steps_their_seconds_and_commands_can_be_read_and_copied(html: str) -> None:
    assert "1. &lt;Distilled&gt; <small>(61 s)</small>" in html
    assert "a line &amp; more" in html
    assert f">{COMMAND}</pre>" in html
    assert ">alembert predict next</pre>" in html
    assert "1 min 1 s" in html


def test_all_runs_have_their_curve(html: str) -> None:
    for name in ("Pre-training", "The tagger", "The classifier", "The student"):
        assert re.search(rf"<h3>{name}</h3>\s*<div class=\"several\">\s*<div><figure><svg", html)


def test_the_page_can_be_read_on_paper_and_in_the_dark(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    assert 'lang="zh"' in html


def test_a_step_is_plain_values_for_programs(comparison: ComparisonReport) -> None:
    table = json.loads(json.dumps(DemoStep("Compared", ("a",), seconds=2.0, comparison=comparison).to_table()))
    assert (table["title"], table["seconds"]) == ("Compared", 2.0)
    assert [row["speed"]["texts_per_second"] for row in table["comparison"]["models"]] == [10, 20, 20, 20]


def test_a_command_is_written_for_a_shell() -> None:
    assert format_command("export", Path("a b"), calibrate=Path("c.tsv"), rate=1e-3) == (
        "alembert export 'a b' --calibrate c.tsv --rate 0.001"
    )
