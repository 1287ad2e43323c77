"""A census counts exactly the words that WordPiece sees, whatever white space and characters a text has."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from alembert.text.tokenizer_files import TokenizerSettings
from alembert.text.word_counts import (
    TextSample,
    WordCounts,
    WordSplitter,
    count_corpus_words,
    count_corpus_words_split,
)

UNCASED = TokenizerSettings(do_lower_case=True)
ODD = "aB\x0b\x0c\x1c\x85\u2028\u3000\u200b\xad\ufffd\ud800Éß咳Ωİ\u0301-'“ \n\t"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=30)


def reference(text: str, *, lowercase: bool) -> list[str]:
    """Cut a text by the library alone."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    clean = text.encode("utf-8", "ignore").decode()
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(clean))
    return [word for word, _ in cut]


def test_punctuation_is_that_of_the_library_for_every_character() -> None:
    characters = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    text = " ".join(f"a{character}a" for character in characters)
    assert WordSplitter(TokenizerSettings(do_lower_case=False)).split(text) == reference(text, lowercase=False)


@given(TEXTS, st.booleans())
def test_words_are_those_of_the_library(text: str, lowercase: bool) -> None:
    assert WordSplitter(TokenizerSettings(do_lower_case=lowercase)).split(text) == reference(text, lowercase=lowercase)


@given(st.lists(TEXTS, max_size=6))
def test_counting_stretches_first_gives_the_same_words(texts: list[str]) -> None:
    expected = Counter(word for text in texts for word in reference(text, lowercase=True))
    assert count_corpus_words(map(TextSample, texts), WordSplitter(UNCASED)).words == expected


def test_mentions_are_counted_by_their_words() -> None:
    samples = [TextSample("IL-6 and il-6", (("gene", "IL-6"), ("gene", "il-6"))), TextSample("", (("drug", "X"),))]
    census = count_corpus_words(samples, WordSplitter(UNCASED))
    assert census.mentions == {"drug": {("x",): 1}, "gene": {("il", "-", "6"): 2}}
    assert census.mention_words() == {"il": 2, "-": 2, "6": 2, "x": 1}
    assert census.several_words() == 2


def test_rare_words_beyond_the_limit_are_forgotten_and_counted() -> None:
    census = count_corpus_words([TextSample("a a a b b c d")], WordSplitter(UNCASED), most_words=2)
    assert census.words == {"a": 3, "b": 2}
    assert census.forgotten == 2


@given(st.lists(TEXTS, max_size=8), st.integers(2, 4))
def test_the_two_parts_of_a_corpus_make_the_whole(texts: list[str], every: int) -> None:
    samples = [TextSample(text, (("gene", text),)) for text in texts]
    main, held_out = count_corpus_words_split(samples, WordSplitter(UNCASED), every)
    assert held_out.documents == len(texts) // every
    assert main.merge(held_out) == count_corpus_words(samples, WordSplitter(UNCASED))


@pytest.mark.parametrize("order", [1, -1])
def test_words_come_in_order(order: int) -> None:
    census = count_corpus_words([TextSample(text) for text in ("b", "a", "c")[::order]], WordSplitter(UNCASED))
    assert list(census.words) == ["a", "b", "c"]
    assert census == WordCounts({"a": 1, "b": 1, "c": 1}, documents=3, characters=3)
