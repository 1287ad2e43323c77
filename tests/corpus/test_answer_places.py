"""Where answers stand in their passages, and what is done about offsets that are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.answer_places import Places, places_of

PASSAGE = "Aspirin helps. The aspirin group had fever; fever fell."


def test_a_right_offset_is_taken() -> None:
    assert places_of("fever", 44, PASSAGE) == Places(((44, 49),), "stated")


def test_white_space_around_a_stated_answer_is_no_part_of_it() -> None:
    assert places_of(" helps. ", 7, PASSAGE) == Places(((8, 14),), "stated")


@pytest.mark.parametrize("start", [0, -1, 9999])
def test_a_wrong_offset_is_mended_if_the_text_occurs_once(start: int) -> None:
    assert places_of("group", start, PASSAGE) == Places(((27, 32),), "mended")


def test_a_wrong_offset_is_mended_to_the_nearer_of_two_places() -> None:
    assert places_of("fever", 46, PASSAGE) == Places(((44, 49),), "mended")


@pytest.mark.parametrize("start", [-1, 9999])
def test_an_offset_outside_of_the_passage_does_not_choose_among_several(start: int) -> None:
    assert places_of("fever", start, PASSAGE) == Places((), "unclear")


def test_an_offset_between_two_places_does_not_choose() -> None:
    assert places_of("ab", 3, "ab cd ab") == Places((), "unclear")


def test_an_answer_without_an_offset_is_wherever_it_stands() -> None:
    assert places_of("fever", None, PASSAGE) == Places(((37, 42), (44, 49)), "looked up")


def test_what_is_looked_up_stands_between_words() -> None:
    assert places_of("ring", None, "In spring the ring.").spans == ((14, 18),)


def test_chinese_has_no_borders_between_words() -> None:
    assert places_of("头痛", None, "患者头痛三天").spans == ((2, 4),)


def test_case_and_white_space_may_differ_if_nothing_is_the_same() -> None:
    passage = "BCR  ABL fusion"
    ((start, end),) = places_of("bcr abl", None, passage).spans
    assert passage[start:end] == "BCR  ABL"


@pytest.mark.parametrize("text", ["imatinib", "", "  "])
def test_what_is_not_there_is_absent(text: str) -> None:
    assert places_of(text, 3, PASSAGE) == Places((), "absent")


@given(st.text("ab 患", max_size=30), st.text("ab 患", min_size=1, max_size=4), st.none() | st.integers(-5, 40))
def test_all_places_hold_the_text_but_for_case_and_white_space(passage: str, text: str, start: int | None) -> None:
    for first, end in places_of(text, start, passage).spans:
        assert passage[first:end].split() == text.split()
