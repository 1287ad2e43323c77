"""Repeated documents are found, and the answer depends on their order alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.duplicates import SIGNATURE_BYTES, Deduplicator, Duplicate, compute_signature
from alembert.errors import BadSetting


def document(seed: int, words: int = 200) -> list[str]:
    rng = random.Random(seed)
    return [f"word{rng.randrange(5000)}" for _ in range(words)]


def changed(words: list[str], count: int, seed: int) -> list[str]:
    """Replace some words, spread evenly."""
    step = len(words) // count
    return [f"new{seed}x{i}" if i % step == 0 and i < count * step else word for i, word in enumerate(words)]


def answers(texts: list[list[str]], **options) -> list[Duplicate | None]:
    deduplicator = Deduplicator(**options)
    return [deduplicator.check_and_add(compute_signature(" ".join(words))) for words in texts]


def jaccard(one: list[str], other: list[str]) -> float:
    runs, others = ({tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (one, other))
    return len(runs & others) / len(runs | others)


@given(st.text())
def test_every_text_has_a_signature_of_one_size(text):
    assert len(compute_signature(text)) == SIGNATURE_BYTES


def test_case_and_spacing_do_not_matter():
    assert compute_signature("Acute  Abdomen\n") == compute_signature("acute abdomen")


def test_an_exact_duplicate_names_the_first():
    assert answers([document(1), document(2), document(1)])[2] == Duplicate(0, 1.0, exact=True)


def test_numbers_count_all_documents():
    found = answers([document(1), document(1), document(2), document(2)])
    assert [each.original if each else None for each in found] == [None, 0, None, 2]


def test_a_near_duplicate_is_found():
    near = answers([document(1, 400), changed(document(1, 400), 4, 0)])[1]
    assert near is not None
    assert not near.exact
    assert near.similarity == pytest.approx(jaccard(document(1, 400), changed(document(1, 400), 4, 0)), abs=0.12)


def test_most_near_duplicates_are_found():
    texts = [document(seed) for seed in range(200)] + [changed(document(seed), 2, seed) for seed in range(200)]
    assert min(jaccard(texts[seed], texts[200 + seed]) for seed in range(200)) > 0.85
    found = [each.original if each else None for each in answers(texts)[200:]]
    assert sum(of == seed for seed, of in enumerate(found)) >= 190


def test_different_documents_are_kept():
    assert answers([document(seed) for seed in range(3000)]) == [None] * 3000


def test_half_the_words_are_not_enough():
    assert answers([document(1), document(1)[:100] + document(2)[:100]])[1] is None


def test_short_texts_are_only_compared_exactly():
    one = ["a", "correction", "to", "the", "article", "on", "gout"]
    assert answers([one, [*one, "again"], one]) == [None, None, Duplicate(0, 1.0, exact=True)]


def test_near_duplicates_can_be_left():
    texts = [document(1, 400), changed(document(1, 400), 4, 0), document(1, 400)]
    assert answers(texts, similarity=None) == [None, None, Duplicate(0, 1.0, exact=True)]


def test_memory_and_files_give_the_same_answers(tmp_path):
    texts = [document(seed % 1500) for seed in range(3000)]
    assert answers(texts, folder=tmp_path) == answers(texts)


def test_a_long_text_has_a_signature():
    assert compute_signature("acute abdomen " * 100_000) != compute_signature("acute abdomen " * 100_001)


def test_a_wrong_similarity_is_refused():
    with pytest.raises(BadSetting, match="similarity"):
        Deduplicator(similarity=0.2)
