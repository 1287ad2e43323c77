"""Entities marked in a text: every layout, signs that only look like marks, and a sentence for what cannot be told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadInput
from alembert.tasks.relate.data import find_marked_pair


def words(text: str) -> tuple[str, str]:
    pair = find_marked_pair(text)
    assert pair is not None
    return text[pair.first.start : pair.first.end], text[pair.second.start : pair.second.end]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<< Ang II >>-induced rise; [[ valsartan ]], 51%", ("Ang II", "valsartan")),
        ("[[ b ]] before << a >>", ("a", "b")),
        ("<<a>> and [[b]]", ("a", "b")),
        ("<e1>a b</e1> and <e2> c </e2>", ("a b", "c")),
        ("[E1] a [/E1] and [E2]b[/E2]", ("a", "b")),
        ("<< a [[ b ]] c >>", ("a [[ b ]] c", "b")),
        ("@GENE$-related @DISEASE$.", ("@GENE$", "@DISEASE$")),
        ("the @CHEM-GENE$ complex", ("@CHEM-GENE$", "@CHEM-GENE$")),
    ],
)
def test_every_layout_is_read(text: str, found: tuple[str, str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<< a >> inhibits [[ b ]] (a >> c >> d)", ("a", "b")),
        ("<< a >> binds [[ [[3H]b ]]", ("a", "[[3H]b")),
        ("x[[2]] of << a >> and [[ b ]]", ("a", "b")),
    ],
)
def test_signs_of_the_text_are_no_marks(text: str, found: tuple[str, str]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<< a >> and << b >> and [[ c ]]", "stand at 2 places"),
        ("<< a >> alone", "one entity is marked"),
        ("<< a [[ b >> c ]]", "marks of the two entities cross"),
        ("[[ a << b ]] c >>", "marks of the two entities cross"),
        ("@GENE$ @GENE$ @GENE$", "3 words such as"),
        ("@GENE$ alone", "1 word such as"),
    ],
)
def test_what_cannot_be_told_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        find_marked_pair(text)


def test_a_text_without_marks_has_no_pair() -> None:
    assert find_marked_pair("P < 0.01, mail@example.org costs 5$") is None


@given(st.lists(st.text("ab <>[]", max_size=9), min_size=3, max_size=3), st.booleans())
def test_marks_and_words_make_up_the_text(parts: list[str], is_turned: bool) -> None:
    marked = ["<< x >>", "[[ y ]]"][:: -1 if is_turned else 1]
    text = parts[0] + marked[0] + parts[1] + marked[1] + parts[2]
    try:
        pair = find_marked_pair(text)
    except BadInput:
        return
    assert pair is not None
    for mark in (pair.first, pair.second):
        assert mark.outer_start < mark.start < mark.end < mark.outer_end
        assert not text[mark.start : mark.end].startswith(" ")
