"""`alembert inspect tokens`: data on stdout, safe for terminals, one sentence for a bad model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alembert.cli.inspect import app
from alembert.errors import BadFile, BadInput
from alembert.text.vocabulary import Vocabulary

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "br", "##af", "-", "mutant", "咳")


@pytest.fixture
def model(tmp_path: Path) -> str:
    Vocabulary.from_pieces(*PIECES).save(tmp_path / "vocab.txt")
    return str(tmp_path)


def run(*arguments: str, stdin: bytes | None = None) -> str:
    result = CliRunner().invoke(app, ["tokens", *arguments], input=stdin, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_words_are_shown_with_pieces_ids_and_offsets(model: str) -> None:
    lines = run(model, "BRAF-mutant melanoma").splitlines()
    assert lines[0].split(maxsplit=2) == ["0-4", "BRAF", "br(5, 0-2) ##af(6, 2-4) split in 2"]
    assert lines[3].endswith("[UNK](1, 12-20) unknown")


def test_the_last_line_is_the_summary(model: str) -> None:
    assert run(model, "BRAF-mutant").splitlines()[-1] == (
        "11 characters, 3 words, 4 pieces, 1.33 pieces per word, 1 split, 0 unknown, "
        "coverage 100.0% (0 characters in no known piece)"
    )


def test_json_holds_words_and_summary(model: str) -> None:
    report = json.loads(run(model, "BRAF", "--json"))
    assert report["summary"]["pieces"] == 2
    assert report["words"][0]["pieces"][1] == {"text": "##af", "id": 6, "start": 2, "end": 4}


def test_a_dash_reads_stdin(model: str) -> None:
    assert json.loads(run(model, "-", "--json", stdin="咳 \n".encode()))["summary"]["characters"] == 3


def test_stdin_must_be_utf8(model: str) -> None:
    with pytest.raises(BadInput, match="byte 0xff at 2"):
        run(model, "-", stdin=b"br\xff")


def test_what_a_terminal_would_obey_is_escaped(model: str) -> None:
    output = run(model, "x\x1b\u202ey \ud83d")
    assert "\x1b" not in output
    assert r"x\x1b\u202ey" in output
    assert "1 unpaired surrogates" in output


def test_a_surrogate_can_be_printed_as_json(model: str) -> None:
    assert json.loads(run(model, "x\ud83dy", "--json"))["words"][0]["surface"] == "x\ud83dy"


def test_markup_in_the_text_is_text(model: str) -> None:
    assert "[MASK](4, 0-6)" in run(model, "[MASK] [bold]")


def test_a_long_word_is_shortened(model: str) -> None:
    assert len(run(model, "a" * 100_000).splitlines()[0]) < 120


def test_case_can_be_overruled(model: str) -> None:
    assert json.loads(run(model, "BRAF", "--cased", "--json"))["summary"]["unknown_words"] == 1


def test_colours_need_a_terminal_and_yield_to_no_color(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in run(model, "BRAF")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[36mbr" in run(model, "BRAF")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in run(model, "BRAF")


def test_a_bad_model_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="does not exist"):
        run(str(tmp_path / "absent"), "text")


def abbreviations(*arguments: str, stdin: str | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["abbreviations", *arguments], input=stdin, catch_exceptions=False)
    assert result.exit_code == code
    return result.stdout


def test_abbreviations_of_a_text_are_listed() -> None:
    text = "acute lymphoblastic leukemia (ALL)"
    expected = "text  30-33  ALL  0-28  acute lymphoblastic leukemia\n"
    assert abbreviations(text) == abbreviations("-", stdin=text) == expected
    assert abbreviations("x" * 5000) == ""


def test_abbreviations_of_documents_are_listed_as_json(tmp_path: Path) -> None:
    lines = [{"id": "a", "text": "tumour necrosis factor (TNF)"}, {"id": "b", "text": "none"}]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "{\n")
    first, second = map(json.loads, abbreviations(str(tmp_path / "in.jsonl"), "--json", code=3).splitlines())
    assert first["id"] == "a"
    assert first["abbreviations"] == [
        {
            "short": {"start": 24, "end": 27, "text": "TNF"},
            "long": {"start": 0, "end": 22, "text": "tumour necrosis factor"},
        }
    ]
    assert second == {"id": "b", "abbreviations": []}
