"""`alembert inspect attention`, `neighbours` and `runs`: data on stdout, pages and pictures in files, one sentence for bad input."""

import json
from pathlib import Path

import pytest

from alembert.cli import options as module
from alembert.cli import run
from page_checks import check_page
from small_checkpoints import fine_tuned, language_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    fine_tuned("tag", folder / "tagger", folder / "examples.jsonl")
    language_model(folder / "poet", "bidirectional")
    (folder / "terms.txt").write_text("月光\n明月\n")
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


Captured = pytest.CaptureFixture[str]


def test_attention_of_all_heads_is_a_table(capsys: Captured) -> None:
    assert run(["inspect", "attention", "tagger", "aspirin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("2 layers with 2 heads each")
    assert [line.split("  ")[0] for line in lines[1:4]] == ["head", "layer 1", "layer 2"]


def test_attention_of_a_head_lists_what_each_token_looks_at(capsys: Captured) -> None:
    assert run(["inspect", "attention", "poet", "床前", "--layer", "1", "--head", "2"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == ["[CLS]", "床", "前", "[SEP]"]


def test_attention_as_json_has_the_weights_of_a_chosen_head(capsys: Captured) -> None:
    assert run(["inspect", "attention", "poet", "床前", "--pair", "光", "--layer", "1", "--head", "2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["segments"] == [0, 0, 0, 0, 1, 1]
    (head,) = record["attention"]
    assert [sum(row) for row in head["weights"]] == pytest.approx([1] * 6, abs=1e-5)


@pytest.mark.parametrize(
    "arguments", [["attention", "tagger", "aspirin"], ["neighbours", "tagger", "a"]], ids=lambda a: a[0]
)
def test_pages_and_pictures_are_written(arguments: list[str], tmp_path: Path) -> None:
    for name in ("page.html", "picture.svg"):
        assert run(["inspect", *arguments, "--out", str(tmp_path / "new" / name)]) == 0
    check_page((tmp_path / "new/page.html").read_text(encoding="utf8"), may_run=arguments[0] == "attention")
    assert (tmp_path / "new/picture.svg").read_bytes().startswith(b"<svg xmlns=")


def test_a_png_is_drawn_with_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert run(["inspect", "attention", "tagger", "aspirin", "--out", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(module, "is_installed", lambda _: False)
    capsys.readouterr()
    assert run(["inspect", "attention", "tagger", "aspirin", "--out", str(tmp_path / "b.png")]) == 2
    assert "choose a name in .svg" in capsys.readouterr().err


def test_letters_that_a_png_cannot_show_are_an_error(tmp_path: Path, capsys: Captured) -> None:
    assert run(["inspect", "neighbours", "poet", "床", "--out", str(tmp_path / "a.png")]) == 2
    assert "The font of PNG pictures has no letters" in capsys.readouterr().err


def test_neighbours_of_two_models_are_side_by_side(capsys: Captured) -> None:
    arguments = ["neighbours", "poet", "床", "--against", "poet", "--lexicon", "terms.txt", "--json"]
    assert run(["inspect", *arguments]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["against"]["terms"] == record["terms"]
    assert len(record["terms"]) == 2


def test_a_word_in_pieces_is_noted(capsys: Captured) -> None:
    assert run(["inspect", "neighbours", "poet", "床前"]) == 0
    assert "read as 床 前" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["attention", "tagger", "x", "--layer", "3"], "The layer is 3; expected 1 to 2"),
        (["attention", "tagger", "x", "--layer", "1", "--head", "0"], "The head is 0; expected 1 to 2"),
        (["attention", "tagger", "x", "--head", "1"], "no layer was named"),
        (["attention", "tagger", "x", "--out", "a.pdf"], "expected a name that ends in .html, .svg, .png"),
        (["attention", "bio", "x"], "is an Export, whose graph returns answers and no attention"),
        (["attention", "tagger", " "], "empty or blank"),
        (["neighbours", "bio", "x"], "is an Export, which has no embeddings of tokens"),
        (["neighbours", "poet", "x"], "has no piece that the vocabulary knows"),
        (["neighbours", "poet", "床", "--lexicon", "nowhere.tsv"], "nowhere.tsv"),
        (["runs", "poet/nowhere"], "There is no folder poet/nowhere"),
        (["runs", "poet"], "There is no run below poet"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, capsys: Captured) -> None:
    assert run(["inspect", *arguments]) == 2
    shown, notes = capsys.readouterr()
    assert shown == ""
    assert sentence in notes
    assert notes.count("\n") == 1
