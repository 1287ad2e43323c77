"""The span head: scores by the formula, distances by rotation, the loss by its definition, decoding as in torch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.nn.model import new_model
from alembert.nn.tag_outputs import (
    POINTER_WIDTH,
    count_pointer_columns,
    multilabel_cross_entropy,
    pointer_scores,
    rotate_queries_and_keys,
)
from alembert.tasks.tag.decode import find_pointer_spans

TYPES = 3


def vectors(tokens: int, seed: int = 0, types: int = TYPES) -> torch.Tensor:
    return torch.randn(tokens, count_pointer_columns(types), generator=torch.Generator().manual_seed(seed))


def test_scores_follow_the_formula() -> None:
    rows = vectors(5).double()
    scores = pointer_scores(rows, TYPES)
    for kind in range(TYPES):
        for i in range(5):
            for j in range(i, 5):
                product = rows[i, :POINTER_WIDTH] @ rows[j, POINTER_WIDTH : 2 * POINTER_WIDTH] / 8
                ends = rows[i, 2 * POINTER_WIDTH + kind] + rows[j, 2 * POINTER_WIDTH + TYPES + kind]
                assert scores[kind, i, j].item() == pytest.approx((product + ends).item())


def test_no_span_ends_before_it_begins() -> None:
    scores = pointer_scores(vectors(6), TYPES)
    assert torch.equal(scores.isinf(), torch.ones_like(scores, dtype=torch.bool).tril(-1))


def test_the_product_depends_on_the_distance_alone() -> None:
    same = vectors(1).expand(8, -1)
    scores = pointer_scores(rotate_queries_and_keys(same, torch.arange(8)), TYPES)
    moved = pointer_scores(rotate_queries_and_keys(same, torch.arange(8) + 40), TYPES)
    torch.testing.assert_close(scores, moved, atol=1e-3, rtol=0)
    assert not torch.isclose(scores[0, 0, 0], scores[0, 0, 5])


def test_turning_leaves_the_scores_of_the_ends_alone() -> None:
    rows = vectors(4)
    assert torch.equal(
        rotate_queries_and_keys(rows, torch.arange(4))[:, 2 * POINTER_WIDTH :], rows[:, 2 * POINTER_WIDTH :]
    )


def test_padded_and_packed_batches_give_the_same_vectors() -> None:
    model = new_model(preset("tiny", vocab_size=50), {"spans": HeadSpec(kind="pointer", outputs=TYPES)}).eval()
    ids = torch.tensor([[2, 7, 9, 8, 3], [2, 5, 3, 0, 0]])
    packed, padded = Batch.packed([[2, 7, 9, 8, 3], [2, 5, 3]]), Batch.padded(ids, ids != 0)
    with torch.no_grad():
        one, other = (batch.split(model(batch)["spans"]) for batch in (packed, padded))
    assert one[0].shape == (5, count_pointer_columns(TYPES))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_the_loss_is_the_sum_over_types_of_both_sides() -> None:
    scores = pointer_scores(vectors(4).double(), TYPES)
    right = torch.zeros_like(scores, dtype=torch.bool)
    right[0, 0, 1] = right[0, 2, 2] = right[2, 1, 3] = True
    expected = 0.0
    for kind in range(TYPES):
        pairs = [(scores[kind, i, j].item(), bool(right[kind, i, j])) for i in range(4) for j in range(i, 4)]
        expected += math.log1p(sum(math.exp(value) for value, is_right in pairs if not is_right))
        expected += math.log1p(sum(math.exp(-value) for value, is_right in pairs if is_right))
    assert multilabel_cross_entropy(scores, right).item() == pytest.approx(expected)


@pytest.mark.parametrize("tokens", [0, 1, 6])
@pytest.mark.parametrize("types", [0, TYPES])
def test_gradients_are_finite(tokens: int, types: int) -> None:
    rows = vectors(tokens, types=types).requires_grad_()
    scores = pointer_scores(rows, types)
    multilabel_cross_entropy(scores, torch.zeros_like(scores, dtype=torch.bool)).backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_the_loss_is_least_when_right_spans_score_high_and_others_low() -> None:
    right = torch.zeros(1, 3, 3, dtype=torch.bool)
    right[0, 0, 1] = True
    good = torch.where(right, 20.0, -20.0)
    assert multilabel_cross_entropy(good, right) < 1e-6
    assert multilabel_cross_entropy(-good, right) > 39


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 20), st.integers(1, 4), st.integers(0, 99), st.none() | st.integers(1, 25))
def test_decoding_finds_what_torch_scores_above_zero(tokens: int, types: int, seed: int, longest: int | None) -> None:
    rows = vectors(tokens, seed, types)
    scores = pointer_scores(rows, types)
    kinds, firsts, lasts = (scores > 0).nonzero(as_tuple=True)
    expected = {
        (i, j, kind): scores[kind, i, j].item()
        for kind, i, j in zip(kinds.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
        if longest is None or j - i < longest
    }
    found = find_pointer_spans(rows.numpy(), types, longest=longest)
    assert {(i, j, kind): score for i, j, kind, score in found} == pytest.approx(expected, abs=1e-4)


def test_a_row_of_several_strips_is_decoded_like_a_short_one() -> None:
    rows = vectors(600, types=1)
    rows[:, 2 * POINTER_WIDTH :] -= 1
    scores = pointer_scores(rows, 1)[0]
    found = find_pointer_spans(rows.numpy(), 1, threshold=0.5)
    assert np.array_equal([span[:2] for span in found], (scores > 0.5).nonzero())
