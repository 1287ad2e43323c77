"""Which sign parts the columns of a table, and whether quotes enclose its cells."""

import io
from pathlib import Path

import pytest

from alembert.corpus.examples.labelled import LabelledFile, read_labelled
from alembert.corpus.readers.contract import ReadOptions
from alembert.corpus.readers.source import SourceFile
from alembert.corpus.readers.table import TableDialect, detect_table_dialect
from alembert.errors import BadSetting


def told(data: str, name: str = "t.csv", **options: object) -> TableDialect:
    stream = io.BytesIO(data.encode())
    stream.name = name  # type: ignore[attr-defined]
    return detect_table_dialect(SourceFile(stream, ReadOptions(**options)))  # type: ignore[arg-type]


def labelled(folder: Path, data: str, name: str = "t.csv", **options: object) -> LabelledFile:
    (folder / name).write_text(data, encoding="utf8")
    return read_labelled(folder / name, ReadOptions(**options))  # type: ignore[arg-type]


COMMA, SEMICOLON, TAB = TableDialect(",", True), TableDialect(";", True), TableDialect("\t", False)
QUOTED_TAB = TableDialect("\t", True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("text,label\nso; it goes,1\nwell; yes,0\n", COMMA),
        ("text;label\nso, it goes;1\nwell;0\n", SEMICOLON),
        ('"so; it, goes";1\n"well";0\n', SEMICOLON),
        ("so it goes;3,5\nwell;2,0\n", SEMICOLON),
        ("text\tlabel\nso, it goes\t1\n", TAB),
        ("text|label\nso, it goes|1\nwell|0\n", TableDialect("|", True)),
        ("text,labels\nso it goes,a|b\nwell,b|c\n", COMMA),
        ("text\nso it goes\nwell; yes\n", COMMA),
        ("1,2\n3,4\n", COMMA),
        ("", COMMA),
    ],
)
def test_the_delimiter_is_told_from_the_lines(data: str, expected: TableDialect) -> None:
    assert told(data) == expected


def test_long_cells_leave_few_rows_to_tell_by() -> None:
    note = "\n".join(f"finding {number}, noted" for number in range(5_000))
    assert told("id;text\n" + "".join(f'{number};"{note}"\n' for number in range(4))) == SEMICOLON


def test_a_name_decides_where_the_lines_leave_a_choice() -> None:
    data = "so; it goes,1\nwell; yes,0\n"
    assert told(data, "t.csv") == COMMA
    assert told("a,b\tc\nd,e\tf\n", "t.tsv") == TAB


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('text\tlabel\n"so it goes\t1\nhe said "no"\t0\n', TAB),
        ('text\tlabel\n"so it goes\t1\nwell\t0\nhe said "\t1\n', TAB),
        ('text\tlabel\n"yes"\t1\nno\t0\nso "it" goes\t1\n', TAB),
        ('"text"\t"label"\n"so it goes"\t"1"\n"well"\t"0"\n', QUOTED_TAB),
        ('text\tlabel\n"so it goes"\t1\n"well"\t0\n', QUOTED_TAB),
        ('text\tlabel\nplain\t1\n"he said ""no"""\t0\n', QUOTED_TAB),
        ('text\tlabel\nplain\t1\n"two\nlines"\t0\n"with\ttab"\t0\n', QUOTED_TAB),
    ],
)
def test_quotes_between_tabs_enclose_cells_where_that_explains_them(data: str, expected: TableDialect) -> None:
    assert told(data, "t.tsv") == expected


def test_what_is_said_is_believed() -> None:
    assert told("a,b\n", delimiter=";") == SEMICOLON
    assert told('"a"\t"b"\n"c"\t"d"\n', "t.tsv", quotes=False) == TAB
    assert told("a,b\n", delimiter="tab").delimiter == "\t"


@pytest.mark.parametrize("sign", ["", "::", "\n", '"', "commas"])
def test_a_delimiter_that_cannot_be_one_is_refused(sign: str) -> None:
    with pytest.raises(BadSetting, match="`delimiter`"):
        ReadOptions(delimiter=sign)


def test_an_export_of_a_european_spreadsheet(tmp_path: Path) -> None:
    data = '\ufeff"text";"score"\r\n"Gut, sehr gut";3,5\r\n"Schlecht";0,25\r\n"Ein ""Fall""";2\r\n'
    found = labelled(tmp_path, data)
    assert [(row.texts[0], row.label) for row in found.rows] == [
        ("Gut, sehr gut", 3.5),
        ("Schlecht", 0.25),
        ('Ein "Fall"', 2.0),
    ]
    assert not found.set_aside
    reasons = [remark.reason for remark in found.remarks]
    assert "the columns are separated by semicolons, as the lines show" in reasons
    assert "the numbers of column score have a decimal comma" in reasons


def test_rows_of_a_quoted_table_with_tabs_are_kept(tmp_path: Path) -> None:
    rows = "".join(f'"note {number}\nwith ""more""\tof it"\t"{"ab"[number % 2]}"\n' for number in range(20))
    found = labelled(tmp_path, f'"text"\t"label"\n{rows}', "t.tsv")
    assert len(found.rows) == 20
    assert not found.set_aside
    assert found.rows[0].texts == ('note 0\nwith "more"\tof it',)
    assert {row.label for row in found.rows} == {"a", "b"}


def test_how_quotes_are_read_is_said(tmp_path: Path) -> None:
    (_, remark) = labelled(tmp_path, 'text\tlabel\n"so it goes\t1\nwell\t0\n', "t.tsv").remarks
    assert remark.reason.startswith("double quotes are ordinary characters")


@pytest.mark.parametrize("cells", [("1,2", "3"), ("a,5", "b,5"), ("1,234", "12,500")])
def test_commas_that_need_not_be_decimal_are_left(tmp_path: Path, cells: tuple[str, str]) -> None:
    name, sign = ("t.csv", ",") if cells[0] == "1,2" else ("t.tsv", "\t")
    rows = "".join(f'so it goes{sign}"{cell}"\n' for cell in cells * 5)
    found = labelled(tmp_path, f"text{sign}label\n{rows}", name)
    assert {row.label for row in found.rows} == set(cells)


def test_points_group_thousands_beside_decimal_commas(tmp_path: Path) -> None:
    found = labelled(tmp_path, "text;score\na b;1.234,5\nc d;2.000\ne f;-3,25\n")
    assert [row.label for row in found.rows] == [1234.5, 2000.0, -3.25]
