"""Cutting many words at once equals cutting each alone, and the proof finds every difference."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.segmentation import compare_segmentations, segment_words
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import AddedToken, TokenizerParts, TokenizerSettings
from alembert.text.vocabulary import SpecialTokens, Vocabulary

PIECES = (*SpecialTokens().roles().values(), *"abc", "##a", "##b", "##c", "ab", "##bc", "abca")
TOKENIZER = Tokenizer.from_vocabulary(Vocabulary(PIECES), lowercase=True)
SMALLER = Tokenizer.from_vocabulary(Vocabulary(PIECES[:-2]), lowercase=True)
WORDS = st.lists(st.text("abcd", min_size=1, max_size=8), unique=True, max_size=30)


def alone(tokenizer: Tokenizer, word: str) -> tuple[int, ...]:
    return tokenizer.encode(word, add_special_tokens=False).ids


@given(WORDS)
def test_words_are_cut_as_if_alone(words: list[str]) -> None:
    cuts = segment_words(TOKENIZER, words)
    assert [cuts.get_ids(position) for position in range(len(words))] == [alone(TOKENIZER, word) for word in words]
    assert cuts.unknown.tolist() == ["d" in word for word in words]


def test_added_tokens_inside_words_do_not_shift_the_borders() -> None:
    parts = TokenizerParts(
        Vocabulary((*PIECES, "bb")), TokenizerSettings(do_lower_case=True), (AddedToken(content="bb"),), len(PIECES)
    )
    tokenizer = Tokenizer(parts)
    cuts = segment_words(tokenizer, ["abba", "ab"])
    assert [cuts.get_ids(position) for position in (0, 1)] == [alone(tokenizer, word) for word in ("abba", "ab")]


@given(WORDS)
def test_the_proof_counts_what_differs(words: list[str]) -> None:
    counts = {word: position + 1 for position, word in enumerate(words)}
    old, new = segment_words(TOKENIZER, words), segment_words(SMALLER, words)
    proof = compare_segmentations((TOKENIZER, old), (SMALLER, new), counts)
    different = {word for word in words if alone(TOKENIZER, word) != alone(SMALLER, word)}
    assert (proof.changed, proof.unchanged) == (len(different), len(words) - len(different))
    assert proof.changed_occurrences == sum(counts[word] for word in different)
    assert {change.word for change in proof.examples} <= different


def test_moved_ids_are_no_difference() -> None:
    turned = Tokenizer.from_vocabulary(Vocabulary(PIECES[:5] + PIECES[:4:-1]), lowercase=True)
    new_ids = np.array([turned.id_of(piece) for piece in PIECES])
    words = ["ab", "abc", "cab", "d"]
    proof = compare_segmentations(
        (TOKENIZER, segment_words(TOKENIZER, words)),
        (turned, segment_words(turned, words)),
        dict.fromkeys(words, 1),
        new_ids=new_ids,
    )
    assert proof.unchanged == 4
