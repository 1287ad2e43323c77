"""Tokenizer: every string gets an answer, offsets are exact, nothing is cut."""

import pickle
import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.errors import BadInput, BadSetting
from alembert.text.tokenizer import Tokenizer

ANY_TEXT = st.text(st.characters())
fixture_is_constant = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def pieces(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return tokenizer.tokens(tokenizer.encode(text, **options).ids)


def test_a_text_is_framed(uncased: Tokenizer) -> None:
    assert pieces(uncased, "Unaffable") == ["[CLS]", "un", "##aff", "##able", "[SEP]"]


def test_a_pair_is_framed(uncased: Tokenizer) -> None:
    encoding = uncased.encode("aspirin", "un mutant")
    assert uncased.tokens(encoding.ids) == ["[CLS]", "aspirin", "[SEP]", "un", "mutant", "[SEP]"]
    assert encoding.type_ids == (0, 0, 0, 1, 1, 1)
    assert encoding.sequence_ids == (None, 0, None, 1, 1, None)
    assert encoding.word_ids == (None, 0, None, 0, 1, None)
    assert encoding.offsets == ((0, 0), (0, 7), (0, 0), (0, 2), (3, 9), (0, 0))
    assert encoding.special == (True, False, True, False, False, True)


def test_an_empty_pair_is_a_second_text(uncased: Tokenizer) -> None:
    assert pieces(uncased, "un", pair="") == ["[CLS]", "un", "[SEP]", "[SEP]"]


def test_special_tokens_can_be_left_out(uncased: Tokenizer) -> None:
    assert pieces(uncased, "aspirin", add_special_tokens=False) == ["aspirin"]


def test_a_special_token_in_the_text_is_found_but_was_not_added(uncased: Tokenizer) -> None:
    encoding = uncased.encode("un[MASK]un", add_special_tokens=False)
    assert encoding.ids[1] == uncased.mask_id
    assert encoding.special == (False, False, False)


@pytest.mark.parametrize("text", ["", "   ", "\t\n", "\0\0", "\u200b\u202e", "\u0301\u0301", "\ufffd", "\ud83d\ud83d"])
def test_text_without_content_is_an_empty_frame(uncased: Tokenizer, text: str) -> None:
    assert pieces(uncased, text) == ["[CLS]", "[SEP]"]


def test_case_and_accents_are_kept_when_cased(cased: Tokenizer) -> None:
    assert pieces(cased, "café Un", add_special_tokens=False) == ["café", "U", "##n"]


def test_a_word_of_a_million_characters_is_one_unknown(uncased: Tokenizer) -> None:
    encoding = uncased.encode("un " + "a" * 1_000_000 + " un", add_special_tokens=False)
    assert encoding.ids == (uncased.id_of("un"), uncased.unk_id, uncased.id_of("un"))
    assert encoding.offsets == ((0, 2), (3, 1_000_003), (1_000_004, 1_000_006))


def test_a_long_text_is_not_cut(uncased: Tokenizer) -> None:
    assert len(uncased.encode("aspirin " * 125_000)) == 125_002


def test_surrogates_are_replaced_and_counted(uncased: Tokenizer) -> None:
    encoding = uncased.encode("\ud83d un\udc00 un", "\ud800 un")
    assert encoding.replaced_surrogates == 3
    assert encoding.offsets[1:3] == ((2, 4), (6, 8))


def test_a_surrogate_leaves_the_rest_of_the_batch_alone(uncased: Tokenizer) -> None:
    batch = uncased.encode_batch(["un", "\ud83d un", "un"])
    assert [encoding.replaced_surrogates for encoding in batch] == [0, 1, 0]


@pytest.mark.parametrize("text", [None, b"bytes", 3, ("a", "b"), ["a"]])
def test_what_is_not_text_is_refused(uncased: Tokenizer, text: Any) -> None:
    with pytest.raises(BadInput, match="a str was expected"):
        uncased.encode(text)
    with pytest.raises(BadInput, match="a str was expected"):
        uncased.encode_batch(["un"], [text])


@pytest.mark.parametrize("texts", ["one text", b"bytes", None])
def test_one_text_is_not_a_batch(uncased: Tokenizer, texts: Any) -> None:
    with pytest.raises(BadInput, match="A list of texts was expected"):
        uncased.encode_batch(texts)


def test_each_text_needs_a_pair(uncased: Tokenizer) -> None:
    with pytest.raises(BadInput, match="2 texts and 1 pairs"):
        uncased.encode_batch(["a", "b"], ["c"])


def test_a_generator_is_a_batch(uncased: Tokenizer) -> None:
    texts = ["un", "aspirin"]
    batch = uncased.encode_batch((text for text in texts), (text for text in texts))
    assert [encoding.ids for encoding in batch] == [uncased.encode(text, text).ids for text in texts]


def test_an_empty_batch_is_empty(uncased: Tokenizer) -> None:
    assert uncased.encode_batch([]) == []


def test_offsets_that_were_not_made_are_refused(uncased: Tokenizer) -> None:
    encoding = uncased.encode_batch(["café un"], offsets=False)[0]
    with pytest.raises(BadSetting, match="offsets=True"):
        _ = encoding.offsets
    with pytest.raises(BadSetting, match="offsets=True"):
        _ = encoding.word_ids


@fixture_is_constant
@given(texts=st.lists(ANY_TEXT), pair=st.none() | ANY_TEXT)
def test_batches_and_single_texts_agree(uncased: Tokenizer, texts: list[str], pair: str | None) -> None:
    pairs = None if pair is None else [pair] * len(texts)
    single = [uncased.encode(text, pair) for text in texts]
    batch = uncased.encode_batch(texts, pairs)
    fast = uncased.encode_batch(texts, pairs, offsets=False)
    assert [e.ids for e in single] == [e.ids for e in batch] == [e.ids for e in fast]
    assert [e.type_ids for e in single] == [e.type_ids for e in batch] == [e.type_ids for e in fast]
    assert [e.sequence_ids for e in single] == [e.sequence_ids for e in batch] == [e.sequence_ids for e in fast]
    assert [e.offsets for e in single] == [e.offsets for e in batch]


@fixture_is_constant
@given(text=ANY_TEXT)
def test_offsets_are_inside_the_text_and_in_order(cased: Tokenizer, text: str) -> None:
    spans = cased.encode(text, add_special_tokens=False).offsets
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert list(spans) == sorted(spans)


@fixture_is_constant
@given(text=st.text("abcUNunaffableé ,.-[]咳嗽\n"))
def test_the_surface_of_a_piece_is_the_piece(cased: Tokenizer, text: str) -> None:
    encoding = cased.encode(text, add_special_tokens=False)
    for piece, (start, end) in zip(cased.tokens(encoding.ids), encoding.offsets, strict=True):
        assert piece in ("[UNK]", text[start:end], f"##{text[start:end]}")


@fixture_is_constant
@given(text=st.text("abcUNAFfableÉé ,.-"))
def test_the_normalised_surface_of_a_piece_is_the_piece(uncased: Tokenizer, text: str) -> None:
    encoding = uncased.encode(text, add_special_tokens=False)
    for piece, (start, end) in zip(uncased.tokens(encoding.ids), encoding.offsets, strict=True):
        plain = unicodedata.normalize("NFD", text[start:end].lower()).replace("\u0301", "")
        assert piece in ("[UNK]", plain, f"##{plain}")


def test_decode_joins_pieces(uncased: Tokenizer) -> None:
    assert uncased.decode(uncased.encode("Unaffable, aspirin.").ids) == "unaffable, aspirin."


def test_decode_can_show_special_tokens(uncased: Tokenizer) -> None:
    assert uncased.decode(uncased.encode("un").ids, skip_special_tokens=False) == "[CLS] un [SEP]"


@pytest.mark.parametrize("number", [-1, 10**6, 2**70])
def test_an_id_outside_the_vocabulary_is_refused(uncased: Tokenizer, number: int) -> None:
    with pytest.raises(BadInput, match=f"The id {number} is outside"):
        uncased.decode([number])


def test_a_repr_gives_no_text_away(uncased: Tokenizer) -> None:
    assert repr(uncased.encode("aspirin")) == "Encoding(3 pieces)"


def test_tokenizers_and_encodings_travel_to_other_processes(uncased: Tokenizer) -> None:
    tokenizer, encoding = pickle.loads(pickle.dumps((uncased, uncased.encode("café un"))))
    assert encoding.offsets == tokenizer.encode("café un").offsets
