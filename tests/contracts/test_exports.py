"""What an Export promises for every task: without torch, the numbers and answers that torch gives."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress.export import Material, export
from alembert.compress.settings import ExportSettings
from alembert.errors import BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.infer.task_model import TaskModel
from small_checkpoints import fine_tuned
from task_cases import CASES

FP32 = ExportSettings(precision="fp32")
WRITING = ("generate", "generate, beam")


@dataclass(frozen=True)
class Both:
    """A model in torch and as an Export, with examples of its task."""

    torch: TaskModel
    openvino: TaskModel
    examples: tuple[Any, ...]


@pytest.fixture(params=[name for name in CASES if name not in WRITING], scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("export")
    examples = fine_tuned(request.param, folder / "checkpoint", folder / "examples.jsonl")
    export(checkpoints.open(folder / "checkpoint"), folder / "export", FP32)
    return Both(TaskModel.open(folder / "checkpoint"), TaskModel.open(folder / "export"), examples)


def test_the_outputs_are_those_of_torch(both: Both) -> None:
    encoded = both.torch.encode(both.examples)
    pairs = zip(both.openvino.runner.outputs(encoded), both.torch.runner.outputs(encoded), strict=True)
    for found, expected in pairs:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_the_same_outputs_are_the_same_answers(both: Both) -> None:
    encoded = both.openvino.encode(both.examples)
    outputs = both.torch.runner.outputs(encoded)
    for example, each, found in zip(both.examples, encoded, outputs, strict=True):
        records = [
            model.task.record(example, model.task.decode(each, found))
            for model in (both.openvino, both.torch)
        ]
        assert records[0] == records[1]


def test_examples_can_be_scored(both: Both) -> None:
    scores = both.openvino.task.score(both.examples, both.openvino.predict(both.examples))
    assert scores.coverage.examples == len(both.examples)


@pytest.mark.parametrize("name", WRITING)
def test_a_model_that_writes_texts_is_refused(name: str, tmp_path: Path) -> None:
    fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    with pytest.raises(BadSetting, match="Use the checkpoint itself"):
        export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", FP32)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("name", ["tag, crf", "tag, span", "classify", "compare, scores", "answer"])
def test_int8_is_near_for_heads_of_every_kind(name: str, tmp_path: Path) -> None:
    examples = fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    made = checkpoints.open(tmp_path / "checkpoint")
    settings = ExportSettings(rows=8)
    outcome = export(made, tmp_path / "export", settings, Material(calibration=examples))
    model, exact = TaskModel.open(tmp_path / "export"), TaskModel.open(tmp_path / "checkpoint")
    encoded = exact.encode(examples)
    found, expected = (
        np.concatenate([row.ravel() for each in one.runner.outputs(encoded) for row in each])
        for one in (model, exact)
    )
    assert outcome.facts.precision == "int8"
    assert np.corrcoef(found, expected)[0, 1] > 0.98
