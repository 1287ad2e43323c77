"""`alembert augment`: what is written, printed and refused."""

import json
from pathlib import Path

import pytest

from alembert.cli import run
from alembert.corpus.readers.contract import ReadOptions
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.tasks.files import write_tasks
from alembert.tasks.tag.data import TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-.,"
WORDS = ("gene", "asthma", "gout", "fever", "imatinib", "patient", "therapy")
LINES = [
    {"text": "Imatinib for gout.", "entities": [{"id": "T1", "label": "Disease", "spans": [[13, 17]]}]},
    {"text": "Fever in asthma, p53.", "entities": [{"id": "T1", "label": "Disease", "spans": [[9, 15]]}]},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tagger, a model with a masked LM, and examples."""
    monkeypatch.chdir(tmp_path)
    pieces = (
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *WORDS,
        *LETTERS,
        *(f"##{each}" for each in LETTERS),
    )
    tokenizer = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*pieces), lowercase=True)
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=64)
    heads = {"masked_lm": HeadSpec(kind="masked_lm")}
    Checkpoint.new(Blueprint(config=config, heads=heads), tokenizer).save(tmp_path / "model")
    task = TagTask(("Disease",), TagSettings())
    blueprint = Blueprint(config=config, heads={"tag": task.head()}, labels={"tag": task.labels})
    Checkpoint.new(blueprint, tokenizer).save(tmp_path / "ner")
    write_tasks(tmp_path / "ner", {task.name: (task, {})})
    lines = "".join(json.dumps({"id": f"d{n}", **line}) + "\n" for n, line in enumerate(LINES))
    (tmp_path / "train.jsonl").write_text(lines)
    (tmp_path / "gout.tsv").write_text("Leukemia, Acute\nmumps\n")
    return tmp_path


USUAL = ["--train", "train.jsonl", "--copies", "3", "--out", "augmented.jsonl"]


def test_copies_say_which_types_their_files_annotate(folder: Path) -> None:
    assert run(["augment", "ner", *USUAL, "--set", "read.types=train.jsonl=Disease"]) == 0
    first = json.loads((folder / "augmented.jsonl").read_text().splitlines()[0])
    assert first["meta"] == {"annotated_types": ["Disease"]}


def read(folder: Path) -> list[str]:
    reading = TagTask.read([folder / "augmented.jsonl"], TagSettings(), ReadOptions())
    assert not reading.set_aside
    return [example.text for example in reading.examples]


def test_a_tagger_augments_its_own_examples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["augment", "ner", *USUAL]) == 0
    told = capsys.readouterr()
    texts = read(folder)
    assert texts[:2] == [line["text"] for line in LINES]
    assert f"{len(texts) - 2} copies of 2 examples" in told.out
    assert told.out.count("\n+ ") == 3
    assert "no masked-LM head" in told.err


def test_another_model_gives_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["augment", "ner", *USUAL, "--set", "run.words=model", "--set", "run.originals=false", "--json"]) == 0
    told = capsys.readouterr()
    counts = json.loads(told.out)
    assert counts["filled"] > 0
    assert "those of the masked LM" in told.err
    assert len(read(folder)) == counts["copies"]


def test_a_model_without_a_task_is_told_which(folder: Path) -> None:
    assert run(["augment", "model", *USUAL, "--task", "tag"]) == 0
    assert len(read(folder)) > 2


def test_entities_come_from_a_dictionary(folder: Path) -> None:
    entities = ["--entities", "1", "--set", "replace_probability=0", "--dictionary", "disease=gout.tsv"]
    assert run(["augment", "ner", *USUAL, *entities]) == 0
    assert set(read(folder)[2:]) <= {
        f"{start}{name}{end}"
        for start, end in (("Imatinib for ", "."), ("Fever in ", ", p53."))
        for name in ("Acute Leukemia", "mumps")
    }


def test_the_same_seed_writes_the_same_file(folder: Path) -> None:
    found = []
    for _ in range(2):
        assert run(["augment", "ner", *USUAL, "--set", "seed=5", "--overwrite"]) == 0
        found.append((folder / "augmented.jsonl").read_bytes())
    assert found[0] == found[1]


def test_a_line_that_cannot_be_used_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "train.jsonl").open("a") as lines:
        lines.write("{nonsense\n")
    assert run(["augment", "ner", *USUAL]) == 3
    assert "line 3 set aside" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["model", *USUAL], "Name the task"),
        (["model", *USUAL, "--task", "generate"], "cannot be augmented"),
        (["ner", *USUAL, "--task", "classify"], "for the task tag alone"),
        (["ner", *USUAL, "--set", "replace_probability=2"], "`replace_probability` is 2.0"),
        (["ner", *USUAL, "--dictionary", "disease=gout.tsv"], "--entities"),
        (["ner", *USUAL, "--dictionary", "gout.tsv", "--entities", "1"], "--dictionary gout.tsv"),
        (["ner", "--train", "nowhere.tsv", "--out", "new.jsonl"], "The input nowhere.tsv"),
        (["ner", "--train", "train.jsonl", "--out", "nowhere/new.jsonl"], "Make the folder first"),
        (["ner", "--train", "train.jsonl", "--out", "gout.tsv"], "is there already"),
        (["ner", "--train", "train.jsonl", "--out", "train.jsonl", "--overwrite"], "is there already"),
        (["nowhere", *USUAL], "nowhere"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    arguments: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "generate" in arguments:
        (folder / "train.jsonl").write_text('{"abstract": "Fever and gout.", "title": "Fever"}\n')
    assert run(["augment", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not (folder / "augmented.jsonl").exists()
