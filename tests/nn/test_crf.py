"""The CRF equals the sum over all paths, and pytorch-crf; forbidden moves stay forbidden."""

import itertools
import math

import numpy as np
import pytest
import torch
import torchcrf
from torch.nn.utils.rnn import pad_sequence

from alembert.errors import BadInput
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.nn.model import new_model
from alembert.nn.tag_outputs import FORBIDDEN, Crf
from alembert.tasks.tag.crf import AllowedTransitions, build_allowed_transitions, compute_marginals

LABELS = ["O", "B-x", "I-x", "B-y", "I-y"]
LEGAL = build_allowed_transitions(LABELS, "bio")
LENGTHS = [3, 1, 4, 0, 2, 4]


def crf(labels: int = 5, seed: int = 0) -> Crf:
    made = Crf(labels).double()
    generator = torch.Generator().manual_seed(seed)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, generator=generator)
    return made


def emissions(lengths: list[int], labels: int = 5, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(lengths), labels, generator=generator, dtype=torch.float64)


def some_labels(lengths: list[int], labels: int = 5, seed: int = 2) -> torch.Tensor:
    return torch.randint(labels, (sum(lengths),), generator=torch.Generator().manual_seed(seed))


def is_legal(path: tuple[int, ...], legal: AllowedTransitions) -> bool:
    steps = all(legal.transitions[a, b] for a, b in itertools.pairwise(path))
    return bool(legal.start[path[0]] and legal.end[path[-1]] and steps)


def score(model: Crf, row: torch.Tensor, path: tuple[int, ...]) -> float:
    start, end, moves = (weight.detach().numpy() for weight in (model.start, model.end, model.transitions))
    total = start[path[0]] + end[path[-1]] + row.numpy()[range(len(path)), path].sum()
    return float(total + sum(moves[a, b] for a, b in itertools.pairwise(path)))


def summed(
    model: Crf, row: torch.Tensor, legal: AllowedTransitions | None = None, allowed: torch.Tensor | None = None
) -> float:
    """The log-sum over all paths, one by one."""
    if not len(row):
        return 0.0
    paths = itertools.product(range(row.shape[1]), repeat=len(row))
    if allowed is not None:
        paths = (path for path in paths if all(allowed[t, tag] for t, tag in enumerate(path)))
    found = [score(model, row, path) for path in paths if legal is None or is_legal(path, legal)]
    return math.log(sum(math.exp(value) for value in found))


def rows_of(values: torch.Tensor, lengths: list[int] = LENGTHS) -> tuple[torch.Tensor, ...]:
    return torch.split(values, lengths)


@pytest.mark.parametrize("legal", [None, LEGAL, build_allowed_transitions(["O", "B-x", "I-x", "E-x", "S-x"], "bioes")])
def test_the_partition_is_the_sum_over_all_legal_paths(legal: AllowedTransitions | None) -> None:
    model, scores = crf(), emissions(LENGTHS)
    found = model.log_partition(scores, LENGTHS, legal=legal)
    expected = [summed(model, row, legal) for row in rows_of(scores)]
    assert found.tolist() == pytest.approx(expected, abs=1e-10)


def test_the_partition_of_allowed_labels_is_the_sum_over_paths_through_them() -> None:
    model, scores = crf(), emissions(LENGTHS)
    allowed = torch.rand(scores.shape, generator=torch.Generator().manual_seed(5)) < 0.5
    allowed[:, 0] = True
    found = model.log_partition(scores, LENGTHS, allowed, LEGAL)
    expected = [summed(model, row, LEGAL, part) for row, part in zip(rows_of(scores), rows_of(allowed), strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-10)


def test_the_likelihood_is_the_share_of_the_right_path() -> None:
    model, scores, labels = crf(), emissions(LENGTHS), some_labels(LENGTHS)
    expected = [
        score(model, row, tuple(path.tolist())) - summed(model, row) if len(row) else 0.0
        for row, path in zip(rows_of(scores), rows_of(labels), strict=True)
    ]
    assert model.log_likelihood(scores, labels, LENGTHS).tolist() == pytest.approx(expected, abs=1e-10)


def test_one_allowed_label_a_place_is_a_path() -> None:
    model, scores = crf(), emissions(LENGTHS)
    labels = torch.zeros(len(scores), dtype=torch.int64)
    one_hot = torch.nn.functional.one_hot(labels, 5).bool()
    torch.testing.assert_close(
        model.log_likelihood(scores, labels, LENGTHS, LEGAL),
        model.log_likelihood(scores, one_hot, LENGTHS, LEGAL),
    )


def test_all_labels_allowed_is_certain() -> None:
    scores = emissions(LENGTHS)
    found = crf().log_likelihood(scores, torch.ones_like(scores, dtype=torch.bool), LENGTHS, LEGAL)
    torch.testing.assert_close(found, torch.zeros_like(found))


def marginals_one_by_one(
    model: Crf, row: torch.Tensor, legal: AllowedTransitions | None, temperature: float = 1.0
) -> np.ndarray:
    """The probability of each label at each place, path by path."""
    found = np.zeros(row.shape)
    for path in itertools.product(range(row.shape[1]), repeat=len(row)):
        if path and (legal is None or is_legal(path, legal)):
            found[range(len(path)), path] += math.exp(score(model, row, path) / temperature)
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("legal", [None, LEGAL, build_allowed_transitions(["O", "B-x", "I-x", "E-x", "S-x"], "bioes")])
def test_marginals_are_shares_of_all_legal_paths(legal: AllowedTransitions | None, temperature: float) -> None:
    model, scores = crf(), emissions(LENGTHS)
    found = model.log_marginals(scores, LENGTHS, legal, temperature).exp()
    expected = [marginals_one_by_one(model, row, legal, temperature) for row in rows_of(scores)]
    np.testing.assert_allclose(found.detach().numpy(), np.concatenate(expected), atol=1e-12)


def test_marginals_are_the_gradient_of_the_partition() -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(0, 60, 12)]
    model, scores = crf(), emissions(lengths).requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_partition(scores, lengths, legal=LEGAL).sum(), scores)
    torch.testing.assert_close(model.log_marginals(scores, lengths, LEGAL).exp(), gradient)


def test_marginals_are_those_that_decoding_shows() -> None:
    model, scores = crf(), emissions([40])
    weights = [each.detach().numpy() for each in (model.transitions, model.start, model.end)]
    found = model.log_marginals(scores, [40], LEGAL).exp()
    np.testing.assert_allclose(found.detach().numpy(), compute_marginals(scores.numpy(), *weights, LEGAL), atol=1e-9)


def test_marginals_can_be_learnt_from_emissions_and_moves() -> None:
    model, scores = crf(), emissions([3, 1, 2]).requires_grad_()
    inputs = (scores, model.transitions, model.start, model.end)
    assert torch.autograd.gradcheck(lambda scores, *_: model.log_marginals(scores, [3, 1, 2]), inputs)


def test_marginals_of_a_row_do_not_depend_on_its_neighbours() -> None:
    model, scores = crf(), emissions(LENGTHS)
    together = model.log_marginals(scores, LENGTHS, LEGAL)
    alone = [model.log_marginals(row, [len(row)], LEGAL) for row in rows_of(scores)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_marginals_of_a_long_row_of_single_precision_stay_exact() -> None:
    model, scores = crf(), emissions([2000]) * 10
    exact = model.log_marginals(scores, [2000]).exp()
    rough = model.float().log_marginals(scores.float(), [2000]).exp()
    torch.testing.assert_close(rough.double(), exact, rtol=0, atol=1e-3)


def test_gradients_of_marginals_are_finite_and_forbidden_moves_get_none() -> None:
    model = crf()
    scores = (emissions(LENGTHS) * 100).requires_grad_()
    model.log_marginals(scores, LENGTHS, LEGAL).clamp_min(-30).sum().backward()
    gradient = model.transitions.grad
    assert (gradient[torch.from_numpy(~LEGAL.transitions)] == 0).all()
    assert all(part.isfinite().all() for part in (gradient, model.start.grad, model.end.grad, scores.grad))


def reference(model: Crf) -> torchcrf.CRF:
    other = torchcrf.CRF(len(model.start), batch_first=True).double()
    pairs = ((other.transitions, model.transitions), (other.start_transitions, model.start))
    for theirs, ours in (*pairs, (other.end_transitions, model.end)):
        theirs.data.copy_(ours.data)
    return other


def test_packed_rows_equal_padded_ones_in_pytorch_crf_gradients_too() -> None:
    lengths = [int(n) for n in np.random.default_rng(0).integers(1, 80, 20)]
    model, labels = crf(23), some_labels(lengths, 23)
    scores = emissions(lengths, 23).requires_grad_()
    found = model.log_likelihood(scores, labels, lengths)
    other = reference(model)
    mask = pad_sequence([torch.ones(n, dtype=torch.bool) for n in lengths], batch_first=True)
    padded = [pad_sequence(torch.split(x, lengths), batch_first=True) for x in (scores, labels)]
    expected = other(*padded, mask, reduction="none")
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found.sum(), [scores, model.transitions, model.start, model.end])
    weights = [other.transitions, other.start_transitions, other.end_transitions]
    torch.testing.assert_close(ours, torch.autograd.grad(expected.sum(), [scores, *weights]))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 4, 2]])
def test_a_row_does_not_depend_on_its_neighbours(order: list[int]) -> None:
    model, scores, labels = crf(), emissions(LENGTHS), some_labels(LENGTHS)
    rows, paths = rows_of(scores), rows_of(labels)
    lengths = [LENGTHS[row] for row in order]
    together = model.log_likelihood(
        torch.cat([rows[i] for i in order]), torch.cat([paths[i] for i in order]), lengths, LEGAL
    )
    alone = [model.log_likelihood(rows[i], paths[i], [LENGTHS[i]], LEGAL) for i in order]
    torch.testing.assert_close(together, torch.cat(alone))


def test_padded_and_packed_batches_have_the_same_likelihood() -> None:
    model = new_model(preset("tiny", vocab_size=50), {"crf": HeadSpec(kind="crf", outputs=5)}).eval()
    documents = [[2, 7, 9, 3], [2, 5, 3], [2, 17, 3, 8, 9, 3]]
    ids = pad_sequence([torch.tensor(row) for row in documents], batch_first=True)
    lengths = [len(row) for row in documents]
    found = []
    for batch in (Batch.packed(documents), Batch.padded(ids, ids != 0)):
        scores = torch.cat(batch.split(model(batch, ["crf"])["crf"]))
        found.append(model.head("crf").crf.log_likelihood(scores, some_labels(lengths), lengths, LEGAL))
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


def test_no_weight_makes_a_forbidden_move_possible() -> None:
    model, scores = crf(), emissions([6])
    with torch.no_grad():
        model.transitions[0, 2] = 500.0
        model.start[2] = 500.0
    inside = torch.zeros(6, 5, dtype=torch.bool)
    inside[:, 0] = True
    inside[3] = torch.tensor([False, False, True, False, False])
    assert model.log_likelihood(scores, inside, [6], LEGAL).item() < FORBIDDEN / 2


def test_forbidden_moves_get_no_gradient_and_all_gradients_are_finite() -> None:
    model = crf()
    scores = (emissions(LENGTHS) * 100).requires_grad_()
    model.log_likelihood(scores, some_labels(LENGTHS), LENGTHS, LEGAL).sum().backward()
    gradient = model.transitions.grad
    assert (gradient[torch.from_numpy(~LEGAL.transitions)] == 0).all()
    assert all(part.isfinite().all() for part in (gradient, model.start.grad, model.end.grad, scores.grad))


def test_a_long_row_of_single_precision_stays_exact() -> None:
    model, scores = crf(), emissions([2000]) * 10
    labels = scores.argmax(1)
    exact = model.log_likelihood(scores, labels, [2000])
    rough = model.float().log_likelihood(scores.float(), labels, [2000])
    torch.testing.assert_close(rough.double(), exact, rtol=1e-5, atol=0)


def test_short_types_are_summed_in_single_precision() -> None:
    found = crf().float().log_likelihood(emissions([50]).bfloat16(), some_labels([50]), [50])
    assert found.dtype == torch.float32


@pytest.mark.parametrize("labels", [torch.empty(0, dtype=torch.int64), torch.empty(0, 5, dtype=torch.bool)])
def test_rows_without_places_have_a_likelihood_of_one_and_can_be_learnt_from(labels: torch.Tensor) -> None:
    scores = emissions([0, 0]).requires_grad_()
    found = crf().log_likelihood(scores, labels, [0, 0])
    found.sum().backward()
    assert found.tolist() == [0.0, 0.0]


def test_rows_without_places_have_no_marginals() -> None:
    assert crf().log_marginals(emissions([0, 0]), [0, 0]).shape == (0, 5)


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="7 places together, and there are emissions for 6"):
        crf().log_partition(emissions([6]), [3, 4])


def test_a_new_crf_begins_with_zeros() -> None:
    model = new_model(preset("tiny", vocab_size=50), {"crf": HeadSpec(kind="crf", outputs=4)})
    assert all((weight == 0).all() for weight in model.head("crf").crf.parameters())
