"""Models whose outputs are no numbers are refused with a sentence, whatever runs them and whatever is asked."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alembert.cli import run
from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.errors import BadFile, UserError
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.embedder import Embedder
from alembert.infer.engine_torch import TorchEngine
from alembert.infer.language_model import generate
from alembert.infer.task_model import TaskModel
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.tasks.runtime.export_files import DECODING_FILE
from alembert.terminal import print_json
from small_checkpoints import SHAPE, fine_tuned
from task_cases import TOKENIZER

FP32 = ExportSettings(format="openvino", precision="fp32")
FORMATS = ["checkpoint", "openvino", "onnx"]


def spoiled(made: Checkpoint, part: str, value: float = math.nan) -> Checkpoint:
    """Give a checkpoint one weight that is no number."""
    weight = next(each for name, each in made.model.named_parameters() if part in name)
    with torch.no_grad():
        weight.view(-1)[0] = value
    return made


def spoiled_task(case: str, part: str, place: Path, form: Any, value: float = math.nan) -> Path:
    """Make a fine-tuned model with a weight that is no number, as a Checkpoint or an Export."""
    fine_tuned(case, place / "sound", place / "examples.jsonl")
    spoiled(checkpoints.open(place / "sound"), part, value).save(place / "checkpoint")
    shutil.copyfile(place / "sound" / "task.json", place / "checkpoint" / "task.json")
    if form != "checkpoint":
        made = checkpoints.open(place / "checkpoint")
        export(made, place / form, replace(FP32, format=form))
    return place / str(form)


@pytest.fixture
def writer() -> TorchEngine:
    """A causal model with a masked-LM head, one weight of which is no number."""
    config = EncoderConfig(vocab_size=TOKENIZER.vocab_size, attention="causal", **SHAPE)
    blueprint = Blueprint(config=config, heads={"masked_lm": HeadSpec(kind="masked_lm")})
    return TorchEngine(spoiled(Checkpoint.new(blueprint, TOKENIZER), "heads.masked_lm"))


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("form", FORMATS)
def test_outputs_that_are_not_finite_are_refused(
    form: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = spoiled_task("classify", "heads.classify", tmp_path, form, value)
    assert run(["predict", str(model), "aspirin", "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "NaN or infinite" in told.err


def test_transitions_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="Transitions of the CRF of the model are NaN or infinite"):
        TaskModel.open(spoiled_task("tag, crf", "transitions", tmp_path, "checkpoint"))


def test_transitions_of_an_export_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    fine_tuned("tag, crf", tmp_path / "model", tmp_path / "examples.jsonl")
    export(checkpoints.open(tmp_path / "model"), tmp_path / "export", FP32)
    with np.load(tmp_path / "export" / DECODING_FILE) as kept:
        spoilt = {name: np.full_like(each, np.nan) for name, each in kept.items()}
    np.savez(tmp_path / "export" / DECODING_FILE, allow_pickle=False, **spoilt)
    with pytest.raises(BadFile, match="Transitions of the CRF of the model are NaN or infinite"):
        TaskModel.open(tmp_path / "export")


@pytest.mark.parametrize("form", FORMATS)
def test_vectors_that_are_not_finite_are_refused(form: str, tmp_path: Path) -> None:
    embedder = Embedder.open(spoiled_task("compare", "encoder.embeddings.norm", tmp_path, form))
    with pytest.raises(BadFile, match="NaN or infinite"):
        embedder.embed(["aspirin"])


def test_words_for_masks_are_refused(writer: TorchEngine) -> None:
    with pytest.raises(BadFile, match="NaN or infinite"):
        writer.vocabulary_probabilities([5, 6], [0])


def test_texts_are_not_continued(writer: TorchEngine) -> None:
    with pytest.raises(BadFile, match="NaN or infinite"):
        generate(writer, "aspirin")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_has_no_number_that_is_none(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="NaN or infinite"):
        print_json({"score": value})
    print_json({"score": 0.5})
    assert json.loads(capsys.readouterr().out) == {"score": 0.5}
