"""What every task promises, whatever it learns: one list of checks for all of them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import UserError
from alembert.nn.config import EncoderConfig
from alembert.nn.model import Model, new_model
from alembert.tasks.files import read_task, write_tasks
from alembert.tasks.runtime.torch import ModelRunner, TaskBatch, collate_rows
from alembert.tasks.settings import DistillLossSettings, LossSettings
from alembert.tasks.task import TASKS, AnyTask, get_task_class
from alembert.text.tokenizer import Tokenizer
from made_up_task import MADE_UP, made_up  # noqa: F401
from task_cases import CASES, LONGEST, TOKENIZER


@dataclass(frozen=True)
class Ready:
    """A task that has learnt its labels, with examples, rows and a model."""

    task: AnyTask
    tokenizer: Tokenizer
    examples: list[Any]
    encoded: list[Any]
    trained: list[Any]
    """The examples as they are trained on."""
    model: Model
    teacher: Model
    """Another model for the same task."""

    @property
    def head(self) -> str:
        return self.task.head().kind

    def answers(self, encoded: list[Any]) -> list[Any]:
        return list(self.task.run(ModelRunner(self.model, self.head, self.task.attention_pattern), encoded))

    def loss(self, chosen: list[Any]) -> torch.Tensor:
        rows = [(n, row) for n, each in enumerate(chosen) for row in each.rows]
        target = collate_rows([row for _, row in rows], [n for n, _ in rows], len(chosen))
        return self.task.loss(self.model.head(self.head), self.outputs(target), target, LossSettings())

    def outputs(self, target: TaskBatch, model: Model | None = None) -> torch.Tensor:
        asked: dict[str, Any] = {"positions_P": target.positions, "attention": self.task.attention_pattern}
        found: dict[str, torch.Tensor] = (model or self.model)(target.batch, [self.head], **asked, only=True)
        return found[self.head]

    def targets(self, *parts: slice) -> list[TaskBatch]:
        """Make a micro-batch of each part of what is computed at once: the rows of an example, or each row alone."""
        items: list[Any] = [each.rows for each in self.trained]
        if self.task.loss_unit != "examples":
            items = [(row,) for rows in items for row in rows]
        drawn = [[(n, row) for n, rows in enumerate(items[part]) for row in rows] for part in parts]
        return [collate_rows([row for _, row in rows], [n for n, _ in rows], 1) for rows in drawn]

    def taught(self, target: TaskBatch, settings: DistillLossSettings, model: Model) -> torch.Tensor:
        with torch.inference_mode():
            outputs = self.outputs(target, model)
            return self.task.teacher_targets(model.head(self.head), outputs, target, settings)

    def imitation(self, target: TaskBatch, settings: DistillLossSettings, taught: torch.Tensor) -> torch.Tensor:
        head = self.model.head(self.head)
        return self.task.distillation_loss(head, self.outputs(target), taught, target, settings)


ALL_CASES = CASES | {"made up": MADE_UP}


@pytest.fixture(params=ALL_CASES, scope="module")
def ready(made_up: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ready:  # noqa: F811
    case = ALL_CASES[request.param]
    path = tmp_path_factory.mktemp("task") / "examples.jsonl"
    path.write_text("\n".join(map(json.dumps, case.lines())) + "\n", encoding="utf8")
    kind = get_task_class(case.task)
    settings = kind.settings_class(**case.settings)
    reading = kind.read([path], settings, ReadOptions())
    assert not reading.set_aside
    task = kind.learn(reading.examples, settings)
    tokenizer = TOKENIZER.with_markers(task.special_tokens)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LONGEST,
        token_features=sum(task.token_features.values()) or None,
    )
    spec = task.head()
    model, teacher = (new_model(config, {spec.kind: spec}, seed=seed).eval() for seed in (1, 2))
    for parameter in model.heads.parameters():  # zero transitions and biases would hide a mix-up
        torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(6)
    for parameter in teacher.parameters():  # a new model has no opinion that could be taught
        torch.nn.init.normal_(parameter, std=0.5, generator=generator)
    encoded = task.encode(reading.examples, tokenizer, LONGEST)
    trained = task.for_training().encode(reading.examples, tokenizer, LONGEST)
    bound = task.with_head_weights(model.head(spec.kind))
    return Ready(bound, tokenizer, list(reading.examples), encoded, trained, model, teacher)


def test_every_task_has_a_case() -> None:
    assert {case.task for case in CASES.values()} == set(TASKS)


def test_rows_fit_the_model_and_ask_inside_themselves(ready: Ready) -> None:
    for encoded in ready.encoded:
        assert encoded.rows
        for row in encoded.rows:
            assert row.length <= LONGEST
            assert row.positions.min() >= 0
            assert row.positions.max() < row.length
        assert any(row.labels is not None for row in encoded.rows)


def test_the_check_accepts_what_was_learnt_from(ready: Ready) -> None:
    ready.task.check(ready.examples)


def test_decisions_are_told(ready: Ready) -> None:
    assert all(ready.task.describe())


def test_the_loss_is_finite_and_reaches_the_head(ready: Ready) -> None:
    loss = ready.loss(ready.trained[:6])
    # A head without weights hands the loss on to the encoder.
    embedding = {"embedding": ready.model.encoder.embeddings.token.weight}
    weights = dict(ready.model.heads.named_parameters()) or embedding
    found = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
    assert torch.isfinite(loss)
    assert all(torch.isfinite(each).all() for each in found.values())
    # A bias that is added to all that a softmax compares moves nothing.
    assert all(each.abs().sum() > 0 for name, each in found.items() if not name.endswith("bias"))


def test_two_equal_passes_do_not_diverge(ready: Ready) -> None:
    rows = [(n, row) for n, each in enumerate(ready.trained[:4]) for row in each.rows]
    target = collate_rows([row for _, row in rows], [n for n, _ in rows], 4)
    with torch.inference_mode():
        outputs = ready.outputs(target)
        assert float(ready.task.divergence(outputs, outputs, target)) == pytest.approx(0, abs=1e-5)
        assert float(ready.task.divergence(outputs, outputs + torch.randn(outputs.shape), target)) > 0


def test_the_loss_of_a_batch_is_that_of_its_groups(ready: Ready) -> None:
    size = ready.task.loss_group_size
    groups = [ready.trained[start : start + size] for start in range(0, max(6 // size, 1) * size, size)]
    together = [[each for group in groups for each in group]] if size == 1 else groups
    with torch.inference_mode():
        apart = sum(float(ready.loss(group)) for group in groups)
        assert sum(float(ready.loss(part)) for part in together) == pytest.approx(apart, rel=1e-4)


SOFT = [DistillLossSettings(), DistillLossSettings(temperature=3.0)]
IMITATIONS = [*SOFT, DistillLossSettings(crf="path")]


@pytest.mark.parametrize("settings", SOFT, ids=str)
def test_nothing_is_learnt_from_oneself(ready: Ready, settings: DistillLossSettings) -> None:
    (target,) = ready.targets(slice(6))
    loss = ready.imitation(target, settings, ready.taught(target, settings, ready.model))
    found = torch.autograd.grad(loss, list(ready.model.parameters()), allow_unused=True)
    assert loss.item() == pytest.approx(0, abs=1e-5)
    assert all(each is None or each.abs().max() < 1e-4 for each in found)


@pytest.mark.parametrize("settings", IMITATIONS, ids=str)
def test_imitation_of_another_is_positive_and_its_gradient_finite(ready: Ready, settings: DistillLossSettings) -> None:
    (target,) = ready.targets(slice(6))
    loss = ready.imitation(target, settings, ready.taught(target, settings, ready.teacher))
    found = torch.autograd.grad(loss, list(ready.model.parameters()), allow_unused=True)
    moved = [each for each in found if each is not None]
    assert 0 < loss.item() < float("inf")
    assert all(torch.isfinite(each).all() for each in moved)
    assert any(each.abs().max() > 0 for each in moved)


@pytest.mark.parametrize("settings", IMITATIONS, ids=str)
def test_imitation_adds_up_over_micro_batches(ready: Ready, settings: DistillLossSettings) -> None:
    whole, *parts = ready.targets(slice(7), slice(2), slice(2, 7))
    with torch.inference_mode():
        together, *apart = [
            float(ready.imitation(each, settings, ready.taught(each, settings, ready.teacher)))
            for each in (whole, *parts)
        ]
    assert sum(apart) == pytest.approx(together, rel=1e-4, abs=1e-6)  # differences of near numbers are small ones


@pytest.mark.parametrize("settings", IMITATIONS, ids=str)
def test_imitation_does_not_depend_on_labels(ready: Ready, settings: DistillLossSettings) -> None:
    (target,) = ready.targets(slice(6))
    wrong = replace(target, labels=torch.zeros_like(target.labels))
    with torch.inference_mode():
        one, other = [
            float(ready.imitation(each, settings, ready.taught(each, settings, ready.teacher)))
            for each in (target, wrong)
        ]
    assert one == other


@pytest.mark.parametrize("settings", IMITATIONS, ids=str)
def test_what_is_taught_has_a_line_for_each_output_and_half_precision_is_enough(
    ready: Ready, settings: DistillLossSettings
) -> None:
    (target,) = ready.targets(slice(6))
    with torch.inference_mode():
        outputs = ready.outputs(target)
        taught = ready.taught(target, settings, ready.teacher)
        kept = taught.half()
        exact, rough = (float(ready.imitation(target, settings, each)) for each in (taught, kept))
    assert len(taught) == len(outputs)
    assert torch.isfinite(kept).all()
    assert rough == pytest.approx(exact, rel=5e-3)


def test_predictions_do_not_depend_on_order_and_company(ready: Ready) -> None:
    together = ready.answers(ready.encoded)
    alone = ready.answers(ready.encoded[::-1])[::-1]
    for one, other in zip(together, alone, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)


def predictions(ready: Ready, task: AnyTask | None = None) -> list[Any]:
    answers = ready.answers(ready.encoded)
    return [(task or ready.task).decode(each, found) for each, found in zip(ready.encoded, answers, strict=True)]


def test_scores_are_sound_and_the_measure_agrees(ready: Ready) -> None:
    found = predictions(ready)
    scores = ready.task.score(ready.examples, found)
    everything = np.arange(len(ready.examples))
    assert scores.main in scores.measures
    assert ready.task.sample_metric(ready.examples, found)(everything) == pytest.approx(scores.value, abs=1e-9)
    assert scores.coverage.examples == len(ready.examples)


def test_records_are_json_and_lines_are_text(ready: Ready) -> None:
    for example, prediction in zip(ready.examples, predictions(ready), strict=True):
        json.dumps(ready.task.to_record(example, prediction), allow_nan=False)
        assert all(isinstance(line, str) for line in ready.task.to_lines(example, prediction))


def test_examples_are_decoded_together_as_each_is_alone(ready: Ready) -> None:
    together = ready.task.decode_batch(ready.encoded, ready.answers(ready.encoded))
    for example, one, other in zip(ready.examples, predictions(ready), together, strict=True):
        assert without_last_digits(ready.task.to_record(example, one)) == without_last_digits(
            ready.task.to_record(example, other)
        )


def without_last_digits(value: Any) -> Any:
    """Round the numbers of a record, since sums in another order differ in the last digits."""
    if isinstance(value, dict):
        return {name: without_last_digits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_last_digits(part) for part in value]
    return round(value, 9) if isinstance(value, float) else value


def test_a_saved_task_decodes_alike(ready: Ready, tmp_path: Path) -> None:
    write_tasks(tmp_path, {ready.task.name: (ready.task, {})})
    again = read_task(tmp_path).open().with_head_weights(ready.model.head(ready.head))
    assert again.labels == ready.task.labels
    one = [ready.task.to_record(e, p) for e, p in zip(ready.examples, predictions(ready), strict=True)]
    other = [again.to_record(e, p) for e, p in zip(ready.examples, predictions(ready, again), strict=True)]
    assert one == other


def test_tuning_on_dev_keeps_a_task_that_can_be_saved(ready: Ready, tmp_path: Path) -> None:
    answers = ready.answers(ready.encoded)
    tuned = ready.task.tune(ready.examples, ready.encoded, answers)
    write_tasks(tmp_path, {tuned.name: (tuned, {})})
    assert read_task(tmp_path).open().to_table() == tuned.to_table()


def test_texts_without_answers_can_be_predicted(ready: Ready) -> None:
    texts = ["\t".join(["Imatinib for leukemia."] * len(ready.examples[0].texts))]
    examples = ready.task.examples_from_texts(texts)
    encoded = ready.task.encode(examples, ready.tokenizer, LONGEST)
    assert all(row.labels is None for each in encoded for row in each.rows)
    (answers,) = ready.answers(encoded)
    ready.task.to_record(examples[0], ready.task.decode(encoded[0], answers))


def test_balanced_weights_are_positive_or_absent(ready: Ready) -> None:
    weights = getattr(ready.task.with_class_weights(ready.encoded), "weights", ())
    assert all(weight > 0 for weight in weights)


@pytest.mark.parametrize("text", ["[]", "{", '{"task": "dance", "format": 1}', '{"task": "tag", "format": 1}'])
def test_a_damaged_task_file_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(UserError, match=r"task\.json"):
        read_task(tmp_path).open()
