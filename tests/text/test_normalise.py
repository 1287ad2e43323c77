"""Normalised text equals the reference, and spans find their way there and back."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.normalise import NormalisedText, normalise

ODD = "\u00a0\u2009\u00ad\u200b\ufeff\x00\x1f\r\n\t\u2028 é\u0301\u0327e²ﬁ…\u1100\u1161\u11a8Å\uf900\u0344¨가ab"
TEXT = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=40)
FORM = st.sampled_from(["NFC", "NFKC"])


@pytest.fixture(autouse=True, scope="module")
def tables():
    """Make the tables of first use before hypothesis looks at the clock."""
    for form in ("NFC", "NFKC"):
        normalise("e\u0301", form)


def aligned(plain: NormalisedText, position: int) -> bool:
    """Whether a place of the plain text lies outside all edits."""
    return not any(a <= position < b for a, b in zip(plain.plain_starts, plain.plain_ends, strict=True))


@given(TEXT, FORM)
def test_equals_the_reference_where_only_the_form_matters(text, form):
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp"))
    text = "".join(c for c in text if not "\ufe00" <= c <= "\ufe0f" and not "\u2060" <= c <= "\u206f")
    assert normalise(text, form).text == unicodedata.normalize(form, text)


@given(TEXT, FORM, st.booleans())
def test_a_plain_text_stays_as_it_is(text, form, collapse):
    once = normalise(text, form, collapse_spaces=collapse).text
    assert normalise(once, form, collapse_spaces=collapse) == NormalisedText(once)


@given(TEXT, FORM, st.booleans())
def test_each_kept_character_maps_to_its_origin(text, form, collapse):
    plain = normalise(text, form, collapse_spaces=collapse)
    for position, char in enumerate(plain.text):
        start, end = plain.to_original(position, position + 1)
        if aligned(plain, position) and text[start].isalnum():
            assert end == start + 1
            assert unicodedata.normalize("NFKD", text[start])[0] == unicodedata.normalize("NFKD", char)[0]


@given(TEXT, FORM, st.booleans())
def test_nothing_of_the_original_is_left_out(text, form, collapse):
    plain = normalise(text, form, collapse_spaces=collapse)
    assert plain.to_plain(0, len(text)) == (0, len(plain.text))


@given(TEXT, FORM, st.data())
def test_a_span_of_the_plain_text_returns_at_least_to_itself(text, form, data):
    plain = normalise(text, form)
    start = data.draw(st.integers(0, len(plain.text)))
    end = data.draw(st.integers(start, len(plain.text)))
    first, last = plain.to_plain(*plain.to_original(start, end))
    assert first <= start
    assert last >= end or start == end


@given(TEXT, FORM, st.data())
def test_a_span_of_untouched_characters_is_carried_exactly(text, form, data):
    word = data.draw(st.text("abcXYZ019", min_size=1, max_size=8))
    before = len(text)
    whole = text + word + text
    start, end = normalise(whole, form).to_plain(before, before + len(word))
    assert normalise(whole, form).text[start:end].startswith(word)
    assert normalise(whole, form).to_original(start, start + len(word) - 1) == (
        before,
        before + len(word) - 1,
    )


@given(TEXT, FORM, st.booleans())
def test_the_alignment_adds_up(text, form, collapse):
    plain = normalise(text, form, collapse_spaces=collapse)
    grown = sum(plain.plain_ends) - sum(plain.plain_starts) - sum(plain.ends) + sum(plain.starts)
    assert len(plain.text) == len(text) + grown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u00a0b\u2009c\td", "a b c d"),
        ("hyper\u00adtension\u200b", "hypertension"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
        ("x\x00\x1fy\ud800", "xy"),
        ("cafe\u0301", "café"),
        ("e\u00ad\u0301", "é"),
    ],
)
def test_odd_characters(text, expected):
    assert normalise(text).text == expected


def test_a_loss_beside_a_gain_is_an_edit():
    plain = normalise("ab\x1f\x1f¼c", "NFKC")
    assert plain.text == "ab1⁄4c"
    assert plain.to_original(2, 3) == (2, 5)


def test_gaps_are_collapsed_on_demand_only():
    assert normalise("rate  of \u00a0decay").text == "rate  of  decay"
    assert normalise("rate  of \u00a0decay", collapse_spaces=True).text == "rate of decay"


def test_compatibility_characters_are_kept_unless_asked():
    assert normalise("ﬁ²").text == "ﬁ²"
    assert normalise("ﬁ²", "NFKC").text == "fi2"


def test_an_entity_after_dropped_characters_is_found_again():
    original = "\ufeffthe\u00a0hyper\u00adtension\u200b group"
    plain = normalise(original)
    start = plain.text.index("hypertension")
    assert plain.to_original(start, start + 12) == (5, 18)
    assert plain.to_plain(5, 18) == (start, start + 12)
