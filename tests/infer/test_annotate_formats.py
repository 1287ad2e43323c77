"""In every format, what is written stands where it says: `text[start:end]` is the surface, whatever the text is."""

import json
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.corpus.document import Document, find_problems
from alembert.corpus.readers import Item, read
from alembert.corpus.writers import FORMATS as WRITERS
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_chunks import PART_FORMATS, write_part
from alembert.infer.annotate_pipeline import Pipeline
from alembert.tasks.example import with_entities
from finding_models import finder, found

READ_BACK = [form for form in PART_FORMATS if form not in ("conll", "label-studio")]
"""Formats that keep the text, and have a reader."""
PIECES = ["aspirin", "cancer", "咳嗽", "𝛼-𝛽", "e\u0301", "👩‍⚕️", "\r\n", "\n", "\t", " ", "|", "<&>", "\x00", "\x85", "\u2028", "\u200f", "\ufeff", "\x1c", "T1\t", "x|t|y", "%2F"]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), min_size=1, max_size=12).map("".join)


def annotated(texts: list[str], form: str) -> tuple[list[str], list[Item], dict[str, int]]:
    """Write texts as JSON lines, annotate them, and read the parts back."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts)]
        (folder / "in.jsonl").write_text("\n".join(lines))
        given_texts = [item.text for item in read(folder / "in.jsonl") if isinstance(item, Document)]
        pipeline = Pipeline.from_models([finder(folder / "model")])
        chosen = AnnotateSettings(format=form, part_characters=30)
        result = annotate(pipeline, [folder / "in.jsonl"], folder / "out", chosen)
        items = [
            item
            for path in sorted((folder / "out").glob("part-*"))
            for item in read(path, format=PART_FORMATS[chosen.format].writer)
        ]
        return given_texts, items, result.manifest.counts


def test_every_writer_can_be_asked_for() -> None:
    assert {form.writer for form in PART_FORMATS.values()} == {*WRITERS}


@pytest.mark.parametrize("form", READ_BACK)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_every_span_is_where_the_model_found_it(form: str, texts: list[str]) -> None:
    given_texts, items, counts = annotated(texts, form)
    documents = sorted((item for item in items if isinstance(item, Document)), key=lambda each: each.id)
    assert len(documents) == counts["written"]
    assert counts["read"] == counts["written"] + counts["set aside"] == len(texts)
    used = [text for text in given_texts if text.strip() and not (form == "brat" and text[0] == "\ufeff")]
    for document, text in zip(documents, used, strict=True):
        assert list(find_problems(document)) == []
        spans = sorted((each.start, each.end, each.label) for each in document.entities)
        assert spans == sorted((each.start, each.end, each.label) for each in found(text))
        changed = any(name.startswith(("format: line breaks", "format: characters")) for name in counts)
        assert changed or document.text == text


@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_label_studio_has_every_region_and_its_words(texts: list[str]) -> None:
    with TemporaryDirectory() as place:
        documents = [with_entities(Document(str(n), text), map(astuple, found(text))) for n, text in enumerate(texts)]
        written = write_part(Path(place), 0, documents, "label-studio")
        tasks = json.loads((Path(place) / str(written.name)).read_bytes())
    for task, text in zip(tasks, texts, strict=True):
        regions = [each["value"] for each in task["annotations"][0]["result"]]
        assert all(text[each["start"] : each["end"]] == each["text"] for each in regions)
        spans = sorted((each["start"], each["end"], each["labels"][0]) for each in regions)
        assert spans == sorted((each.start, each.end, each.label) for each in found(text))


def test_conll_has_the_words_of_every_entity(tmp_path: Path) -> None:
    text = "Aspirin, not ibuprofen,\nagainst breast cancer (咳嗽)."
    document = with_entities(Document("d1", text), map(astuple, found(text)))
    written = write_part(tmp_path, 0, [document, Document("d2", "Nothing.")], "conll")
    one, two = (item for item in read(tmp_path / str(written.name)) if isinstance(item, Document))
    words = [(one.text[each.start : each.end].replace(" ", ""), each.label) for each in one.entities]
    expected = [(text[each.start : each.end].replace(" ", ""), each.label) for each in found(text)]
    assert words == expected != []
    assert (one.id, two.id, two.entities) == ("d1", "d2", ())


@pytest.mark.parametrize("form", [form for form in READ_BACK if form != "bioc"] + ["conll"])
def test_what_cannot_be_written_is_named_and_the_rest_is_written(form: str, tmp_path: Path) -> None:
    documents = [Document("1", "fine"), Document("2", "half \ud800 a pair"), Document("3", "fine too")]
    written = write_part(tmp_path, 0, documents, form)
    assert list(written.rejected) == [1]
    assert written.name is not None
    names = [item.id for item in read(tmp_path / written.name) if isinstance(item, Document)]
    assert names == ["1", "3"]


def test_label_studio_goes_on_without_a_document_that_is_no_text(tmp_path: Path) -> None:
    written = write_part(tmp_path, 0, [Document("1", "half \ud800 a pair"), Document("2", "fine")], "label-studio")
    assert list(written.rejected) == [0]
    assert [task["data"]["id"] for task in json.loads((tmp_path / str(written.name)).read_bytes())] == ["2"]


def test_ids_that_would_hide_a_file_are_kept(tmp_path: Path) -> None:
    written = write_part(tmp_path, 0, [Document(".hidden", "a"), Document("..", "b"), Document("a/b", "c")], "brat")
    assert written.name is not None
    names = {item.id for item in read(tmp_path / written.name) if isinstance(item, Document)}
    assert names == {".hidden", "..", "a/b"}


def test_nothing_is_written_if_nothing_can_be(tmp_path: Path) -> None:
    written = write_part(tmp_path, 0, [Document("2", "\ud800")], "jsonl")
    assert (written.name, list(written.rejected), list(tmp_path.iterdir())) == (None, [0], [])


@pytest.mark.parametrize("form", list(PART_FORMATS))
def test_the_same_documents_give_the_same_bytes(form: str, tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        written = write_part(folder, 3, [Document("1", "a text"), Document("1", "the same id")], form)
        assert written.name == f"part-00003{PART_FORMATS[form].suffix}"
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        contents.append([(str(path.relative_to(folder)), path.read_bytes()) for path in files])
    assert contents[0] == contents[1]
