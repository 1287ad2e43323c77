"""Words are cut where they should be, and equal words have equal hashes."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.wordhash import WINDOW, compute_word_hashes, fold_case, hash_words


@pytest.fixture(autouse=True, scope="module")
def tables():
    """Make the tables of first use before hypothesis looks at the clock."""
    hash_words("α")


def surfaces(text: str) -> list[str]:
    words = hash_words(text)
    return [text[start:end] for start, end in zip(words.starts, words.ends, strict=True)]


def same(one: str, other: str) -> bool:
    return hash_words(one).hashes.tolist() == hash_words(other).hashes.tolist()


def test_folding_keeps_the_length_of_every_character():
    assert all(len(fold_case(chr(code))) == 1 for code in range(sys.maxunicode + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IL-6-mediated", ["IL", "6", "mediated"]),
        ("TGFβ1", ["TGF", "β", "1"]),
        ("p5345", ["p", "5345"]),
        ("糖尿病 II", ["糖", "尿", "病", "II"]),
        ("(a,b)", ["(", "a", ",", "b", ")"]),
        ("cafe\u0301 x", ["cafe\u0301", "x"]),
        ("", []),
        (" - ", []),
    ],
)
def test_cutting(text, expected):
    assert surfaces(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [("IL-6", "il 6"), ("TNFα", "tnf-alpha"), ("tumors", "Tumor"), ("DIABETES", "diabetes"), ("Δ", "delta")],
)
def test_spellings_that_are_the_same(one, other):
    assert same(one, other)


@pytest.mark.parametrize(("one", "other"), [("virus", "viru"), ("abc", "acb"), ("ab", "ba"), ("gas", "ga")])
def test_spellings_that_differ(one, other):
    assert not same(one, other)


def test_a_border_is_missing_inside_a_written_word():
    assert hash_words("TGFβ1-x y").glued.tolist() == [False, True, True, False, False]


@given(st.text())
def test_words_are_in_order_and_hold_all_letters(text):
    found = surfaces(text)
    letters = [char for char in text if char.isalnum()]
    assert [char for word in found for char in word if char.isalnum()] == letters


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8), st.text(max_size=30))
def test_a_hash_does_not_depend_on_the_place(word, before):
    alone = hash_words(word).hashes.tolist()
    after = hash_words(before + " " + word).hashes.tolist()
    assert after[len(after) - len(alone) :] == alone


@given(st.lists(st.text("abcdefghijkl", min_size=1, max_size=12), unique=True))
def test_different_words_have_different_hashes(words):
    stems = {word for word in words if not word.endswith("s")}
    assert len(set(hash_words(" ".join(stems)).hashes.tolist())) == len(stems)


def test_a_long_text_is_hashed_like_its_parts():
    part = "interleukin 6 and 糖尿病 "
    long = part * (3 * WINDOW // len(part))
    assert compute_word_hashes(long).tolist() == compute_word_hashes(part).tolist() * (3 * WINDOW // len(part))


def test_surrogates_do_no_harm():
    assert surfaces("a \ud800 b")[0] == "a"
    assert unicodedata.category("\ud800") == "Cs"


def test_a_word_has_the_same_hash_beside_any_characters():
    plain = hash_words("TNF-1, Tumors").hashes
    for other in ("TGFβ", "中", "\U0001f600"):
        assert hash_words(f"TNF-1, Tumors {other}").hashes[: len(plain)].tolist() == plain.tolist()
