"""Every head can be distilled: one small chain for each, from labelled lines to a student that answers."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from alembert import hardware
from alembert.corpus.readers.contract import ReadOptions
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.tasks.task import get_task_class
from alembert.train.distill.distill import distill
from alembert.train.distill.settings import DistillSettings, StageLossWeights, StageSettings
from alembert.train.distill.stages import DistillJob
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.run import RunContext
from task_cases import CASES, LONGEST, TOKENIZER

CHOSEN = (
    "answer",
    "answer, label",
    "choose",
    "generate",
    "relate",
    "relate, markers",
    "tag",
    "tag, crf",
    "tag, features",
    "tag, span",
    "classify",
    "classify, several",
    "classify, number",
    "classify, pairs",
    "compare, triples",
    "compare, mean",
)
"""One case for each head, and for each way in which a task reads it."""
BRIEF = DistillSettings(
    intermediate=StageSettings(steps=2, losses=StageLossWeights(attention=1, hidden=1)),
    prediction=StageSettings(steps=2, losses=StageLossWeights(prediction=1, labels=0.5)),
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = EncoderConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LONGEST,
    )
    folder = tmp_path_factory.mktemp("plain") / "model"
    Checkpoint.new(Blueprint(config=config), TOKENIZER, seed=3).save(folder)
    return folder


def chain(name: str, plain: Path, folder: Path) -> Path:
    """Fine-tune a teacher and distil it; give the file of examples."""
    case = CASES[name]
    path = folder / "examples.jsonl"
    path.write_text("\n".join(map(json.dumps, case.lines())) + "\n", encoding="utf8")
    data = DataFiles(unsplit=(path,), split="60/40")
    settings = get_task_class(case.task).settings_class(**case.settings)
    job = FinetuneJob(model=str(plain), tasks={case.task: TaskSpec(task=case.task, data=data, settings=settings)})
    finetune(job, folder / "teacher", FinetuneSettings(steps=2))
    wish = DistillJob(teacher=str(folder / "teacher"), student="1x8", data=data)
    distill(wish, folder / "student", BRIEF, context=RunContext(cache=folder / "cache"))
    return path


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.mark.parametrize("name", CHOSEN)
def test_every_head_is_distilled(name: str, plain: Path, tmp_path: Path) -> None:
    path = chain(name, plain, tmp_path)
    model = TaskModel.open(tmp_path / "student")
    examples = model.read([path], ReadOptions()).examples[:3]
    assert len(model.predict(examples)) == 3
    assert model.task.labels == TaskModel.open(tmp_path / "teacher").task.labels
    assert open_checkpoint(tmp_path / "student").blueprint.config.hidden_size == 8


def test_nothing_stands_between_pooler_and_head(plain: Path, tmp_path: Path) -> None:
    """The published code has a ReLU on the pooled output, which BERT has not: transformers would read another model."""
    chain("classify", plain, tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "student").eval()
    ours = open_checkpoint(tmp_path / "student").model
    ids = [2, 7, 12, 30, 3]
    with torch.no_grad():
        expected, found = theirs(torch.tensor([ids])).logits, ours(Batch.packed([ids]))["classify"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
