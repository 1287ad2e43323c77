"""Learnt vocabularies know every word of their corpus, are the same on every run, and are as good as the library's."""

import random

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from alembert import sample
from alembert.errors import BadInput, BadSetting
from alembert.text.learn import collect_alphabet, learn
from alembert.text.segmentation import segment_words
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import TokenizerSettings
from alembert.text.tokenizer_report import build_tokenizer_report
from alembert.text.vocabulary import Vocabulary
from alembert.text.word_counts import TextSample, WordCounts, WordSplitter, count_corpus_words


@pytest.fixture(scope="module")
def census() -> WordCounts:
    passages = (TextSample(passage.text) for passage in sample.load_passages())
    return count_corpus_words(passages, WordSplitter(TokenizerSettings(do_lower_case=True)))


@pytest.fixture(scope="module")
def learnt(census: WordCounts) -> Vocabulary:
    return learn(census, 2000)


def test_the_size_is_exact_and_special_tokens_come_first(learnt: Vocabulary) -> None:
    assert len(learnt) == 2000
    assert learnt.pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def test_no_word_of_the_corpus_is_unknown(census: WordCounts, learnt: Vocabulary) -> None:
    tokenizer = Tokenizer.from_vocabulary(learnt, lowercase=True)
    assert not segment_words(tokenizer, list(census.words)).unknown.any()


def test_chinese_characters_are_whole_and_never_continue(learnt: Vocabulary) -> None:
    assert "咳" in learnt
    assert "##咳" not in learnt


def test_the_order_in_which_words_come_does_not_matter(census: WordCounts, learnt: Vocabulary) -> None:
    words = list(census.words.items())
    random.Random(0).shuffle(words)
    assert learn(WordCounts(dict(words)), 2000) == learnt


def test_as_few_pieces_as_with_the_trainer_of_the_library(census: WordCounts, learnt: Vocabulary) -> None:
    rust = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    rust.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=list(learnt.pieces[:5]), show_progress=False, min_frequency=2
    )
    rust.train_from_iterator((" ".join([word] * count) for word, count in census.words.items()), trainer)
    pieces = sorted(rust.get_vocab(), key=rust.get_vocab().__getitem__)
    theirs = Tokenizer.from_vocabulary(Vocabulary(tuple(pieces)), lowercase=True)
    ours = Tokenizer.from_vocabulary(learnt, lowercase=True)
    assert build_tokenizer_report(ours, census).pieces <= build_tokenizer_report(theirs, census).pieces


def test_terms_that_must_be_whole_are_pieces(census: WordCounts) -> None:
    vocabulary = learn(census, 1500, whole=["braf", "vemurafenib", "x", "☃☃"])
    assert "braf" in vocabulary
    assert "vemurafenib" in vocabulary
    assert "☃☃" not in vocabulary


def test_a_size_below_the_alphabet_is_refused_with_the_number_needed(census: WordCounts) -> None:
    with pytest.raises(BadSetting, match=r"50 pieces is too small.*characters of this corpus take [\d,]+"):
        learn(census, 50)


def test_a_vocabulary_that_may_grow_has_all_characters(census: WordCounts) -> None:
    grown = learn(census, 50, grow=True)
    assert len(grown) > 50
    assert not set(collect_alphabet(census.words)) - set(grown.pieces)
    assert learn(census, 1500, grow=True) == learn(census, 1500)


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(BadInput, match="no words"):
        learn(WordCounts({}), 100)


def test_pairs_below_the_least_count_are_not_joined() -> None:
    assert "ab" not in learn(WordCounts({"ab": 2}), 100, min_count=3)
    assert "ab" in learn(WordCounts({"ab": 3}), 100, min_count=3)


def test_the_rarest_characters_are_left_out() -> None:
    assert collect_alphabet({"a": 2_000_000, "☃": 1}) == ["a"]
    assert collect_alphabet({"a": 2, "☃": 1}) == ["a", "☃"]


@given(st.dictionaries(st.text("abñ\u0301咳", min_size=1, max_size=6), st.integers(1, 9), min_size=1))
def test_any_words_can_be_learnt_from(words: dict[str, int]) -> None:
    vocabulary = learn(WordCounts(words), 60, min_count=1)
    assert set(collect_alphabet(words)) <= set(vocabulary)
    assert len(vocabulary) <= 60
