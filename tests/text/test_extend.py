"""Extending makes the chosen words whole, keeps every id, and tells the truth about all other words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert import sample
from alembert.errors import BadInput, BadSetting
from alembert.text.extend import (
    ExtendSettings,
    Extension,
    RequiredTerms,
    add_vocabulary_terms,
    extend,
    rank_candidates,
)
from alembert.text.learn import learn
from alembert.text.segmentation import segment_words
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import AddedToken, TokenizerParts, TokenizerSettings
from alembert.text.vocabulary import SpecialTokens, Vocabulary
from alembert.text.word_counts import TextSample, WordCounts, WordSplitter, count_corpus_words

SPECIAL = tuple(SpecialTokens().roles().values())
LETTERS = (*"abcdefv6", *(f"##{letter}" for letter in "abcdefv6"))


def tokenizer(*pieces: str) -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary((*SPECIAL, *LETTERS, *pieces)), lowercase=True)


def pieces(used: Tokenizer, word: str) -> list[str]:
    return used.tokens(used.encode(word, add_special_tokens=False).ids)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def extended(request: pytest.FixtureRequest) -> tuple[Tokenizer, WordCounts, Extension]:
    lowercase = request.param
    samples = [
        TextSample(p.text, tuple((e.label, p.text[e.start : e.end]) for e in p.entities))
        for p in sample.load_passages("en")
    ]
    census = count_corpus_words(samples, WordSplitter(TokenizerSettings(do_lower_case=lowercase)))
    old = Tokenizer.from_vocabulary(learn(census, 500), lowercase=lowercase)
    return old, census, extend(old, census, ExtendSettings(terms=100))


def test_each_term_is_one_piece(extended: tuple[Tokenizer, WordCounts, Extension]) -> None:
    _, _, extension = extended
    assert len(extension.terms) == 100
    assert all(pieces(extension.tokenizer, term.word) == [term.word] for term in extension.terms)


def test_old_pieces_keep_their_ids_and_new_ones_are_no_added_tokens(
    extended: tuple[Tokenizer, WordCounts, Extension],
) -> None:
    old, _, extension = extended
    assert extension.tokenizer.vocabulary.pieces[: old.vocab_size] == old.vocabulary.pieces
    assert extension.tokenizer.parts.added == old.parts.added


def test_the_proof_equals_a_check_word_by_word(extended: tuple[Tokenizer, WordCounts, Extension]) -> None:
    old, census, extension = extended
    terms = {term.word for term in extension.terms}
    changed = {word for word in census.words if pieces(old, word) != pieces(extension.tokenizer, word)}
    proof = extension.proof
    assert (proof.words, proof.joined, proof.changed) == (len(census.words), len(terms), len(changed - terms))
    assert all(any(word.startswith(term) for term in terms) for word in changed)


def test_new_rows_come_from_the_pieces_of_the_word(extended: tuple[Tokenizer, WordCounts, Extension]) -> None:
    old, _, extension = extended
    for number, sources in extension.sources.items():
        word = extension.tokenizer.vocabulary.pieces[number]
        assert sources == old.encode(word, add_special_tokens=False).ids


def test_a_strict_extension_changes_no_other_word(extended: tuple[Tokenizer, WordCounts, Extension]) -> None:
    old, census, _ = extended
    assert extend(old, census, ExtendSettings(terms=60, strict=True)).proof.changed == 0


def test_candidates_come_from_entities_and_their_inflections_only() -> None:
    census = WordCounts({"abcde": 5, "abcdef": 3, "fedcb": 9}, {"gene": {("abcde",): 4}})
    found = rank_candidates(census, segment_words(tokenizer(), list(census.words)))
    assert [(term.word, term.weight) for term in found] == [("abcde", 4), ("abcdef", 2)]
    every = rank_candidates(census, segment_words(tokenizer(), list(census.words)), any_word=True)
    assert [term.word for term in every] == ["fedcb", "abcde", "abcdef"]


def test_a_term_that_cuts_frequent_words_anew_is_passed_over() -> None:
    # "ab" saves 5 pieces, and would change "abc" (9 times), which is cut a ##bc, into ab ##c.
    census = WordCounts({"ab": 5, "abc": 9, "fe": 3}, {"gene": {("ab",): 5, ("fe",): 3}})
    assert [t.word for t in extend(tokenizer("##bc"), census, ExtendSettings(terms=1)).terms] == ["fe"]


def test_the_search_goes_on_when_all_of_the_best_do_harm() -> None:
    harmful = {f"{letter}b": 5 for letter in "abcdef"}
    census = WordCounts(
        {**harmful, **{f"{word}c": 9 for word in harmful}, "fe": 3},
        {"gene": {(w,): 5 for w in (*harmful, "fe")}},
    )
    assert [t.word for t in extend(tokenizer("##bc"), census, ExtendSettings(terms=1)).terms] == ["fe"]


def test_a_term_that_only_joins_its_own_pieces_is_not() -> None:
    census = WordCounts({"ab": 5, "abc": 9, "fe": 3}, {"gene": {("ab",): 5, ("fe",): 3}})
    extension = extend(tokenizer(), census, ExtendSettings(terms=1))
    assert [term.word for term in extension.terms] == ["ab"]
    assert (extension.proof.changed, extension.proof.changed_at_start) == (1, 1)


def test_unused_places_are_filled_first_on_request() -> None:
    old = tokenizer("[unused1]", "ab", "[unused2]")
    new = add_vocabulary_terms(old, ["abc", "abd", "abe"], reuse_unused=True)
    assert new.vocabulary.pieces[-4:] == ("abc", "ab", "abd", "abe")


def test_tokens_outside_wordpiece_keep_their_ids() -> None:
    parts = TokenizerParts(
        Vocabulary((*SPECIAL, *LETTERS, "@GENE$")),
        TokenizerSettings(do_lower_case=True),
        (AddedToken(content="@GENE$"),),
        len(SPECIAL) + len(LETTERS),
    )
    old = Tokenizer(parts)
    new = add_vocabulary_terms(old, ["abc"])
    text = "a @GENE$ abc"
    assert old.encode(text).ids[2] == new.encode(text).ids[2] == old.id_of("@GENE$")
    assert pieces(new, text) == ["a", "@GENE$", "abc"]


def test_a_list_of_terms_is_forced_in_word_by_word() -> None:
    forced = RequiredTerms.from_terms(["Abc", "DE-6", "ab cd"], WordSplitter(TokenizerSettings(do_lower_case=True)))
    extension = extend(tokenizer("ab"), WordCounts({"a": 1}), ExtendSettings(terms=3), forced)
    assert [term.word for term in extension.terms] == ["abc", "de", "cd"]
    assert (extension.forced, extension.several_words) == (3, 2)


def test_too_long_a_list_is_refused() -> None:
    with pytest.raises(BadSetting, match="2 words that are not whole yet, more than the 1"):
        extend(tokenizer(), WordCounts({"a": 1}), ExtendSettings(terms=1), RequiredTerms(("abc", "abd")))


def test_more_terms_than_candidates_are_refused_with_the_number_there_is() -> None:
    census = WordCounts({"abc": 3, "def": 2}, {"gene": {("abc",): 3}})
    with pytest.raises(BadSetting, match=r"can give 1 new terms.*5 were asked for.*--any-word"):
        extend(tokenizer(), census, ExtendSettings(terms=5))


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(BadInput, match="no words"):
        extend(tokenizer(), WordCounts({}), ExtendSettings(terms=1))


@given(st.dictionaries(st.text("abcx", min_size=1, max_size=7), st.integers(1, 20), min_size=1), st.data())
def test_unknown_words_become_known_and_nothing_else_does(words: dict[str, int], data: st.DataObject) -> None:
    old = tokenizer("abc", "##bc", "##ca")
    census = WordCounts(dict(sorted(words.items())))
    terms = sorted(data.draw(st.sets(st.sampled_from(sorted(words)))) - set(old.vocabulary))
    if not terms:
        return
    extension = extend(
        old, census, ExtendSettings(terms=len(terms)), RequiredTerms(tuple(t for t in terms if len(t) > 0))
    )
    assert all(pieces(extension.tokenizer, term) == [term] for term in terms)
    proof = extension.proof
    assert proof.unchanged + proof.joined + proof.changed == proof.words
