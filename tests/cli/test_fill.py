"""`alembert fill`: what it prints, and a sentence for each thing that can be wrong."""

import io
import json
from pathlib import Path

import pytest

from alembert.cli import run
from small_checkpoints import language_model


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    return language_model(tmp_path_factory.mktemp("fill") / "masked", "bidirectional")


def test_every_mask_of_every_text_has_its_candidates(masked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fill", masked, "床[MASK]月[MASK]", "[MASK]", "--top", "2", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == ["床[MASK]月[MASK]", "[MASK]"]
    assert [(mask["start"], mask["end"]) for mask in records[0]["masks"]] == [(1, 7), (8, 14)]
    for mask in (mask for record in records for mask in record["masks"]):
        assert mask["candidates"][0]["token"] == "光"
        assert len(mask["candidates"]) == 2


def test_people_see_probabilities(masked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fill", masked, "床[MASK]"]) == 0
    text, place, *candidates = capsys.readouterr().out.splitlines()
    assert (text, place, len(candidates)) == ("床[MASK]", "  characters 1-7", 5)
    assert candidates[0].endswith("%  光")


def test_lines_without_a_mask_are_set_aside(
    masked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("[MASK]\n床前\n\n".encode())))
    assert run(["fill", masked, "--json"]) == 3
    out, err = capsys.readouterr()
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["[MASK]"]
    assert "line 2 set aside: The text has no [MASK]" in err


@pytest.mark.parametrize("command", ["fill", "generate", "score"])
def test_nothing_on_stdin_is_a_sentence(
    command: str, masked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = masked if command != "generate" else language_model(Path(masked).parent / "causal", "causal")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert run([command, folder]) == 2
    assert "There is no text" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fill", "generate", "score"])
def test_a_text_that_is_the_path_of_a_file_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a [MASK]\n")
    assert run([command, "nowhere", "a b", str(tmp_path / "texts.txt")]) == 2
    assert f"texts.txt is a file, and texts were expected. To read its lines: alembert {command} MODEL <" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["fill", "generate", "score"])
def test_models_of_the_hub_are_fetched(
    command: str, masked: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def fetch(where: str, **_: object) -> Path:
        fetched.append(where)
        return Path(masked)

    monkeypatch.setattr("alembert.hub.fetch_from_hub", fetch)
    run([command, "hub:some/model", "床[MASK]"])
    assert fetched == ["hub:some/model"]
