"""Single sequences hold every token once, and instances look as a model wants them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.sequences import Instance, TokenSpan, build_instance, split_document

CLS, SEP = 101, 102
IDS = np.arange(1000, 1020, dtype=np.uint16)
FLAGS = (np.arange(20) % 16).astype(np.uint8)

sizes = st.lists(st.integers(0, 30), max_size=12)
starts = st.integers(0, 50)
lengths = st.integers(3, 24)


def borders_of(sizes: list[int], start: int) -> np.ndarray:
    return np.cumsum([start, *sizes])


@given(sizes, starts, lengths, st.sampled_from(["sentence", "token"]))
def test_every_token_is_in_exactly_one_stretch(sizes, start, length, cut) -> None:
    found = split_document(borders_of(sizes, start), 4, length=length, cut=cut)
    tokens = [token for stretch in found for token in range(*stretch.a)]
    assert tokens == list(range(start, start + sum(sizes)))


@given(sizes, starts, lengths, st.sampled_from(["sentence", "token"]))
def test_a_stretch_is_a_single_sequence_that_fits(sizes, start, length, cut) -> None:
    for stretch in split_document(borders_of(sizes, start), 4, length=length, cut=cut):
        assert (stretch.document, stretch.b, stretch.label) == (4, None, None)
        assert 2 < stretch.length <= length


@given(sizes, starts, lengths)
def test_cut_at_tokens_all_but_the_last_are_full(sizes, start, length) -> None:
    found = split_document(borders_of(sizes, start), 0, length=length, cut="token")
    assert all(stretch.length == length for stretch in found[:-1])


@given(sizes, starts, lengths)
def test_cut_at_sentences_only_a_longer_sentence_is_broken(sizes, start, length) -> None:
    borders = borders_of(sizes, start)
    longer = [range(a + 1, b) for a, b in pairwise(borders) if b - a > length - 2]
    for stretch in split_document(borders, 0, length=length)[:-1]:
        assert stretch.a[1] in borders or any(stretch.a[1] in inside for inside in longer)


@given(sizes, starts, lengths)
def test_cut_at_sentences_no_sentence_that_fits_is_left_for_later(sizes, start, length) -> None:
    borders = borders_of(sizes, start)
    for stretch in split_document(borders, 0, length=length)[:-1]:
        following = min(border for border in borders if border > stretch.a[1])
        assert following - stretch.a[0] > length - 2


def test_a_long_sentence_begins_a_sequence_and_its_rest_is_filled_up() -> None:
    found = split_document(np.array([0, 4, 20, 23, 30]), 0, length=12)
    assert [stretch.a for stretch in found] == [(0, 4), (4, 14), (14, 23), (23, 30)]


@pytest.mark.parametrize("borders", [[7], [7, 7], [7, 7, 7]])
def test_a_document_without_tokens_gives_nothing(borders) -> None:
    assert split_document(np.array(borders), 0, length=8) == []


def read(stretch: TokenSpan) -> Instance:
    return build_instance(stretch, IDS, FLAGS, cls_id=CLS, sep_id=SEP)


def test_a_single_sequence_is_one_segment() -> None:
    instance = read(TokenSpan(0, (2, 5)))
    assert instance.ids.tolist() == [CLS, 1002, 1003, 1004, SEP]
    assert instance.segments.tolist() == [0, 0, 0, 0, 0]


def test_a_pair_is_two_segments_with_a_separator_each() -> None:
    instance = read(TokenSpan(0, (2, 4), (10, 13), 1))
    assert instance.ids.tolist() == [CLS, 1002, 1003, SEP, 1010, 1011, 1012, SEP]
    assert instance.segments.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_special_tokens_are_marked_and_have_no_flags() -> None:
    instance = read(TokenSpan(0, (2, 4), (10, 13)))
    assert instance.flags.tolist() == [0, 2, 3, 0, 10, 11, 12, 0]
    assert np.flatnonzero(instance.special).tolist() == [0, 3, 7]


@pytest.mark.parametrize("label", [None, 0, 1])
def test_the_label_is_kept(label) -> None:
    assert read(TokenSpan(0, (2, 4), (10, 13), label)).label == label


def test_the_types_are_those_of_the_contract() -> None:
    instance = read(TokenSpan(0, (2, 4), (10, 13)))
    types = [array.dtype for array in (instance.ids, instance.segments, instance.flags, instance.special)]
    assert types == [np.int32, np.uint8, np.uint8, np.bool_]


def test_an_instance_does_not_change_the_shards() -> None:
    ids = IDS.copy()
    instance = build_instance(TokenSpan(0, (0, 20)), ids, FLAGS, cls_id=CLS, sep_id=SEP)
    instance.ids[:] = 0
    assert ids.tolist() == IDS.tolist()
