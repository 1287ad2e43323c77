"""Pieces written out: spaces where a reader expects them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from alembert.text.tokenizer import Tokenizer, detokenize
from alembert.text.vocabulary import Vocabulary

WORDS = ["un", "##aff", "##able", "aspirin", ".", ",", "?", "!"]
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=False
)


@pytest.mark.parametrize(
    "text",
    [
        "床前明月光，疑是地上霜。",
        "《静夜思》：“低头思故乡”……",
        "患者血清crp升高（12.5mg/l）。",
        "the il-6 level (2.5 ng/ml) rose; see [3].",
        "the patient's so-called “gout” was 40% worse",
        "ラーメンを食べた。",
    ],
)
def test_a_text_comes_back_from_its_pieces(text: str) -> None:
    spaced = BertNormalizer(lowercase=False).normalize_str(text)
    words = [word for word, _ in BertPreTokenizer().pre_tokenize_str(spaced)]
    assert detokenize(words) == text


@given(st.lists(st.sampled_from(WORDS)))
def test_plain_english_is_as_tokenizers_decodes_it(pieces: list[str]) -> None:
    ids = [TOKENIZER.id_of(piece) for piece in ["un", *pieces]]
    assert detokenize(["un", *pieces]) == TOKENIZER.decode(ids)


@pytest.mark.parametrize(
    ("before", "pieces", "text"),
    [
        ("Anti", ["##body", "test"], "Antibody test"),
        ("No fever ", ["or", "pain"], "No fever or pain"),
        ("  床前\n", ["明"], "  床前明"),
        ("", ["明"], "明"),
        ("床前", [], "床前"),
        ("The CRP", ["was", "12"], "The CRP was 12"),
    ],
)
def test_the_text_before_stays_as_it_was_given(before: str, pieces: list[str], text: str) -> None:
    assert detokenize(pieces, before) == text
