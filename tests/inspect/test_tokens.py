"""The report on how a text is cut is exact and counts what is not covered."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.inspect.tokens import TokenPiece, TokenReport, inspect_tokens
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "br", "##af", "cafe", "-", "h", "##i", "咳")
fixture_is_constant = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary.from_pieces(*PIECES), lowercase=True)


def test_a_word_shows_its_pieces(tokenizer: Tokenizer) -> None:
    (word,) = inspect_tokens(tokenizer, " BRAF").words
    assert (word.surface, word.start, word.end) == ("BRAF", 1, 5)
    assert word.pieces == (TokenPiece("br", 5, 1, 3), TokenPiece("##af", 6, 3, 5))
    assert word.split
    assert not word.unknown


def test_an_unknown_word_is_marked(tokenizer: Tokenizer) -> None:
    braf, other = inspect_tokens(tokenizer, "braf melanoma").words
    assert (braf.unknown, other.unknown) == (False, True)


def test_the_summary_counts(tokenizer: Tokenizer) -> None:
    summary = inspect_tokens(tokenizer, "BRAF-café xyz").summary
    assert (summary.characters, summary.words, summary.pieces) == (13, 4, 5)
    assert (summary.split_words, summary.unknown_words, summary.pieces_per_word) == (1, 1, 1.25)
    assert (summary.uncovered_characters, summary.coverage) == (3, 0.75)


def test_dropped_characters_are_uncovered(tokenizer: Tokenizer) -> None:
    assert inspect_tokens(tokenizer, "br \u200b\ud83d").summary.uncovered_characters == 2


def test_replaced_surrogates_are_counted(tokenizer: Tokenizer) -> None:
    assert inspect_tokens(tokenizer, "br \ud83d").summary.replaced_surrogates == 1


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_text_without_words_is_fully_covered(tokenizer: Tokenizer, text: str) -> None:
    summary = inspect_tokens(tokenizer, text).summary
    assert (summary.words, summary.pieces_per_word, summary.coverage) == (0, 0.0, 1.0)


@fixture_is_constant
@given(text=st.text(st.characters()))
def test_surfaces_and_shares_are_exact(tokenizer: Tokenizer, text: str) -> None:
    report: TokenReport = inspect_tokens(tokenizer, text)
    assert all(word.surface == text[word.start : word.end] for word in report.words)
    assert 0 <= report.summary.coverage <= 1
    json.dumps(report.as_json())


def test_no_torch_is_loaded() -> None:
    check = "import sys, alembert.inspect.tokens, alembert.cli.inspect; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=300)
