"""The numbers of a fit, worked out by hand on a corpus of three words."""

import json

import pytest

from alembert.errors import BadInput
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_report import TokenizerReport, build_tokenizer_report
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.text.word_counts import WordCounts


@pytest.fixture(scope="module")
def fitted() -> TokenizerReport:
    pieces = (*SpecialTokens().roles().values(), "ab", "##c", "##d", "zz")
    census = WordCounts(
        words={"ab": 10, "abcd": 4, "xy": 1},
        mentions={"gene": {("abcd",): 3, ("ab", "xy"): 1}},
        documents=2,
        characters=60,
    )
    return build_tokenizer_report(Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True), census)


def test_totals(fitted: TokenizerReport) -> None:
    assert (fitted.words, fitted.pieces, fitted.split, fitted.unknown) == (15, 10 + 12 + 1, 4, 1)
    assert fitted.pieces_per_word == pytest.approx(23 / 15)
    assert fitted.pieces_per_character == pytest.approx(23 / 60)


def test_the_histogram_counts_occurrences(fitted: TokenizerReport) -> None:
    assert fitted.histogram == (11, 0, 4, 0, 0, 0, 0, 0)


def test_entities_by_kind(fitted: TokenizerReport) -> None:
    gene = fitted.entities["gene"]
    assert (gene.mentions, gene.pieces, gene.split, gene.unknown) == (4, 3 * 3 + 2, 3, 1)
    assert gene.histogram[:3] == (0, 1, 3)


def test_what_is_used_and_what_costs(fitted: TokenizerReport) -> None:
    assert fitted.unused_pieces == 5  # zz and four special tokens
    assert [(word.word, word.saved) for word in fitted.costly] == [("abcd", 8)]
    assert [word.word for word in fitted.strange] == []  # seen once
    assert [(saving.terms, saving.pieces) for saving in fitted.savings] == [(1, 8)]


def test_it_can_be_written_as_json(fitted: TokenizerReport) -> None:
    assert json.loads(json.dumps(fitted.as_json()))["pieces_per_word"] == 1.53333


def test_an_empty_corpus_is_refused() -> None:
    tokenizer = Tokenizer.from_vocabulary(Vocabulary(tuple(SpecialTokens().roles().values())), lowercase=True)
    with pytest.raises(BadInput, match="no words"):
        build_tokenizer_report(tokenizer, WordCounts({}))
