"""JSON lines and JSON files: fields, nested articles, entities in their many spellings."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.document import Document, Entity
from alembert.corpus.readers import Item, ReadOptions, SetAside, read

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def items_of(*records: Any, options: ReadOptions | None = None) -> list[Item]:
    data = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return list(read(io.BytesIO(data.encode()), options, format="jsonl"))


def document_of(record: Any, options: ReadOptions | None = None) -> Document:
    item = items_of(record, options=options)[-1]
    assert isinstance(item, Document)
    return item


def test_a_nested_article_is_put_together() -> None:
    sections = [{"heading": "Results", "paragraphs": ["One.", "Two."]}]
    document = document_of({"id": 7, "title": "T", "abstract": ["A1.", "A2."], "sections": sections, "doi": "10.1/x"})
    assert document.text == "T\nA1.\nA2.\nResults\nOne.\nTwo."
    assert (document.id, document.meta) == ("7", {"doi": "10.1/x"})
    kinds = [section.kind for section in document.sections]
    assert kinds == ["title", "abstract", "abstract", "heading", "body", "body"]


def test_field_names_can_be_set() -> None:
    options = ReadOptions(id="key", text=("a.b", "c"), label="y")
    document = document_of({"key": "k", "a": {"b": "first"}, "c": "second", "y": ["p", "q"]}, options)
    assert (document.id, document.text, document.labels) == ("k", "first\nsecond", ("p", "q"))


@pytest.mark.parametrize(
    "entity",
    [
        {"start": 4, "end": 9, "label": "Disease"},
        {"start_offset": 4, "end_offset": 9, "type": "Disease"},
        {"mention": "fever", "offset": "4", "type": "Disease"},
        {"spans": [[4, 9]], "label": "Disease", "id": "T1"},
        [4, 9, "Disease"],
    ],
)
def test_entities_in_many_spellings(entity: Any) -> None:
    document = document_of({"text": "Has fever.", "entities": [entity], "split": "train"})
    assert document.entities == (Entity("T1", "Disease", ((4, 9),)),)


def test_a_title_moves_the_entities_along() -> None:
    document = document_of({"title": "T", "text": "Has fever.", "entities": [[4, 9, "Disease"]]})
    assert document.entities[0].surface(document.text) == "fever"


def test_an_entity_that_does_not_fit_is_set_aside_alone() -> None:
    aside, document = items_of({"text": "Has fever.", "entities": [[4, 99, "x"], [0, 3, "y"]]})
    assert isinstance(aside, SetAside)
    assert isinstance(document, Document)
    assert [entity.label for entity in document.entities] == ["y"]


def test_a_record_without_text_is_set_aside_with_its_line() -> None:
    items = items_of({"text": "one"}, {"id": "b", "words": "x"}, {"text": "  "}, {"text": "four"})
    found = [(item.position, item.id) for item in items if isinstance(item, SetAside)]
    assert found == [("line 2", "b"), ("line 3", "<stream>-3")]
    assert sum(isinstance(item, Document) for item in items) == 2


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_is_read_record_by_record(indent: int | None) -> None:
    data = json.dumps([{"text": f"text {number}"} for number in range(3)], indent=indent).encode()
    found = [item.text for item in read(io.BytesIO(data)) if isinstance(item, Document)]
    assert found == ["text 0", "text 1", "text 2"]


def test_one_pretty_printed_record_is_read() -> None:
    data = json.dumps({"id": "x", "text": "alone"}, indent=2).encode()
    assert list(read(io.BytesIO(data))) == [Document("x", "alone")]


def test_headings_inside_the_text_become_sections() -> None:
    text = "TITLE: A trial\n\nABSTRACT.METHODS:\nWe did.\n\nBODY.RESULTS.MICE:\nIt worked."
    document = document_of({"pmcid": "9", "text": text})
    parts = [(part.kind, part.heading, text[part.start : part.end]) for part in document.sections]
    assert document.text == text
    assert parts == [
        ("heading", "", "TITLE:"),
        ("title", "", "A trial"),
        ("heading", "", "ABSTRACT.METHODS:"),
        ("abstract", "METHODS", "We did."),
        ("heading", "", "BODY.RESULTS.MICE:"),
        ("body", "RESULTS.MICE", "It worked."),
    ]


@pytest.mark.parametrize(("name", "count"), [("corpus/elife-05.jsonl.gz", None), ("zh/cMedQANER/dev.json", 175)])
def test_real_files_are_read_whole(name: str, count: int | None) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    items = list(read(path))
    documents = [item for item in items if isinstance(item, Document)]
    assert count is None or len(documents) == count
    assert all(entity.end <= len(document.text) for document in documents for entity in document.entities)


def test_a_list_of_strings_is_the_lines_of_a_text() -> None:
    assert document_of({"id": "1", "text": ["a", "", "b"]}).text == "a\n\nb"


def test_the_kind_of_what_is_set_aside() -> None:
    bad = {"text": "Some words", "entities": [{"start": 90, "end": 95, "label": "x"}]}
    asides = [item for item in items_of(bad, {"none": 1}) if isinstance(item, SetAside)]
    assert [item.kind for item in asides] == ["annotation", "record"]
