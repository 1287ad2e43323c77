"""Labelled rows: which column is which, what is set aside, and real files as they are."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.examples.labelled import LabelledFile, read_labelled
from alembert.corpus.readers import ReadOptions

WORDS = (
    "a quiet film about rain",
    "loud and empty and long",
    "it works well enough",
    "nobody laughed at all",
)


@pytest.fixture
def written(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Write a file and read it."""

    def write(name: str, content: str, **options: object) -> LabelledFile:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return read_labelled(path, ReadOptions(**options))  # type: ignore[arg-type]

    return write


def labels(file: LabelledFile) -> list[object]:
    return [row.label for row in file.rows]


def reasons(file: LabelledFile) -> list[tuple[str, str]]:
    return [(item.position, item.reason) for item in file.set_aside]


# -- real files


@pytest.mark.parametrize(
    ("name", "rows", "texts", "kinds"),
    [
        ("classify/SST-2/dev.tsv", 872, 1, {"0", "1"}),
        ("zh/cMedQQ/train.txt", 16_071, 2, {"0", "1"}),
        ("zh/cMedQQ/test.txt", 1_935, 2, {"0", "1"}),
        ("zh/chnsenticorp/dev.tsv", 1_200, 1, {"0", "1"}),
        ("relation/GAD/train.tsv", 4_796, 1, {"0", "1"}),
        ("relation/GAD/test.tsv", 534, 1, {"0", "1"}),
    ],
)
def test_real_tables(shared: Path, name: str, rows: int, texts: int, kinds: set[str]) -> None:
    file = read_labelled(shared / name)
    assert (len(file.rows), file.set_aside, set(labels(file))) == (rows, (), kinds)
    assert {len(row.texts) for row in file.rows} == {texts}


@pytest.mark.parametrize(("part", "rows"), [("train", 5_749), ("dev", 1_500), ("test", 1_379)])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_sts_benchmark_is_pairs_with_numbers(shared: Path, language: str, part: str, rows: int) -> None:
    file = read_labelled(shared / f"similarity/stsb/data/stsb-{language}-{part}.csv")
    assert (len(file.rows), file.set_aside) == (rows, ())
    assert all(isinstance(row.label, float) and 0 <= row.label <= 5 for row in file.rows)
    assert all(len(row.texts) == 2 for row in file.rows)


@pytest.mark.parametrize(("part", "rows"), [("train", 41_241), ("dev", 5_285), ("test", 5_173)])
def test_sections_of_abstracts(shared: Path, part: str, rows: int) -> None:
    file = read_labelled(shared / f"classify/pubmed-sections/{part}.txt")
    assert (len(file.rows), len(set(labels(file))), file.set_aside) == (rows, 5, ())
    assert all(row.group and row.group.isdecimal() for row in file.rows)


def test_relations_in_json_lines(shared: Path) -> None:
    file = read_labelled(shared / "relation/chemprot/train.txt")
    assert (len(file.rows), len(set(labels(file)))) == (4_169, 13)


def test_an_empty_file_is_set_aside(shared: Path) -> None:
    file = read_labelled(shared / "relation/GAD/dev.tsv")
    assert [(item.kind, item.reason) for item in file.set_aside] == [("file", "the file is empty")]


def test_quotes_of_a_table_with_tabs_are_literal(shared: Path) -> None:
    lines = (shared / "classify/SST-2/train.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
    file = read_labelled(shared / "classify/SST-2/train.tsv")
    assert [row.texts[0] for row in file.rows] == [line.split("\t")[0] for line in lines]


# -- which column is which


def test_what_was_told_is_said(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.tsv", "sentence\tlabel\n" + "".join(f"{text}\tyes\n" for text in WORDS))
    assert [remark.reason for remark in file.remarks] == ["the text is in column sentence, the label in column label"]


def test_columns_without_a_header_are_told_by_content(written) -> None:  # type: ignore[no-untyped-def]
    rows = "".join(f"{number % 2}\t{text}\n" for number, text in enumerate(WORDS))
    file = written("t.tsv", rows)
    assert [(row.texts, row.label) for row in file.rows] == [
        ((text,), str(number % 2)) for number, text in enumerate(WORDS)
    ]
    assert "as their content tells" in file.remarks[0].reason


def test_a_header_of_unknown_names_stands_above_numbers(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.csv", "remark,stars\n" + "".join(f"{text},{n % 2}\n" for n, text in enumerate(WORDS)))
    assert labels(file) == ["0", "1", "0", "1"]


def test_a_column_that_counts_the_rows_is_no_label(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.tsv", "".join(f"{n}\t{text}\t{n % 2}\n" for n, text in enumerate(WORDS)))
    assert labels(file) == ["0", "1", "0", "1"]


def test_where_content_leaves_a_choice_nothing_is_guessed(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.tsv", "".join(f"{n % 2}\t{text}\t{n // 2}\n" for n, text in enumerate(WORDS)))
    assert not file.rows
    assert "1, 3 could each hold the label" in file.set_aside[0].reason
    assert "`label`" in file.set_aside[0].reason


def test_options_override(written) -> None:  # type: ignore[no-untyped-def]
    content = "label\ttext\tother\nx\tone\ty\n"
    file = written("t.tsv", content, text=("other", "label"), label="text")
    assert [(row.texts, row.label) for row in file.rows] == [(("y", "x"), "one")]


def test_columns_by_number(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.csv", "yes,some words\n", text=("2",), label="1")
    assert [(row.texts, row.label) for row in file.rows] == [(("some words",), "yes")]


def test_a_column_that_is_not_there_is_named(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.csv", "label,text\nyes,some words\n", label="topic")
    assert "there is no column topic; the file has label, text" in file.set_aside[0].reason


def test_a_pair_by_its_names(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.jsonl", '{"premise": "a", "hypothesis": "b", "gold_label": "neutral"}\n')
    assert (file.rows[0].texts, file.rows[0].label) == (("a", "b"), "neutral")


def test_nested_fields_by_path(written) -> None:  # type: ignore[no-untyped-def]
    record = '{"input": {"words": "a b"}, "out": {"topic": "x"}}\n'
    file = written("t.jsonl", record, text=("input.words",), label="out.topic")
    assert (file.rows[0].texts, file.rows[0].label) == (("a b",), "x")


def test_the_title_goes_before_the_text(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.jsonl", '{"title": "T", "text": "a", "label": 1}\n', title="title")
    assert file.rows[0].texts == ("T\na",)


def test_a_column_of_documents_is_text(written) -> None:  # type: ignore[no-untyped-def]
    assert written("t.csv", "document,label\nsome words,x\n").rows[0].texts == ("some words",)


def test_a_column_of_document_names_is_no_text(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.csv", "pmid,text,label\n12,some words,x\n12,more words,y\n")
    assert [(row.group, row.texts) for row in file.rows] == [("12", ("some words",)), ("12", ("more words",))]


# -- labels


def test_lists_of_labels(written) -> None:  # type: ignore[no-untyped-def]
    rows = [{"question": "a?", "labels": ["x", "y"]}, {"question": "b?", "labels": []}]
    file = written("t.jsonl", "\n".join(map(json.dumps, rows)))
    assert labels(file) == [("x", "y"), ()]


def test_one_label_among_lists_is_a_list_of_one(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": "x"}\n')
    assert labels(file) == [("x", "y"), ("x",)]


def test_whole_numbers_and_truth_are_names_of_classes(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": true}\n')
    assert labels(file) == ["1", "true"]


def test_bad_rows_are_set_aside_with_their_lines(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.tsv", "sentence\tlabel\ngood\t1\nno label\t\nonly one column\n \t0\nbad\t0\n")
    assert labels(file) == ["1", "0"]
    assert sorted(reasons(file)) == [
        ("line 3", "the label is empty"),
        ("line 4", "the row has 1 columns where the first has 2"),
        ("line 5", "the text in sentence is empty"),
    ]


def test_a_word_among_numbers_is_set_aside(written) -> None:  # type: ignore[no-untyped-def]
    rows = "".join(f"{n},some words,{n / 4}\n" for n in range(20))
    file = written("t.csv", "id,text,score\n" + rows + "21,more words,high\n")
    assert all(isinstance(label, float) for label in labels(file))
    assert reasons(file) == [("line 22", "the label is not a number, as those of the other rows are")]


def test_a_label_that_is_an_object_is_set_aside(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.jsonl", '{"text": "a", "label": {"x": 1}}\n{"text": "b", "label": "x"}\n')
    assert reasons(file) == [("line 1", "the label is neither a word nor a number nor a list of them")]


def test_quoted_fields_of_csv(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.csv", 'text,label\n"one, ""two""\nthree",x\nfour,y\n')
    assert [(row.texts[0], row.position) for row in file.rows] == [
        ('one, "two"\nthree', "line 2"),
        ("four", "line 4"),
    ]


def test_xml_is_refused(written) -> None:  # type: ignore[no-untyped-def]
    assert "this is XML" in written("t.xml", "<?xml version='1.0'?><a/>").set_aside[0].reason


# -- other formats


def test_sections_with_a_bad_line(written) -> None:  # type: ignore[no-untyped-def]
    file = written("t.txt", "###1\nAIM\tTo see.\nno tab here\n\n###2\nAIM\tTo go.\nEND\tWe went.\n")
    assert [(row.group, row.label, row.where.rsplit(":", 1)[1]) for row in file.rows] == [
        ("1", "AIM", "2"),
        ("2", "AIM", "6"),
        ("2", "END", "7"),
    ]
    assert reasons(file) == [("line 3", "the line has no tab between label and sentence")]


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b"], "label": [0.5, 2.0]}), tmp_path / "t.parquet")
    file = read_labelled(tmp_path / "t.parquet")
    assert [(row.texts, row.label, row.position) for row in file.rows] == [
        (("a",), 0.5, "record 1"),
        (("b",), 2.0, "record 2"),
    ]


def test_a_compressed_table_that_is_cut_keeps_what_came_before(tmp_path: Path) -> None:
    rows = "".join(f"words number {n} and more\tlabel{n % 3}\n" for n in range(20_000))
    packed = gzip.compress(("sentence\tlabel\n" + rows).encode())
    (tmp_path / "t.tsv.gz").write_bytes(packed[: len(packed) // 2])
    file = read_labelled(tmp_path / "t.tsv.gz")
    assert file.rows
    assert [item.kind for item in file.set_aside] == ["file"]


def test_a_missing_file_is_set_aside(tmp_path: Path) -> None:
    assert "cannot be read" in read_labelled(tmp_path / "none.tsv").set_aside[0].reason


PLAIN = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).filter(str.strip)


@given(rows=st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=8))
def test_every_row_of_json_lines_comes_back(tmp_path_factory, rows) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("labelled") / "t.jsonl"
    path.write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in rows), encoding="utf-8")
    file = read_labelled(path)
    assert len(file.rows) + len(file.set_aside) == len(rows)
    assert [row.texts[0] for row in file.rows] == [text for text, _ in rows]
