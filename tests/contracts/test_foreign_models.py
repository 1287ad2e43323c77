"""Every verb takes a model that transformers or sentence-transformers saved, as it takes one that was fine-tuned here."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from alembert import sample
from alembert.cli import run
from alembert.corpus.document import Document
from alembert.corpus.readers import read
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.embedder import Embedder
from alembert.infer.task_model import TaskModel
from alembert.tasks.compare.pooling import Pooling, build_sentence_transformers_files
from alembert.tasks.files import describe_inferred_task
from foreign_models import SHAPE, save_foreign
from task_cases import CASES

TYPES = sorted(sample.LABELS)
TOPICS = sorted({str(line["label"]) for line in CASES["classify"].lines()})
BRIEF = "[intermediate]\nskip = true\n[prediction]\nsteps = 2\n"


@dataclass(frozen=True)
class Foreign:
    """A kind of model, and examples that it can be asked."""

    head: str
    case: str
    labels: list[str] | None = None
    config: dict[str, Any] = field(default_factory=dict)


MODELS = {
    "tag": Foreign("ForTokenClassification", "tag", [*(f"{p}_{t}" for t in TYPES for p in "IB"), "O"]),
    "classify": Foreign("ForSequenceClassification", "classify", TOPICS),
    "several labels": Foreign(
        "ForSequenceClassification",
        "classify, several",
        [*TOPICS, "medicine"],
        {"problem_type": "multi_label_classification"},
    ),
    "number": Foreign("ForSequenceClassification", "classify, number", ["LABEL_0"]),
    "pairs": Foreign("ForSequenceClassification", "classify, pairs", ["yes", "no"]),
    "answer": Foreign("ForQuestionAnswering", "answer"),
    "choose": Foreign("ForMultipleChoice", "choose"),
    "compare": Foreign("Model", "compare, scores"),
}
Made = Callable[[str, str], Foreign]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Make a model in the folder `model`, and its examples in `examples.jsonl`."""
    monkeypatch.chdir(tmp_path)
    Path("brief.toml").write_text(BRIEF)

    def make(name: str, family: str) -> Foreign:
        foreign = MODELS[name]
        labels = None if foreign.labels is None else dict(enumerate(foreign.labels))
        save_foreign(Path("model"), f"{family}{foreign.head}", labels=labels, **foreign.config)
        if name == "compare":
            pooling = Pooling(mode="mean", dimension=SHAPE["hidden_size"], normalise=True, length=128)
            for path, content in build_sentence_transformers_files(pooling).items():
                (Path("model") / path).parent.mkdir(exist_ok=True)
                (Path("model") / path).write_bytes(content)
        lines = CASES[foreign.case].lines()
        Path("examples.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return foreign

    return make


@pytest.mark.parametrize("family", ["Bert", "Albert"])
@pytest.mark.parametrize("name", MODELS)
def test_evaluate_and_export_agree_about_int8(
    name: str, family: str, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made(name, family)
    calibrate = [
        "--calibrate",
        "examples.jsonl",
        "--set",
        "calibration_rows=6",
        "--set",
        "run.speed=false",
        "--set",
        "max_score_loss=100",
    ]
    assert run(["export", "model", *calibrate, "--out", "int8"]) == 0
    assert capsys.readouterr().err.count("model has no task.json") == 1
    assert run(["evaluate", "model", "examples.jsonl", "--set", "run.bootstrap_samples=10", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert run(["evaluate", "int8", "examples.jsonl", "--set", "run.bootstrap_samples=10", "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["task"] == scores["task"]
    assert exported["scores"]["main"] == scores["scores"]["main"]


@pytest.mark.parametrize("family", ["Bert", "Albert"])
@pytest.mark.parametrize("name", MODELS)
def test_distill_hands_the_labels_down(name: str, family: str, made: Made) -> None:
    made(name, family)
    files = ["--data", "examples.jsonl", "--set", "run.split=60/40", "--config", "brief.toml"]
    assert run(["distill", "model", "--student", "1x16", *files, "--out", "student"]) == 0
    teacher, student = TaskModel.open("model"), TaskModel.open("student")
    assert student.task.labels == teacher.task.labels
    assert student.task.comparison_key() == teacher.task.comparison_key()


@pytest.mark.parametrize("name", ["tag", "classify", "several labels"])
def test_annotate_writes_what_predict_says(name: str, made: Made) -> None:
    made(name, "Bert")
    assert run(["annotate", "model", "examples.jsonl", "--out", "annotated"]) == 0
    documents = [each for each in read(next(Path("annotated").glob("part-*"))) if isinstance(each, Document)]
    model = TaskModel.open("model")
    found = model.predict(model.task.examples_from_texts([document.text for document in documents]))
    assert len(found) == len(CASES[MODELS[name].case].lines())
    for document, prediction in zip(documents, found, strict=True):
        if name == "tag":
            spans = [(each.start, each.end, each.label) for each in document.entities]
            assert spans == prediction.spans
        else:
            answer = prediction.answer
            assert document.labels == ((answer.label,) if answer.labels is None else answer.labels)


def test_a_document_with_a_tab_is_one_text(made: Made) -> None:
    made("pairs", "Bert")
    documents = [Document(id=str(n), text=text) for n, text in enumerate(["the\tgene", "the gene"])]
    one, other = Pipeline.open(["model"]).annotate(documents)
    assert one.coverage.tokens == other.coverage.tokens


@pytest.mark.parametrize("name", ["tag", "classify", "answer", "choose"])
def test_errors_are_sorted(name: str, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made(name, "Bert")
    assert run(["inspect", "errors", "model", "examples.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_vectors_of_a_sentence_encoder_are_those_that_it_embeds(made: Made) -> None:
    made("compare", "Bert")
    assert "by its modules.json it is a sentence encoder" in str(describe_inferred_task(Path("model")))
    model, texts = TaskModel.open("model"), ["the gene", "cancer of the breast"]
    (one, other) = model.predict(model.task.examples_from_texts(texts))
    embedded = Embedder.open("model").embed(texts).vectors_ND
    assert [*one.vectors[0], *other.vectors[0]] == pytest.approx([*embedded[0], *embedded[1]], abs=1e-5)


def test_predict_says_once_what_the_folder_is(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made("tag", "Bert")
    capsys.readouterr()
    assert run(["predict", "model", "the gene"]) == 0
    told = capsys.readouterr().err
    assert told.startswith(f"note: model has no task.json; by its config.json it is a tagger (BIO, {len(TYPES)}")
    assert told.count("task.json") == 1


def test_predict_tells_a_masked_lm_what_it_can_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_foreign(tmp_path, "BertForMaskedLM")
    assert run(["predict", str(tmp_path), "the gene"]) == 2
    assert "alembert fill" in capsys.readouterr().err


def test_a_folder_without_a_tokenizer_is_told_where_to_get_one(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made("tag", "Bert")
    (Path("model") / "vocab.txt").unlink()
    assert run(["predict", "model", "the gene"]) == 2
    assert "Put the files of the tokenizer it was trained with there" in capsys.readouterr().err


def test_another_family_is_told_how_to_go_on(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made("tag", "Bert")
    config = Path("model/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "roberta"}))
    assert run(["predict", "model", "the gene"]) == 2
    assert "alembert convert FOLDER --family bert --out NEW" in capsys.readouterr().err
    assert run(["convert", "model", "--family", "bert", "--out", "bert"]) == 0
    assert run(["predict", "bert", "the gene"]) == 0
