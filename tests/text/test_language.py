"""Languages are told apart, and unknown ones are admitted."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from alembert.text.language import detect_language

SHARED = Path(__file__).resolve().parents[3] / "shared"
MEDLINE = SHARED / "data" / "corpus" / "pubmed21n1298.xml.gz"
CODES = {
    "ara": "ar",
    "chi": "zh",
    "dut": "nl",
    "eng": "en",
    "fre": "fr",
    "ger": "de",
    "ita": "it",
    "por": "pt",
    "spa": "es",
}


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The patients were treated with aspirin, and the pain was relieved after two days."),
        ("de", "Die Patienten wurden mit Aspirin behandelt, und der Schmerz war nach zwei Tagen weg."),
        ("fr", "Les patients ont été traités par aspirine et la douleur a disparu dans les deux jours."),
        ("es", "Los pacientes fueron tratados con aspirina y el dolor desapareció en los dos días."),
        ("it", "I pazienti sono stati trattati con aspirina e il dolore è scomparso nei due giorni."),
        ("pt", "Os pacientes foram tratados com aspirina e a dor não foi mais sentida após dois dias."),
        (
            "nl",
            "De patiënten werden met aspirine behandeld en de pijn was na twee dagen niet meer te voelen.",
        ),
        ("pl", "Chorych leczono aspiryną i ból nie był odczuwany po dwóch dniach, jak się okazało."),
        ("ru", "Пациенты получали аспирин, и боль прошла."),
        ("zh", "患者接受阿司匹林治疗，疼痛在两天后消失。TNF-α 下降。"),
        ("ja", "患者はアスピリンで治療され、痛みは消えた。"),
        ("ko", "환자는 아스피린으로 치료를 받았다."),
        ("ar", "عولج المرضى بالأسبرين"),
    ],
)
def test_each_language_is_told(language, text):
    assert detect_language(text) == language


@pytest.mark.parametrize("text", ["", "BRAF V600E", "12.5 %", "Optimierte Insuline."])
def test_thin_evidence_is_unknown(text):
    assert detect_language(text) == "und"


def test_greek_letters_do_not_make_greek():
    assert detect_language("The level of TNF-α and of IFN-γ was raised in the μ group of the β cells.") == "en"


@pytest.mark.skipif(not MEDLINE.exists(), reason="needs ../shared")
def test_abstracts_of_medline_have_the_language_they_state():
    told = [(CODES[language], detect_language(text)) for language, text in other_abstracts()]
    wrong = [pair for pair in told if pair[0] != pair[1]]
    assert len(told) == 86
    assert wrong == [("fr", "es")]  # PMID 33529388: a Spanish text that is labelled French


def other_abstracts() -> Iterator[tuple[str, str]]:
    with gzip.open(MEDLINE) as file:
        for _, citation in etree.iterparse(file, tag="MedlineCitation"):
            for other in citation.iterfind("OtherAbstract"):
                yield other.get("Language"), " ".join(other.itertext())
            citation.clear()
