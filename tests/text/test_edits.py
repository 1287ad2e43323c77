"""Edits: the text is what its parts say, and places follow their characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.replacement import EditedText, TextEdit, are_isolated, find_editable_spans


@st.composite
def edited(draw: st.DrawFn) -> tuple[str, list[TextEdit]]:
    """A text cut into parts, some of which are replaced."""
    parts = draw(st.lists(st.tuples(st.text(max_size=4), st.none() | st.text(min_size=1, max_size=6)), max_size=8))
    edits, at = [], 0
    for old, new in parts:
        if old and new is not None:
            edits.append(TextEdit(at, at + len(old), new))
        at += len(old)
    return "".join(old for old, _ in parts), edits


def plainly(text: str, edits: list[TextEdit]) -> str:
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


@given(edited())
def test_the_text_is_that_of_one_edit_after_the_other(case: tuple[str, list[TextEdit]]) -> None:
    text, edits = case
    assert EditedText(text, edits).text == plainly(text, edits)


@given(edited(), st.data())
def test_a_span_holds_its_own_text_and_what_was_put_into_it(
    case: tuple[str, list[TextEdit]], data: st.DataObject
) -> None:
    text, edits = case
    inside = {place for edit in edits for place in range(edit.start + 1, edit.end)}
    start, end = sorted(
        data.draw(st.sampled_from([n for n in range(len(text) + 1) if n not in inside])) for _ in range(2)
    )
    made = EditedText(text, edits)
    held = [TextEdit(e.start - start, e.end - start, e.text) for e in edits if start <= e.start and e.end <= end]
    assert made.text[slice(*made.map_span((start, end)))] == plainly(text[start:end], held)


@given(edited())
def test_a_border_inside_of_an_edit_is_a_bug(case: tuple[str, list[TextEdit]]) -> None:
    text, edits = case
    made = EditedText(text, edits)
    for edit in edits:
        for place in range(edit.start + 1, edit.end):
            with pytest.raises(ValueError, match="inside"):
                made.map_offset(place)


@pytest.mark.parametrize("edits", [[TextEdit(0, 3, "x"), TextEdit(2, 4, "y")], [TextEdit(3, 6, "x")]])
def test_edits_that_overlap_or_leave_the_text_are_refused(edits: list[TextEdit]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        EditedText("12345", edits)


@pytest.mark.parametrize("parts", [(2, 2, "x"), (3, 2, "x"), (-1, 2, "x"), (0, 1, "")])
def test_an_edit_of_nothing_is_refused(parts: tuple[int, int, str]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        TextEdit(*parts)


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair))))


@given(spans, st.lists(st.integers(0, 20)))
def test_stretches_hold_all_that_is_not_fixed_and_no_border(fixed: list[tuple[int, int]], borders: list[int]) -> None:
    found = find_editable_spans(20, borders=borders, fixed=fixed)
    kept = {place for start, end in fixed for place in range(start, end)}
    assert sorted(n for start, end in found for n in range(start, end)) == sorted(set(range(20)) - kept)
    assert not any(start < border < end for start, end in found for border in borders)


@given(spans.map(lambda found: [span for span in found if span[0] < span[1]]))
def test_a_span_is_apart_if_it_shares_no_character(found: list[tuple[int, int]]) -> None:
    expected = [
        all(end <= low or high <= start for n, (low, high) in enumerate(found) if n != number)
        for number, (start, end) in enumerate(found)
    ]
    assert are_isolated(found) == expected
