"""Models that ship with the package: whole, found by name, and useful."""

import json
import re
from pathlib import Path

import pytest

import alembert
from alembert import artifact
from alembert.cli import run
from alembert.errors import BadFile
from alembert.models import find_shipped_model, list_models

SHIPPED = {model.name: model for model in list_models()}
LARGEST = {"bio": 12_000_000, "bio-fast": 4_000_000}
TEXT = "Imatinib inhibits BCR-ABL in chronic myeloid leukemia."


def test_two_models_ship() -> None:
    assert SHIPPED.keys() == LARGEST.keys()


@pytest.mark.parametrize("name", LARGEST)
def test_a_shipped_model_is_whole_and_small(name: str) -> None:
    model = SHIPPED[name]
    manifest = artifact.verify(model.folder)
    assert {file.name for file in model.folder.iterdir()} == {*manifest.files, "manifest.json"}
    assert model.size <= LARGEST[name]


@pytest.mark.parametrize("name", LARGEST)
def test_a_shipped_model_finds_what_its_card_says(name: str) -> None:
    entities = alembert.load(name).predict(TEXT).entities
    found = {(entity.text, entity.label) for entity in entities}
    assert {("Imatinib", "Chemical"), ("chronic myeloid leukemia", "Disease")} <= found
    assert {entity.label for entity in entities} <= set(SHIPPED[name].card["types"])
    assert all(TEXT[entity.start : entity.end] == entity.text for entity in entities)


@pytest.mark.parametrize("name", LARGEST)
def test_a_card_shows_every_score_and_source(name: str) -> None:
    model = SHIPPED[name]
    assert {score["data"] for score in model.card["scores"]} == {"NCBI-disease", "BC5CDR", "BC2GM"}
    for score in model.card["scores"]:
        assert score["interval"][0] <= score["f1"] <= score["interval"][1]
        assert f"| {score['data']} |" in model.text
    assert all(source["name"] in model.text for source in model.card["sources"])


@pytest.mark.parametrize("name", LARGEST)
def test_the_folder_tells_nothing_about_where_it_was_made(name: str) -> None:
    for file in SHIPPED[name].folder.iterdir():
        if file.suffix in (".json", ".md"):
            assert not re.search(r"/(work|root|home|tmp)/", file.read_text(encoding="utf8"))


@pytest.mark.parametrize("name", LARGEST)
def test_thresholds_of_precision_come_with_it(name: str) -> None:
    model = alembert.load(name)
    every, sure = (model.predict(TEXT, min_precision=share) for share in (0.0, 0.95))
    assert len(sure.entities) + sure.coverage.withheld == len(every.entities)


def test_the_names_are_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_shipped_model("bio") == SHIPPED["bio"].folder
    assert find_shipped_model("biology") is None
    assert find_shipped_model("./bio") is None
    assert find_shipped_model(tmp_path / "bio") is None


def test_a_folder_of_the_user_has_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bio").mkdir()
    assert find_shipped_model("bio") is None
    with pytest.raises(BadFile, match="bio"):
        alembert.load("bio")


def test_a_shipped_model_is_no_checkpoint() -> None:
    with pytest.raises(BadFile, match="Export"):
        alembert.open("bio")


def test_the_list_names_types_scores_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "--no-speed"]) == 0
    shown = capsys.readouterr().out
    for model in SHIPPED.values():
        (line,) = (line for line in shown.splitlines() if re.match(rf"{model.name}  ", line))
        assert "Chemical, Disease, Gene" in line
        assert f"{model.size / 1e6:.1f}" in line


def test_a_card_is_printed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "bio"]) == 0
    assert capsys.readouterr().out == SHIPPED["bio"].text


def test_json_has_the_speed_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "bio-fast", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["words_per_second"] > 0
    assert table["scores"] == SHIPPED["bio-fast"].card["scores"]


def test_an_unknown_name_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "clinic"]) == 2
    assert "expected one of: bio, bio-fast" in capsys.readouterr().err
