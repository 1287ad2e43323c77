"""`alembert embed`: what it prints, exit codes, and a sentence for each thing that can be wrong."""

import gzip
import io
import json
import shutil
from pathlib import Path

import pytest

import alembert
from alembert.cli import run
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from fake_s3 import FakeS3, serving

WORDS = ("aspirin", "fever", "pain", "statin", "muscle", ".")
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True
)
SIZES = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 12}  # fmt: skip
TEXTS = {"1": "Statin. Muscle pain.", "2": "Aspirin. Fever.", "3": "Fever " * 30, "4": "Statin muscle pain."}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, documents and their vectors."""
    folder = tmp_path_factory.mktemp("embed")
    Checkpoint.new(Blueprint(config=EncoderConfig(**SIZES)), TOKENIZER, seed=1).save(folder / "model")
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    assert run(command(folder, "vectors", "--int8")) == 0
    return folder


def command(work: Path, out: str, *options: str) -> list[str]:
    files = [str(work / name) for name in ("model", "docs.jsonl")]
    return ["embed", "encode", *files, "--out", str(work / out), "--pooling", "mean", *options]


def test_train_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["embed", "train", "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Usage: alembert embed train [OPTIONS]\n")
    assert "takes the options of `alembert finetune --task compare`" in " ".join(told.split())
    assert "--train FILE" in told
    assert "--task TASK" not in told


@pytest.mark.parametrize(("options", "code"), [(["--set", "help"], 0), (["--epochs", "no"], 2)])
def test_train_is_finetune_for_the_task_compare(
    options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["embed", "train", *options]) == code
    here = capsys.readouterr()
    assert run(["finetune", "--task", "compare", *options]) == code
    there = capsys.readouterr()
    assert (there.out, there.err.replace("alembert finetune", "alembert embed train")) == here
    assert here != ("", "")


def test_it_says_how_many_and_how_fast(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "said")) == 0
    out, err = capsys.readouterr()
    assert "4 vectors of 4 documents" in out
    assert "vectors/s" in out
    assert "note: 1 of 4 texts are longer than the model reads at once" in err


def test_the_same_again_has_nothing_to_do(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "vectors", "--int8", "--json")) == 0
    out, err = capsys.readouterr()
    assert "already complete" in err
    assert json.loads(out)["units"] == 4


def test_sentences_are_units_too(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "sentences", "--unit", "sentence", "--dtype", "int8", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["units"] == 6


def test_an_object_in_a_store_is_encoded_like_a_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    with serving(FakeS3({"docs.jsonl": (work / "docs.jsonl").read_bytes()})) as store:
        address = f"s3://me:secret@bucket/docs.jsonl?scheme=http&endpoint_override=127.0.0.1:{store.port}"
        options = ["--out", str(work / "far"), "--pooling", "mean", "--int8"]
        assert run(["embed", "encode", str(work / "model"), address, *options]) == 0
    out, err = capsys.readouterr()
    assert "4 vectors of 4 documents" in out
    assert "secret" not in out + err
    for name in ("vectors.npy", "copy.npy", "rows.npy", "units.jsonl"):
        assert (work / "far" / name).read_bytes() == (work / "vectors" / name).read_bytes()


def test_a_pattern_of_compressed_files_is_encoded_by_the_function_as_well(work: Path, tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress((work / "docs.jsonl").read_bytes()))
    result = alembert.embed(
        work / "model", str(tmp_path / "*.gz"), out=tmp_path / "v", pooling="mean", device="cpu", progress=False
    )
    assert result.counts["units"] == 4
    assert (tmp_path / "v/vectors.npy").read_bytes() == (work / "vectors/vectors.npy").read_bytes()


def test_bad_lines_are_set_aside_with_exit_code_3(work: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "text": "Fever."}\nnot json\n')
    arguments = [str(work / "model"), str(tmp_path / "bad.jsonl"), "--out", str(tmp_path / "v")]
    assert run(["embed", "encode", *arguments, "--pooling", "cls"]) == 3


@pytest.mark.parametrize("options", [[], ["--int8"]])
def test_the_nearest_comes_first(work: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    query = ["embed", "search", str(work / "vectors"), "statin muscle pain ."]
    assert run([*query, "-k", "2", "--json", *options]) == 0
    record = json.loads(capsys.readouterr().out)
    best = {"row": 3, "id": "4", "source": "docs.jsonl", "start": 0, "end": 19, "text": TEXTS["4"]}
    assert record["hits"][0] | best == record["hits"][0]
    assert (record["query"], len(record["hits"])) == ("statin muscle pain .", 2)


def test_the_plain_product_is_a_measure_too(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["embed", "search", str(work / "vectors"), "fever", "--measure", "dot", "--json"]) == 0
    scores = [hit["score"] for hit in json.loads(capsys.readouterr().out)["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 1.01  # vectors of this model are not scaled


def test_it_shows_score_place_and_text(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["embed", "search", str(work / "vectors"), "statin muscle pain."]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["statin muscle pain.", "   1.0000  docs.jsonl 4 0-19  Statin muscle pain."]
    assert len(lines) == 5
    assert sum(line.endswith(" …") for line in lines) == 1


def test_queries_come_from_stdin_too(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fever\n\nstatin\n")))
    assert run(["embed", "search", str(work / "vectors"), "--json", "-k", "1"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["query"] for record in records] == ["fever", "statin"]


def test_a_model_that_was_moved_can_be_named(work: Path, tmp_path: Path) -> None:
    shutil.copytree(work / "model", tmp_path / "moved")
    query = ["embed", "search", str(work / "vectors"), "fever"]
    assert run([*query, "--model", str(tmp_path / "moved")]) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--dtype", "float8"], "`dtype` is 'float8', which is not one of"),
        (["--unit", "word"], "`unit` is 'word'"),
        (["--pooling", "max"], "expected mean or cls"),
        (["--max-length", "99"], "from 3"),
        (["--int8", "--dtype", "int8"], "adds nothing"),
    ],
)
def test_what_encode_refuses(work: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(work, "refused", *options)) == 2
    assert sentence in capsys.readouterr().err
    assert not list(work.glob("refused*"))


def test_a_model_without_a_stated_pooling_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(work / name) for name in ("model", "docs.jsonl")]
    assert run(["embed", "encode", *files, "--out", str(work / "none")]) == 2
    assert "does not say how a vector is made" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["model", "fever"], "is a Checkpoint, and a Vectors was expected"),
        (["vectors", " "], "nothing to look for"),
        (["vectors", "fever", "--measure", "far"], "expected cosine or dot"),
        (["vectors", "fever", "--model", "docs.jsonl"], "There is no folder"),
        (["said", "fever", "--int8"], "no int8 copy"),
    ],
)
def test_what_search_refuses(
    work: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(command(work, "said"))
    capsys.readouterr()
    assert run(["embed", "search", str(work / arguments[0]), *arguments[1:]]) == 2
    assert sentence in capsys.readouterr().err
