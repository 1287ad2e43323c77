"""Words: exact spans, terms whole, with and without rjieba."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadFile, MissingExtra
from alembert.text.words import (
    Dictionary,
    DictionarySegmenter,
    JiebaSegmenter,
    Segmenter,
    find_words,
)

CHINESE = Path(__file__).resolve().parents[3] / "shared" / "data" / "zh"
TERMS = ["糖尿病", "糖尿病足", "2型糖尿病", "CT", "CT检查", "B超", "高血压", "血压计", "DNA-PK"]

needs_rjieba = pytest.mark.skipif(importlib.util.find_spec("rjieba") is None, reason="rjieba is not installed")
needs_terms = pytest.mark.skipif(
    not (CHINESE / "THUOCL_medical.txt").is_file(), reason="the medical terms are not in ../shared"
)


def cut(text: str, terms: list[str]) -> list[str]:
    spans = find_words(text, DictionarySegmenter(Dictionary([])), Dictionary(terms))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("有糖尿病足", ["有", "糖尿病足"]),
        ("2型糖尿病患者", ["2型糖尿病", "患", "者"]),
        ("12型糖尿病", ["12", "型", "糖尿病"]),
        ("做CT检查", ["做", "CT检查"]),
        ("做CT吧", ["做", "CT", "吧"]),
        ("ECTS和CTA", ["ECTS", "和", "CTA"]),
        ("高血压计", ["高血压", "计"]),
        ("B超，CT", ["B超", "，", "CT"]),
        ("DNA-PK activity", ["DNA-PK", "activity"]),
        ("The cell (p53) isn't 3.5", ["The", "cell", "(", "p53", ")", "isn", "'", "t", "3", ".", "5"]),
        ("血糖\u30007.2", ["血", "糖", "7", ".", "2"]),
        ("cafe\u0301 na\u0131ve β细胞", ["cafe\u0301", "na\u0131ve", "β", "细", "胞"]),
        ("𠮷野家😀\udc80", ["𠮷", "野", "家", "😀", "\udc80"]),
        ("snake_case", ["snake", "_", "case"]),
        ("", []),
        (" \n\u3000", []),
    ],
)
def test_terms_win_by_the_longest_match(text: str, expected: list[str]) -> None:
    assert cut(text, TERMS) == expected


def test_dictionary_segmenter_cuts_the_rest_into_characters() -> None:
    assert list(DictionarySegmenter(Dictionary(TERMS)).segment("患高血压吗")) == ["患", "高血压", "吗"]


def test_one_character_terms_do_not_cut_longer_words() -> None:
    assert len(Dictionary(["病", "糖尿病"])) == 1


def segmenters() -> list[Segmenter]:
    plain: list[Segmenter] = [DictionarySegmenter(Dictionary(TERMS))]
    return plain if importlib.util.find_spec("rjieba") is None else [*plain, JiebaSegmenter()]


SEGMENTERS = segmenters()
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="糖尿病足2型CT检查高血压计B超DNA-PK \n\u3000\u0301々〇𠮷。\udc80_", max_size=40),
)


@given(TEXTS, st.sampled_from(SEGMENTERS), st.sampled_from([None, Dictionary(TERMS)]))
def test_spans_hold_every_character_once(text: str, segmenter: Segmenter, dictionary: Dictionary | None) -> None:
    covered = [at for start, end in find_words(text, segmenter, dictionary) for at in range(start, end)]
    assert covered == [at for at, character in enumerate(text) if not character.isspace()]


@given(TEXTS, st.sampled_from(SEGMENTERS))
def test_terms_found_are_words(text: str, segmenter: Segmenter) -> None:
    dictionary = Dictionary(TERMS)
    assert set(dictionary.find(text)) <= set(find_words(text, segmenter, dictionary))


@given(TEXTS, st.sampled_from(SEGMENTERS))
def test_the_same_text_gives_the_same_words(text: str, segmenter: Segmenter) -> None:
    assert find_words(text, segmenter, Dictionary(TERMS)) == find_words(text, segmenter, Dictionary(reversed(TERMS)))


def test_read_takes_lists_and_tables(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeff糖尿病\t120\r\n\r\n 高血压 \t7\r\nB超\n".encode())
    assert Dictionary.read(path).terms == {"糖尿病", "高血压", "B超"}


def test_read_refuses_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_bytes("糖尿病\n".encode("gb18030"))
    with pytest.raises(BadFile, match="not UTF-8"):
        Dictionary.read(path)


def test_read_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no dictionary"):
        Dictionary.read(tmp_path / "none.txt")


def test_without_rjieba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(MissingExtra, match=r"alembert\[zh\]"):
        JiebaSegmenter()


@needs_rjieba
def test_jieba_without_a_dictionary_gives_its_own_words() -> None:
    import rjieba

    text = "妊娠期高血压的概念"
    found = [text[start:end] for start, end in find_words(text, JiebaSegmenter())]
    assert found == rjieba.Jieba().cut(text)


@needs_terms
def test_medical_terms_are_read_whole() -> None:
    assert len(Dictionary.read(CHINESE / "THUOCL_medical.txt")) == 18_749


def real_texts() -> list[str]:
    questions = (CHINESE / "cMedQQ" / "dev.txt").read_text(encoding="utf8").splitlines()
    answers = (CHINESE / "cMedQANER" / "dev.json").read_text(encoding="utf8").splitlines()
    return [part for line in questions for part in line.split("\t")[1:]] + [json.loads(a)["text"] for a in answers]


@needs_terms
@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=lambda segmenter: type(segmenter).__name__)
def test_medical_terms_are_whole_in_real_text(segmenter: Segmenter) -> None:
    dictionary = Dictionary.read(CHINESE / "THUOCL_medical.txt")
    texts = real_texts()
    found = [span for text in texts for span in dictionary.find(text)]
    whole = [
        span for text in texts for span in find_words(text, segmenter, dictionary) if text[slice(*span)] in dictionary
    ]
    assert len(found) > 3000
    assert whole == found


@needs_terms
@pytest.mark.parametrize("segmenter", SEGMENTERS, ids=lambda segmenter: type(segmenter).__name__)
def test_real_text_is_covered(segmenter: Segmenter) -> None:
    for text in real_texts():
        covered = "".join(text[start:end] for start, end in find_words(text, segmenter))
        assert covered == "".join(text.split())
