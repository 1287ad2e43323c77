"""Losses inside the model, each against a plain computation, packed and padded."""

import math

import numpy as np
import pytest
import torch

from alembert.nn.attention import LayerRecorder
from alembert.nn.batch import Batch
from alembert.nn.config import ATTENTIONS, EncoderConfig
from alembert.nn.losses import (
    attention_loss,
    contrastive_distillation_loss,
    count_attention_pairs,
    hidden_state_loss,
    relation_loss,
)
from alembert.nn.model import new_model

DOCUMENTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14], [3]]
PREFIXES = [2, 0, 4, 1]


def watched(width: int, heads: int, batch: Batch, seed: int) -> LayerRecorder:
    config = EncoderConfig(
        vocab_size=20,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=8,
        initializer_range=0.5,
    )
    watch = LayerRecorder(layers=(0, 1))
    with torch.no_grad():
        new_model(config, seed=seed).eval()(batch, trace=watch)
    return watch


def packed() -> Batch:
    return Batch.packed(DOCUMENTS, prefixes=PREFIXES)


def padded() -> Batch:
    ids = torch.zeros(len(DOCUMENTS), 5, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, document in enumerate(DOCUMENTS):
        ids[number, : len(document)] = torch.tensor(document)
        mask[number, : len(document)] = 1
    return Batch.padded(ids, mask, prefixes=PREFIXES)


def by_document(flat: torch.Tensor, batch: Batch) -> list[np.ndarray]:
    return [part.double().numpy() for part in batch.split(flat)]


BATCHES = pytest.mark.parametrize("batch", [packed(), padded()], ids=["packed", "padded"])


def looks_of(attention: str, length: int, prefix: int) -> list[tuple[int, int]]:
    """Give which token looks at which, by the definition of each kind of attention."""
    sees = {
        "bidirectional": lambda query, key: True,
        "causal": lambda query, key: key <= query,
        "prefix": lambda query, key: key <= query or key < prefix,
    }[attention]
    return [(query, key) for query in range(length) for key in range(length) if sees(query, key)]


@BATCHES
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_attention_error_equals_a_plain_loop(batch: Batch, attention: str) -> None:
    ours, theirs = watched(12, 4, batch, 1).qkv[1], watched(8, 4, batch, 2).qkv[1]
    expected, pairs = 0.0, 0
    documents = zip(by_document(ours, batch), by_document(theirs, batch), PREFIXES, strict=True)
    for one, other, prefix in documents:
        looks = looks_of(attention, len(one), prefix)
        pairs += len(looks)
        for head in range(4):
            for query, key in looks:
                first = one[query, 0, head] @ one[key, 1, head] / math.sqrt(3)
                second = other[query, 0, head] @ other[key, 1, head] / math.sqrt(2)
                expected += (first - second) ** 2 / 4
    found = attention_loss(ours, theirs[:, :2], batch, attention)
    assert float(found) == pytest.approx(expected, rel=1e-5)
    assert count_attention_pairs(batch, attention) == pairs


def test_losses_are_not_rounded_where_products_of_a_model_are() -> None:
    batch = packed()
    ours, theirs = watched(8, 4, batch, 1), watched(8, 4, batch, 2)

    def found() -> list[float]:
        return [
            float(attention_loss(ours.qkv[1], theirs.qkv[1][:, :2], batch)),
            float(relation_loss(ours.qkv[1], theirs.qkv[1], batch, heads=4)),
            float(contrastive_distillation_loss(ours.hidden[1][:4], theirs.hidden[1][:4], 0.05)),
        ]

    plain = found()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert found() == plain


@BATCHES
def test_hidden_error_equals_a_plain_loop(batch: Batch) -> None:
    ours, theirs = watched(8, 4, batch, 1).hidden[1], watched(8, 4, batch, 2).hidden[2]
    pairs = zip(by_document(ours, batch), by_document(theirs, batch), strict=True)
    expected = sum(((one - other) ** 2).mean(-1).sum() for one, other in pairs)
    assert float(hidden_state_loss(ours, theirs, batch)) == pytest.approx(expected, rel=1e-5)


@BATCHES
def test_relation_error_equals_a_plain_loop(batch: Batch) -> None:
    ours, theirs = watched(12, 4, batch, 1).qkv[1], watched(8, 2, batch, 2).qkv[1]
    expected = 0.0
    for one, other in zip(by_document(ours, batch), by_document(theirs, batch), strict=True):
        for part in range(3):
            student, teacher = one[:, part].reshape(len(one), 2, 6), other[:, part].reshape(len(one), 2, 4)
            for head in range(2):
                p = softmax(teacher[:, head] @ teacher[:, head].T / 2)
                q = softmax(student[:, head] @ student[:, head].T / math.sqrt(6))
                expected += (p * np.log(p / q)).sum() / 2
    assert float(relation_loss(ours, theirs, batch, heads=2)) == pytest.approx(expected, rel=1e-4)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_contrastive_error_equals_a_plain_loop() -> None:
    ours, theirs = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    expected = 0.0
    for row in range(5):
        cosines = [float(ours[row] @ other / ours[row].norm() / other.norm()) / 0.05 for other in theirs]
        expected += math.log(sum(math.exp(each) for each in cosines)) - cosines[row]
    assert float(contrastive_distillation_loss(ours, theirs, 0.05)) == pytest.approx(expected, rel=1e-4)


@BATCHES
def test_a_student_equal_to_its_teacher_has_no_error(batch: Batch) -> None:
    watch = watched(8, 4, batch, 1)
    errors = [
        attention_loss(watch.qkv[0], watch.qkv[0][:, :2], batch),
        hidden_state_loss(watch.hidden[1], watch.hidden[1], batch),
        relation_loss(watch.qkv[1], watch.qkv[1], batch, heads=4),
    ]
    assert [float(error) for error in errors] == pytest.approx([0, 0, 0], abs=1e-6)


def test_padding_changes_nothing() -> None:
    found = []
    for batch in (packed(), padded()):
        ours, theirs = watched(8, 4, batch, 1), watched(8, 4, batch, 2)
        found.append(
            [
                float(attention_loss(ours.qkv[1], theirs.qkv[1][:, :2], batch)),
                float(hidden_state_loss(ours.hidden[2], theirs.hidden[2], batch)),
                float(relation_loss(ours.qkv[1], theirs.qkv[1], batch, heads=2)),
            ]
        )
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_errors_of_relations_have_finite_slopes_with_padding() -> None:
    batch = padded()
    theirs = watched(8, 4, batch, 2).qkv[1]
    ours = watched(8, 4, batch, 1).qkv[1].requires_grad_()
    relation_loss(ours, theirs, batch, heads=4).backward()
    assert ours.grad is not None
    assert torch.isfinite(ours.grad).all()


@BATCHES
def test_pairs_are_those_of_real_tokens(batch: Batch) -> None:
    assert count_attention_pairs(batch) == 16 + 4 + 16 + 1
