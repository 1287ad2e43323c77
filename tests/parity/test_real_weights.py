"""Real pretrained weights: our outputs equal those of transformers within 1e-5 in float32."""

from pathlib import Path

import pytest
import torch
import transformers

import alembert
from alembert.files.checkpoint import convert
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from attention_checks import assert_equals_fused

TEXTS = [
    "Aspirin inhibits platelet aggregation.",
    "x",
    "Vemurafenib prolonged survival in patients with BRAF V600E-mutant metastatic melanoma (p < 0.001).",
    "No fever.",
]
PAIRS = [
    "It blocks COX-1.",
    "Sepsis was ruled out by three negative blood cultures.",
    "",
    "Afebrile since Monday.",
]


@pytest.fixture(scope="module")
def minilm_pair(minilm: Path) -> tuple[transformers.PreTrainedModel, alembert.Checkpoint]:
    return transformers.AutoModel.from_pretrained(minilm).eval(), alembert.open(minilm)


@pytest.fixture(scope="module")
def reactions_pair(
    reactions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[transformers.PreTrainedModel, alembert.Checkpoint]:
    folder = tmp_path_factory.mktemp("reactions") / "new"
    convert(reactions, folder, family="bert")
    peer = transformers.BertForPreTraining(transformers.BertConfig.from_json_file(reactions / "config.json"))
    peer.load_state_dict(torch.load(reactions / "pytorch_model.bin", weights_only=True), strict=False)
    return peer.eval(), alembert.open(folder)


@pytest.fixture(scope="module")
def chinese_pair(
    chinese_albert: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[transformers.PreTrainedModel, alembert.Checkpoint]:
    folder = tmp_path_factory.mktemp("albert") / "new"
    with pytest.warns(UserWarning, match="pooler.* left out"):
        convert(chinese_albert, folder, architecture="AlbertForMaskedLM")
    peer = transformers.AlbertForMaskedLM(transformers.AlbertConfig.from_json_file(chinese_albert / "config.json"))
    peer.load_state_dict(torch.load(chinese_albert / "pytorch_model.bin", weights_only=True), strict=False)
    return peer.eval(), alembert.open(folder)


def assert_equal(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-5) -> None:
    """Equal within the tolerance, relative to the largest value where that exceeds one (logits reach 30)."""
    scale = max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(mine, theirs, atol=tolerance * scale, rtol=0)


def random_rows(lengths: list[int], vocab_size: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(5, vocab_size, (n,), generator=generator).tolist() for n in lengths]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


LENGTHS = [1, 2, 3, 17, 17, 64, 128, 200, 511, 512]


@torch.no_grad()
def test_minilm_at_every_kind_of_length(
    minilm_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint],
) -> None:
    peer, checkpoint = minilm_pair
    rows = random_rows(LENGTHS, 30522)
    ids, mask = padded(rows)
    theirs = peer(input_ids=ids, attention_mask=mask)
    for batch in (Batch.packed(rows), Batch.padded(ids, mask)):
        outputs = checkpoint.model(batch)
        for states, row, length in zip(
            batch.split(outputs["hidden"]), theirs.last_hidden_state, batch.lengths, strict=True
        ):
            assert_equal(states, row[:length])
        assert_equal(outputs["pooled"], theirs.pooler_output)


@torch.no_grad()
def test_minilm_on_pairs_of_texts(
    minilm_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint], minilm: Path
) -> None:
    peer, checkpoint = minilm_pair
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    theirs = peer(**tokenizer(TEXTS, PAIRS, padding=True, return_tensors="pt")).last_hidden_state
    encodings = checkpoint.tokenizer.encode_batch(TEXTS, PAIRS)
    batch = Batch.packed([e.ids for e in encodings], [e.type_ids for e in encodings])
    for states, row in zip(batch.split(checkpoint.model(batch)["hidden"]), theirs, strict=True):
        assert_equal(states, row[: len(states)])


@torch.no_grad()
def test_minilm_attention_of_a_chosen_text(
    minilm: Path, minilm_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint]
) -> None:
    _, checkpoint = minilm_pair
    peer = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    rows = [list(e.ids) for e in checkpoint.tokenizer.encode_batch(TEXTS)]
    trace = ForwardTrace(documents=[2])
    checkpoint.model(Batch.packed(rows), trace=trace)
    theirs = peer(torch.tensor([rows[2]]), output_attentions=True).attentions
    for layer, expected in enumerate(theirs):
        assert_equal(trace.probabilities(layer, 2), expected[0])


@torch.no_grad()
@pytest.mark.parametrize("repeated", [1, 26], ids=["a text", "512 tokens"])
@pytest.mark.filterwarnings("ignore:.* has no task.json")
def test_minilm_attention_that_is_shown(repeated: int, minilm: Path) -> None:
    """Equal to that of transformers, to what the fused kernel returned, and each row sums to one."""
    model = alembert.load(minilm)
    text = " ".join([TEXTS[2]] * repeated)
    while len(model.language_model.tokenizer.encode(text)) > 512:
        text = text.rpartition(" ")[0]
    ids = list(model.language_model.tokenizer.encode(text).ids)
    maps = model.attention(text)
    assert len(maps.tokens) == len(ids)
    assert abs(maps.weights_LHTT.sum(-1) - 1).max() < 1e-5
    peer = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    theirs = peer(torch.tensor([ids]), output_attentions=True).attentions
    for mine, expected in zip(maps.weights_LHTT, theirs, strict=True):
        assert_equal(torch.from_numpy(mine), expected[0])
    assert_equals_fused(model.language_model.model, ids, maps)


@torch.no_grad()
def test_reactions_masked_lm_and_next_sentence(
    reactions_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint],
) -> None:
    peer, checkpoint = reactions_pair
    rows = random_rows([1, 5, 5, 40, 512], 591)
    ids, mask = padded(rows)
    theirs = peer(input_ids=ids, attention_mask=mask)
    for batch in (Batch.packed(rows), Batch.padded(ids, mask)):
        outputs = checkpoint.model(batch)
        assert_equal(outputs["next_sentence"], theirs.seq_relationship_logits)
        for states, row, length in zip(
            batch.split(outputs["masked_lm"]), theirs.prediction_logits, batch.lengths, strict=True
        ):
            assert_equal(states, row[:length])


@torch.no_grad()
def test_masked_lm_at_given_positions_only(
    reactions_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint],
) -> None:
    _, checkpoint = reactions_pair
    batch = Batch.packed(random_rows([9, 4, 30], 591))
    everywhere = checkpoint.model(batch, ["masked_lm"])["masked_lm"]
    wanted = batch.starts_B + torch.tensor([3, 0, 29])
    chosen = checkpoint.model(batch, ["masked_lm"], predicted_P=wanted)["masked_lm"]
    assert_equal(chosen, everywhere[wanted])


CHINESE = ["患者咳[MASK]三天。", "糖尿病", "高血压患者应低盐饮食"]


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_chinese_albert_equals_transformers(
    chinese_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint],
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    peer, checkpoint = chinese_pair
    peer, model = peer.to(dtype), checkpoint.model.to(dtype)
    rows = [list(e.ids) for e in checkpoint.tokenizer.encode_batch(CHINESE)]
    ids, mask = padded(rows)
    theirs = peer(input_ids=ids, attention_mask=mask).logits
    for batch in (Batch.packed(rows), Batch.padded(ids, mask)):
        for logits, row in zip(batch.split(model(batch)["masked_lm"]), theirs, strict=True):
            assert_equal(logits, row[: len(logits)], tolerance)


@torch.no_grad()
def test_chinese_albert_fills_the_cough(
    chinese_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint],
) -> None:
    _, checkpoint = chinese_pair
    encoding = checkpoint.tokenizer.encode(CHINESE[0])
    logits = checkpoint.model.float()(Batch.packed([encoding.ids]))["masked_lm"]
    best = logits[encoding.ids.index(checkpoint.tokenizer.mask_id)].argmax().item()
    assert checkpoint.tokenizer.tokens([best]) == ["嗽"]


def test_what_we_save_of_minilm_opens_in_transformers(
    minilm_pair: tuple[transformers.PreTrainedModel, alembert.Checkpoint], tmp_path: Path
) -> None:
    peer, checkpoint = minilm_pair
    checkpoint.save(tmp_path / "saved")
    again = transformers.AutoModel.from_pretrained(tmp_path / "saved").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(again(**inputs).last_hidden_state, peer(**inputs).last_hidden_state)
    assert inputs["input_ids"][0][:7].tolist() == list(checkpoint.tokenizer.encode(TEXTS[0]).ids)[:7]
