"""Where answers stand in their passages, and what is done about offsets that are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.examples.questions import AnswerSpans, find_answer_spans

PASSAGE = "Aspirin helps. The aspirin group had fever; fever fell."


def test_a_right_offset_is_taken() -> None:
    assert find_answer_spans("fever", 44, PASSAGE) == AnswerSpans(((44, 49),), "stated")


def test_white_space_around_a_stated_answer_is_no_part_of_it() -> None:
    assert find_answer_spans(" helps. ", 7, PASSAGE) == AnswerSpans(((8, 14),), "stated")


@pytest.mark.parametrize("start", [0, -1, 9999])
def test_a_wrong_offset_is_mended_if_the_text_occurs_once(start: int) -> None:
    assert find_answer_spans("group", start, PASSAGE) == AnswerSpans(((27, 32),), "mended")


def test_a_wrong_offset_is_mended_to_the_nearer_of_two_places() -> None:
    assert find_answer_spans("fever", 46, PASSAGE) == AnswerSpans(((44, 49),), "mended")


@pytest.mark.parametrize("start", [-1, 9999])
def test_an_offset_outside_of_the_passage_does_not_choose_among_several(start: int) -> None:
    assert find_answer_spans("fever", start, PASSAGE) == AnswerSpans((), "unclear")


def test_an_offset_between_two_places_does_not_choose() -> None:
    assert find_answer_spans("ab", 3, "ab cd ab") == AnswerSpans((), "unclear")


def test_an_answer_without_an_offset_is_wherever_it_stands() -> None:
    assert find_answer_spans("fever", None, PASSAGE) == AnswerSpans(((37, 42), (44, 49)), "looked up")


def test_what_is_looked_up_stands_between_words() -> None:
    assert find_answer_spans("ring", None, "In spring the ring.").spans == ((14, 18),)


def test_chinese_has_no_borders_between_words() -> None:
    assert find_answer_spans("头痛", None, "患者头痛三天").spans == ((2, 4),)


def test_case_and_white_space_may_differ_if_nothing_is_the_same() -> None:
    passage = "BCR  ABL fusion"
    ((start, end),) = find_answer_spans("bcr abl", None, passage).spans
    assert passage[start:end] == "BCR  ABL"


@pytest.mark.parametrize("text", ["imatinib", "", "  "])
def test_what_is_not_there_is_absent(text: str) -> None:
    assert find_answer_spans(text, 3, PASSAGE) == AnswerSpans((), "absent")


@given(st.text("ab 患", max_size=30), st.text("ab 患", min_size=1, max_size=4), st.none() | st.integers(-5, 40))
def test_all_places_hold_the_text_but_for_case_and_white_space(passage: str, text: str, start: int | None) -> None:
    for first, end in find_answer_spans(text, start, passage).spans:
        assert passage[first:end].split() == text.split()
