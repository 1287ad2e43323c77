"""Scores of entities: worked examples and properties. Equality with seqeval is in test_tags."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.tasks.metrics import Tally
from alembert.tasks.metrics.spans import (
    EntityTuple,
    f1,
    f1_measure,
    match_entities,
    span_counts,
    span_scores,
)

ENTITIES = st.lists(
    st.builds(
        lambda start, size, label: (start, start + size, label),
        st.integers(0, 12),
        st.integers(1, 5),
        st.sampled_from("xyz"),
    ),
    max_size=6,
)
DOCUMENTS = st.lists(st.tuples(ENTITIES, ENTITIES), min_size=1, max_size=5)
Documents = list[tuple[list[EntityTuple], list[EntityTuple]]]

GOLD = [[(0, 7, "Drug"), (10, 20, "Drug"), (30, 35, "Gene"), (40, 45, "Gene")]]
GUESS = [[(0, 7, "Drug"), (12, 20, "Drug"), (30, 35, "Drug"), (60, 65, "Gene")]]


def sides(documents: Documents) -> tuple[list[list[EntityTuple]], list[list[EntityTuple]]]:
    return [gold for gold, _ in documents], [guess for _, guess in documents]


def test_strict_asks_for_borders_and_label() -> None:
    assert span_scores(GOLD, GUESS).strict == Tally(tp=1, fp=3, fn=3)


def test_borders_ignore_the_label() -> None:
    assert span_scores(GOLD, GUESS).borders == Tally(tp=2, fp=2, fn=2)


def test_overlap_asks_for_the_label_and_a_common_character() -> None:
    assert span_scores(GOLD, GUESS).overlap == Tally(tp=2, fp=2, fn=2)


def test_a_partial_match_is_worth_half() -> None:
    assert span_scores(GOLD, GUESS).partial == Tally(tp=1.5, fp=2.5, fn=2.5)


def test_every_label_has_its_tally() -> None:
    assert span_scores(GOLD, GUESS).by_type == {"Drug": Tally(tp=1, fp=2, fn=1), "Gene": Tally(tp=0, fp=1, fn=2)}


def test_macro_averages_labels() -> None:
    assert span_scores(GOLD, GUESS).macro_f1 == pytest.approx(1 / 5)


@pytest.mark.parametrize("neighbour", [(2, 5, "x"), (9, 12, "x")])
def test_neighbours_do_not_overlap(neighbour: EntityTuple) -> None:
    assert span_scores([[(5, 9, "x")]], [[neighbour, (20, 40, "x")]]).overlap.tp == 0


def test_one_guess_matches_one_entity() -> None:
    assert list(match_entities([(0, 4, "x"), (5, 9, "x")], [(0, 9, "x")])) == [((0, 4, "x"), (0, 9, "x"))]


def test_the_longest_overlap_is_matched_first() -> None:
    assert list(match_entities([(0, 3, "x"), (3, 9, "x")], [(0, 8, "x")])) == [((3, 9, "x"), (0, 8, "x"))]


def test_borders_with_two_labels_count_twice() -> None:
    assert span_scores([[(0, 3, "x"), (0, 3, "y")]], [[(0, 3, "z"), (0, 3, "x")]]).borders.tp == 2


def test_repetitions_are_one_entity() -> None:
    found = span_scores([[(0, 3, "x"), (0, 3, "x")]], [[(0, 3, "x"), (0, 3, "x"), (0, 3, "x")]])
    assert found.strict == Tally(tp=1, fp=0, fn=0)


def test_the_same_place_in_two_documents_is_two_entities() -> None:
    assert span_scores([[(0, 3, "x")], [(0, 3, "x")]], [[(0, 3, "x")], []]).strict == Tally(tp=1, fp=0, fn=1)


def test_different_numbers_of_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        span_scores([[]], [[], []])


def test_nothing_at_all_is_zero() -> None:
    found = span_scores([[], []], [[], []])
    assert (found.strict.f1, found.macro_f1, found.partial.f1) == (0.0, 0.0, 0.0)


@given(DOCUMENTS)
def test_what_is_right_is_perfect(documents: Documents) -> None:
    gold, _ = sides(documents)
    found = span_scores(gold, gold)
    expected = 1.0 if any(gold) else 0.0
    assert {found.strict.f1, found.macro_f1, found.partial.f1, found.borders.f1, found.overlap.f1} == {expected}


@given(DOCUMENTS)
def test_lenient_scores_are_never_below_strict(documents: Documents) -> None:
    found = span_scores(*sides(documents))
    assert found.strict.tp <= found.partial.tp <= found.overlap.tp
    assert found.strict.tp <= found.borders.tp


@given(DOCUMENTS)
def test_every_entity_is_counted_once(documents: Documents) -> None:
    gold, guess = sides(documents)
    found = span_scores(gold, guess)
    sizes = sum(len(set(one)) for one in gold), sum(len(set(one)) for one in guess)
    tallies = [found.strict, found.partial, found.borders, found.overlap]
    assert {(tally.support, tally.guessed) for tally in tallies} == {sizes}


@given(DOCUMENTS, st.randoms())
def test_order_does_not_matter(documents: Documents, chance: object) -> None:
    shuffled = [(gold[::-1], sorted(guess)) for gold, guess in documents]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert span_scores(*sides(shuffled)) == span_scores(*sides(documents))


@given(ENTITIES, ENTITIES)
def test_pairs_overlap_and_are_used_once(gold: list[EntityTuple], guess: list[EntityTuple]) -> None:
    pairs = list(match_entities(gold, guess))
    assert all(min(a[1], b[1]) > max(a[0], b[0]) and a[2] == b[2] for a, b in pairs)
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


@given(ENTITIES, ENTITIES)
def test_no_pair_is_left_over(gold: list[EntityTuple], guess: list[EntityTuple]) -> None:
    pairs = list(match_entities(gold, guess))
    free = [
        (a, b)
        for a in set(gold) - {a for a, _ in pairs}
        for b in set(guess) - {b for _, b in pairs}
        if a[2] == b[2] and min(a[1], b[1]) > max(a[0], b[0])
    ]
    assert free == []


@given(DOCUMENTS)
def test_counts_of_documents_add_up_to_the_score(documents: Documents) -> None:
    gold, guess = sides(documents)
    table = span_counts(gold, guess)
    assert table.shape == (len(documents), 3)
    assert f1(*table.sum(axis=0)) == f1_measure(table)(np.arange(len(table))) == span_scores(gold, guess).strict.f1


def test_no_documents_give_an_empty_table() -> None:
    assert span_counts([], []).shape == (0, 3)
