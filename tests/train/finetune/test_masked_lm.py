"""Masked LM beside a task: what is masked, what the loss is, and what is written."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

from alembert import hardware, sample
from alembert.data.feed import Cursor
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, TaskSpec, prepare_data
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.masked_lm import OBJECTIVE_NAME, AuxiliaryMaskedLM, MaskedRows
from alembert.train.finetune.seeds import build_objective, with_training_heads
from alembert.train.finetune.settings import FinetuneSettings, MaskedLMSettings
from alembert.train.objective import MicroBatch
from alembert.train.settings import SavingSettings

SETTINGS = FinetuneSettings(epochs=1, masked_lm=MaskedLMSettings(weight=0.25, rate=0.3))


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> FinetuneJob:
    """Topics of short texts, and a model that has a masked-LM head."""
    folder = tmp_path_factory.mktemp("co_training")
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=64)
    heads = {"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)}
    Checkpoint.new(Blueprint(config=config, heads=heads), tokenizer, seed=3).save(folder / "model")
    lines = [{"text": p.text[:120], "label": p.topic} for p in sample.load_passages("en")[:24]]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = DataFiles(train=(folder / "train.jsonl",))
    return FinetuneJob(model=str(folder / "model"), tasks={"classify": TaskSpec(task="classify", data=data)})


@pytest.fixture(scope="module")
def ready(job: FinetuneJob) -> tuple[AuxiliaryMaskedLM, Model]:
    checkpoint = open_checkpoint(job.model)
    prepared = prepare_data(job.tasks, checkpoint, whole_vocabulary=True)
    lesson = build_objective(prepared, SETTINGS)
    assert isinstance(lesson, AuxiliaryMaskedLM)
    return lesson, prepared.vocabulary.shrink(with_training_heads(prepared, SETTINGS)).eval()


def micro_of(lesson: AuxiliaryMaskedLM, cursor: Cursor | None = None) -> MicroBatch:
    (portion,), _ = lesson.sample(cursor or Cursor(), 1, 0.0)
    return lesson.collate(portion)


def masked(micro: MicroBatch) -> MaskedRows:
    found: MaskedRows = micro.targets[OBJECTIVE_NAME]
    return found


def test_the_loss_is_the_tasks_and_the_weighted_mean_of_a_plain_masked_lm(
    ready: tuple[AuxiliaryMaskedLM, Model],
) -> None:
    lesson, model = ready
    micro = micro_of(lesson)
    rows = masked(micro)
    totals = {name: float(target.count) for name, target in micro.targets.items()}
    with torch.inference_mode():
        loss, sums = lesson.loss(model, micro, totals, None)
        alone, _ = lesson.task_objective.loss(model, micro, totals, None)
        logits = model(rows.batch, ["masked_lm"])["masked_lm"][rows.target.places]
        plain = functional.cross_entropy(logits, micro.batch.ids_N[rows.target.places])
    assert float(loss) == pytest.approx(float(alone + 0.25 * plain), rel=1e-5)
    assert sums[OBJECTIVE_NAME] == pytest.approx(float(plain) * rows.count, rel=1e-5)


def test_only_masked_places_differ_and_special_pieces_never_do(
    ready: tuple[AuxiliaryMaskedLM, Model], tokenizer: Tokenizer
) -> None:
    lesson, _ = ready
    micro = micro_of(lesson)
    rows = masked(micro)
    special = torch.isin(micro.batch.ids_N, torch.tensor(lesson.special))
    changed = rows.batch.ids_N != micro.batch.ids_N
    assert not special[rows.target.places].any()
    assert set(torch.nonzero(changed).flatten().tolist()) <= set(rows.target.places.tolist())
    assert {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id} <= set(lesson.special)


def test_markers_of_a_task_are_special_too(ready: tuple[AuxiliaryMaskedLM, Model], tokenizer: Tokenizer) -> None:
    grown = tokenizer.with_markers(["[E1]"])
    lesson = AuxiliaryMaskedLM(ready[0].task_objective, grown, SETTINGS.masked_lm, head=OBJECTIVE_NAME, seed=1)
    assert grown.id_of("[E1]") in lesson.special


def test_rates_and_shares_are_those_of_pre_training(
    ready: tuple[AuxiliaryMaskedLM, Model], tokenizer: Tokenizer
) -> None:
    lesson, _ = ready
    micros = [micro_of(lesson, Cursor(epoch=epoch, micro=0)) for epoch in range(60)]
    chosen = sum(masked(micro).count for micro in micros)
    hidden = sum(
        int((masked(micro).batch.ids_N[masked(micro).target.places] == tokenizer.mask_id).sum()) for micro in micros
    )
    assert chosen / sum(micro.tokens for micro in micros) == pytest.approx(0.3, abs=0.02)
    assert hidden / chosen == pytest.approx(0.8, abs=0.03)


def test_masks_are_new_in_every_pass_and_found_again(ready: tuple[AuxiliaryMaskedLM, Model]) -> None:
    lesson, _ = ready
    (portion,), _ = lesson.sample(Cursor(), 1, 0.0)
    again, other = lesson.collate(portion), lesson.collate(replace(portion, epoch=1))
    np.testing.assert_array_equal(masked(again).target.places, masked(lesson.collate(portion)).target.places)
    assert masked(again).target.places.tolist() != masked(other).target.places.tolist()


def test_rows_of_special_pieces_alone_add_nothing(
    ready: tuple[AuxiliaryMaskedLM, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson, model = ready
    monkeypatch.setattr(lesson, "special", list(range(model.config.vocab_size)))
    micro = micro_of(lesson)
    loss, sums = lesson.loss(model, micro, {"classify": 1.0, OBJECTIVE_NAME: 0.0}, None)
    assert sums[OBJECTIVE_NAME] == 0
    assert torch.isfinite(loss)


def test_the_model_is_written_without_the_head_and_the_log_has_its_loss(job: FinetuneJob, tmp_path: Path) -> None:
    finetune(job, tmp_path / "out", replace(SETTINGS, saving=SavingSettings(log_every=1)))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert theirs.config.architectures == ["BertForSequenceClassification"]
    assert list(TaskModel.open(tmp_path / "out").engine.model.specs) == ["classify"]  # type: ignore[attr-defined]
    rows = [json.loads(line) for line in (tmp_path / "out/run/log.jsonl").read_text().splitlines()]
    losses = [row["losses"] for row in rows if row["kind"] == "step"]
    assert losses
    assert all(set(each) == {"classify", OBJECTIVE_NAME} for each in losses)


def test_the_head_of_the_checkpoint_is_taken_and_all_rows_are_trained(job: FinetuneJob) -> None:
    checkpoint = open_checkpoint(job.model)
    prepared = prepare_data(job.tasks, checkpoint, whole_vocabulary=True)
    learner = with_training_heads(prepared, SETTINGS)
    dense = "heads.masked_lm.dense.weight"
    assert torch.equal(learner.model.state_dict()[dense], checkpoint.model.state_dict()[dense])
    assert len(prepared.vocabulary.ids_K) == checkpoint.blueprint.config.vocab_size
