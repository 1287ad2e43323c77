"""The task `generate` from end to end: a fresh head or a kept one, what is saved, and who opens it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from alembert import hardware, sample
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import with_heads
from alembert.infer.evaluate import evaluate
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.tasks.generate.data import GenerateSettings
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, FinetuneRunResult, finetune
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.settings import BatchSettings, OptimiserSettings

HOW = GenerateSettings(
    max_source_length=40, max_target_length=12, eval_examples=3, decoding=DecodeSettings(max_new_tokens=6)
)
SETTINGS = FinetuneSettings(
    steps=2, batch=BatchSettings(tokens=512, micro_tokens=256), optimiser=OptimiserSettings(learning_rate=1e-3)
)
HEAD = {"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)}


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


def write(path: Path, split: str, count: int) -> Path:
    pairs = [{"text": each.text[40:], "title": each.text[:40]} for each in sample.load_passages("en", split)[:count]]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with two models, one without a head, and pairs."""
    folder = tmp_path_factory.mktemp("generate")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=64)
    Checkpoint.new(Blueprint(config=config), tokenizer, seed=3).save(folder / "bare")
    Checkpoint.new(Blueprint(config=config, heads=HEAD), tokenizer, seed=3).save(folder / "headed")
    write(folder / "train.jsonl", "train", 12)
    write(folder / "dev.jsonl", "dev", 8)
    return folder


def run(
    place: Path, model: str, settings: FinetuneSettings = SETTINGS, *, copy: bool = True
) -> tuple[Path, FinetuneRunResult]:
    data = DataFiles(train=(place / "train.jsonl",), dev=(place / "dev.jsonl",))
    spec = TaskSpec(task="generate", data=data, settings=replace(HOW, copy=copy))
    out = place / f"{model}-out-{copy}"
    return out, finetune(FinetuneJob(model=str(place / model), tasks={"generate": spec}), out, settings)


@pytest.fixture(scope="module")
def made(place: Path) -> tuple[Path, FinetuneRunResult]:
    return run(place, "bare")


@pytest.fixture(scope="module")
def plain(place: Path) -> Path:
    """A model that does not copy."""
    return run(place, "bare", copy=False)[0]


def test_a_model_without_a_head_learns_and_says_how_many_it_was_judged_by(
    made: tuple[Path, FinetuneRunResult],
) -> None:
    assert made[1].measures["scored"] == 3


def test_the_saved_model_writes_for_all(made: tuple[Path, FinetuneRunResult], place: Path) -> None:
    model = TaskModel.open(made[0])
    found = evaluate(model, [place / "dev.jsonl"], rounds=10)
    assert found.scores.measures["scored"] == 8
    assert found.scores.coverage.cut_characters > 0
    (prediction,) = model.predict(model.task.examples_from_texts(["No fever."]))
    assert isinstance(prediction.text, str)


@pytest.mark.parametrize("copy", [True, False])
def test_a_head_that_is_there_is_kept(copy: bool, place: Path) -> None:
    still = FinetuneSettings(
        steps=1, batch=SETTINGS.batch, optimiser=OptimiserSettings(learning_rate=1e-30, weight_decay=0.0)
    )
    out, _ = run(place, "headed", still, copy=copy)
    before, after = (open_checkpoint(folder).model.state_dict() for folder in (place / "headed", out))
    head = "copy_lm" if copy else "masked_lm"
    torch.testing.assert_close(after[f"heads.{head}.dense.weight"], before["heads.masked_lm.dense.weight"])


@pytest.mark.parametrize("copy", [True, False])
def test_transformers_opens_the_model_with_equal_logits(
    copy: bool, made: tuple[Path, FinetuneRunResult], plain: Path
) -> None:
    out = made[0] if copy else plain
    theirs = transformers.BertForMaskedLM.from_pretrained(out).eval()
    ours = with_heads(open_checkpoint(out), HEAD).model  # the vocabulary's logits alone
    ids = torch.tensor([[2, 9, 8, 7, 3]])
    with torch.inference_mode():
        found = ours(Batch.padded(ids), ["masked_lm"])["masked_lm"]
        torch.testing.assert_close(found, theirs(ids).logits[0], atol=1e-4, rtol=1e-4)


def test_a_folder_of_before_writes_what_it_wrote(plain: Path) -> None:
    """Its task.json has no `copy`, and its model no weights for it."""
    file = plain / "task.json"
    saved = json.loads(file.read_text("utf8"))
    del saved["tasks"]["generate"]["settings"]["copy"]
    predictions = [predict(TaskModel.open(plain))]
    file.write_text(json.dumps(saved), encoding="utf8")
    predictions.append(predict(TaskModel.open(plain)))
    assert predictions[0] == predictions[1]


def predict(model: TaskModel) -> object:
    return model.predict(model.task.examples_from_texts(["No fever was seen."]))
