"""What a student learns from a teacher's answers, against plain computations, answer by answer and path by path."""

import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.batch import Batch
from alembert.nn.tag_outputs import POINTER_WIDTH, Crf, count_pointer_columns
from alembert.tasks.answer.data import AnswerSettings
from alembert.tasks.answer.task import AnswerTask
from alembert.tasks.choose.task import ChooseSettings, ChooseTask
from alembert.tasks.classify.data import ClassifySettings
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.compare.columns import CompareSettings
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.generate.data import GenerateSettings
from alembert.tasks.generate.task import GenerateTask
from alembert.tasks.relate.data import RelateSettings
from alembert.tasks.relate.pairs import PairRules
from alembert.tasks.relate.task import RelateTask
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import DistillLossSettings
from alembert.tasks.tag.data import TagSettings
from alembert.tasks.tag.losses import MIN_LOG_PROBABILITY
from alembert.tasks.tag.task import TagTask
from alembert.tasks.task import AnyTask

TEMPERATURES = pytest.mark.parametrize("temperature", [1.0, 2.5])
NO_HEAD = torch.nn.Identity()
LETTERS = ("a", "b", "c")


def drawn(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def both(*shape: int) -> tuple[Tensor, Tensor]:
    """A student's outputs and a teacher's."""
    return drawn(*shape, seed=1), drawn(*shape, seed=2)


def target(
    row_places: Sequence[int],
    example_of_row: Sequence[int] | None = None,
    *,
    row_labels: Sequence[int] = (),
    labels: Tensor | None = None,
) -> TaskBatch:
    """Rows of different lengths; their tokens do not matter."""
    return TaskBatch(
        batch=Batch.packed([[1] * max(count, 1) for count in row_places]),
        positions=torch.arange(sum(row_places)),
        labels=torch.empty(0) if labels is None else labels,
        positions_per_row=tuple(row_places),
        labels_per_row=tuple(row_labels) or (0,) * len(row_places),
        example_of_row=tuple(example_of_row or range(len(row_places))),
        count=1,
    )


def imitation(task: AnyTask, student: Tensor, teacher: Tensor, asked: TaskBatch, temperature: float = 1.0) -> float:
    settings = DistillLossSettings(temperature=temperature)
    taught = task.teacher_targets(NO_HEAD, teacher, asked, settings)
    return task.distillation_loss(NO_HEAD, student, taught, asked, settings).item()


def shares(scores: Sequence[float], temperature: float) -> list[float]:
    powers = [math.exp(score / temperature) for score in scores]
    return [power / sum(powers) for power in powers]


def kl(student: Sequence[float], teacher: Sequence[float], temperature: float = 1.0) -> float:
    """KL(teacher || student) of two lists of scores."""
    pairs = zip(shares(teacher, temperature), shares(student, temperature), strict=True)
    return sum(right * math.log(right / found) for right, found in pairs)


def yes_or_no_kl(student: float, teacher: float, temperature: float = 1.0) -> float:
    return kl([student, 0.0], [teacher, 0.0], temperature)


def kl_of_lines(student: Any, teacher: Any, temperature: float = 1.0) -> float:
    return sum(kl(one, other, temperature) for one, other in zip(student.tolist(), teacher.tolist(), strict=True))


# -- classify

WINDOWS = [0, 0, 1, 2, 2, 2]
"""The example of each row."""


def pooled(outputs: Tensor, pool: str) -> np.ndarray:
    reduce = np.max if pool == "max" else np.mean
    parts = [[row for row, owner in enumerate(WINDOWS) if owner == example] for example in range(3)]
    return np.stack([reduce(outputs.numpy()[part], axis=0) for part in parts])


def classify(kind: Any, pool: Any = "mean") -> ClassifyTask:
    return ClassifyTask(ClassifySettings(kind=kind, pool=pool), kind, () if kind == "number" else LETTERS)


@TEMPERATURES
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_a_label_is_taught_over_the_windows_of_a_text(pool: str, temperature: float) -> None:
    student, teacher = both(6, 3)
    found = imitation(classify("single", pool), student, teacher, target([1] * 6, WINDOWS), temperature)
    assert found == pytest.approx(kl_of_lines(pooled(student, pool), pooled(teacher, pool), temperature), rel=1e-4)


@TEMPERATURES
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_several_labels_are_taught_one_by_one(pool: str, temperature: float) -> None:
    student, teacher = both(6, 3)
    found = imitation(classify("multi", pool), student, teacher, target([1] * 6, WINDOWS), temperature)
    pairs = zip(pooled(student, pool).flat, pooled(teacher, pool).flat, strict=True)
    expected = sum(yes_or_no_kl(one, other, temperature) for one, other in pairs) / 3
    assert found == pytest.approx(expected, rel=1e-4)


@TEMPERATURES
def test_regression_learns_the_scores_of_the_teacher_and_not_gold(temperature: float) -> None:
    student, teacher = both(6, 1)
    gold = torch.full((3,), 1e6)
    asked = target([1] * 6, WINDOWS, row_labels=[1, 0, 1, 1, 0, 0], labels=gold)
    found = imitation(classify("number"), student, teacher, asked, temperature)
    expected = ((pooled(student, "mean") - pooled(teacher, "mean")) ** 2).sum()
    assert found == pytest.approx(float(expected), rel=1e-4)


def test_sentences_of_a_document_are_taught_one_by_one() -> None:
    task = ClassifyTask(ClassifySettings(kind="single", context="document"), "single", LETTERS)
    student, teacher = both(4, 3)
    found = imitation(task, student, teacher, target([3, 1], [0, 0]))
    assert found == pytest.approx(kl_of_lines(student, teacher), rel=1e-4)


def test_cross_entropy_is_not_averaged_over_classes() -> None:
    """A class that neither side believes in changes nothing."""
    student, teacher = both(4, 3)
    asked, unlikely = target([1] * 4), torch.full((4, 97), -1e4)
    few = imitation(classify("single"), student, teacher, asked)
    many = imitation(classify("single"), torch.cat([student, unlikely], 1), torch.cat([teacher, unlikely], 1), asked)
    assert many == pytest.approx(few, rel=1e-4)


def test_the_loss_has_no_factor_of_the_squared_temperature() -> None:
    student, teacher = both(4, 3)
    found = imitation(classify("single"), 8 * student, 8 * teacher, target([1] * 4), temperature=8.0)
    assert found == pytest.approx(kl_of_lines(student, teacher), rel=1e-4)


# -- relate


def relate(reads: Any) -> RelateTask:
    return RelateTask(RelateSettings(pooling=reads), "marked", LETTERS, PairRules(types=()))


@TEMPERATURES
def test_relations_are_taught_pair_by_pair(temperature: float) -> None:
    student, teacher = both(4, 3)
    found = imitation(relate("first"), student, teacher, target([1] * 4), temperature)
    assert found == pytest.approx(kl_of_lines(student, teacher, temperature), rel=1e-4)


@TEMPERATURES
def test_relations_at_markers_are_taught_as_the_sum_of_both(temperature: float) -> None:
    student, teacher = both(8, 6)
    found = imitation(relate("markers"), student, teacher, target([2] * 4), temperature)
    one, other = (
        np.array([[x[2 * row, c] + x[2 * row + 1, 3 + c] for c in range(3)] for row in range(4)])
        for x in (student.numpy(), teacher.numpy())
    )
    assert found == pytest.approx(kl_of_lines(one, other, temperature), rel=1e-4)


# -- answer, choose, generate


@TEMPERATURES
def test_starts_and_ends_are_taught_over_the_places_of_each_row(temperature: float) -> None:
    lengths = [3, 1, 5]
    student, teacher = both(sum(lengths), 2)
    task = AnswerTask(AnswerSettings(), script_name="plain", has_none=False)
    found = imitation(task, student, teacher, target(lengths), temperature)
    expected = 0.0
    for one, other in zip(student.split(lengths), teacher.split(lengths), strict=True):
        for column in range(2):
            expected += kl(one[:, column].tolist(), other[:, column].tolist(), temperature) / 2
    assert found == pytest.approx(expected, rel=1e-4)


@TEMPERATURES
def test_choices_are_taught_against_those_of_their_own_question(temperature: float) -> None:
    """Two questions: one with two choices, the first of two windows, one with three."""
    student, teacher = both(6, 1)
    asked = target([1] * 6, [0, 0, 0, 1, 1, 1], row_labels=[1, 0, 1, 1, 1, 1], labels=torch.zeros(5, dtype=torch.int64))
    task = ChooseTask(ChooseSettings(pool="max"), fewest=2, most=3, passages=False)
    found = imitation(task, student, teacher, asked, temperature)

    def questions(outputs: Tensor) -> tuple[list[float], list[float]]:
        a, b, c, *rest = outputs[:, 0].tolist()
        return [max(a, b), c], rest

    expected = sum(
        kl(one, other, temperature) for one, other in zip(questions(student), questions(teacher), strict=True)
    )
    assert found == pytest.approx(expected, rel=1e-4)


@TEMPERATURES
def test_texts_are_taught_piece_by_piece_over_the_vocabulary(temperature: float) -> None:
    student, teacher = both(5, 40)
    found = imitation(GenerateTask(GenerateSettings()), student, teacher, target([2, 3]), temperature)
    assert found == pytest.approx(kl_of_lines(student, teacher, temperature), rel=1e-4)


# -- compare


def compare(pooling: Any = "mean") -> CompareTask:
    return CompareTask(CompareSettings(), "triples", pooling)


def directions(vectors: Tensor) -> np.ndarray:
    return np.stack([row / math.sqrt(sum(x * x for x in row)) for row in vectors.numpy().astype(np.float64)])


def test_vectors_of_one_width_are_taught_by_their_directions() -> None:
    student, teacher = both(6, 4)
    expected = ((directions(student) - directions(teacher)) ** 2).sum()
    assert imitation(compare(), student, teacher, target([1] * 6)) == pytest.approx(expected, rel=1e-4)


def cosines_apart(student: Tensor, teacher: Tensor) -> float:
    one, other = directions(student), directions(teacher)
    total = 0.0
    for row, column in itertools.permutations(range(len(one)), 2):
        total += (one[row] @ one[column] - other[row] @ other[column]) ** 2 / (len(one) - 1)
    return float(total)


def test_vectors_of_different_widths_are_taught_by_the_cosines_between_them() -> None:
    student, teacher = drawn(6, 4, seed=1), drawn(6, 7, seed=2)
    found = imitation(compare(), student, teacher, target([1] * 6))
    assert found == pytest.approx(cosines_apart(student, teacher), rel=1e-4)


def test_turned_vectors_of_another_width_are_as_alike_as_before() -> None:
    teacher = drawn(6, 4)
    turn, _ = torch.linalg.qr(drawn(7, 4, seed=3))
    assert imitation(compare(), 3 * teacher @ turn.T, teacher, target([1] * 6)) == pytest.approx(0, abs=1e-10)


def test_one_vector_alone_is_like_no_other() -> None:
    assert imitation(compare(), drawn(1, 4), drawn(1, 7), target([1])) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("width", [4, 6])
def test_a_layer_that_is_for_training_alone_is_not_taught(width: int) -> None:
    student, teacher = drawn(6, 8, seed=1), drawn(6, 2 * width, seed=2)
    asked = target([1] * 6)
    expected = imitation(compare(), student[:, 4:], teacher[:, width:], asked)
    assert imitation(compare("cls_train_layer"), student, teacher, asked) == pytest.approx(expected)


# -- tag


def tag(head: Any, scheme: Any = "bio") -> TagTask:
    return TagTask(("x", "y"), TagSettings(head=head, scheme=scheme))


@TEMPERATURES
def test_tags_are_taught_word_by_word(temperature: float) -> None:
    student, teacher = both(6, 5)
    found = imitation(tag("softmax"), student, teacher, target([3, 1, 2]), temperature)
    assert found == pytest.approx(kl_of_lines(student, teacher, temperature), rel=1e-4)


def stretches(vectors: np.ndarray) -> Iterator[float]:
    """Score all stretches of a row as the types x and y."""
    for kind in range(2):
        for first, last in itertools.combinations_with_replacement(range(len(vectors)), 2):
            query, key = vectors[first, :POINTER_WIDTH], vectors[last, POINTER_WIDTH : 2 * POINTER_WIDTH]
            ends = vectors[first, 2 * POINTER_WIDTH + kind] + vectors[last, 2 * POINTER_WIDTH + 2 + kind]
            yield float(query @ key / math.sqrt(POINTER_WIDTH) + ends)


@TEMPERATURES
def test_stretches_are_taught_one_by_one(temperature: float) -> None:
    lengths = [3, 1, 2]
    student, teacher = both(sum(lengths), count_pointer_columns(2))
    found = imitation(tag("span"), student, teacher, target(lengths), temperature)
    expected = 0.0
    for one, other in zip(student.split(lengths), teacher.split(lengths), strict=True):
        for pair in zip(stretches(one.numpy()), stretches(other.numpy()), strict=True):
            expected += yes_or_no_kl(*pair, temperature)
    assert found == pytest.approx(expected, rel=1e-4)


LENGTHS = [3, 1, 0, 2]


def crf_head(seed: int, tags: int = 5) -> Any:
    head = SimpleNamespace(crf=Crf(tags))
    generator = torch.Generator().manual_seed(seed)
    for weight in head.crf.parameters():
        torch.nn.init.normal_(weight, std=1.5, generator=generator)
    return head


def paths(head: Any, row: Tensor, task: TagTask, temperature: float = 1.0) -> dict[tuple[int, ...], float]:
    """The probability of each path through a row: any tag may stand at its ends, no move that the scheme forbids."""
    moves, start, end = (each.detach().numpy() for each in (head.crf.transitions, head.crf.start, head.crf.end))
    powers = {}
    for path in itertools.product(range(row.shape[1]), repeat=len(row)):
        steps = list(itertools.pairwise(path))
        if all(task.allowed_transitions.transitions[step] for step in steps):
            score = start[path[0]] + end[path[-1]] + sum(moves[step] for step in steps)
            score += sum(float(row[place, each]) for place, each in enumerate(path))
            powers[path] = math.exp(score / temperature)
    total = sum(powers.values())
    return {path: power / total for path, power in powers.items()}


def word_shares(head: Any, emissions: Tensor, task: TagTask, temperature: float) -> np.ndarray:
    """The probability of each tag of each word."""
    found = np.zeros(emissions.shape)
    for place, row in zip(np.cumsum([0, *LENGTHS]), emissions.split(LENGTHS), strict=False):
        for path, share in paths(head, row, task, temperature).items() if len(row) else ():
            found[place + np.arange(len(path)), list(path)] += share
    return found


@TEMPERATURES
@pytest.mark.parametrize(("scheme", "tags"), [("bio", 5), ("bioes", 9)])
def test_marginals_of_a_crf_are_taught_word_by_word(scheme: str, tags: int, temperature: float) -> None:
    task, asked = tag("crf", scheme), target(LENGTHS)
    settings = DistillLossSettings(temperature=temperature)
    (one, other), student, teacher = both(6, tags), crf_head(1, tags), crf_head(2, tags)
    taught = task.teacher_targets(teacher, other, asked, settings)
    right = word_shares(teacher, other, task, temperature)
    found = word_shares(student, one, task, temperature)
    expected = float((right * np.log(right / found)).sum())
    np.testing.assert_allclose(taught.detach().exp().numpy(), right, atol=1e-5)
    assert task.distillation_loss(student, one, taught, asked, settings).item() == pytest.approx(expected, rel=1e-4)


def test_the_best_path_of_a_crf_is_taught_as_if_it_were_gold() -> None:
    task, asked, settings = tag("crf"), target(LENGTHS), DistillLossSettings(crf="path")
    (one, other), student, teacher = both(6, 5), crf_head(1), crf_head(2)
    taught = task.teacher_targets(teacher, other, asked, settings)
    expected, best = 0.0, []
    for mine, theirs in zip(one.split(LENGTHS), other.split(LENGTHS), strict=True):
        if len(mine):
            likely = paths(teacher, theirs, task)
            best.append(max(likely, key=lambda path: likely[path]))
            expected -= math.log(paths(student, mine, task)[best[-1]])
    assert taught.argmax(-1).tolist() == list(itertools.chain(*best))
    assert task.distillation_loss(student, one, taught, asked, settings).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("crf", ["marginals", "path"])
def test_what_a_sure_crf_teaches_is_finite(crf: Any) -> None:
    settings = DistillLossSettings(crf=crf)
    taught = tag("crf").teacher_targets(crf_head(1), drawn(6, 5, scale=1e4), target(LENGTHS), settings)
    assert taught.half().isfinite().all()
    assert taught.min().item() == MIN_LOG_PROBABILITY


def test_a_student_that_excludes_what_its_teacher_is_sure_of_still_learns() -> None:
    teacher = 100 * torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0, 1, 2]), 5).float()
    student = (-teacher).requires_grad_()
    task, asked, settings = tag("crf"), target(LENGTHS), DistillLossSettings()
    taught = task.teacher_targets(crf_head(1), teacher, asked, settings)
    loss = task.distillation_loss(crf_head(1), student, taught, asked, settings)
    assert torch.autograd.grad(loss, student)[0].abs().amax(-1).min() > 0.5


@pytest.mark.parametrize("crf", ["marginals", "path"])
def test_the_moves_of_a_students_crf_are_learnt(crf: Any) -> None:
    task, asked, settings = tag("crf"), target(LENGTHS), DistillLossSettings(crf=crf)
    (one, other), student = both(6, 5), crf_head(1)
    loss = task.distillation_loss(
        student, one, task.teacher_targets(crf_head(2), other, asked, settings), asked, settings
    )
    found = torch.autograd.grad(loss, list(student.crf.parameters()))
    assert all(each.isfinite().all() and each.abs().max() > 0 for each in found)


def test_a_row_that_begins_inside_an_entity_is_taught_so() -> None:
    inside = torch.tensor([[0.0, 0.0, 50.0, 0.0, 0.0]])
    taught = tag("crf").teacher_targets(crf_head(1), inside, target([1]), DistillLossSettings())
    assert taught.argmax().item() == 2


# -- settings


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"temperature": 0.0}, "`temperature` of imitation is 0.0; expected a positive number"),
        ({"temperature": float("inf")}, "expected a positive number"),
        ({"temperature": float("nan")}, "expected a positive number"),
        ({"crf": "both"}, "`crf` of imitation is 'both'; expected marginals or path"),
        ({"crf": "path", "temperature": 2.0}, "Leave the temperature at 1, or teach marginals"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        DistillLossSettings(**wrong)
