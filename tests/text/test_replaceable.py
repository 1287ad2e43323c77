"""Which words may be replaced."""

import pytest

from alembert.text.replacement import find_replaceable_words, is_replacement_word, match_case
from alembert.text.words import Dictionary, DictionarySegmenter

SEGMENTER = DictionarySegmenter(Dictionary(["糖尿病", "血糖"]))


def found(text: str, *stretch: int) -> list[str]:
    start, end = stretch or (0, len(text))
    return [text[slice(*span)] for span in find_replaceable_words(text, (start, end), SEGMENTER)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p53 and IL-6, but not TGF-β1.", ["p53", "IL-6", "TGF-β1"]),
        ("β-catenin, α‑synuclein", ["β-catenin", "α‑synuclein"]),
        ("insulin-dependent", ["insulin", "dependent"]),
        ("BRCA1-mutated-tumours", ["BRCA1-mutated", "tumours"]),
        ("The patient's dose was 10 mg (5 %).", ["patient", "dose", "mg"]),
        ("1998, 3.5 and 10-20", []),
        ("naïve café", ["naïve", "café"]),
        ("患者的血糖7.2，IL-6升高", ["患", "者", "血糖", "IL-6", "升", "高"]),
        ("", []),
    ],
)
def test_words_have_digits_hyphens_greek_and_chinese(text: str, words: list[str]) -> None:
    assert found(text) == words


def test_half_a_word_is_no_word() -> None:
    assert found("anticancer drugs", 4, 16) == ["drugs"]
    assert found("BRCA1-mutated", 0, 5) == ["BRCA1"]
    assert found("血糖高", 1, 3) == ["糖", "高"]


@pytest.mark.parametrize("piece", ["##in", "[unused1]", "[MASK]", "the", "7", "a", "糖", "-", "<e1>"])
def test_pieces_that_are_no_words(piece: str) -> None:
    assert not is_replacement_word(piece)


def test_case_is_taken_over() -> None:
    assert [match_case(word, "gene") for word in ("Protein", "DNA", "mRNA", "rna", "McCune")] == [
        "Gene",
        "GENE",
        "gene",
        "gene",
        "gene",
    ]
