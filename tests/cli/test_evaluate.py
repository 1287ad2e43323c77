"""`alembert evaluate` and `alembert inspect errors` on the command line, with models that say what they are told."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.errors import BadFile
from alembert.infer.task_model import TaskModel
from alembert.tasks.example import Example
from page_checks import check_page
from scripted_models import answer, classifier, tagger, write_labelled, write_tagged

TEXT = "breast cancer and aspirin"
DOCUMENTS: dict[str, Any] = {
    "1": (TEXT, [(0, 13, "Disease"), (18, 25, "Drug")]),
    "2": ("aspirin helps", [(0, 7, "Drug")]),
}
GUESSES: dict[str, Any] = {
    "1": [(7, 13, "Disease", 0.9), (18, 25, "Drug", 0.8)],
    "2": [(0, 7, "Drug", 0.7)],
}
KEY = Example(id="2", texts=("aspirin helps",)).key
MODELS = {
    "ner": tagger(GUESSES, known={}, keys=frozenset({KEY})),
    "old": tagger({"1": [], "2": []}, folder=Path("old")),
    "cls": classifier({"1": answer("yes", 0.9), "2": answer("no", 0.8), "3": answer("yes", 0.6)}),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(_: Any, folder: Any, device: str = "cpu", task: str | None = None) -> TaskModel:
        if Path(folder).name not in MODELS:
            raise BadFile(f"There is no folder {folder}.")
        return MODELS[Path(folder).name]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TaskModel, "open", classmethod(opened))
    write_tagged(Path("test.jsonl"), DOCUMENTS)
    write_tagged(Path("empty.jsonl"), {})
    rows = {"1": ("breast", "yes"), "2": ("cancer", "no"), "3": ("aspirin", "no")}
    write_labelled(Path("labels.jsonl"), rows)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(arguments: str) -> tuple[int, str, str]:
        code = run(arguments.split())
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_types_that_a_file_annotates_can_be_said(command: Any) -> None:
    code, out, told = command("evaluate ner test.jsonl --set read.types=test.jsonl=Drug --set run.bootstrap_samples=1")
    assert code == 0
    assert "f1 1.0000" in out
    assert "In 2 of 2 examples only Drug counts" in out
    assert "test.jsonl: entities of other types than Drug were left out: Disease" in told
    assert (
        "In 2 of 2 examples only Drug counts"
        in command("inspect errors --why 0 ner test.jsonl --set read.types=Drug")[1]
    )


def test_scores_are_printed_with_interval_labels_and_coverage(command: Any) -> None:
    code, out, _ = command("evaluate ner test.jsonl --set run.bootstrap_samples=50")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "ner, task tag, on test.jsonl"
    assert lines[1].startswith("f1 0.6667, 95 % interval ")
    assert "Disease     0.0000  0.0000  0.0000        1        1" in lines
    assert {"partial_f1", "borders_f1", "overlap_f1"} <= {line.split(" ")[0] for line in lines}
    assert "Coverage: 38 characters read as 12 tokens in 2 windows; 0 of 2 examples needed several windows" in out


def test_overlap_with_training_is_a_warning(command: Any) -> None:
    _, out, err = command("evaluate ner test.jsonl --set run.bootstrap_samples=5")
    sentence = "1 of the 2 examples have a text that the model was trained on; without them f1 is 0.5000."
    assert sentence in out
    assert f"note: {sentence}" in err


def test_json_is_one_object_and_nothing_else(command: Any) -> None:
    code, out, _ = command("evaluate ner test.jsonl --set run.bootstrap_samples=5 --against old --json")
    record = json.loads(out)
    assert (code, record["task"], record["seen"]["count"]) == (0, "tag", 1)
    assert record["against"]["difference"] == pytest.approx(2 / 3)


def test_a_comparison_is_told(command: Any) -> None:
    _, out, _ = command("evaluate ner test.jsonl --set run.bootstrap_samples=5 --against old")
    assert "Against old: f1 differs by +0.6667, 95 % interval " in out


def test_a_comparison_shows_score_size_and_speed_side_by_side(command: Any) -> None:
    code, out, _ = command("evaluate ner test.jsonl --set run.bootstrap_samples=5 --against old")
    lines = out[out.index("Score, size and speed") :].splitlines()
    assert code == 0
    assert lines[1].split() == ["ner", "old"]
    names = {line[:17].strip() for line in lines[2:13]}
    assert {"f1", "95 % interval", "share kept", "parameters", "texts a second", "speed-up"} <= names
    assert "measured on this machine" in out


def test_speed_can_be_left_out(command: Any) -> None:
    _, out, _ = command(
        "evaluate ner test.jsonl --set run.bootstrap_samples=5 --against old --set run.speed=false --json"
    )
    compared = json.loads(out)["comparison"]
    assert (compared["machine"], [model["speed"] for model in compared["models"]]) == (None, [None, None])


def test_several_models_are_compared_with_the_first_of_them(command: Any) -> None:
    code, out, _ = command(
        "evaluate ner test.jsonl --set run.bootstrap_samples=5 --against ner --against old --set run.speed=false --json"
    )
    compared = json.loads(out)["comparison"]
    assert (code, compared["reference"]) == (0, "ner")
    assert [model["name"] for model in compared["models"]] == ["ner", "ner", "old"]
    assert [model["kept"] for model in compared["models"]] == [1.0, 1.0, 0.0]


def test_without_another_model_there_is_no_comparison(command: Any) -> None:
    _, out, _ = command("evaluate ner test.jsonl --set run.bootstrap_samples=5 --json")
    assert "comparison" not in json.loads(out)


def test_the_report_has_the_comparison(command: Any) -> None:
    command("evaluate ner test.jsonl --set run.bootstrap_samples=5 --against old --report report.html")
    html = Path("report.html").read_text(encoding="utf8")
    assert "<h2>Score, size and speed</h2>" in html
    assert "f1 against speed" in html


@pytest.mark.parametrize("arguments", ["ner test.jsonl --against old", "cls labels.jsonl"])
def test_the_report_is_one_page(arguments: str, command: Any) -> None:
    code, _, err = command(f"evaluate {arguments} --set run.bootstrap_samples=5 --report out/report.html")
    html = Path("out/report.html").read_text(encoding="utf8")
    assert (code, "the page is out/report.html" in err) == (0, True)
    assert html.startswith("<!doctype html>")
    assert html.index("<svg") < html.index("<table")
    check_page(html)
    assert ("Confusion" in html) == ("cls" in arguments)
    assert "http" not in html


@pytest.mark.parametrize("verb", ["evaluate", "inspect errors --why 0"])
def test_rows_that_are_set_aside_are_named_and_exit_code_3(verb: str, command: Any) -> None:
    file = Path("test.jsonl")
    file.write_text(f"{file.read_text()}not JSON\n")
    code, out, err = command(f"{verb} ner test.jsonl")
    assert (code, bool(out)) == (3, True)
    assert "test.jsonl, line 3 set aside: " in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("evaluate nowhere test.jsonl", "There is no folder nowhere"),
        ("evaluate ner nowhere.jsonl", "The input nowhere.jsonl"),
        ("evaluate ner empty.jsonl", "has no example that can be scored"),
        ("evaluate ner test.jsonl --against cls", "only models for the same task"),
        ("evaluate ner test.jsonl --part test", "has no split"),
        ("evaluate ner test.jsonl --set run.bootstrap_samples=0", "`bootstrap_samples` is 0"),
        ("evaluate ner test.jsonl --report .", "The page cannot be written"),
        ("evaluate ner", "Missing"),
        ("inspect errors ner empty.jsonl", "has no example that can be scored"),
        ("inspect errors ner test.jsonl --top -1", "--top"),
        ("inspect errors ner test.jsonl --html .", "The page cannot be written"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_2(arguments: str, sentence: str, command: Any) -> None:
    code, out, err = command(arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert "cancer" not in err


def test_errors_are_shown_with_brackets(command: Any) -> None:
    code, out, _ = command("inspect errors --why 0 ner test.jsonl")
    assert code == 0
    assert "1 with errors, 1 in all" in out
    assert "boundary      1  the type is right, the borders are not" in out
    assert "[breast {cancer]}Disease and [{aspirin]}Drug" in out
    assert "\x1b" not in out


def test_colours_need_a_terminal_and_yield_to_no_color(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, coloured, _ = command("inspect errors --why 0 ner test.jsonl")
    assert "\x1b[31m[breast \x1b[0m\x1b[32m{cancer]}Disease" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    _, plain, _ = command("inspect errors --why 0 ner test.jsonl")
    assert "\x1b[3" not in plain


def test_errors_as_json_and_page(command: Any) -> None:
    code, out, _ = command("inspect errors --why 0 ner test.jsonl --json --html page.html --top 1")
    record = json.loads(out)
    assert (code, len(record["worst"]), record["examples"]) == (0, 1, 2)
    assert Path("page.html").read_text(encoding="utf8").startswith("<!doctype html>")


def test_control_characters_of_a_text_are_not_obeyed(command: Any) -> None:
    write_tagged(Path("test.jsonl"), {"9": ("cancer \x1b[2J aspirin", [(0, 6, "Disease")])})
    _, out, _ = command("inspect errors --why 0 ner test.jsonl")
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_errors_of_a_classifier(command: Any) -> None:
    _, out, _ = command("inspect errors --why 0 cls labels.jsonl")
    assert "1 of 3 answers are wrong" in out
    assert "right: no; guessed: yes (0.60)" in out


def test_examples_come_from_folders_patterns_and_standard_input(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("corpus/deep").mkdir(parents=True)
    write_tagged(Path("corpus/deep/some.jsonl"), {"1": DOCUMENTS["1"]})
    write_tagged(Path("corpus/others.jsonl"), {name: DOCUMENTS[name] for name in DOCUMENTS if name != "1"})
    _, expected, said = command("evaluate ner test.jsonl --set run.bootstrap_samples=1")
    for inputs in ("corpus", "corpus/**/*.jsonl", "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("test.jsonl").read_bytes())))
        code, out, told = command(f"evaluate ner {inputs} --set run.bootstrap_samples=1")
        assert (code, told) == (0, said)
        assert out.splitlines()[1:] == expected.splitlines()[1:]
