"""Definitions of abbreviations are found where they stand, as Schwartz and Hearst (2003) find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.abbreviations import find_abbreviations, find_occurrences


def defined(text: str) -> list[tuple[str, str]]:
    return [(text[slice(*each.short)], text[slice(*each.long)]) for each in find_abbreviations(text)]


@pytest.mark.parametrize(
    ("text", "short", "long"),
    [
        # Of the paper and of the texts that it was tested on.
        ("the Heat shock transcription factor (HSF) gene", "HSF", "Heat shock transcription factor"),
        ("a Gcn5-related N-acetyltransferase (GNAT)", "GNAT", "Gcn5-related N-acetyltransferase"),
        ("treated with methyl methanesulfonate (MMS)", "MMS", "methyl methanesulfonate"),
        ("The endoplasmic reticulum (ER) of yeast", "ER", "endoplasmic reticulum"),
        ("mammalian Wiskott-Aldrich syndrome protein (WASP)", "WASP", "Wiskott-Aldrich syndrome protein"),
        ("Ribonuclease P (RNase P) is ubiquitous", "RNase P", "Ribonuclease P"),
        (
            "by sodium dodecyl sulfate-polyacrylamide gel electrophoresis (SDS-PAGE)",
            "SDS-PAGE",
            "sodium dodecyl sulfate-polyacrylamide gel electrophoresis",
        ),
        ("in HNPCC (hereditary nonpolyposis colorectal cancer)", "HNPCC", "hereditary nonpolyposis colorectal cancer"),
        # The paper's rule takes the shortest long form, which is not always the one that was meant.
        ("Thyroid transcription factor 1 (TTF-1)", "TTF-1", "transcription factor 1"),
        # What texts add in the parentheses.
        ("Theory of mind (ToM; Smith 2009)", "ToM", "Theory of mind"),
        ("tumour necrosis factor (“TNF”)", "TNF", "tumour necrosis factor"),
        # A Greek letter stands for its name.
        ("tumor necrosis factor-alpha (TNF-α)", "TNF-α", "tumor necrosis factor-alpha"),
        ("interferon-γ (IFN-γ) and", "IFN-γ", "interferon-γ"),
        ("fractional  exhaled\nnitric oxide ( FENO )", "FENO", "fractional  exhaled\nnitric oxide"),
    ],
)
def test_a_definition_is_found(text: str, short: str, long: str) -> None:
    assert defined(text) == [(short, long)]


@pytest.mark.parametrize(
    "text",
    [
        "cyclophilin seven suppressor (CNS1)",  # letters and digits that the long form does not have
        "anterior thalamus (ATN)",
        "a difference (n = 5) was found (p < 0.05)",
        "the nuclear envelope (nuclear ER)",  # it holds the short form itself
        "see the paper (Smith et al. 2009)",
        "a b (A)",
        "(ALL)",
        "()",
        "a ((",
        "",
    ],
)
def test_what_defines_nothing(text: str) -> None:
    assert defined(text) == []


def test_a_long_form_does_not_reach_into_the_sentence_before() -> None:
    assert defined("It affects the liver. Older kidneys (LOK) fail.") == []


def test_several_definitions_are_in_the_order_of_the_text() -> None:
    text = "acute lymphoblastic leukemia (ALL) or acute myeloid leukemia (AML)"
    assert [short for short, _ in defined(text)] == ["ALL", "AML"]


def test_occurrences_stand_between_word_borders() -> None:
    text = "ALL, BALL, ALL-1, all; ALL_2 (ALL)"
    assert [text[slice(*span)] for span in find_occurrences(text, "ALL")] == ["ALL"] * 4
    assert len(list(find_occurrences(text, "ALL", any_case=True))) == 5
    assert list(find_occurrences("a.b acb", "a.b")) == [(0, 3)]


@given(st.text("ABCab12 ().,;-\n", max_size=80))
def test_forms_have_the_letters_that_the_rule_wants(text: str) -> None:
    for short, long in find_abbreviations(text):
        form, definition = text[slice(*short)], text[slice(*long)]
        assert 2 <= len(form) <= 10
        assert len(definition) > len(form)
        letters = iter(definition.lower())
        assert all(letter in letters for letter in form.lower() if letter.isalnum())
        assert definition == definition.strip()
