"""Pairs of source and target from files: which columns, and what is set aside."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.tasks.generate.data import SourceTargetFile, read_source_target_pairs


def read(tmp_path: Path, rows: list[Any], **options: Any) -> SourceTargetFile:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    return read_source_target_pairs(path, ReadOptions(**options))


@pytest.mark.parametrize(
    ("row", "source", "target"),
    [
        ({"source": "a b", "target": "c"}, "a b", "c"),
        ({"abstract": "a b", "title": "c"}, "a b", "c"),
        ({"text": "a b", "title": "c", "summary": "d"}, "a b", "d"),
        ({"Document": "a b", "Summary": "c"}, "a b", "c"),
        ({"text": ["a", "b"], "summary": ["c", "d"]}, "a\nb", "c\nd"),
        ({"long": "a b", "short": "c"}, "a b", "c"),
    ],
)
def test_columns_are_told_by_their_names(row: dict[str, Any], source: str, target: str, tmp_path: Path) -> None:
    (pair,) = read(tmp_path, [row]).pairs
    assert (pair.source, pair.target) == (source, target)


def test_columns_that_were_asked_for_come_first(tmp_path: Path) -> None:
    row = {"source": "a", "target": "b", "one": "c", "two": "d", "head": {"line": "e"}}
    (pair,) = read(tmp_path, [row], text=("one", "two"), label="head.line").pairs
    assert (pair.source, pair.target) == ("c\nd", "e")


def test_a_target_stays_as_it_was_written(tmp_path: Path) -> None:
    pairs = read(tmp_path, [{"source": "a", "target": f" {number}.50 "} for number in range(4)]).pairs
    assert [pair.target for pair in pairs] == [" 0.50 ", " 1.50 ", " 2.50 ", " 3.50 "]


def test_bad_rows_are_set_aside_with_their_lines(tmp_path: Path) -> None:
    rows: list[Any] = [{"source": "a", "target": "b"}, {"source": "a"}, {"source": " ", "target": "b"}, [1]]
    found = read(tmp_path, rows)
    assert [pair.where for pair in found.pairs] == [f"{tmp_path / 'pairs.jsonl'}:1"]
    assert [(each.position, each.reason) for each in found.set_aside] == [
        ("line 4", "the record is not a JSON object with named fields"),
        ("line 2", "there is no text in target"),
        ("line 3", "the text in source is empty"),
    ]


def test_what_was_told_is_said(tmp_path: Path) -> None:
    (remark,) = read(tmp_path, [{"abstract": "a", "title": "b"}]).remarks
    assert remark.reason == "the source is in column abstract, the target in column title"


def test_columns_that_cannot_be_told_are_a_sentence(tmp_path: Path) -> None:
    (aside,) = read(tmp_path, [{"x": "a", "y": "b", "z": "c"}]).set_aside
    assert aside.kind == "file"
    assert aside.reason.startswith("no column is known to hold the source; the file has x, y, z; set `text`")


def test_a_table_of_two_columns_needs_no_names(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a long text\tshort\nanother long text\tbrief\n")
    assert [pair.target for pair in read_source_target_pairs(path).pairs] == ["short", "brief"]
