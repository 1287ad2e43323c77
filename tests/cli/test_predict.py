"""`alembert predict`: which of its two kinds, what it prints, and a sentence for each thing that can be wrong."""

import io
import json
from pathlib import Path

import pytest

from alembert.cli import run
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from small_checkpoints import fine_tuned

TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"床前明月光"), lowercase=True
)
SIZES = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 12}  # fmt: skip


def model(folder: Path, attention: str) -> str:
    blueprint = Blueprint(
        config=EncoderConfig(**SIZES, attention=attention),
        heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)},
    )
    made = Checkpoint.new(blueprint, TOKENIZER)
    made.model.head("masked_lm").bias.data[9] = 10.0  # it says 光 and nothing else
    made.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return model(tmp_path_factory.mktemp("predict") / "causal", "causal")


def test_a_text_is_continued(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", causal, "--generate", "床前", "--longest", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "床前光光光\n"
    assert err == "note: 1 of 1 texts reached the limit of new tokens before their end\n"


def test_json_holds_every_text(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "beam", "--beams", "3", "--count", "2", "--longest", "2", "--no-repeat", "2"]
    assert run(["predict", causal, "--generate", "床", *options, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["prompt"] == "床"
    assert record["texts"][0] == {**record["texts"][0], "text": "床光光", "ids": [9, 9], "finished": False}
    assert len(record["texts"]) == 2


def test_samples_come_back_with_their_seed(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "sample", "--temperature", "20", "--top-k", "4", "--top-p", "0.9", "--count", "3"]
    printed = []
    for seed in ("1", "1", "2"):
        assert run(["predict", causal, "--generate", "", *options, "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert printed[0].count("\n") == 3


def test_lines_too_long_are_set_aside(
    causal: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "床前\n" + "明" * 40 + "\n\n月\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run(["predict", causal, "--generate", "-", "--longest", "1"]) == 3
    out, err = capsys.readouterr()
    assert out == "床前光\n月光\n"
    assert "line 2 set aside: The prompt has 41 tokens" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["text", "--generate", "a"], "Texts after the model are for fine-tuned models"),
        (["--generate", "a", "--fill-mask", "[MASK]"], "were both given"),
        (["--generate", "a", "--top", "3"], "--top belongs to --fill-mask"),
        (["--fill-mask", "[MASK]", "--top-k", "3"], "--top-k belongs to --generate"),
        (["--generate", "a", "--method", "guess"], "`method` is 'guess'"),
        (["--generate", "a", "--beams", "2"], "`beams` is a setting of the method `beam`"),
        (["--generate", "a" * 3, "--longest", "0"], "`longest` is 0"),
    ],
    ids=str,
)
def test_wrong_options_are_told_before_the_model_is_opened(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", "nowhere", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_model_that_fills_masks_cannot_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path / "both", "bidirectional")
    assert run(["predict", folder, "--generate", "床"]) == 2
    assert "alembert pretrain --objective causal" in capsys.readouterr().err
    assert run(["predict", folder, "--fill-mask", "床[MASK]", "--top", "1"]) == 0
    assert "光" in capsys.readouterr().out


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
        (["--fill-mask", "a [MASK]", "--file", "nowhere.csv"], "--file belongs to"),
        (["some text", "--delimiter", ";"], "--delimiter belongs to --file"),
    ],
)
def test_a_file_goes_with_nothing_else(
    arguments: list[str], sentence: str, classifier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", classifier, *arguments]) == 2
    assert sentence in capsys.readouterr().err
