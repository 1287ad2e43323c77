"""Resized checkpoints: new rows are means, every other weight is bit-equal, and transformers opens the result."""

from pathlib import Path

import pytest
import torch
import transformers

import alembert
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import (
    TOKEN_EMBEDDING,
    with_added_pieces,
    with_kept_pieces,
    with_markers,
)
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.extend import add_vocabulary_terms
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary

PIECES = (*SpecialTokens().roles().values(), "[unused1]", "br", "##af", "im", "##atin", "##ib", "treats")
BIAS = "heads.masked_lm.bias"


def checkpoint(rows: int = len(PIECES), **config: object) -> Checkpoint:
    shape = EncoderConfig(
        vocab_size=rows,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        **config,
    )
    blueprint = Blueprint(config=shape, heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)})
    tokenizer = Tokenizer.from_vocabulary(Vocabulary(PIECES), lowercase=True)
    made = Checkpoint.new(blueprint, tokenizer)
    torch.nn.init.normal_(made.model.heads["masked_lm"].bias)
    made.model.eval()
    return made


def extended(old: Checkpoint, *, reuse_unused: bool = False) -> Checkpoint:
    assert old.tokenizer is not None
    new = add_vocabulary_terms(old.tokenizer, ["braf", "imatinib"], reuse_unused=reuse_unused)
    sources = {new.id_of("braf"): (6, 7), new.id_of("imatinib"): (8, 9, 10)}
    return with_added_pieces(old, new, sources)


@pytest.mark.parametrize("name", [TOKEN_EMBEDDING, BIAS])
def test_new_rows_are_the_mean_of_their_pieces(name: str) -> None:
    old = checkpoint()
    rows, before = extended(old).model.state_dict()[name], old.model.state_dict()[name]
    assert torch.equal(rows[: len(before)], before)
    torch.testing.assert_close(rows[-2], before[6:8].mean(dim=0), rtol=0, atol=1e-7)
    torch.testing.assert_close(rows[-1], before[8:11].mean(dim=0), rtol=0, atol=1e-7)


def test_every_other_weight_is_bit_equal() -> None:
    old = checkpoint()
    new = extended(old).model.state_dict()
    others = {name: weight for name, weight in old.model.state_dict().items() if name not in (TOKEN_EMBEDDING, BIAS)}
    assert others
    assert all(torch.equal(new[name], weight) for name, weight in others.items())


@torch.no_grad()
@pytest.mark.parametrize("reuse_unused", [False, True])
def test_text_without_new_terms_has_bit_equal_states(reuse_unused: bool) -> None:
    old = checkpoint()
    new = extended(old, reuse_unused=reuse_unused)
    ids = [checkpoint_.tokenizer.encode("treats br im").ids for checkpoint_ in (old, new)]
    assert ids[0] == ids[1]
    states = [c.model(Batch.packed([ids[0]]))["hidden"] for c in (old, new)]
    assert torch.equal(*states)


def test_spare_rows_of_a_padded_embedding_are_filled_before_new_ones_are_added() -> None:
    assert extended(checkpoint(rows=len(PIECES) + 1)).blueprint.config.vocab_size == len(PIECES) + 2
    assert extended(checkpoint(rows=len(PIECES) + 9)).blueprint.config.vocab_size == len(PIECES) + 9


def test_reused_places_make_one_row_less() -> None:
    assert extended(checkpoint(), reuse_unused=True).blueprint.config.vocab_size == len(PIECES) + 1


@torch.no_grad()
@pytest.mark.parametrize("config", [{}, {"embedding_size": 4, "num_hidden_groups": 1}], ids=["bert", "albert"])
def test_transformers_opens_the_result_and_agrees(tmp_path: Path, config: dict[str, int]) -> None:
    ours = extended(checkpoint(**config))
    ours.save(tmp_path / "new")
    peer = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    ids = tokenizer("imatinib treats BRAF")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "imatinib", "treats", "braf", "[SEP]"]
    assert peer.config.vocab_size == len(PIECES) + 2
    mine = ours.model(Batch.packed([ids]))["masked_lm"]
    torch.testing.assert_close(mine, peer(torch.tensor([ids])).logits[0], atol=1e-5, rtol=0)


def test_kept_rows_follow_their_pieces() -> None:
    old, kept = checkpoint(rows=len(PIECES) + 3), (0, 1, 2, 3, 4, 8, 11)
    pieces = tuple(PIECES[number] for number in kept)
    new = with_kept_pieces(old, Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True), kept)
    for name in (TOKEN_EMBEDDING, BIAS):
        assert torch.equal(new.model.state_dict()[name], old.model.state_dict()[name][list(kept)])
    assert new.parameters == old.parameters - (len(PIECES) + 3 - len(kept)) * (8 + 1)
    assert new.bytes == 4 * new.parameters


def test_the_id_of_padding_follows_its_piece(tmp_path: Path) -> None:
    pieces = ("[unused0]", *PIECES)
    old = Checkpoint.new(
        Blueprint(config=EncoderConfig(vocab_size=len(pieces), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)),
        Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True),
    )  # fmt: skip
    old = Checkpoint(**{**vars(old), "extra": {"pad_token_id": 1}})
    kept = tuple(range(1, len(pieces)))
    with_kept_pieces(old, Tokenizer.from_vocabulary(Vocabulary(PIECES), lowercase=True), kept).save(tmp_path / "new")
    assert alembert.open(tmp_path / "new").extra["pad_token_id"] == 0


def marked(old: Checkpoint) -> Checkpoint:
    assert old.tokenizer is not None
    return with_markers(old, old.tokenizer, {"[E1]": "braf", "@GENE$": "imatinib"})


def test_markers_begin_as_their_words() -> None:
    old = checkpoint()
    rows, before = marked(old).model.state_dict()[TOKEN_EMBEDDING], old.model.state_dict()[TOKEN_EMBEDDING]
    torch.testing.assert_close(rows[-2], before[6:8].mean(dim=0), rtol=0, atol=1e-7)
    torch.testing.assert_close(rows[-1], before[8:11].mean(dim=0), rtol=0, atol=1e-7)


def test_markers_that_are_there_change_nothing() -> None:
    once = marked(checkpoint())
    assert marked(once) is once


def test_markers_are_single_pieces_here_and_in_transformers(tmp_path: Path) -> None:
    marked(checkpoint()).save(tmp_path / "new")
    expected = ["[CLS]", "[E1]", "im", "##atin", "##ib", "treats", "@GENE$", "[SEP]"]
    text = "[E1] Imatinib treats @GENE$"
    ours = alembert.open(tmp_path / "new").tokenizer
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    assert ours.tokens(ours.encode(text).ids) == expected
    assert peer.convert_ids_to_tokens(peer(text)["input_ids"]) == expected
