"""Pairs are distributed as the published algorithm's, and each of its odd corners is where it was."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import comb
from random import Random

import numpy as np
import plain_bert
import pytest
from chi_square import UNLIKELY, alike, fits
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.sequences import TokenSpan, build_next_sentence_pairs, build_sentence_order_pairs

Pair = tuple[tuple[int, int], tuple[int, int], int]

MIXED = ([3, 4, 2, 5, 6, 3, 1, 4], [9], [40], [2, 2], [5, 30, 4, 4, 7], [1] * 30, [6, 7, 5, 4, 9, 3, 8, 2, 6])
"""Sentence lengths of documents of all kinds: usual, one sentence, one long one, short, with a long one, crumbs."""


@dataclass
class Documents:
    """Documents whose tokens are numbered through."""

    borders: list[np.ndarray]

    @classmethod
    def of(cls, *documents: list[int]) -> "Documents":
        starts = accumulate(map(sum, documents), initial=0)
        return cls([np.cumsum([start, *sizes]) for start, sizes in zip(starts, documents, strict=False)])

    def __len__(self) -> int:
        return len(self.borders)

    def get_sentence_borders(self, document: int) -> np.ndarray:
        return self.borders[document]

    def as_lists(self) -> list[list[list[int]]]:
        return [[list(range(a, b)) for a, b in pairwise(borders.tolist())] for borders in self.borders]


def anything(document: int) -> bool:
    return True


def ours(
    documents: Documents,
    own: int,
    rng: np.random.Generator,
    *,
    length: int = 64,
    short_share: float = 0.0,
    is_training: Callable[[int], bool] = anything,
) -> list[TokenSpan]:
    return build_next_sentence_pairs(
        documents, own, length=length, short_share=short_share, rng=rng, is_training=is_training
    )


def many(documents: Documents, own: int = 0, count: int = 200, **settings) -> list[list[TokenSpan]]:
    rng = np.random.default_rng(11)
    return [ours(documents, own, rng, **settings) for _ in range(count)]


def width(side: tuple[int, int]) -> int:
    return side[1] - side[0]


# --- in distribution ---------------------------------------------------------------------------------------------


def plain(documents: list[list[list[int]]], own: int, length: int, share: float, rng: Random) -> list[Pair]:
    made = plain_bert.pairs(documents, own, length, share, rng)
    return [((a[0], a[-1] + 1), (b[0], b[-1] + 1), int(is_random)) for a, b, is_random in made]


@cache
def passes() -> tuple[list[list[Pair]], list[list[Pair]]]:
    """Over 100,000 instances of both: all documents in turn, a pass of each."""
    documents, rng, generator = Documents.of(*MIXED), Random(5), np.random.default_rng(6)
    lists = documents.as_lists()
    turns = [turn % len(documents) for turn in range(49_000)]
    found = [ours(documents, own, generator, length=24, short_share=0.1) for own in turns]
    return (
        [[(pair.a, pair.b, pair.label) for pair in made] for made in found],
        [plain(lists, own, 24, 0.1, rng) for own in turns],
    )


def test_the_samples_are_large() -> None:
    assert all(sum(map(len, sample)) > 100_000 for sample in passes())


BORDERS = frozenset(border for document in Documents.of(*MIXED).borders for border in document.tolist())

STATISTICS = {
    "label": lambda pair: pair[2],
    "length of A": lambda pair: width(pair[0]),
    "length of B": lambda pair: width(pair[1]),
    "length and label": lambda pair: (width(pair[0]) + width(pair[1]), pair[2]),
    "start of A": lambda pair: pair[0][0],
    "end of A": lambda pair: pair[0][1],
    "start of B": lambda pair: pair[1][0],
    "end of B": lambda pair: pair[1][1],
    "sides that were cut": lambda pair: tuple(place in BORDERS for side in pair[:2] for place in side),
}


# Pairs of one pass share their target, so a pass gives one pair to each sample.
@pytest.mark.parametrize("which", [0, -1], ids=["first pair", "last pair"])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_pair_is_distributed_as_published(name, which) -> None:
    mine, theirs = ([STATISTICS[name](made[which]) for made in sample] for sample in passes())
    assert alike(mine, theirs) > UNLIKELY


def test_a_document_gives_as_many_pairs_as_published() -> None:
    mine, theirs = ([(made[0][0][1], len(made)) for made in sample] for sample in passes())
    assert alike(mine, theirs) > UNLIKELY


@pytest.mark.parametrize(
    ("sizes", "length"), [([2, 1, 3], 8), ([1, 2, 1, 1], 7), ([5, 2], 8), ([7], 7), ([2, 2], 6)], ids=str
)
def test_all_pairs_of_a_small_document_are_jointly_distributed_as_published(sizes, length) -> None:
    documents, rng, generator = Documents.of(sizes, [1, 2], [3]), Random(1), np.random.default_rng(2)
    lists = documents.as_lists()
    mine = [
        tuple((pair.a, pair.b, pair.label) for pair in ours(documents, 0, generator, length=length))
        for _ in range(15_000)
    ]
    theirs = [tuple(plain(lists, 0, length, 0.0, rng)) for _ in range(20_000)]
    assert alike(mine, theirs) > UNLIKELY


def test_one_document_in_ten_aims_at_a_shorter_length() -> None:
    documents, rng = Documents.of([1] * 17, [1]), np.random.default_rng(3)
    most = 17
    made = [ours(documents, 0, rng, length=most + 3, short_share=0.1)[0] for _ in range(20_000)]
    shares = dict.fromkeys(range(2, most + 1), 0.1 / (most - 1))
    shares[most] += 0.9
    assert fits([pair.length - 3 for pair in made if pair.label == 0], shares) > UNLIKELY


def test_the_cut_is_even_over_the_sentences_of_a_chunk() -> None:
    documents, rng = Documents.of([1] * 12, [1]), np.random.default_rng(4)
    cuts = [width(ours(documents, 0, rng, length=15)[0].a) for _ in range(20_000)]
    assert fits(cuts, dict.fromkeys(range(1, 12), 1 / 11)) > UNLIKELY


def test_half_of_the_pairs_are_random() -> None:
    documents, rng = Documents.of([1] * 12, [1]), np.random.default_rng(5)
    labels = [ours(documents, 0, rng, length=15)[0].label for _ in range(20_000)]
    assert fits(labels, {0: 0.5, 1: 0.5}) > UNLIKELY


def test_tokens_are_dropped_from_front_or_back_with_an_even_chance() -> None:
    documents, rng = Documents.of([20, 30], [1]), np.random.default_rng(6)
    made = [ours(documents, 0, rng, length=43, short_share=0)[0] for _ in range(20_000)]
    fronts = [pair.b[0] - 20 for pair in made if pair.label == 0]
    assert fits(fronts, {front: comb(10, front) / 2**10 for front in range(11)}) > UNLIKELY


def test_the_random_document_and_its_first_sentence_are_even() -> None:
    documents, rng = Documents.of([5], [1, 1, 1], [1], [1, 1]), np.random.default_rng(7)
    starts = [ours(documents, 0, rng, length=9)[0].b[0] for _ in range(20_000)]
    shares = {5: 1 / 9, 6: 1 / 9, 7: 1 / 9, 8: 1 / 3, 9: 1 / 6, 10: 1 / 6}
    assert fits(starts, shares) > UNLIKELY


# --- corner by corner --------------------------------------------------------------------------------------------


def test_a_document_of_one_sentence_gets_a_random_partner_always() -> None:
    for pairs in many(Documents.of([6], [4])):
        assert pairs == [TokenSpan(0, (0, 6), (6, 10), 1)]


def test_a_chunk_of_one_sentence_gets_a_random_partner_always() -> None:
    for pairs in many(Documents.of([20, 20, 20], [1]), length=20):
        assert [pair.label for pair in pairs] == [1, 1, 1]


def test_a_document_below_the_target_is_one_chunk() -> None:
    for pairs in many(Documents.of([3, 4, 5], [2])):
        if pairs[0].label == 0:
            assert len(pairs) == 1
            assert (pairs[0].a[0], pairs[0].a[1], pairs[0].b[1]) == (0, pairs[0].b[0], 12)


def test_sentences_that_gave_way_to_a_random_one_begin_the_next_pair() -> None:
    for pairs in many(Documents.of([3, 4, 5, 2, 6], [2])):
        for pair, following in pairwise(pairs):
            assert following.a[0] == (pair.a[1] if pair.label else pair.b[1])


def test_every_sentence_is_used_whatever_is_put_back() -> None:
    for pairs in many(Documents.of([3, 4, 5, 2, 6], [2])):
        own = [side for pair in pairs for side in ([pair.a] if pair.label else [pair.a, pair.b])]
        assert [token for side in own for token in range(*side)] == list(range(20))


def test_a_random_partner_is_one_sentence_when_a_fills_the_target_alone() -> None:
    for pairs in many(Documents.of([50], [2, 2, 2]), length=16):
        assert [(width(pair.a), width(pair.b)) for pair in pairs] == [(11, 2)]


def test_a_random_partner_takes_sentences_until_the_target() -> None:
    for (pair,) in many(Documents.of([4], [3, 3, 3, 3]), length=13):
        assert pair.b[1] == min(pair.b[0] + 6, 16)


def test_a_sentence_above_the_room_loses_tokens_at_both_ends() -> None:
    lost = {(pair.a[0], 50 - pair.a[1]) for (pair,) in many(Documents.of([50], [2]), length=16)}
    assert {front + back for front, back in lost} == {39}
    assert len(lost) > 5


def test_on_a_tie_b_loses_the_token() -> None:
    made = [pairs[0] for pairs in many(Documents.of([10, 10], [1]), length=22)]
    assert {(width(pair.a), width(pair.b)) for pair in made if pair.label == 0} == {(10, 9)}


def test_a_short_side_is_left_whole() -> None:
    made = [pairs[0] for pairs in many(Documents.of([3, 30], [1]), length=23)]
    assert {(pair.a, width(pair.b)) for pair in made if pair.label == 0} == {((0, 3), 17)}


def test_a_document_alone_is_its_own_stranger_as_published() -> None:
    for pairs in many(Documents.of([5]), count=20):
        assert pairs == [TokenSpan(0, (0, 5), (0, 5), 1)]


def test_two_documents_hardly_ever_meet_themselves() -> None:
    made = [pair for pairs in many(Documents.of([5], [5]), count=2_000) for pair in pairs]
    assert sum(pair.b[0] == 0 for pair in made) < 10


def test_held_out_documents_are_never_a_partner() -> None:
    documents = Documents.of([5], [5], [5], [5])
    found = {pair.b for (pair,) in many(documents, is_training=lambda document: document in (0, 2))}
    assert found <= {(10, 15), (0, 5)}


def test_sentences_and_documents_without_tokens_are_passed_over() -> None:
    documents = Documents.of([0, 5, 0, 0, 4, 0], [0, 0], [], [3])
    for pair in (pair for pairs in many(documents) for pair in pairs):
        assert width(pair.a) in (5, 4)
        assert pair.b in ((5, 9), (9, 12))


@pytest.mark.parametrize("sizes", [[], [0], [0, 0]])
def test_a_document_without_tokens_has_no_pairs(sizes) -> None:
    assert many(Documents.of(sizes, [3]), count=1) == [[]]


document_sizes = st.lists(st.integers(0, 20), max_size=8)


@given(document_sizes, st.integers(5, 30), st.integers(0, 2**32))
def test_no_side_is_empty_and_every_pair_fits(sizes, length, seed) -> None:
    documents, rng = Documents.of(sizes, [4, 9], [1]), np.random.default_rng(seed)
    for pair in ours(documents, 0, rng, length=length, short_share=0.5):
        assert min(width(pair.a), width(pair.b)) >= 1
        assert pair.length <= length


def test_the_same_generator_gives_the_same_pairs() -> None:
    documents = Documents.of(*MIXED)
    assert many(documents, count=20, short_share=0.1) == many(documents, count=20, short_share=0.1)


# --- sentence order ----------------------------------------------------------------------------------------------


def ordered(*sizes: int, length: int = 64, count: int = 200, short_share: float = 0.0) -> list[list[TokenSpan]]:
    documents, rng = Documents.of(list(sizes)), np.random.default_rng(8)
    return [
        build_sentence_order_pairs(documents, 0, length=length, short_share=short_share, rng=rng) for _ in range(count)
    ]


def test_segments_are_neighbours_and_the_label_says_which_comes_first() -> None:
    for (pair,) in ordered(3, 4, 5, 2):
        first, second = (pair.b, pair.a) if pair.label else (pair.a, pair.b)
        assert (first[0], first[1], second[1]) == (0, second[0], 14)


def test_half_of_the_pairs_are_swapped() -> None:
    labels = [pair.label for (pair,) in ordered(3, 4, 5, 2, count=20_000)]
    assert fits(labels, {0: 0.5, 1: 0.5}) > UNLIKELY


def test_the_cut_of_swapped_and_ordered_pairs_is_even() -> None:
    pairs = [pair for (pair,) in ordered(*[1] * 9, count=20_000)]
    found = [(pair.label, max(pair.a[0], pair.b[0])) for pair in pairs]
    assert fits(found, {(label, cut): 1 / 16 for label in (0, 1) for cut in range(1, 9)}) > UNLIKELY


def test_a_sentence_alone_is_a_single_sequence_without_label() -> None:
    assert ordered(7, count=1) == [[TokenSpan(0, (0, 7))]]


def test_a_long_sentence_alone_is_cut_and_nothing_is_lost() -> None:
    assert ordered(25, length=12, count=1) == [[TokenSpan(0, (0, 10)), TokenSpan(0, (10, 20)), TokenSpan(0, (20, 25))]]


def test_a_pair_that_is_too_long_is_cut_to_the_room() -> None:
    for (pair,) in ordered(10, 30, length=23):
        assert sorted((width(pair.a), width(pair.b))) == [10, 10]


@given(document_sizes, st.integers(5, 30), st.integers(0, 2**32))
def test_sentence_order_never_goes_back_and_fits(sizes, length, seed) -> None:
    documents, rng = Documents.of(sizes), np.random.default_rng(seed)
    found = build_sentence_order_pairs(documents, 0, length=length, short_share=0.5, rng=rng)
    assert all(2 < stretch.length <= length for stretch in found)
    spans = [sorted(side for side in (stretch.a, stretch.b) if side) for stretch in found]
    assert all(before[-1][1] <= after[0][0] for before, after in pairwise(spans))
