"""Terms are found whole, where they stand, and not where they do not."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.text.gazetteer import Gazetteer, TermMatch
from alembert.text.lexicon import Lexicon, read_lexicon
from alembert.text.lexicon_compiler import find_ordinary_words
from alembert.text.term_tables import StringTable
from alembert.text.wordhash import WINDOW

SHARED = Path(__file__).resolve().parents[3] / "shared"


def of(*terms: str, **options) -> Gazetteer:
    return Gazetteer.from_lexicons([Lexicon("x", [(term, term) for term in terms])], **options)


def found(gazetteer: Gazetteer, text: str) -> list[str]:
    return [text[match.start : match.end] for match in gazetteer.find(text)]


def test_a_match_names_place_label_and_concept():
    gazetteer = Gazetteer.from_lexicons([Lexicon("gene", [("BRAF", "H:1"), ("BRAF", "H:2"), ("BRAF", "H:1")])])
    assert gazetteer.find("a BRAF gene") == [TermMatch(2, 6, "gene", ("H:1", "H:2"))]


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("IL-6", "IL-6-mediated", ["IL-6"]),
        ("IL-6", "the IL6 level", ["IL6"]),
        ("IL-6", "IL 6", []),
        ("p53", "p5345 and xp53", []),
        ("p53", "p53, (p53)", ["p53", "p53"]),
        ("WASP", "the wasp", []),
        ("Acute Abdomen", "an acute-abdomen", ["acute-abdomen"]),
        ("Acute Abdomen", "acute  abdomen", []),
        ("Acute Abdomen", "acute, abdomen", []),
        ("TNF-alpha", "TNFα TNF-α TNF alpha", ["TNFα", "TNF-α", "TNF alpha"]),
        ("TNF", "TNFα", []),
        ("tumor", "Tumors", ["Tumors"]),
        ("Gout", "gout GOUT", ["gout"]),
        ("Alleles", "ALLELES", ["ALLELES"]),
        ("2-((3,9)-x)", "a 2-((3,9)-x) b", ["2-((3,9)-x)"]),
        ("Abdomen, Acute", "acute abdomen; Abdomen, acute", ["acute abdomen", "Abdomen, acute"]),
        ("糖尿病", "患糖尿病的人", ["糖尿病"]),
        ("EGFR基因", "一个EGFR基因突变", ["EGFR基因"]),
        ("İnterleukin", "İİ İNTERLEUKIN x", ["İNTERLEUKIN"]),
    ],
)
def test_what_is_found(term, text, expected):
    assert found(of(term), text) == expected


def test_the_longest_match_wins():
    assert found(of("breast", "breast cancer", "cancer gene panel"), "breast cancer gene") == ["breast cancer"]


def test_a_longer_term_that_fails_its_case_gives_way():
    assert found(of("asthma", "ASTHMA-1X"), "asthma-1x ASTHMA-1X") == ["asthma", "ASTHMA-1X"]


def test_the_first_lexicon_wins_a_tie():
    lexicons = [Lexicon("a", [("asthma", "1")]), Lexicon("b", [("Asthma", "2")])]
    assert Gazetteer.from_lexicons(lexicons).find("asthma")[0].label == "a"
    assert Gazetteer.from_lexicons(lexicons[::-1]).find("asthma")[0].label == "b"


@pytest.mark.parametrize("word", ["WAS", "CAT", "MICE", "NOT", "T", "IMPACT", "REST", "SET", "AN", "II", "52"])
def test_ordinary_words_are_no_terms(word):
    assert found(of(word), f"{word} and {word.lower()}") == []


def test_the_user_can_stop_and_keep():
    assert found(of("WAS", "BRAF", keep=["was"], stop=["was", "braf"]), "WAS BRAF") == ["WAS"]


def test_a_corpus_teaches_ordinary_words():
    ordinary = find_ordinary_words(["penumbra penumbra PENUMBRA"])
    assert found(of("PENUMBRA", "Penumbra syndrome", ordinary=ordinary), "PENUMBRA, penumbra syndrome") == [
        "penumbra syndrome"
    ]


def test_what_was_left_out_is_counted():
    built = of("WAS", "BRAF", "Abdomen, Acute").counts
    assert (built.rows, built.stopped, built.turned) == (3, 1, 1)


def test_no_lexicons_find_nothing():
    assert Gazetteer.from_lexicons([]).find("BRAF") == []


def test_a_pickled_gazetteer_is_the_same():
    gazetteer = of("BRAF", "acute abdomen")
    text = "BRAF in acute abdomen"
    assert pickle.loads(pickle.dumps(gazetteer)).find(text) == gazetteer.find(text)


def test_a_million_character_line_is_matched_throughout():
    part = "acute abdomen and BRAF1 "
    count = 1_000_000 // len(part)
    assert len(of("acute abdomen", "BRAF1").find(part * count)) == 2 * count


def test_windows_cut_no_term():
    padding = "x" * 997 + " "
    text = (padding + "acute abdomen ") * (3 * WINDOW // 1000)
    assert found(of("acute abdomen"), text) == ["acute abdomen"] * (3 * WINDOW // 1000)


TERMS = ["ab cd", "ab", "cd ef ab", "EF1", "ef", "ba-cd", "糖尿", "糖尿病", "cd"]
TEXT = st.text("abcdefEF1 -,糖尿病\n", max_size=60)


@pytest.fixture(scope="module")
def small() -> Gazetteer:
    return of(*TERMS, stop=())


def reference(text: str) -> list[tuple[int, int]]:
    """Try every term at every place with regular expressions, longest first."""
    places, taken = [], 0
    for start in range(len(text)):
        ends = [end for term in TERMS if (end := reference_end(term, text, start)) is not None]
        if ends and start >= taken:
            taken = max(ends)
            places.append((start, taken))
    return places


def reference_end(term: str, text: str, start: int) -> int | None:
    if "糖" in term:
        pattern = r"[\s-]?".join(term)
    else:
        body = re.sub(r"[ -]", r"[\\s-]", term)
        exact = term == "EF1"
        body = "EF-?1" if exact else f"(?i:{body[0]}){body[1:]}" if len(term) <= 5 else f"(?i:{body})"
        pattern = rf"(?<![a-zA-Z0-9]){body}(?![a-zA-Z0-9])"
    hit = re.compile(pattern).match(text, start)
    return hit.end() if hit else None


@given(text=TEXT)
def test_equals_a_slow_reference(small, text):
    assert [(match.start, match.end) for match in small.find(text)] == reference(text)


@given(texts=st.lists(TEXT, max_size=5))
def test_many_texts_at_once_are_the_same_as_one_by_one(small, texts):
    assert small.find_all(texts) == [small.find(text) for text in texts]


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_real_genes_are_found_and_english_words_are_not():
    gazetteer = Gazetteer.from_lexicons([read_lexicon(SHARED / "data" / "lexicon" / "gene.tsv.gz", "gene")])
    text = "The CAT scan WAS NOT done; SET and REST IMPACT the BRAF and TP53 (p53) genes of MICE at T 5."
    assert found(gazetteer, text) == ["BRAF", "TP53", "p53"]


@given(st.lists(TEXT, max_size=4), st.lists(st.sampled_from(TERMS), max_size=6), st.lists(st.sampled_from(TERMS)))
def test_lexicons_that_are_looked_up_apart_find_what_each_finds_alone(texts, first, second):
    lexicons = [Lexicon("a", [(term, "") for term in first]), Lexicon("b", [(term, "") for term in second])]
    together = Gazetteer.from_lexicons(lexicons).find_all(texts, apart=True)
    for lexicon in lexicons:
        alone = Gazetteer.from_lexicons([lexicon]).find_all(texts)
        assert [[match for match in matches if match.label == lexicon.label] for matches in together] == alone


@given(st.lists(st.text(st.characters(), max_size=5)))
def test_strings_come_back_as_they_were(strings: list[str]) -> None:
    table = StringTable.from_strings(strings)
    assert [table[number] for number in range(len(table))] == strings
