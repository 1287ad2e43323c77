"""The demo's page, its table and its commands, made of folders that no model was trained for."""

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from alembert import sample
from alembert.corpus.document import Document, Entity, Section
from alembert.demo import DemoFolders, DemoStep, abstracts, format_command
from alembert.demo.abstracts import AbstractsReport, annotate_abstracts
from alembert.demo.page import OPEN_ABSTRACTS, SHOWN_DOCUMENTS, render_abstracts, render_demo_page
from alembert.infer.annotate_chunks import write_part
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.engines import ModelSize
from alembert.infer.speed import Speed
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.reports import comparison_sentences, model_table
from alembert.models import ShippedModel
from alembert.tasks.metrics import Interval
from alembert.train.runlog import RunLog
from finding_models import finder
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


def annotated_abstract(abstract: sample.SampleAbstract) -> Document:
    """An abstract in which its abbreviations were found, with scores from 0.5 up."""
    text = f"{abstract.title}\n{abstract.text}"
    places = list(re.finditer(r"\b[A-Z0-9]{3,}\b", text))
    found = [
        Entity(f"T{n}", ("Gene", "Disease")[n % 2], (place.span(),), attributes=(("score", f"{0.5 + n % 5 / 10:.2f}"),))
        for n, place in enumerate(places)
    ]
    return Document(abstract.id, text, (Section(0, len(abstract.title), "title"),), tuple(found))


@pytest.fixture(scope="module")
def report() -> AbstractsReport:
    return AbstractsReport("bio", tuple(map(annotated_abstract, sample.load_abstracts())), 1234.5)


@pytest.fixture(scope="module")
def html(folders: DemoFolders, comparison: ComparisonReport, report: AbstractsReport) -> str:
    steps = [
        DemoStep("0. Annotated", ("a line of the terminal",), ("alembert annotate bio",), abstracts=report),
        DemoStep("1. <Distilled>", ("a line & more",), (COMMAND,), 61.0),
        DemoStep("2. Compared", ("a table",), comparison=comparison),
    ]
    return render_demo_page(folders, steps, ("alembert predict next",))


def shown() -> list[sample.SamplePassage]:
    return [each for language in ("en", "zh") for each in sample.load_passages(language, "test")[:SHOWN_DOCUMENTS]]


def test_the_page_fetches_and_runs_nothing(html: str) -> None:
    assert re.findall(r"https?:|<script|<link|<img|<iframe|@import|url\(|\bsrc=", html) == []
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


def test_every_abstract_is_on_the_page_and_the_first_are_open(html: str) -> None:
    assert html.count("<details open>") == OPEN_ABSTRACTS
    assert html.count("<details") == len(sample.load_abstracts())
    shown = re.sub(r"<small>.*?</small>|<[^>]*>", "", html)
    for abstract in sample.load_abstracts():
        assert escape(abstract.title) in shown
        assert escape(abstract.text) in shown


def test_an_entity_of_an_abstract_says_its_type_and_how_sure_the_model_is(html: str) -> None:
    small = '<small>Gene<span class="spoken"> 0.50</span></small>'
    assert f'<mark class="c unsure" title="Gene (0.50)">EGFR{small}</mark>' in html
    assert len(set(re.findall(r'<mark class="\w (sure|likely|unsure)" title="(?:Gene|Disease) \(', html))) == 3


def test_the_counts_of_the_abstracts_are_those_of_their_entities(report: AbstractsReport) -> None:
    page = "".join(section.html() for section in render_abstracts(report))
    assert report.labels == ("Disease", "Chemical", "Gene")
    for label in report.labels:
        names = report.count_names(label)
        row = re.search(rf'<td class="words">{label}</td><td>(\d+)</td><td>(\d+)</td>', page)
        assert row is not None
        assert (int(row[1]), int(row[2])) == (len(report.entities(label)), len(names))
        assert names.total() == len(report.entities(label))
        assert f"<title>{label}, mentions: {names.total()}</title>" in page
    assert f"<b>{len(report.entities()):,}</b>entities" in page


def test_forms_of_a_name_count_together_and_on_one_line() -> None:
    text = "Asthma or asthma or asthma or breast\ncancer"
    spans = ((0, 6), (10, 16), (20, 26), (30, 43))
    entities = tuple(Entity(f"T{n}", "Disease", (span,)) for n, span in enumerate(spans))
    report = AbstractsReport("bio", (Document("1", text, entities=entities),), 1.0)
    assert report.count_names("Disease") == {"asthma": 3, "breast cancer": 1}


def test_the_summary_speaks_of_both_parts(html: str, folders: DemoFolders, comparison: ComparisonReport) -> None:
    assert "the model bio annotated 20 abstracts" in html
    without = render_demo_page(folders, [DemoStep("Compared", (), comparison=comparison)], ())
    check_page(without)
    assert "models of the chain are tiny" in without
    assert "abstracts" not in re.sub(r"<style>.*?</style>", "", without, flags=re.DOTALL)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipped model that finds words by a pattern."""
    monkeypatch.setattr(abstracts, "find_model", lambda: ShippedModel("bio", tmp_path / "bio"))
    monkeypatch.setattr(Pipeline, "open", lambda folders: Pipeline.from_models([finder(*folders)]))


@pytest.mark.usefixtures("shipped")
def test_the_first_step_annotates_the_abstracts(tmp_path: Path) -> None:
    out = DemoFolders(tmp_path / "demo")
    out.out.mkdir()
    step = annotate_abstracts(out)
    assert step.abstracts is not None
    texts = [f"{each.title}\n{each.text}" for each in sample.load_abstracts()]
    assert [document.text for document in step.abstracts.documents] == texts
    assert step.commands == (f"alembert annotate bio {out.abstracts} --out {out.abstracts_annotated} --overwrite",)
    lines = "\n".join(step.lines)
    assert "3,090 words" in lines
    assert re.search(
        r"words per second on this machine\nDisease: \d+ mentions of \d+ names, most frequent: cancer \d", lines
    )
    assert re.search(r"abstract-01, the first entities: .*\((?:Sign|Disease|Drug) 0\.75\)", lines)
    table = json.loads(json.dumps(step.to_table()))["abstracts"]
    assert (table["documents"], table["words"]) == (20, 3090)
    assert table["entities"]["Disease"] == table["most_frequent"]["Disease"]["cancer"]


@pytest.mark.usefixtures("shipped")
def test_abstracts_that_are_annotated_already_are_shown_again(tmp_path: Path) -> None:
    first, second = (annotate_abstracts(DemoFolders(tmp_path)).abstracts for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.documents == first.documents
    assert second.words_per_second > 0


def test_without_a_shipped_model_the_first_step_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abstracts, "list_models", list)
    step = annotate_abstracts(DemoFolders(tmp_path))
    assert (step.abstracts, step.commands) == (None, ())
    assert step.lines[0].startswith("skipped: this package has no model `bio`")
    assert (tmp_path / "abstracts.jsonl").is_file()
    assert not (tmp_path / "abstracts-annotated").exists()


def test_steps_their_seconds_and_commands_can_be_read_and_copied(html: str) -> None:
    assert "1. &lt;Distilled&gt; <small>(61 s)</small>" in html
    assert "a line &amp; more" in html
    assert f">{COMMAND}</pre>" in html
    assert ">alembert predict next</pre>" in html
    assert "1\u00a0min 1\u00a0s" in html


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
