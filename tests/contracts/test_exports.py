"""What an Export promises for every task, alone or among others: without torch, the numbers and answers of torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import ExportData, export
from alembert.errors import BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.infer.task_model import TaskModel
from alembert.tasks.runtime import Outputs, run_together
from alembert.tasks.runtime.export_files import ExportFormat
from small_checkpoints import fine_tuned, fine_tuned_together
from task_cases import CASES

FORMATS: tuple[ExportFormat, ...] = ("openvino", "onnx")
WRITING = ("generate", "generate, beam")
EXPORTED = [name for name in CASES if name not in WRITING]
TOGETHER = {name.replace(", ", "-"): name for name in EXPORTED}


@dataclass(frozen=True)
class Both:
    """A model in torch and as an Export, with examples of its task."""

    torch: TaskModel
    exported: TaskModel
    examples: tuple[Any, ...]


def few(examples: tuple[Any, ...]) -> tuple[Any, ...]:
    """Choose examples of different lengths: enough for batches with padding."""
    return examples[::4]


def fp32(form: ExportFormat = "openvino") -> ExportSettings:
    return ExportSettings(format=form, precision="fp32")


@pytest.fixture(params=[(name, form) for name in EXPORTED for form in FORMATS], ids=" in ".join, scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    name, form = request.param
    folder = tmp_path_factory.mktemp("export")
    examples = fine_tuned(name, folder / "checkpoint", folder / "examples.jsonl")
    export(checkpoints.open(folder / "checkpoint"), folder / "export", fp32(form))
    return Both(TaskModel.open(folder / "checkpoint"), TaskModel.open(folder / "export"), few(examples))


@pytest.fixture(params=FORMATS, scope="module")
def together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, tuple[Any, ...]]]:
    """A folder with a checkpoint for all tasks at once and its Export, and the examples of each."""
    folder = tmp_path_factory.mktemp("together")
    examples = fine_tuned_together(TOGETHER, folder / "checkpoint", folder)
    export(checkpoints.open(folder / "checkpoint"), folder / "export", fp32(request.param))
    return folder, {name: few(each) for name, each in examples.items()}


def assert_near(found: Sequence[Sequence[Outputs]], expected: Sequence[Sequence[Outputs]]) -> None:
    for one, other in zip(found, expected, strict=True):
        for own, wanted in zip(one, other, strict=True):
            np.testing.assert_allclose(own, wanted, atol=1e-4)


def test_the_outputs_are_those_of_torch(both: Both) -> None:
    encoded = both.torch.encode(both.examples)
    assert_near(both.exported.only.runner.outputs(encoded), both.torch.only.runner.outputs(encoded))


@pytest.mark.parametrize("name", TOGETHER)
def test_the_outputs_of_one_of_many_tasks_are_those_of_torch(name: str, together: Any) -> None:
    folder, examples = together
    torch, exported = (TaskModel.open(folder / each, task=name) for each in ("checkpoint", "export"))
    encoded = torch.encode(examples[name])
    assert_near(exported.only.runner.outputs(encoded), torch.only.runner.outputs(encoded))


def test_all_tasks_at_once_give_what_each_gives(together: Any) -> None:
    folder, examples = together
    torch, exported = (TaskModel.open(folder / each) for each in ("checkpoint", "export"))
    engine = torch.engine
    encoded = {
        name: part.task.encode(examples[name], engine.tokenizer, engine.max_tokens)
        for name, part in torch.tasks.items()
    }
    found, expected = (
        run_together({name: part.runner for name, part in model.tasks.items()}, encoded) for model in (exported, torch)
    )
    assert found.keys() == expected.keys() == set(TOGETHER)
    for name in TOGETHER:
        assert_near(found[name], expected[name])


def test_the_same_outputs_are_the_same_answers(both: Both) -> None:
    encoded = both.exported.encode(both.examples)
    outputs = both.torch.only.runner.outputs(encoded)
    for example, each, found in zip(both.examples, encoded, outputs, strict=True):
        records = [
            model.task.to_record(example, model.task.decode(each, found)) for model in (both.exported, both.torch)
        ]
        assert records[0] == records[1]


def test_examples_can_be_scored(both: Both) -> None:
    scores = both.exported.task.score(both.examples, both.exported.predict(both.examples))
    assert scores.coverage.examples == len(both.examples)


@pytest.mark.parametrize("name", WRITING)
def test_a_model_that_writes_texts_is_refused(name: str, tmp_path: Path) -> None:
    fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl")
    with pytest.raises(BadSetting, match="Use the checkpoint itself"):
        export(checkpoints.open(tmp_path / "checkpoint"), tmp_path / "export", fp32())
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["tag, crf", "tag, span", "classify", "compare, scores", "answer"])
def test_int8_is_near_for_heads_of_every_kind(name: str, form: ExportFormat, tmp_path: Path) -> None:
    examples = fine_tuned(name, tmp_path / "checkpoint", tmp_path / "examples.jsonl", num_hidden_layers=1)
    made = checkpoints.open(tmp_path / "checkpoint")
    settings = ExportSettings(format=form, calibration_rows=8)
    outcome = export(made, tmp_path / "export", settings, ExportData(calibration=examples))
    model, exact = TaskModel.open(tmp_path / "export"), TaskModel.open(tmp_path / "checkpoint")
    encoded = exact.encode(examples)
    found, expected = (
        np.concatenate([row.ravel() for each in one.only.runner.outputs(encoded) for row in each])
        for one in (model, exact)
    )
    assert outcome.facts.precision == "int8"
    assert np.corrcoef(found, expected)[0, 1] > 0.98
