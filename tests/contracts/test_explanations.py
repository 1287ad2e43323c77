"""What explanations promise for every task: exact places, margins with their gradients, scores that add up, or a refusal."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.errors import BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.infer.explain.explain import explain_decision, find_inputs, integrate
from alembert.infer.explain.inputs import DecisionInputs
from alembert.infer.explain.result import MAX_RESIDUE, Explanation
from alembert.infer.task_model import TaskModel
from alembert.tasks.margin import EXPLAINED_TASKS, Margin
from made_up_task import made_up  # noqa: F401
from small_checkpoints import fine_tuned
from task_cases import CASES

EXPLAINED = [name for name, case in CASES.items() if case.task in EXPLAINED_TASKS]
REFUSED = [name for name, case in CASES.items() if case.task not in EXPLAINED_TASKS]
EXPORTED = ["tag, features", "classify", "relate, markers"]


@dataclass(frozen=True)
class Explained:
    """A model with random weights, and an example of its task."""

    model: TaskModel
    example: Any

    def inputs(self) -> DecisionInputs:
        return find_inputs(self.model.only, self.model.engine, self.example, None, None)

    def explain(self, method: str) -> Explanation:
        return explain_decision(self.model.only, self.model.engine, self.example, method=method)  # type: ignore[arg-type]


def ready(name: str, folder: Path) -> Explained:
    examples = fine_tuned(name, folder / "checkpoint", folder / "examples.jsonl")
    return Explained(TaskModel.open(folder / "checkpoint"), examples[1])


@pytest.fixture(params=EXPLAINED, scope="module")
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explained]:
    return ready(request.param, tmp_path_factory.mktemp("explained"))


def test_words_are_exact_stretches_of_the_texts(explained: Explained) -> None:
    words = explained.inputs().words
    assert words
    for word in words:
        assert explained.example.texts[word.text][word.start : word.end] == word.name
        assert word.name
        assert not any(character.isspace() for character in word.name)


def test_pieces_of_words_are_the_tokens_of_the_rows(explained: Explained) -> None:
    inputs = explained.inputs()
    tokenizer = explained.model.engine.tokenizer
    for word in inputs.words:
        for row, tokens in word.cells.items():
            ids = inputs.encoded.rows[row].ids[list(tokens)].tolist()
            assert tuple(ids) == tokenizer.encode(word.name, add_special_tokens=False).ids


def test_the_gradient_of_a_margin_is_its_slope(explained: Explained) -> None:
    inputs = explained.inputs()
    random = np.random.default_rng(2)
    outputs = [each + random.normal(0, 0.05, each.shape) for each in inputs.outputs]  # where no two answers are equal
    directions = [random.normal(size=each.shape) for each in outputs]

    def margin(step: float) -> Margin:
        moved: Any = [each + step * way for each, way in zip(outputs, directions, strict=True)]
        return inputs.margins.margin(inputs.encoded, moved, inputs.question)

    step = 1e-4
    slope = (margin(step).value - margin(-step).value) / (2 * step)
    pairs = zip(margin(0).gradient, directions, strict=True)
    assert slope == pytest.approx(sum(float((gradient * way).sum()) for gradient, way in pairs), rel=1e-2, abs=1e-2)


def test_gradients_add_up_to_the_change_of_the_margin(explained: Explained) -> None:
    inputs = explained.inputs()
    scores, residue, _ = integrate(inputs)
    (without,) = inputs.margins_without([inputs.words])
    change = inputs.base.value - without
    assert residue <= MAX_RESIDUE
    assert sum(scores[: len(inputs.words)]) == pytest.approx(change, rel=MAX_RESIDUE * 1.01)


@pytest.mark.parametrize("name", REFUSED)
def test_tasks_without_margins_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"cannot be explained.* are tag, classify, relate, answer, choose\."):
        ready(name, tmp_path).explain("occlusion")


@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_has_the_occlusion_of_its_checkpoint(name: str, tmp_path: Path) -> None:
    checkpoint = ready(name, tmp_path)
    export(
        checkpoints.open(tmp_path / "checkpoint"),
        tmp_path / "export",
        ExportSettings(format="onnx", precision="fp32"),
    )
    exported = Explained(TaskModel.open(tmp_path / "export"), checkpoint.example)
    one, other = checkpoint.explain("occlusion"), exported.explain("occlusion")
    assert one.question == other.question
    for parts in ("words", "features"):
        scores = [sorted(each.score for each in getattr(found, parts)) for found in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)
