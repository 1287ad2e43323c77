"""`alembert vocab` from end to end on the embedded sample, and a sentence for each thing that can be wrong."""

import json
from pathlib import Path

import pytest

from alembert import sample
from alembert.cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab")
    passages = sample.load_passages("en")
    texts = [json.dumps({"id": passage.id, "text": passage.text}) for passage in passages]
    (folder / "notes.jsonl").write_text("\n".join(texts) + "\n")
    for label in sample.LABELS:
        found = {p.text[e.start : e.end] for p in passages for e in p.entities if e.label == label}
        (folder / f"{label}.txt").write_text("\n".join(sorted(found)) + "\n")
    (folder / "empty.txt").write_text("")
    (folder / "blank.jsonl").write_text('{"id": "1", "text": " "}\n')
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def learnt(folder: Path) -> Path:
    out = folder / "learnt"
    assert run(["vocab", "learn", str(folder / "notes.jsonl"), "--size", "900", "--out", str(out)]) == 0
    return out


def test_learn_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["vocab", "learn", "notes.jsonl", "--size", "1000", "--cased", "--out", "cased"]) == 0
    assert "1,000 pieces learnt from" in capsys.readouterr().out


@pytest.mark.usefixtures("learnt")
def test_extend_then_report_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    lexicons = [part for label in sample.LABELS for part in ("--lexicon", f"{label}=./{label}.txt")]
    assert run(["vocab", "extend", "learnt", "notes.jsonl", *lexicons, "--terms", "80", "--out", "more"]) == 0
    told = capsys.readouterr().out
    assert "80 words were added as single pieces" in told
    assert "distinct words checked" in told
    assert "held-out documents" in told
    report = ["vocab", "report", "learnt", "notes.jsonl", *lexicons, "--against", "more"]
    assert run([*report, "--html", "page.html"]) == 0
    assert "fewer pieces" in capsys.readouterr().out
    assert Path("page.html").read_text().startswith("<!doctype html>")
    assert run([*report, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["against"]["vocabulary"] == 980


@pytest.mark.usefixtures("learnt")
def test_prune_says_what_it_saved(capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.txt").write_text("Aspirin was given.")
    assert run(["vocab", "prune", "learnt", "short.txt", "--out", "less", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["dropped"] > 0
    assert record["proof"]["changed"] == 0


@pytest.mark.usefixtures("learnt")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("extend learnt notes.jsonl --terms 5 --lexicon gene=nowhere.tsv", "nowhere.tsv cannot be read"),
        ("extend learnt notes.jsonl --terms 5 --lexicon nowhere.tsv", "LABEL=PATH"),
        ("extend learnt notes.jsonl --terms 5", "no entities"),
        ("extend learnt notes.jsonl --terms 99999 --any-word", "99,999 were asked for"),
        ("extend learnt notes.jsonl --terms 5 --term-file nowhere.txt", "nowhere.txt cannot be read"),
        ("extend nowhere notes.jsonl --terms 5", "nowhere does not exist"),
        ("extend learnt nowhere.jsonl --terms 5", "There is no corpus nowhere.jsonl"),
        ("extend learnt notes.jsonl --terms 0", "--terms"),
        ("prune learnt blank.jsonl", "no words"),
        ("learn notes.jsonl --size 20", "20 pieces is too small"),
        ("learn blank.jsonl", "no words"),
        ("learn empty.txt", "no words"),
    ],
)
def test_what_cannot_work_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["vocab", *arguments.split(), "--out", "never"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert sentence in told.err
    assert not Path("never").exists()


@pytest.mark.usefixtures("learnt")
def test_a_page_that_cannot_be_written_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["vocab", "report", "learnt", "notes.jsonl", "--html", "learnt"]) == 2
    assert "The page cannot be written to learnt" in capsys.readouterr().err


@pytest.mark.usefixtures("learnt")
def test_records_set_aside_are_told_and_end_with_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    Path("some.jsonl").write_text('{"id": "1", "text": "Aspirin was given."}\n{"id": "2"}\n')
    assert run(["vocab", "report", "learnt", "some.jsonl"]) == 3
    assert "1 records could not be read" in capsys.readouterr().err
