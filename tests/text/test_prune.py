"""Pruning changes no word of the corpus, known or unknown, and keeps what other text needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadInput
from alembert.text.learn import prune
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import AddedToken, TokenizerParts, TokenizerSettings
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.text.word_counts import WordCounts

SPECIAL = tuple(SpecialTokens().roles().values())
LETTERS = (*"abc", "##a", "##b", "##c")


def tokenizer(*pieces: str) -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary((*SPECIAL, *pieces)), lowercase=True)


@given(
    st.lists(st.text("abcx", min_size=1, max_size=7), min_size=1, unique=True),
    st.sets(st.text("abc", min_size=1, max_size=4)),
    st.sets(st.text("abc", min_size=1, max_size=4)),
)
def test_every_word_is_cut_as_before(words: list[str], first: set[str], rest: set[str]) -> None:
    old = tokenizer(*sorted(first), *(f"##{piece}" for piece in sorted(rest)))
    pruning = prune(old, WordCounts(dict.fromkeys(sorted(words), 1)))
    new = pruning.tokenizer
    assert pruning.proof.changed == 0
    for word in words:
        ids = new.encode(word, add_special_tokens=False).ids
        assert [pruning.kept_ids[number] for number in ids] == list(old.encode(word, add_special_tokens=False).ids)


def test_unused_pieces_go_and_characters_stay() -> None:
    pruning = prune(tokenizer("[unused1]", *LETTERS, "ab", "abc", "##bc"), WordCounts({"abc": 1}))
    assert pruning.tokenizer.vocabulary.pieces == (*SPECIAL, *LETTERS, "abc")
    assert pruning.dropped == 3


def test_added_tokens_stay() -> None:
    parts = TokenizerParts(
        Vocabulary((*SPECIAL, *LETTERS, "ab", "@GENE$")),
        TokenizerSettings(do_lower_case=True),
        (AddedToken(content="@GENE$"),),
        len(SPECIAL) + len(LETTERS) + 1,
    )
    smaller = prune(Tokenizer(parts), WordCounts({"a": 1})).tokenizer
    assert smaller.tokens(smaller.encode("@GENE$", add_special_tokens=False).ids) == ["@GENE$"]
    assert smaller.parts.model_size == len(SPECIAL) + len(LETTERS)


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(BadInput, match="no words"):
        prune(tokenizer(*LETTERS), WordCounts({}))
