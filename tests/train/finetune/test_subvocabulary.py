"""A run with the rows of its own pieces: the same outputs, and the other rows come back untouched."""

import numpy as np
import pytest
import torch

from alembert.data.windows import Row
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import TOKEN_EMBEDDING
from alembert.nn.batch import Batch
from alembert.nn.config import preset
from alembert.nn.heads import HeadSpec
from alembert.tasks.example import Coverage, EncodedExample
from alembert.train.training_run import VocabularySubset

TEXTS = ([2, 40, 7, 40, 3], [2, 99, 3])


@pytest.fixture
def checkpoint() -> Checkpoint:
    config = preset("tiny", vocab_size=100, max_position_embeddings=16)
    return Checkpoint.new(Blueprint(config=config, heads={"tag": HeadSpec(kind="tag", outputs=3)}), seed=4)


@pytest.fixture
def encoded() -> list[EncodedExample]:
    rows = [Row(ids=np.array(ids), positions=np.array([1])) for ids in TEXTS]
    return [EncodedExample((row,), Coverage()) for row in rows]


def test_the_small_model_says_what_the_whole_one_says(checkpoint: Checkpoint, encoded: list[EncodedExample]) -> None:
    pieces = VocabularySubset.of(encoded)
    assert pieces.ids_K.tolist() == [2, 3, 7, 40, 99]
    numbers = [each.rows[0].ids for each in pieces.remap(encoded)]
    with torch.inference_mode():
        expected = checkpoint.model.eval()(Batch.packed(TEXTS))["tag"]
        found = pieces.shrink(checkpoint).eval()(Batch.packed(numbers))["tag"]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_trained_rows_go_back_to_their_places(checkpoint: Checkpoint, encoded: list[EncodedExample]) -> None:
    pieces = VocabularySubset.of(encoded)
    before = checkpoint.model.state_dict()[TOKEN_EMBEDDING].clone()
    small = pieces.shrink(checkpoint)
    with torch.no_grad():
        small.encoder.embeddings.token.weight += 1
    after = pieces.restore(small, checkpoint).state_dict()[TOKEN_EMBEDDING]
    changed = torch.zeros(100, dtype=torch.bool)
    changed[pieces.ids_K] = True
    torch.testing.assert_close(after[changed], before[changed] + 1)
    assert torch.equal(after[~changed], before[~changed])
    assert torch.equal(checkpoint.model.state_dict()[TOKEN_EMBEDDING], before)
