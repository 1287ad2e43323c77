"""Writing token by token from a memory equals reading the whole row again."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.data.windows import Row
from alembert.nn.batch import Batch
from alembert.nn.config import NORMS, POSITIONS, EncoderConfig
from alembert.nn.heads import LANGUAGE_MODEL_KINDS, HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.runtime.torch import TorchDecoder

SIZES = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20, "max_position_embeddings": 64, "initializer_range": 0.3}  # fmt: skip
ALBERT = {"embedding_size": 8, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu_new"}
SEGMENT = 1


def model_of(kind: str = "masked_lm", **changes: object) -> Model:
    config = EncoderConfig(**{**SIZES, **changes})
    return new_model(config, {"lm": HeadSpec(kind=kind)}, seed=3).eval()


def prompts_of(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, SIZES["vocab_size"], n).tolist() for n in lengths]


def rows_of(prompts: Sequence[list[int]]) -> list[Row]:
    return [Row(np.array(ids), np.array([len(ids) - 1]), prefix=len(ids)) for ids in prompts]


def whole(model: Model, attention: str, prompt: list[int], written: list[int]) -> np.ndarray:
    """Logits after the last token, all computed anew."""
    segments = [0] * len(prompt) + [SEGMENT] * len(written)
    batch = Batch.packed([prompt + written], [segments], prefixes=[len(prompt)])
    with torch.inference_mode():
        found: np.ndarray = model(batch, ["lm"], attention=attention)["lm"][-1].numpy()
    return found


@pytest.mark.parametrize("attention", ["causal", "prefix"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("more", [{}, ALBERT], ids=["bert", "albert"])
def test_a_memory_equals_reading_everything_again(
    attention: str, norm: str, positions: str, more: dict[str, object]
) -> None:
    model = model_of(layer_norm_position=norm, position_embedding_type=positions, **more)
    prompts = prompts_of([5, 2, 9])
    writer = TorchDecoder(model, "lm", attention, SEGMENT)
    lines: list[tuple[int, list[int]]] = [(number, []) for number in range(3)]
    found = writer.prefill(rows_of(prompts))
    # Rows are repeated, moved and dropped, as beams are.
    for parents in ([0, 1, 1, 2, 2, 2], [5, 1, 1, 0], [3, 0], [1, 1], [0]):
        for (prompt, written), logits in zip(lines, found, strict=True):
            np.testing.assert_allclose(logits, whole(model, attention, prompts[prompt], written), atol=1e-5)
        tokens = [(3 * number + len(parents)) % 23 for number in range(len(parents))]
        lines = [(lines[parent][0], [*lines[parent][1], token]) for parent, token in zip(parents, tokens, strict=True)]
        found = writer.step(parents, tokens)


@pytest.mark.parametrize("kind", LANGUAGE_MODEL_KINDS)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.data())
def test_any_rows_may_go_on(kind: str, lengths: list[int], data: st.DataObject) -> None:
    model = model_of(kind, position_embedding_type="rotary")
    prompts = prompts_of(lengths, seed=len(lengths))
    writer = TorchDecoder(model, "lm", "prefix", SEGMENT)
    lines: list[tuple[int, list[int]]] = [(number, []) for number in range(len(prompts))]
    writer.prefill(rows_of(prompts))
    for _ in range(4):
        parents = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=9))
        tokens = data.draw(st.lists(st.integers(0, 22), min_size=len(parents), max_size=len(parents)))
        found = writer.step(parents, tokens)
        lines = [(lines[p][0], [*lines[p][1], token]) for p, token in zip(parents, tokens, strict=True)]
    for (prompt, written), logits in zip(lines, found, strict=True):
        np.testing.assert_allclose(logits, whole(model, "prefix", prompts[prompt], written), atol=1e-5)


@pytest.mark.parametrize("kind", LANGUAGE_MODEL_KINDS)
def test_prompts_of_several_batches_are_one_memory(kind: str) -> None:
    model = model_of(kind, position_embedding_type="sinusoidal")
    prompts = prompts_of([400, 700, 300, 650, 5])  # more tokens than a batch holds
    writer = TorchDecoder(model, "lm", "prefix", SEGMENT)
    writer.prefill(rows_of(prompts))
    found = writer.step([3, 4, 0], [7, 8, 9])
    for number, token, logits in zip([3, 4, 0], [7, 8, 9], found, strict=True):
        np.testing.assert_allclose(logits, whole(model, "prefix", prompts[number], [token]), atol=1e-5)


def test_a_writer_can_read_again() -> None:
    model = model_of()
    writer = TorchDecoder(model, "lm", "causal", SEGMENT)
    writer.prefill(rows_of(prompts_of([3, 4])))
    writer.step([1, 0], [5, 6])
    (prompt,) = prompts_of([6], seed=9)
    writer.prefill(rows_of([prompt]))
    np.testing.assert_allclose(writer.step([0], [4])[0], whole(model, "causal", prompt, [4]), atol=1e-5)


def test_copying_works_where_products_are_rounded() -> None:
    model, (prompt,) = model_of("copy_lm"), prompts_of([6])
    writer = TorchDecoder(model, "lm", "prefix", SEGMENT)
    with torch.autocast("cpu", torch.bfloat16):
        writer.prefill(rows_of([prompt]))
        found = writer.step([0], [4])[0]
    np.testing.assert_allclose(found, whole(model, "prefix", prompt, [4]), atol=0.1)
