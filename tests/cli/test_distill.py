"""`alembert distill`: what is written, printed and refused."""

import json
import tomllib
from pathlib import Path

import pytest

from alembert import hardware, sample
from alembert.cli import run
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.tasks.files import write_tasks
from alembert.tasks.tag.data import TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from sample_lines import labelled, write_lines

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.,"
BRIEF = """
[intermediate]
steps = 2
[prediction]
steps = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a plain model, a tagger, examples and texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{each}" for each in LETTERS))
    tokenizer = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*pieces), lowercase=True)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=128,
    )
    Checkpoint.new(Blueprint(config=config), tokenizer).save("plain")
    task = TagTask(tuple(sorted(sample.LABELS)), TagSettings())
    blueprint = Blueprint(config=config, heads={"tag": task.head()}, labels={"tag": task.labels})
    Checkpoint.new(blueprint, tokenizer, seed=2).save("ner")
    write_tasks(Path("ner"), {task.name: (task, {})})
    for split, count in (("train", 12), ("dev", 6)):
        write_lines(Path(f"{split}.jsonl"), labelled(split, count, 80))
    Path("brief.toml").write_text(BRIEF)
    return tmp_path


TASK = ["distill", "ner", "--train", "train.jsonl", "--dev", "dev.jsonl", "--config", "brief.toml"]


def test_a_student_for_a_task(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TASK, "--student", "1x12", "--out", "small", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["main"] == "f1"
    assert (folder / "small" / "task.json").is_file()


def test_augmented_copies_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TASK, "--student", "half", "--set", "augment.copies=1", "--out", "small"]) == 0
    assert "were added: copies with words replaced" in capsys.readouterr().err


def test_plain_text_is_labelled_by_the_teacher(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = "".join(json.dumps({"id": p.id, "text": p.text}) + "\n" for p in sample.load_passages("en")[:5])
    (folder / "texts.jsonl").write_text(texts, encoding="utf8")
    assert run([*TASK, "--student", "half", "--texts", "texts.jsonl", "--out", "small"]) == 0
    told = capsys.readouterr().err
    assert "sentences of plain text are labelled by the teacher" in told
    assert "`labels` is left out" in told


def test_the_comparison_is_printed_and_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TASK, "--student", "half", "--set", "run.compare=dev.jsonl", "--out", "small"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ("teacher", "student", "without distillation", "speed-up"))
    table = json.loads((folder / "small-comparison" / "comparison.json").read_text())
    assert [model["name"] for model in table["models"]] == ["teacher", "student", "without distillation"]


def test_types_are_said_of_each_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types = ["--set", "run.types=train.jsonl=gene", "--set", "run.types=test.jsonl=disease"]
    write_lines(Path("test.jsonl"), labelled("test", 6, 80))
    assert run([*TASK, "--student", "half", *types, "--set", "run.compare=test.jsonl", "--out", "small"]) == 0
    assert "entities of other types than gene were left out" in (folder / "small/run/data.json").read_text()
    assert run([*TASK, "--student", "half", "--set", "run.types=elsewhere.jsonl=gene", "--out", "x"]) == 2
    assert "names elsewhere.jsonl" in capsys.readouterr().err


def test_a_student_that_is_done_is_compared_and_plain_text_is_left_out_of_a_control(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = "".join(json.dumps({"id": p.id, "text": p.text}) + "\n" for p in sample.load_passages("en")[:5])
    (folder / "texts.jsonl").write_text(texts, encoding="utf8")
    asked = [*TASK, "--student", "half", "--texts", "texts.jsonl", "--out", "small"]
    assert run(asked) == 0
    assert run([*asked, "--set", "run.compare=dev.jsonl"]) == 0
    assert "without plain text" in capsys.readouterr().out
    table = json.loads((folder / "small-comparison" / "comparison.json").read_text())
    assert [model["name"] for model in table["models"]][2:] == ["without distillation", "without plain text"]


def test_what_the_general_stage_has_no_use_for_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["distill", "plain", "--student", "1x12", "--corpus", "dev.jsonl", "--out", "general"]
    assert run([*asked, "--epochs", "3", "--set", "run.compare=dev.jsonl"]) == 2
    assert "--epochs and run.compare cannot be used with --corpus" in capsys.readouterr().err


def test_the_general_stage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = "".join(json.dumps({"id": p.id, "text": p.text}) + "\n" for p in sample.load_passages("en"))
    (folder / "texts.jsonl").write_text(texts, encoding="utf8")
    asked = ["distill", "plain", "--student", "1x12", "--corpus", "texts.jsonl", "--set", "tokens=4k"]
    assert run([*asked, "--out", "general"]) == 0
    assert "hidden" in capsys.readouterr().out
    assert run([*TASK, "--student", "general", "--out", "small"]) == 0


def test_a_student_can_forget_its_training_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["distill", "--set", "forget_training=true", "--set", "help"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["forget_training"] is True


@pytest.mark.parametrize("stage", [["--corpus", "texts.jsonl"], []], ids=["general", "task"])
@pytest.mark.parametrize("preset", ["fast", "tinybert"])
def test_settings_can_be_shown_and_read_again(
    stage: list[str], preset: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["distill", *stage, "--set", "help"]
    assert run([*asked, "--preset", preset]) == 0
    shown = capsys.readouterr().out
    (folder / "shown.toml").write_text(shown)
    assert run([*asked, "--config", "shown.toml"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["distill"], "give TEACHER, --student and --out"),
        (["distill", "ner", "--student", "half", "--out", "x"], "--corpus for the general stage"),
        ([*TASK, "--student", "3x24", "--out", "x"], "deeper"),
        ([*TASK, "--student", "small", "--out", "x"], "no size of a student and no folder"),
        ([*TASK, "--student", "half", "--preset", "quick", "--out", "x"], "no preset"),
        ([*TASK, "--student", "half", "--set", "hours=1", "--out", "x"], "the key `hours`, which is unknown here"),
        (["distill", "plain", "--train", "train.jsonl", "--student", "half", "--out", "x"], "Fine-tune it"),
        (["distill", "ner", "--corpus", "t", "--train", "t", "--student", "half", "--out", "x"], "--train"),
    ],
)
def test_what_is_refused(arguments: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "x").exists()
