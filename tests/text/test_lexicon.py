"""Lexicon files are read whole, and their bad rows are named."""

import gzip
from pathlib import Path

import pytest

from alembert.errors import BadFile, BadSetting
from alembert.text.lexicon import (
    CASE_EXACT,
    CASE_FIRST,
    CASE_FREE,
    choose_case_rule,
    list_spellings,
    parse_lexicon_option,
    read_lexicon,
    read_word_list,
)

SHARED = Path(__file__).resolve().parents[3] / "shared"
ROWS = {
    "gene": 147291,
    "disease": 146547,
    "disease_mesh": 37272,
    "chemical_mesh": 59882,
    "drug": 40970,
    "phenotype": 41495,
}


def write(folder: Path, text: str | bytes, name: str = "lexicon.tsv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    path = write(tmp_path, "aspirin\tC1\n")
    assert read_lexicon(str(path), "drug") == read_lexicon(path, "drug")
    assert read_word_list(str(path)) == {"aspirin"}


def terms(folder: Path, text: str | bytes) -> list[tuple[str, str]]:
    return read_lexicon(write(folder, text), "x").terms


def test_a_table_with_a_header_may_order_its_columns(tmp_path):
    assert terms(tmp_path, "term\tsource\tid\nBRAF\tHGNC\tH:1\n") == [("BRAF", "H:1")]


def test_a_table_without_a_header(tmp_path):
    assert terms(tmp_path, "BRAF\tH:1\tHGNC\tsymbol\n") == [("BRAF", "H:1")]


def test_a_plain_list(tmp_path):
    assert terms(tmp_path, "# drugs\r\naspirin\r\n\r\nimatinib") == [("aspirin", ""), ("imatinib", "")]


def test_a_byte_order_mark_is_no_part_of_the_first_term(tmp_path):
    assert terms(tmp_path, "\ufeffaspirin\n") == [("aspirin", "")]


def test_falling_numbers_are_frequencies(tmp_path):
    assert terms(tmp_path, "精神\t900\n医院\t580\n检查\t580\n") == [("精神", ""), ("医院", ""), ("检查", "")]


def test_other_numbers_are_ids(tmp_path):
    assert terms(tmp_path, "BRAF\t673\nTP53\t7157\n") == [("BRAF", "673"), ("TP53", "7157")]


def test_gzip_is_recognised_by_its_content(tmp_path):
    assert terms(tmp_path, gzip.compress(b"aspirin\n")) == [("aspirin", "")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"only\n", "1 columns"),
        (b"+-+\tH:2\n", "no letter or digit"),
        (b"\xff\xfe\tH:2\n", "not UTF-8"),
        (b"a\x00b\tH:2\n", "control character"),
        (b"x" * 600 + b"\tH:2\n", "600 characters"),
        (b"x" * 70000 + b"\tH:2\n", "longer than"),
    ],
)
def test_a_bad_row_is_set_aside_with_line_and_reason(tmp_path, row, reason):
    path = write(tmp_path, b"BRAF\tH:1\n" + row + b"TP53\tH:3\n")
    lexicon = read_lexicon(path, "gene")
    assert [term for term, _ in lexicon.terms] == ["BRAF", "TP53"]
    assert lexicon.bad.count == 1
    assert f"{path}, line 2: " in lexicon.warnings()[0]
    assert reason in lexicon.warnings()[0]


def test_many_bad_rows_are_counted_not_listed(tmp_path):
    lexicon = read_lexicon(write(tmp_path, "BRAF\tH:1\n" * 50 + "bad\n" * 40), "gene")
    assert lexicon.bad.count == 40
    assert lexicon.warnings()[-1].endswith("20 more rows are skipped.")


def test_mostly_bad_rows_are_an_error(tmp_path):
    with pytest.raises(BadFile, match=r"2 of 3 rows cannot be used; the first is line 2"):
        terms(tmp_path, "BRAF\tH:1\nbad\nbad\n")


@pytest.mark.parametrize("content", [b"", b"term\tid\n", b"\n\n"])
def test_a_file_without_terms_is_an_error(tmp_path, content):
    with pytest.raises(BadFile, match="holds no terms"):
        terms(tmp_path, content)


def test_a_truncated_gzip_is_an_error(tmp_path):
    with pytest.raises(BadFile, match="damaged"):
        terms(tmp_path, gzip.compress(b"aspirin\n" * 1000)[:-12])


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(BadFile, match="cannot be read"):
        read_lexicon(tmp_path / "absent.tsv", "gene")


def test_a_stop_list_takes_the_first_cells(tmp_path):
    assert read_word_list(write(tmp_path, "WAS\nCAT\n")) == {"WAS", "CAT"}


def test_the_option_names_label_and_path():
    assert parse_lexicon_option("gene=a=b.tsv") == ("gene", Path("a=b.tsv"))


@pytest.mark.parametrize("option", ["gene", "=x.tsv", "gene=", "a b=x.tsv"])
def test_a_wrong_option_is_explained(option):
    with pytest.raises(BadSetting, match="LABEL=PATH"):
        parse_lexicon_option(option)


@pytest.mark.parametrize(
    ("term", "turned"),
    [
        ("Abdomen, Acute", "Acute Abdomen"),
        ("Leukemia, Myeloid, Acute", "Acute Myeloid Leukemia"),
        ("Alzheimer's Disease, Late Onset", "Late Onset Alzheimer's Disease"),
    ],
)
def test_inverted_names_are_turned_round(term, turned):
    assert list_spellings(term) == [term, turned]


@pytest.mark.parametrize("term", ["2,4-D", "acid, 5-(methylamino)-", "Acute Abdomen"])
def test_other_names_are_left(term):
    assert list_spellings(term) == [term]


@pytest.mark.parametrize(
    ("term", "rule"),
    [
        ("WAS", CASE_EXACT),
        ("IMPACT", CASE_EXACT),
        ("IL-6", CASE_EXACT),
        ("p53", CASE_EXACT),
        ("mTOR", CASE_EXACT),
        ("52A", CASE_EXACT),
        ("Gout", CASE_FIRST),
        ("lupus", CASE_FIRST),
        ("asthma", CASE_FREE),
        ("Acute Abdomen", CASE_FREE),
        ("ACUTE ABDOMEN", CASE_FREE),
        ("糖尿病", CASE_FREE),
    ],
)
def test_case_rules(term, rule):
    assert choose_case_rule(term) == rule


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
@pytest.mark.parametrize("name", ROWS)
def test_real_lexicons_lose_no_row(name):
    lexicon = read_lexicon(SHARED / "data" / "lexicon" / f"{name}.tsv.gz", name)
    assert (len(lexicon.terms), lexicon.bad.count) == (ROWS[name], 0)
    assert all(concept for _, concept in lexicon.terms)


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_the_real_chinese_list_has_frequencies_and_no_ids():
    lexicon = read_lexicon(SHARED / "data" / "zh" / "THUOCL_medical.txt", "medical")
    assert {concept for _, concept in lexicon.terms} == {""}
    assert len(lexicon.terms) + lexicon.bad.count == 18749


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'term,id\naspirin,D1\n"Leukemia, Myeloid",D2\n'),
        ("a.csv", 'aspirin,D1\n"Leukemia, Myeloid",D2\n'),
        ("a.csv", "name;code\naspirin;D1\nLeukemia, Myeloid;D2\n"),
        ("a.csv", '\ufeffterm;id\r\naspirin;D1\r\n"Leukemia, Myeloid";D2\r\n'),
        ("a.txt", "term;id\naspirin;D1\nLeukemia, Myeloid;D2\n"),
        ("a.txt", "aspirin;D1\nLeukemia, Myeloid;D2\n"),
        ("a.txt", 'id,term\nD1,aspirin\nD2,"Leukemia, Myeloid"\n'),
        ("a.tsv", "id\tterm\nD1\taspirin\nD2\tLeukemia, Myeloid\n"),
    ],
)
def test_columns_may_be_separated_by_commas_or_semicolons(tmp_path, name, content):
    (tmp_path / name).write_text(content, newline="")
    assert read_lexicon(tmp_path / name, "x").terms == [("aspirin", "D1"), ("Leukemia, Myeloid", "D2")]


@pytest.mark.parametrize(
    "terms",
    [["2,4-D", "1,3-butadiene"], ["Leukemia, Myeloid", "gout"], ["vitamin B,12", "gout"], ["a; b", "c; d"]],
)
def test_commas_in_a_list_of_terms_are_part_of_them(tmp_path, terms):
    (tmp_path / "a.txt").write_text("".join(f"{term}\n" for term in terms))
    assert [term for term, _ in read_lexicon(tmp_path / "a.txt", "x").terms] == terms


def test_a_csv_list_of_single_terms_is_a_list(tmp_path):
    (tmp_path / "a.csv").write_text("aspirin\ngout\n")
    assert read_lexicon(tmp_path / "a.csv", "x").terms == [("aspirin", ""), ("gout", "")]


def test_a_csv_file_whose_rows_differ_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("Leukemia, Myeloid, Acute\ngout\nAnemia, Aplastic\n")
    with pytest.raises(BadFile, match=r"1 to 3 columns.*quotes"):
        read_lexicon(tmp_path / "a.csv", "x")
