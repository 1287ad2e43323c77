"""`alembert finetune` and `predict` with its result: what flags and file say together, what is printed, what is refused."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from alembert import hardware, sample
from alembert.cli import run
from alembert.cli.finetune import FinetuneRunOptions, parse_duration, parse_tasks
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.settings import read_layers, split_table
from alembert.tasks.tag.data import TagSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from alembert.train.finetune.settings import TaskRunSettings, resolve_settings

TAG = parse_tasks(["tag"])
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.,()%/'"
TEXT = "Imatinib for leukemia."
QUICK = ["--epochs", "1", "--train", "train.jsonl", "--model", "model"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and a few labelled documents."""
    folder = tmp_path_factory.mktemp("finetune")
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS))
    tokenizer = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*pieces), lowercase=True)
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=512)
    Checkpoint.new(Blueprint(config=config), tokenizer).save(folder / "model")
    lines = []
    for passage in sample.load_passages("en")[:16]:
        entities = [
            {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
            for n, each in enumerate(passage.entities)
        ]
        lines.append(json.dumps({"text": passage.text, "label": passage.topic, "entities": entities}))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def tagger(folder: Path) -> Path:
    arguments = [str(folder / word) if word in {"train.jsonl", "model"} else word for word in QUICK]
    assert run(["finetune", "--task", "tag", *arguments, "--out", str(folder / "ner"), "--json"]) == 0
    return folder / "ner"


def test_the_data_are_shown_without_training(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(["finetune", "--task", "tag", *QUICK]) == 0
    told = capsys.readouterr().out
    assert "entities of 3 types: chemical, disease, gene" in told
    assert "were set apart for" in told
    assert not (folder / "ner.partial").exists()


def test_types_that_are_said_are_learnt_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["finetune", "--task", "tag", *QUICK, "--set", "read.types=gene", "--set", "read.types=disease"]) == 0
    told = capsys.readouterr().out
    assert "entities of 2 types: disease, gene" in told
    assert "entities of other types than disease, gene were left out: chemical" in told


def test_a_report_on_the_data_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["finetune", "--task", "classify", *QUICK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["name"] == "train"


def test_predictions_have_exact_offsets(capsys: pytest.CaptureFixture[str], tagger: Path) -> None:
    capsys.readouterr()
    assert run(["predict", str(tagger), TEXT, "Aspirin.", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["text"], second["text"]) == (TEXT, "Aspirin.")
    assert all(TEXT[each["start"] : each["end"]] == each["text"] for each in first["entities"])


def test_texts_come_from_stdin_too(
    capsys: pytest.CaptureFixture[str], tagger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n\nAspirin.\n".encode())))
    assert run(["predict", str(tagger), "--json"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [TEXT, "Aspirin."]


def test_people_get_lines(capsys: pytest.CaptureFixture[str], tagger: Path) -> None:
    assert run(["predict", str(tagger), TEXT]) == 0
    assert capsys.readouterr().out.splitlines()[0] == TEXT


def test_trying_rates_keeps_the_best(capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: Path) -> None:
    arguments = [str(folder / word) if word in {"train.jsonl", "model"} else word for word in QUICK]
    out = tmp_path / "out"
    assert run(["finetune", "--task", "tag", *arguments, "--out", str(out), "--set", "run.tune=1s"]) == 0
    tried = json.loads((out / "tuning" / "tuning.json").read_text())
    assert tried
    best = max(range(len(tried)), key=lambda number: tried[number]["value"])
    scores = json.loads((out / "run" / "scores.json").read_text())
    assert scores["measures"]["f1"] == tried[best]["value"]
    assert "try 1: rate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--task", "dance", *QUICK, "--out", "x"], "no task 'dance'"),
        (["--task", "ner", *QUICK, "--out", "x"], "--task tag"),
        (["--task", "x:Token_Classification=train.jsonl", *QUICK, "--out", "x"], "--task tag"),
        (
            ["--task", "classify", *QUICK, "--out", "x", "--set", "read.label=a", "--set", "read.label=b"],
            "`label` is ['a', 'b'], which is not a string",
        ),
        (["--task", "tag", *QUICK, "--out", "x", "--rato", "1"], "See `alembert finetune --help`"),
        (["--task", "tag", *QUICK[:-2], "--out", "x"], "give --model and --train"),
        (
            ["--task", "tag", *QUICK, "--out", "x", "--set", "task.head=crf", "--set", "task.head=span"],
            "`head` is ['crf', 'span'], which is not one of",
        ),
        (
            ["--task", "classify", *QUICK, "--out", "x", "--set", "task.head=crf"],
            "`task` has the key `head`, which is unknown here",
        ),
        (["--task", "tag", *QUICK, "--out", "x", "--set", "run.tune=soon"], "run.tune is 'soon'"),
        (["--task", "tag", *QUICK, "--out", "x", "--epochs", "-1"], "`epochs` is -1"),
        (["--task", "tag", *QUICK, "--out", "x", "--set", "run.device=toaster"], "cannot use the device 'toaster'"),
        (["--task", "tag", *QUICK, "--out", "x", "--dev", "train.jsonl"], "were left out of training"),
        (["--task", "tag", *QUICK, "--out", "x", "--dev", "nowhere.tsv"], "The input nowhere.tsv"),
        (["--task", "tag", *QUICK[:-1], "nowhere", "--out", "x"], "no folder nowhere"),
        (["--task", "tag", *QUICK[:-1], "bert-base-uncased", "--out", "x"], "hub:bert-base-uncased"),
        (["--task", "tag", *QUICK, "--out", "x", "--set", "read.types=other.tsv=gene"], "names other.tsv"),
        (["--task", "tag", *QUICK, "--out", "x", "--set", "read.types=gene,gnee"], "names gnee"),
        (["--task", "classify", *QUICK, "--out", "x", "--set", "read.types=gene"], "is for the task tag"),
        (["--task", "tag", *QUICK, "--out", "x", "--set", "task.hed=crf"], "The nearest known key is `head`"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_nothing_is_written(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert run(["finetune", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(folder.glob("x*"))


@pytest.mark.parametrize("model", ["model", "train.jsonl", "nowhere"])
def test_a_model_that_was_not_fine_tuned_is_named(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", model, TEXT]) == 2
    assert model in capsys.readouterr().err


def test_the_file_and_the_flags_go_together(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('epochs = 3\nseed = 9\n[optimiser]\nlearning_rate = 0.5\n[task]\nhead = "crf"\nmax_length = 64\n')
    settings, tasks = resolve_settings(TAG.kinds, read_layers(path, None, {"epochs": 7.0, "task": {"head": "span"}}))
    assert (settings.epochs, settings.seed, settings.optimiser.learning_rate) == (7.0, 9, 0.5)
    assert tasks == {"tag": TaskRunSettings(TagSettings(head="span", max_length=64), ReadOptions())}


def test_shown_settings_can_be_given_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = [
        "finetune",
        "--task",
        "tag",
        "--set",
        "task.head=crf",
        "--learning-rate",
        "0.002",
        "--set",
        "forget_training=true",
    ]
    assert run([*asked, "--set", "help"]) == 0
    path = tmp_path / "shown.toml"
    path.write_text(capsys.readouterr().out)
    options, layers = split_table(FinetuneRunOptions(), "run", read_layers(path, None, {}))
    assert options == FinetuneRunOptions()
    settings, tasks = resolve_settings(TAG.kinds, layers)
    assert (tasks["tag"].of_task.head, settings.optimiser.learning_rate) == ("crf", 0.002)
    assert settings.forget_training


@pytest.mark.parametrize("text", ["", "30", "m", "0m", "-3m", "3 weeks"])
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="expected a time"):
        parse_duration(text)


def test_a_table_of_the_file_must_be_one(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('task = "tag"\n')
    with pytest.raises(BadSetting, match=r"`task` is 'tag'; expected a table, which begins with \[task\]"):
        resolve_settings(TAG.kinds, read_layers(path, None, {}))


def test_files_are_read_as_the_file_and_the_flags_say(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('[read]\nid = "paper"\nlabel = "x"\n')
    changes = {"read": {"label": "verdict", "text": ["a", "b"]}}
    reading = resolve_settings(parse_tasks(["classify"]).kinds, read_layers(path, None, changes))[1]["classify"].reading
    assert (reading.id, reading.label, reading.text) == ("paper", "verdict", ("a", "b"))


@pytest.fixture(scope="module")
def scorer(folder: Path) -> Path:
    """A model of numbers, from columns that usual names would not have chosen."""
    rows = [f"{'sweet' if n % 2 else 'sour'} apple {n}\tx\t{n % 2}\t{n % 7 + 0.5}" for n in range(20)]
    (folder / "scores.tsv").write_text("\n".join(["note\ttext\tlabel\tvalue", *rows]) + "\n")
    files = ["--model", str(folder / "model"), "--train", str(folder / "scores.tsv")]
    columns = ["--set", "read.text=note", "--set", "read.label=value"]
    out = ["--epochs", "1", "--set", "run.device=cpu", "--out", str(folder / "scorer")]
    assert run(["finetune", "--task", "classify", *files, *columns, *out]) == 0
    return folder / "scorer"


def test_a_model_of_numbers_can_be_used(capsys: pytest.CaptureFixture[str], scorer: Path) -> None:
    capsys.readouterr()
    assert run(["predict", str(scorer), "sweet apple", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["value"], float)


def test_a_model_is_scored_on_the_columns_that_it_was_trained_on(
    capsys: pytest.CaptureFixture[str], scorer: Path, folder: Path
) -> None:
    capsys.readouterr()
    assert run(["evaluate", str(scorer), str(folder / "scores.tsv"), "--set", "run.bootstrap_samples=5", "--json"]) == 0
    told = capsys.readouterr()
    assert "the text is in column note, the label in column value" in told.err
    assert json.loads(told.out)["scores"]["coverage"]["characters"] > 20 * len("sour apple")


def test_an_answer_has_no_escaped_tabs(capsys: pytest.CaptureFixture[str], scorer: Path) -> None:
    capsys.readouterr()
    assert run(["predict", str(scorer), "sour apple"]) == 0
    assert "\\t" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["train.keys.npy", "surfaces.json"])
def test_damaged_facts_of_the_training_are_a_sentence(
    name: str, capsys: pytest.CaptureFixture[str], tagger: Path, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(tagger, tmp_path / "copy")
    (tmp_path / "copy" / "run" / name).write_text("x")
    verb = ["evaluate"] if name.endswith("npy") else ["inspect", "errors"]
    assert run([*verb, str(tmp_path / "copy"), str(folder / "train.jsonl")]) == 2
    assert f"{name} is damaged. Restore it, or delete it" in capsys.readouterr().err


def test_lines_of_other_systems_are_plain_texts(
    capsys: pytest.CaptureFixture[str], tagger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = f"\ufeff{TEXT}\r\n\r\nAspirin.\r\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(marked)))
    assert run(["predict", str(tagger), "--json"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [TEXT, "Aspirin."]
