from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.batching import batch_by_tokens, map_in_threads
from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.engine_torch import TorchEngine
from alembert.infer.language_model import fill_mask
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "aspirin", "platelet", "fever")
TOKENIZER = Tokenizer.from_vocabulary(VOCABULARY, lowercase=True)
CONFIG = EncoderConfig(vocab_size=12, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8)  # fmt: skip
MASKED_LM = {"masked_lm": HeadSpec(kind="masked_lm")}


class Oracle:
    """An engine that expects `platelet`, then `fever`, everywhere."""

    tokenizer = TOKENIZER
    max_tokens = 8

    def vocabulary_probabilities(self, ids: Sequence[int], positions: Sequence[int]) -> np.ndarray:
        row = np.zeros(12, dtype=np.float32)
        row[[6, 7, 11]] = 0.5, 0.3, 0.9  # 11 is a row of the embedding without a piece
        return np.stack([row] * len(positions))


def engine(heads: dict[str, HeadSpec]) -> TorchEngine:
    return TorchEngine(Checkpoint.new(Blueprint(config=CONFIG, heads=heads), TOKENIZER))


def test_masks_are_found_where_they_stand_in_the_text() -> None:
    text = "  Aspirin\t[MASK] fever [MASK]"
    filled = fill_mask(Oracle(), text, top=2)
    assert [text[mask.start : mask.end] for mask in filled] == ["[MASK]", "[MASK]"]
    assert [c.token for c in filled[0].candidates] == ["platelet", "fever"]
    assert filled[0].candidates[0].score == 0.5


def test_rows_without_a_piece_are_never_proposed() -> None:
    tokens = [c.token for c in fill_mask(Oracle(), "[MASK]", top=100)[0].candidates]
    assert len(tokens) == len(VOCABULARY)


def test_probabilities_of_the_torch_engine_sum_to_one() -> None:
    rows = engine(MASKED_LM).vocabulary_probabilities([2, 4, 5, 3], [1, 2])
    assert rows.shape == (2, 12)
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)


def test_a_text_without_mask_is_refused() -> None:
    with pytest.raises(BadInput, match=r"Write \[MASK\]"):
        fill_mask(Oracle(), "aspirin")


def test_a_text_too_long_is_refused_not_cut() -> None:
    with pytest.raises(BadInput, match="13 tokens, and the model reads 8"):
        fill_mask(Oracle(), "fever " * 10 + "[MASK]")


def test_a_model_without_the_head_says_what_it_has() -> None:
    with pytest.raises(BadSetting, match=r"no `masked_lm` head \(its heads: tag\)"):
        fill_mask(engine({"tag": HeadSpec(kind="tag", outputs=2)}), "[MASK]")


def test_hidden_states_of_every_document_once_with_its_number() -> None:
    ids = [[2, 5, 3], [2, 6, 7, 5, 3], [2, 3], [2, 7, 3]] * 3
    made = engine(MASKED_LM)
    found = dict(made.hidden_states(ids))
    assert sorted(found) == list(range(len(ids)))
    for number, states in found.items():
        alone = made.model.encoder(Batch.packed([ids[number]]))
        torch.testing.assert_close(states, alone.detach(), atol=1e-6, rtol=0)


def test_streams_leave_the_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    with pytest.raises(BadInput, match="longer than the model's limit"):
        list(engine(MASKED_LM).hidden_states([[2] * 9, [2]]))
    assert torch.get_num_threads() == before


@given(st.lists(st.integers(), max_size=30), st.integers(1, 4))
def test_streams_keep_the_order(items: list[int], streams: int) -> None:
    assert list(map_in_threads(str, iter(items), streams)) == [str(item) for item in items]


def test_streams_look_ahead_only_so_far() -> None:
    taken: list[int] = []
    results = map_in_threads(lambda item: item, (taken.append(i) or i for i in range(100)), streams=2)
    assert next(results) == 0
    assert len(taken) <= 5
    results.close()


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 80))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(batch_by_tokens(lengths, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[row] for row in batch) <= budget for batch in batches)
