"""CSV and TSV: headers or none, columns by name or number, quotes where they mean something."""

import io
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import Item, ReadOptions, SetAside, read

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def items_of(data: str, name: str = "t.csv", **options: object) -> list[Item]:
    stream = io.BytesIO(data.encode())
    stream.name = name  # type: ignore[attr-defined]
    return list(read(stream, ReadOptions(**options), format="table"))  # type: ignore[arg-type]


def texts(items: list[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, Document)]


def test_quoted_fields_hold_commas_and_line_breaks() -> None:
    assert texts(items_of('id,text\n1,"a, ""b""\nc"\n2,d\n')) == ['a, "b"\nc', "d"]


def test_quotes_are_literal_in_tsv() -> None:
    assert texts(items_of('sentence\tlabel\n"so it goes\t1\n', "t.tsv")) == ['"so it goes']


def test_columns_by_number_without_a_header() -> None:
    (item,) = items_of("yes,some words\n", text=("2",), label="1")
    assert isinstance(item, Document)
    assert (item.text, item.labels) == ("some words", ("yes",))


def test_columns_by_number_with_a_header() -> None:
    assert texts(items_of("id,text,note\n1,a,b\n", text=("3",))) == ["b"]


def test_several_text_columns_are_joined() -> None:
    (item,) = items_of("one,two\n", text=("1", "2"), header=False)
    assert isinstance(item, Document)
    assert [item.text[part.start : part.end] for part in item.sections] == ["one", "two"]


def test_a_row_of_another_width_is_set_aside() -> None:
    items = items_of("id,text\n1,a\n2\n3,c\n")
    assert texts(items) == ["a", "c"]
    assert [item.position for item in items if isinstance(item, SetAside)] == ["line 3"]


def test_a_table_whose_text_is_not_known_says_what_to_set() -> None:
    (item,) = items_of("a,b\n1,2\n")
    assert isinstance(item, SetAside)
    assert "`text` under [read] in the --config file" in item.reason


@pytest.mark.parametrize("rest", ["", '4,"d"\n', '4,", d"\n', "4,d\n" * 11_000])
def test_an_unclosed_quote_costs_one_row(rest: str) -> None:
    items = items_of('id,text\n1,"a\n2,b\n3,c\n' + rest)
    assert texts(items)[:3] == ["b", "c", *texts(items_of("id,text\n" + rest))][:3]
    assert [item.position for item in items if isinstance(item, SetAside)] == ["line 2"]


def test_a_long_quoted_field_is_one_row() -> None:
    note = "\n".join(f"finding {number}, noted" for number in range(3000))
    assert texts(items_of(f'id,text\n1,"{note}"\n2,b\n')) == [note, "b"]


@pytest.mark.parametrize(
    ("name", "count", "options"),
    [
        ("relation/GAD/train.tsv", 4796, ReadOptions(text=("1",), label="2", header=False)),
        ("relation/GAD/test.tsv", 534, ReadOptions()),
        ("classify/SST-2/dev.tsv", 872, ReadOptions()),
        ("zh/chnsenticorp/dev.tsv", 1200, ReadOptions()),
        ("similarity/stsb/data/stsb-zh-dev.csv", 1500, ReadOptions(text=("1", "2"), label="3")),
    ],
)
def test_real_tables_are_read_whole(name: str, count: int, options: ReadOptions) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    items = list(read(path, options))
    assert len(texts(items)) == count
    assert not any(isinstance(item, SetAside) for item in items)
