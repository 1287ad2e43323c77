"""`alembert predict`: what it prints, old spellings, and a sentence for each thing that can be wrong."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.infer.engines import open_torch_engine
from alembert.infer.language_model import next_sentence_probability
from small_checkpoints import fine_tuned, fine_tuned_together, language_model


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return language_model(tmp_path_factory.mktemp("predict") / "causal", "causal")


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    return language_model(tmp_path_factory.mktemp("predict") / "masked", "bidirectional", next_sentence=True)


# -- the spellings of the last version


def test_the_old_spelling_of_fill_names_the_new_one(masked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fill", masked, "床[MASK]", "--top", "2", "--json"]) == 0
    new, _ = capsys.readouterr()
    assert run(["predict", masked, "--fill-mask", "床[MASK]", "--top", "2", "--json"]) == 0
    old, err = capsys.readouterr()
    assert old == new
    assert "is now `alembert fill MODEL TEXT`" in err


def test_the_old_spelling_of_generate_names_the_new_one(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "beam", "--beams", "3", "--count", "2", "--no-repeat", "2", "--json"]
    assert run(["generate", causal, "床前", "--max-new-tokens", "3", *options]) == 0
    new, _ = capsys.readouterr()
    assert run(["predict", causal, "--generate", "床前", "--longest", "3", *options]) == 0
    old, err = capsys.readouterr()
    assert old == new
    assert "is now `alembert generate MODEL TEXT`" in err


@pytest.mark.parametrize("option", ["--fill-mask", "--generate"])
def test_the_old_spellings_read_lines(
    option: str, masked: str, causal: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("床[MASK]\n\n".encode())))
    assert run(["predict", masked if option == "--fill-mask" else causal, option, "-"]) == 0
    assert "光" in capsys.readouterr().out


def test_the_help_has_neither_old_spellings_nor_options_of_decoding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["predict", "--help"]) == 0
    shown = capsys.readouterr().out
    old = (
        "--fill-mask",
        "--generate",
        "--top",
        "--method",
        "--longest",
        "--temperature",
        "--beams",
        "--seed",
    )
    assert [name for name in old if name in shown] == []
    assert "--next" in shown


# -- next sentence


def test_the_probability_that_a_sentence_follows(masked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", masked, "--next", "床前", "明月", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    expected = next_sentence_probability(open_torch_engine(masked), "床前", "明月")
    assert record == {"first": "床前", "second": "明月", "probability": expected}
    assert run(["predict", masked, "--next", "床前", "明月"]) == 0
    assert capsys.readouterr().out == f"{expected:.4f}  明月\n"


def test_a_model_without_the_head_is_a_sentence(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", causal, "--next", "床前", "明月"]) == 2
    assert "it has no `next_sentence` head" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--next", "a"], "--next needs two texts, the first sentence and the second; 1 was given"),
        (["--next", "a", "b", "c"], "3 were given"),
        (["--next", "a", "b", "--task", "tag"], "--task belongs to fine-tuned models"),
        (["--next", "a", "b", "--min-score", "0.5"], "--min-score belongs to fine-tuned models"),
    ],
    ids=str,
)
def test_next_takes_two_texts_and_nothing_else(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", "nowhere", *arguments]) == 2
    assert sentence in capsys.readouterr().err


# -- fine-tuned models


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_text_that_is_the_path_of_a_file_is_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.csv").write_text("text\na b\n")
    assert run(["predict", "nowhere", "a b", str(tmp_path / "texts.csv"), *options]) == 2
    error = capsys.readouterr().err
    assert "texts.csv is a file" in error
    assert "--file" in error
    assert "alembert annotate" in error


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("classifier")
    fine_tuned("classify", folder / "model", folder / "train.jsonl")
    return str(folder / "model")


FILES = {
    "plain.txt": "aspirin helps\n\nwell, it does\n",
    "table.csv": 'id;text\n7;aspirin helps\n8;"well, it does"\n',
    "labelled.tsv": "text\tlabel\naspirin helps\tstrange\nwell, it does\t\n",
    "rows.jsonl": '{"text": "aspirin helps"}\n{"text": "well, it does"}\n',
    "one-column.csv": '"aspirin helps"\n"well, it does"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_the_texts_of_a_file_are_predicted_labelled_or_not(
    name: str, classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf8")
    assert run(["predict", classifier, "--file", str(tmp_path / name), "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == ["aspirin helps", "well, it does"]
    assert all("label" in record for record in records)
    if name == "table.csv":
        assert [record["id"] for record in records] == ["7", "8"]


def test_rows_of_a_file_that_cannot_be_used_are_named(
    classifier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("id,text\n1,aspirin\n2,\n3,a,b\n")
    assert run(["predict", classifier, "--file", str(tmp_path / "t.csv"), "--json"]) == 3
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "line 3 set aside: the text in text is empty" in err
    assert "line 4 set aside" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--file", "nowhere.csv"], "The input nowhere.csv"),
        (["some text", "--file", "nowhere.csv"], "either texts or --file"),
        (["some text", "--set", "read.delimiter=;"], "--set belongs to --file"),
    ],
)
def test_a_file_goes_with_nothing_else(
    arguments: list[str], sentence: str, classifier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", classifier, *arguments]) == 2
    assert sentence in capsys.readouterr().err


# -- answers that are withheld


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tagger")
    fine_tuned("tag", folder / "model", folder / "train.jsonl")
    return str(folder / "model")


TEXT = "aspirin helps against breast cancer, and so does the other drug"


def predicted(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[list[Any], str]:
    """Records and notes."""
    capsys.readouterr()
    assert run(["predict", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    return [json.loads(line) for line in out.splitlines()], err


def middle_score(tagger: str, capsys: pytest.CaptureFixture[str]) -> float:
    (record,), _ = predicted([tagger, TEXT], capsys)
    scores = sorted(entity["score"] for entity in record["entities"])
    assert len(scores) > 2
    return scores[len(scores) // 2]


@pytest.mark.parametrize("where", ["texts", "file"])
def test_answers_below_a_score_are_withheld_and_counted(
    where: str, tagger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n{TEXT}\n")
    source = [TEXT, TEXT] if where == "texts" else ["--file", str(tmp_path / "texts.txt")]
    score = middle_score(tagger, capsys)
    everything, notes = predicted([tagger, *source], capsys)
    assert "withheld" not in notes + json.dumps(everything)
    some, notes = predicted([tagger, *source, "--min-score", str(score)], capsys)
    kept = [entity for entity in everything[0]["entities"] if entity["score"] >= score]
    gone = len(everything[0]["entities"]) - len(kept)
    assert [record["entities"] for record in some] == [kept, kept]
    assert [record["coverage"]["withheld"] for record in some] == [gone, gone]
    assert f"note: {2 * gone} answers below {score:.4f} were withheld\n" in notes


@pytest.mark.parametrize("option", ["--min-precision", "--least-precision"])
def test_a_precision_is_looked_up_in_what_training_measured(
    option: str, tagger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    score = middle_score(tagger, capsys)
    copy = shutil.copytree(tagger, tmp_path / "model")
    table = json.loads((copy / "task.json").read_text())
    points = [[1.0, 0.01, 1.0], [score, 0.5, 0.9], [0.0, 1.0, 0.4]]
    table["tasks"]["tag"]["training"]["confidence"] = {"answers": 100, "points": points}
    (copy / "task.json").write_text(json.dumps(table))
    expected, _ = predicted([tagger, TEXT, "--min-score", str(score)], capsys)
    assert predicted([str(copy), TEXT, option, "0.8"], capsys)[0] == expected
    assert run(["predict", tagger, TEXT, option, "0.8"]) == 2
    assert "does not say which score reached which precision" in capsys.readouterr().err


def test_every_task_of_a_model_withholds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine_tuned_together({"ner": "tag", "topic": "classify"}, tmp_path / "model", tmp_path)
    (record,), notes = predicted([str(tmp_path / "model"), TEXT, "--min-score", "1"], capsys)
    assert record["ner"]["entities"] == []
    assert record["topic"]["label"] is None
    total = record["ner"]["coverage"]["withheld"] + record["topic"]["coverage"]["withheld"]
    assert f"{total} answers below 1.00 were withheld" in notes


def test_a_withheld_label_is_shown_as_none(classifier: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", classifier, "aspirin helps", "--min-score", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("  (none)  ")
    assert "1 answer below 1.00 was withheld" in err


def test_a_threshold_is_a_share(tagger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", tagger, TEXT, "--min-score", "80"]) == 2
    assert "`min_score` is 80.0; expected a number from 0 to 1" in capsys.readouterr().err
