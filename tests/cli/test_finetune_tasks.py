"""`alembert finetune` with several tasks, and `predict`, `evaluate` and `inspect errors` with its result."""

import json
from pathlib import Path

import pytest

from alembert import hardware, sample
from alembert.cli import run
from alembert.cli.finetune import FileArguments, FinetuneRunOptions, build_data, parse_tasks
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.settings import read_layers, split_table
from alembert.tasks import TASKS
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from alembert.train.finetune.settings import FinetuneSettings, get_default_settings, resolve_settings

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.,()%/'"
TEXT = "Imatinib for leukemia."
BOTH = ["--task", "tag=train.jsonl", "--task", "topic:classify=train.jsonl"]
QUICK = ["--model", "model", "--epochs", "1", "--set", "run.device=cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and a few labelled documents."""
    folder = tmp_path_factory.mktemp("several")
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
def both(folder: Path) -> Path:
    words = [word.replace("train.jsonl", str(folder / "train.jsonl")) for word in BOTH]
    model = ["--model", str(folder / "model"), *QUICK[2:]]
    assert run(["finetune", *words, *model, "--out", str(folder / "both"), "--json"]) == 0
    return folder / "both"


def test_all_answers_come_under_the_names_of_their_tasks(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["predict", str(both), TEXT, "Aspirin.", "--json"]) == 0
    first, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(first) == ["tag", "topic"]
    assert first["topic"]["label"] in sample.TOPICS
    assert first["tag"]["text"] == TEXT


def test_people_get_lines_for_each_task(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["predict", str(both), TEXT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == TEXT
    assert "  tag:" in lines
    assert "  topic:" in lines


@pytest.mark.parametrize("verb", [["evaluate"], ["inspect", "errors"]], ids=lambda words: words[0])
def test_one_of_the_tasks_is_judged_by_its_name(
    verb: list[str], both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run([*verb, str(both), "train.jsonl", "--task", "topic", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "classify"


def test_all_tasks_are_judged_where_files_have_their_names(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["evaluate", str(both), "tag=train.jsonl", "topic=train.jsonl", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    for name in ("tag", "topic"):
        assert run(["evaluate", str(both), "train.jsonl", "--task", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == whole[name]
    assert run(["evaluate", str(both), "tag=train.jsonl", "topic=train.jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line in ("tag:", "topic:")] == ["tag:", "topic:"]


@pytest.mark.parametrize("name", ["texts.txt", "train.jsonl"])
def test_all_tasks_answer_the_texts_of_a_file(
    name: str, both: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "texts.txt").write_text(f"{TEXT}\nAspirin.\n")
    capsys.readouterr()
    assert run(["predict", str(both), "--file", name, "--json"]) == 0
    records = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert all([*record] == ["tag", "topic"] for record in records)
    for task in ("tag", "topic"):
        assert run(["predict", str(both), "--file", name, "--task", task, "--json"]) == 0
        alone = list(map(json.loads, capsys.readouterr().out.splitlines()))
        assert [record["text"] for record in alone] == [record[task]["text"] for record in records]
        assert [record["id"] for record in alone] == [record[task]["id"] for record in records]


@pytest.mark.parametrize("verb", [["evaluate"], ["inspect", "errors"]], ids=lambda words: words[0])
def test_without_a_name_the_tasks_are_listed(verb: list[str], both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb, str(both), "train.jsonl"]) == 2
    assert "several tasks: tag (tag), topic (classify). Say which" in capsys.readouterr().err


def test_the_data_of_each_task_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["finetune", *BOTH, *QUICK, "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert {name: table["parts"][0]["examples"] for name, table in tables.items()} == {"tag": 14, "topic": 14}


def test_the_help_lists_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["finetune", "--help"]) == 0
    assert ", ".join(TASKS) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--task", "tag=train.jsonl", "--task", "tag=train.jsonl"], "Two tasks are called tag"),
        (["--task", "a:b:tag=x"], "--task is 'a:b:tag=x'"),
        (["--task", "x:dance=train.jsonl"], "no task 'dance'"),
        ([*BOTH, "--dev", "train.jsonl"], "say whose file it is, as in --dev tag=FILE"),
        ([*BOTH, "--dev", "x=train.jsonl"], "The tasks are tag, topic"),
        ([*BOTH, "--set", "task.head=crf"], "has [task.head]; with several tasks"),
        (
            ["--task", "tag=train.jsonl", "--task", "classify", "--train", "tag=train.jsonl"],
            "task classify has no",
        ),
        (["--task", "no way:tag=train.jsonl"], "cannot be called 'no way'"),
        (["--task", "tag=train.jsonl", "--task", "classify=nowhere.tsv"], "The input nowhere.tsv"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_nothing_is_written(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert run(["finetune", *arguments, *QUICK, "--out", "x"]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(folder.glob("x*"))


def test_a_single_task_may_have_its_file_behind_it() -> None:
    tasks = parse_tasks(["tag=train.jsonl"])
    _, settings = resolve_settings(tasks.kinds, read_layers(None, None, {}))
    assert build_data(tasks, FileArguments(), settings)["tag"].train == (Path("train.jsonl"),)


def test_more_files_of_a_task_are_named() -> None:
    tasks = parse_tasks(["tag=train.jsonl", "topic:classify"])
    _, settings = resolve_settings(tasks.kinds, read_layers(None, None, {}))
    files = FileArguments(train=["tag=train.jsonl"], unsplit=["topic=train.jsonl"], split="90/10")
    data = build_data(tasks, files, settings)
    assert len(data["tag"].train) == 2
    assert (data["topic"].unsplit, data["topic"].split) == ((Path("train.jsonl"),), "90/10")


def test_each_task_has_a_table_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(
        '[multitask]\nmixing = "temperature"\n[read]\nid = "paper"\n[task.tag]\nhead = "crf"\nweight = 2\n'
        '[task.topic.read]\nlabel = "verdict"\n'
    )
    settings, tasks = resolve_settings(
        parse_tasks(["tag=a", "topic:classify=b"]).kinds, read_layers(path, None, {"epochs": 7.0})
    )
    assert (settings.epochs, settings.multitask.mixing) == (7.0, "temperature")
    assert (tasks["tag"].of_task.head, tasks["tag"].weight, tasks["topic"].weight) == ("crf", 2.0, 1.0)
    assert (tasks["topic"].reading.label, tasks["tag"].reading.label) == ("verdict", None)
    assert tasks["tag"].reading.id == tasks["topic"].reading.id == "paper"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[task]\nhead = "crf"\n', r"has \[task.head\].*\[task.tag\], \[task.topic\]"),
        ("[task.tag]\nweight = 0\n", "`weight` is 0; expected a positive number"),
        ("[task.tag]\nhaed = 1\n", "`haed`, which is unknown here"),
        ("[task]\ntag = 1\n", "`tag` is 1; expected a table"),
    ],
)
def test_tables_that_fit_no_task_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    with pytest.raises(BadSetting, match=sentence):
        resolve_settings(parse_tasks(["tag=a", "topic:classify=b"]).kinds, read_layers(path, None, {}))


def test_shown_settings_can_be_given_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["finetune", *BOTH, "--learning-rate", "0.002", "--set", "help"]) == 0
    path = tmp_path / "shown.toml"
    path.write_text(capsys.readouterr().out)
    options, layers = split_table(FinetuneRunOptions(), "run", read_layers(path, None, {}))
    assert options == FinetuneRunOptions()
    settings, tasks = resolve_settings(parse_tasks(["tag=a", "topic:classify=b"]).kinds, layers)
    assert settings.optimiser.learning_rate == 0.002
    assert set(tasks) == {"tag", "topic"}


@pytest.mark.parametrize("task", TASKS)
def test_what_is_usual_for_a_task_can_be_said_in_a_file(task: str) -> None:
    settings, _ = resolve_settings(parse_tasks([task]).kinds, read_layers(None, None, {}))
    assert settings == get_default_settings(task)
    assert settings.epochs > 0


def test_a_step_of_questions_is_larger_than_one_of_sentences() -> None:
    assert get_default_settings("answer").batch.tokens == 2048
    assert get_default_settings("tag").batch.tokens == 512


def test_sentences_are_compared_as_published_unless_it_is_said_otherwise() -> None:
    settings, _ = resolve_settings(parse_tasks(["compare"]).kinds, read_layers(None, None, {}))
    assert (settings.epochs, settings.optimiser.learning_rate) == (1, 3e-5)
    settings, _ = resolve_settings(
        parse_tasks(["compare"]).kinds, read_layers(None, None, {"epochs": 3.0, "optimiser": {"learning_rate": 5e-5}})
    )
    assert (settings.epochs, settings.optimiser.learning_rate) == (3, 5e-5)


def test_several_tasks_have_no_habits_in_common() -> None:
    settings, _ = resolve_settings(parse_tasks(["compare=a.txt", "tag=b.tsv"]).kinds, read_layers(None, None, {}))
    assert settings == FinetuneSettings()
