"""`alembert inspect masks` from end to end on the embedded sample, and a sentence for each thing that can be wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alembert import sample
from alembert.cli import run
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    passages = sample.load_passages()
    lines = [json.dumps({"id": passage.id, "text": passage.text}) for passage in passages]
    (folder / "notes.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "one.jsonl").write_text(lines[0] + "\n")
    (folder / "empty.jsonl").write_text('{"id": "1", "text": " "}\n')
    genes = {p.text[e.start : e.end] for p in passages for e in p.entities if e.label == "gene"}
    (folder / "gene.txt").write_text("\n".join(sorted(genes)) + "\n")
    (folder / "bad.toml").write_text("[masks]\nrat = 0.2\n")
    (folder / "often.toml").write_text("[masks]\nrate = 0.4\n")
    marks = sorted({mark for passage in passages for mark in passage.text.lower() if not mark.isspace()})
    pieces = (*SpecialTokens().roles().values(), *marks, *(f"##{mark}" for mark in marks))
    Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True).save(folder / "vocab")
    arguments = ["--lexicon", f"gene={folder}/gene.txt", "--out", str(folder / "corpus"), "--set", "run.workers=1"]
    assert run(["corpus", "build", str(folder / "notes.jsonl"), *arguments]) == 0
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(arguments: str) -> str:
        assert run(["inspect", "masks", *arguments.split()]) == 0
        return capsys.readouterr().out

    return command


def test_sequences_and_counts_are_shown(show: Any) -> None:
    told = show("corpus --model vocab --unit entity --count 3")
    assert told.startswith("All 200 documents, in the order of a run with seed 1. Held out as in that run")
    assert [line[:2] for line in told.splitlines() if re.match(r"\d\. document", line)] == ["1.", "2.", "3."]
    assert "[masked] [replaced>other] [=kept] {entity}" in told
    assert "partly 0.0%" in told


def test_documents_that_are_not_shown_are_counted(show: Any) -> None:
    Path("some.jsonl").write_text("".join(f'{{"id": "{n}", "text": "aspirin {n}"}}\n' for n in range(40)))
    told = show("some.jsonl --model vocab --count 40")
    assert told.count("document ") == 39
    assert "Held out as in that run and not masked: 1.\n" in told


def test_a_vocabulary_file_is_enough(show: Any) -> None:
    assert "100.0% of them whole" in show("corpus --model vocab/vocab.txt --unit word")


def test_pairs_are_shown_with_their_label(show: Any) -> None:
    told = show("corpus --model vocab --recipe bert-original --count 4")
    assert told.count("\nA: ") == told.count("\nB: ") == 4
    assert len(re.findall(r"to predict; B (?:follows A|is random)\n", told)) == 4


def test_json_holds_sample_plan_counts_and_sequences(show: Any) -> None:
    record = json.loads(show("corpus --model vocab --count 2 --set seed=4 --set sequences.max_length=64 --json"))
    assert list(record) == ["sample", "plan", "statistics", "sequences"]
    assert record["sample"] == {
        "documents": 200,
        "of": 200,
        "whole": True,
        "held_out": 1,
        "without_tokens": 0,
    }
    assert (record["plan"]["seed"], record["plan"]["cutting"]["length"]) == (4, 64)
    assert record["statistics"]["lengths"]["max"] <= 64
    assert set(record["statistics"]["shares"]) >= {"chosen", "masked", "replaced", "kept", "entities_whole"}
    first = record["sequences"][0]["pieces"][0]
    assert first == {
        "text": "[CLS]",
        "seen": "[CLS]",
        "mark": None,
        "unit": None,
        "word": False,
        "entity": None,
        "segment": 0,
        "special": True,
    }
    assert len(record["sequences"]) == 2


def test_raw_files_leave_no_file_behind(show: Any, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    assert "All 200 documents" in show("notes.jsonl --model vocab")
    assert sorted(folder.rglob("*")) == before


def test_a_large_corpus_is_sampled(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alembert.corpus.excerpt.ExcerptLimit.is_reached", lambda _, documents, __: documents >= 30)
    assert show("corpus --model vocab").startswith("A sample: the first 30 of 200 documents")
    assert show("notes.jsonl --model vocab").startswith("A sample: the first 30 documents")


def test_a_settings_file_counts(show: Any) -> None:
    record = json.loads(show("corpus --model vocab --config often.toml --count 0 --json"))
    assert record["statistics"]["shares"]["chosen"] == pytest.approx(0.4, abs=0.02)


def test_another_seed_masks_otherwise(show: Any) -> None:
    same = [show(f"corpus --model vocab --set seed={seed}") for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_colours_need_a_terminal_and_yield_to_no_color(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = show("corpus --model vocab --unit entity")
    assert "\x1b[37;41m" in coloured
    assert "\x1b[4m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    plain = show("corpus --model vocab --unit entity")
    assert "41m" not in plain
    assert "{" in plain


def test_the_page_is_written(show: Any) -> None:
    show("corpus --model vocab --html page.html")
    assert Path("page.html").read_text(encoding="utf8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("nowhere --model vocab", "The input nowhere does not exist"),
        ("corpus notes.jsonl --model vocab", "Give one Corpus, or raw files alone"),
        ("corpus --model nowhere", "nowhere does not exist"),
        ("corpus --model vocab --unit sentence", "'sentence'"),
        ("corpus --model vocab --recipe biobort", "There is no recipe 'biobort'"),
        ("corpus --model vocab --recipe causal-poet", "nothing is masked"),
        ("corpus --model vocab --config bad.toml", "rat"),
        ("corpus --model vocab --set run.dictionary=nowhere.txt", "nowhere.txt"),
        ("corpus --model vocab --set sequences.max_length=2", "at least 8"),
        ("corpus --model vocab --count -1", "--count"),
        ("corpus --model vocab --html vocab", "The page cannot be written to vocab"),
        ("notes.jsonl --model vocab --unit entity", "has no entities"),
        ("notes.jsonl --model vocab --recipe biobert", "has no entities"),
        ("one.jsonl --model vocab --recipe bert-original", "the corpus has 1 document(s)"),
        ("empty.jsonl --model vocab", "has no documents"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "masks", *arguments.split()]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert sentence in told.err


def test_records_that_cannot_be_read_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [*Path("notes.jsonl").read_text().splitlines()[:5], '{"id": "bad"}']
    (tmp_path / "some.jsonl").write_text("\n".join(lines) + "\n")
    assert run(["inspect", "masks", str(tmp_path / "some.jsonl"), "--model", "vocab"]) == 0
    assert "note: 1 records could not be read" in capsys.readouterr().err


def test_no_torch_is_loaded() -> None:
    check = (
        "import sys; from alembert.cli import run; "
        "assert run(['inspect', 'masks', 'corpus', '--model', 'vocab']) == 0; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, timeout=300)
