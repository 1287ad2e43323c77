"""Splits are exact, depend on the texts alone, and keep equal texts together."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.tasks.example import Example
from alembert.tasks.reading import SplitShares, find_overlap, parse_split, split_examples

WORDS = st.lists(st.sampled_from([f"Word {number}" for number in range(60)]), max_size=80)
SHARES = st.sampled_from(
    [SplitShares(80, 10, 10), SplitShares(90, 10), SplitShares(98, 1, 1), SplitShares(33.3, 33.3, 33.4)]
)


def examples_of(texts):
    return [Example(id=str(place), texts=(text,)) for place, text in enumerate(texts)]


def texts_of(part):
    return {example.texts[0].casefold() for example in part}


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("80/10/10", SplitShares(80, 10, 10)),
        ("90/10", SplitShares(90, 10, 0)),
        (" 98 / 1 / 1 ", SplitShares(98, 1, 1)),
        ("33.3/33.3/33.4", SplitShares(33.3, 33.3, 33.4)),
    ],
)
def test_shares_are_read(text, shares):
    assert parse_split(text) == shares


@pytest.mark.parametrize(
    "text",
    ["", "80", "100", "80/10", "80/10/5/5", "80/20/0", "110/-10", "a/b", "80:10:10", "nan/10", "inf/-inf"],
)
def test_other_shares_are_refused_with_a_way_out(text):
    with pytest.raises(BadSetting, match="80/10/10 or 90/10"):
        parse_split(text)


@given(WORDS, SHARES, st.integers(0, 5))
def test_every_example_is_in_one_part_in_order(texts, shares, seed):
    examples = examples_of(texts)
    parts = split_examples(examples, shares, seed)
    assert sorted((example for part in parts for example in part), key=examples.index) == examples
    assert all(list(part) == sorted(part, key=examples.index) for part in parts)


@given(WORDS, SHARES)
def test_equal_texts_are_never_apart(texts, shares):
    mixed = examples_of([*texts, *(text.upper().replace(" ", "\t ") for text in texts)])
    parts = [{example.key for example in part} for part in split_examples(mixed, shares, 1)]
    assert sum(map(len, parts)) == len(set.union(*parts))


@given(WORDS, SHARES, st.randoms())
def test_neither_order_nor_repetition_changes_a_part(texts, shares, chance: random.Random):
    other = texts + texts[::2]
    chance.shuffle(other)
    one, two = (split_examples(examples_of(some), shares, 3) for some in (texts, other))
    assert [texts_of(part) for part in one] == [texts_of(part) for part in two]


@given(st.integers(0, 5000), SHARES)
def test_counts_are_exact_and_no_part_is_empty_without_need(texts, shares):
    counts = shares.counts(texts)
    asked = [share for share in (shares.train, shares.dev, shares.test) if share]
    assert sum(counts) == texts
    assert sum(map(bool, counts)) == min(texts, len(asked))
    assert all(abs(count - texts * share / 100) < 2 for count, share in zip(counts, asked, strict=False))


def test_training_comes_first_when_there_is_too_little():
    assert [SplitShares(80, 10, 10).counts(texts) for texts in (0, 1, 2, 3)] == [
        (0, 0, 0),
        (1, 0, 0),
        (1, 1, 0),
        (1, 1, 1),
    ]


def test_another_seed_gives_another_split():
    examples = examples_of([f"text {number}" for number in range(100)])
    assert split_examples(examples, SplitShares(50, 50), 1) != split_examples(examples, SplitShares(50, 50), 2)


def test_new_examples_move_few_old_ones():
    texts = [f"text {number}" for number in range(1100)]
    before = texts_of(split_examples(examples_of(texts[:1000]), SplitShares(80, 20), 1)[1])
    after = texts_of(split_examples(examples_of(texts), SplitShares(80, 20), 1)[1])
    assert len(before - after) < 30


def test_overlaps_are_found_whatever_the_case_and_white_space():
    found = find_overlap(examples_of(["High  fever"]), examples_of(["high fever", "no fever", " HIGH\nFEVER"]))
    assert [example.id for example in found.examples] == ["0", "2"]
    assert found.count == 2


def test_pairs_overlap_only_as_a_whole():
    one, other = Example(id="1", texts=("a", "b")), Example(id="2", texts=("a", "c"))
    assert find_overlap([one], [other]).count == 0
