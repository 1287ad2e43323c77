"""Questions from end to end on the embedded sample: it learns, others open the result, and it predicts as it was scored."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from alembert import hardware, sample
from alembert.cli import run
from alembert.corpus.readers.contract import ReadOptions
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, FinetuneRunResult, finetune
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.run import RunContext
from alembert.train.settings import BatchSettings, EvaluationSettings, OptimiserSettings

SETTINGS = FinetuneSettings(
    epochs=2, batch=BatchSettings(tokens=1024, micro_tokens=512), optimiser=OptimiserSettings(learning_rate=1e-3)
)


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


def articles(split: str, count: int) -> list[dict[str, Any]]:
    """The passages of the sample as SQuAD has them."""
    return [
        {
            "title": passage.id,
            "paragraphs": [
                {
                    "context": passage.text,
                    "qas": [
                        {
                            "id": asked.id,
                            "question": asked.question,
                            "answers": [{"text": passage.text[a:b], "answer_start": a} for a, b in asked.answers],
                            "is_impossible": not asked.answers,
                        }
                        for asked in passage.questions
                    ],
                }
            ],
        }
        for passage in sample.load_passages("en", split)[:count]
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with `model`, `train.json`, a `few.json` of it, and `dev.json`."""
    folder = tmp_path_factory.mktemp("answer")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "model")
    for name, split, count in (("train", "train", 20), ("few", "train", 2), ("dev", "dev", 6)):
        content = {"version": "v2.0", "data": articles(split, count)}
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf8")
    return folder


def job(place: Path, train: str = "train", dev: str = "dev") -> FinetuneJob:
    data = DataFiles(train=(place / f"{train}.json",), dev=(place / f"{dev}.json",))
    return FinetuneJob(model=str(place / "model"), tasks={"answer": TaskSpec(task="answer", data=data)})


@pytest.fixture(scope="module")
def reader(place: Path) -> tuple[Path, FinetuneRunResult]:
    return place / "qa", finetune(job(place), place / "qa", SETTINGS)


def test_it_learns(place: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(
        epochs=30,
        evals_per_epoch=0.03,
        batch=BatchSettings(tokens=1024, micro_tokens=512),
        optimiser=OptimiserSettings(learning_rate=2e-3),
        evaluation=EvaluationSettings(at_start=False),
    )
    losses: list[float] = []
    context = RunContext(on_progress=lambda progress: losses.append(progress.loss or 0.0))
    finetune(job(place, "few"), tmp_path / "out", settings, context=context)
    assert losses[-1] < 0.5 * losses[0]


def test_transformers_opens_it_with_the_same_logits(reader: tuple[Path, FinetuneRunResult]) -> None:
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(reader[0]).eval()
    ours = TaskModel.open(reader[0])
    ids, segments = [2, 5, 17, 3, 23, 42, 3], [0, 0, 0, 0, 1, 1, 1]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([segments]))
        found = ours.engine.model(Batch.packed([ids], [segments]))["span"]  # type: ignore[attr-defined]
    torch.testing.assert_close(found[:, 0], expected.start_logits[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[:, 1], expected.end_logits[0], atol=1e-5, rtol=1e-4)


def test_it_predicts_as_it_was_scored(reader: tuple[Path, FinetuneRunResult], place: Path) -> None:
    out, done = reader
    model = TaskModel.open(out)
    examples = model.read([place / "dev.json"], ReadOptions()).examples
    assert model.task.score(examples, model.predict(examples)).measures == pytest.approx(done.measures)
    assert done.main == "f1"
    assert done.measures["f1"] == pytest.approx(done.measures["best_f1"])


def test_a_question_at_the_command_line_has_exact_offsets(
    reader: tuple[Path, FinetuneRunResult], capsys: pytest.CaptureFixture[str]
) -> None:
    passage = "Imatinib inhibits BCR-ABL1. " * 40
    assert run(["predict", str(reader[0]), f"What does imatinib inhibit?\t{passage}", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["coverage"]["windows"] > 1
    assert all(passage[each["start"] : each["end"]] == each["text"] for each in record["best"])


def test_labels_are_learnt_as_pairs(place: Path, tmp_path: Path) -> None:
    lines = [
        {"question": f"Is it {word}?", "context": f"Report {n}: it is {word}.", "label": label}
        for n in range(8)
        for word, label in (("asthma", "yes"), ("sepsis", "no"))
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = DataFiles(train=(path,))
    work = FinetuneJob(model=str(place / "model"), tasks={"answer": TaskSpec(task="answer", data=data)})
    done = finetune(work, tmp_path / "out", SETTINGS)
    model = TaskModel.open(tmp_path / "out")
    (example,) = model.task.examples_from_texts(["Is it asthma?\tIt is."])
    (prediction,) = model.predict([example])
    record = model.task.to_record(example, prediction)
    assert (done.main, record["question"], record["label"] in ("yes", "no")) == (
        "accuracy",
        "Is it asthma?",
        True,
    )
    assert transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config.num_labels == 2
