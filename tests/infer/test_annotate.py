"""`annotate`: every document once, in order, in a part or set aside; counts; what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from alembert import artifact
from alembert.corpus.build import LexiconFiles, build
from alembert.corpus.document import Document
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import read
from alembert.errors import BadFile, BadSetting
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_pipeline import Pipeline
from finding_models import finder, found

FORMATS = ["jsonl", "bioc", "bioc-json", "pubtator", "brat", "parquet"]
TEXTS = [f"Case {n}: aspirin against breast cancer, and {'long ' * (n % 7)}more." for n in range(40)]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline.from_models([finder(tmp_path / "model")])


def write_lines(path: Path, texts: list[str], first: int = 0) -> Path:
    lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts, first)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def documents_in(folder: Path) -> list[Document]:
    """Read the parts back in their order."""
    parts = [json.loads(line)["part"] for line in (folder / "parts.jsonl").read_text().splitlines()]
    return [item for name in parts for item in read(folder / name) if isinstance(item, Document)]


def set_aside_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "set-aside.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("form", FORMATS)
def test_every_document_is_there_once_in_order_with_what_was_found(
    pipeline: Pipeline, tmp_path: Path, form: str
) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS)
    annotate(pipeline, [source], tmp_path / "out", AnnotateSettings(format=form, part_characters=500))
    documents = documents_in(tmp_path / "out")
    names = [document.id for document in documents]
    assert (sorted(names) if form == "brat" else names) == (
        sorted(f"d{n}" for n in range(40)) if form == "brat" else [f"d{n}" for n in range(40)]
    )
    for document in documents:
        text = TEXTS[int(document.id[1:])]
        assert document.text == text
        spans = [(entity.start, entity.end, entity.label) for entity in document.entities]
        assert spans == [(each.start, each.end, each.label) for each in found(text)]


def test_parts_say_what_they_hold(pipeline: Pipeline, tmp_path: Path) -> None:
    inputs = [write_lines(tmp_path / f"{k}.jsonl", TEXTS[:9], first=10 * k) for k in range(2)]
    annotate(pipeline, inputs, tmp_path / "out", AnnotateSettings(part_characters=400))
    lines = [json.loads(line) for line in (tmp_path / "out/parts.jsonl").read_text().splitlines()]
    assert [line["part"] for line in lines] == [f"part-{n:05}.jsonl.gz" for n in range(len(lines))]
    assert sum(line["documents"] for line in lines) == 18
    assert sum(line["characters"] for line in lines) == 2 * sum(map(len, TEXTS[:9]))
    assert lines[0]["from"] == {"file": "0.jsonl", "item": 1}
    assert lines[-1]["to"] == {"file": "1.jsonl", "item": 9}
    for line in lines:
        assert len(list(read(tmp_path / "out" / line["part"]))) == line["documents"]


def test_the_size_of_parts_changes_no_annotation(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS)
    found_by_size = []
    for size in (1, 300, 1_000_000):
        annotate(pipeline, [source], tmp_path / str(size), AnnotateSettings(part_characters=size))
        found_by_size.append(documents_in(tmp_path / str(size)))
    assert found_by_size[0] == found_by_size[1] == found_by_size[2]


def test_read_is_written_and_set_aside_together(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [*TEXTS[:5], " ", "aspirin " * 50, "poison", *TEXTS[:2]])
    source.write_text(source.read_text() + "not json\n")
    settings = AnnotateSettings(max_characters=300, part_characters=150)
    counts = annotate(pipeline, [source], tmp_path / "out", settings).manifest.counts
    aside = set_aside_in(tmp_path / "out")
    assert (counts["read"], counts["written"], counts["set aside"]) == (11, 7, 4)
    places = [(each["id"], each["position"]) for each in aside]
    assert places == [("d5", "line 6"), ("d6", "item 7"), ("d7", "item 8"), (None, "line 11")]
    assert [each["reason"] for each in aside][1:3] == [
        "the text has 400 characters, more than max_characters (300)",
        "the model fails on it: ValueError",
    ]
    names = [document.id for document in documents_in(tmp_path / "out")]
    assert names == ["d0", "d1", "d2", "d3", "d4", "d8", "d9"]


def test_counts_name_what_was_found(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", ["aspirin aspirin cancer"])
    counts = annotate(pipeline, [source], tmp_path / "out").manifest.counts
    named = {name: counts[name] for name in ("entities", "entities: Drug", "entities: Disease", "characters")}
    assert named == {"entities": 3, "entities: Drug": 2, "entities: Disease": 1, "characters": 22}
    assert counts["tokens"] > counts["windows"] == 1


def test_counts_of_what_was_found_leave_out_what_was_kept(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    entity = {"id": "T1", "label": "Drug", "spans": [[0, 7]]}
    source.write_text(json.dumps({"id": "1", "text": "aspirin", "entities": [entity], "labels": ["x"]}))
    pipeline = Pipeline.from_models([finder(tmp_path / "model")], keep=True)
    counts = annotate(pipeline, [source], tmp_path / "out").manifest.counts
    assert (counts["entities"], counts["entities: Drug"], counts["labels"]) == (1, 1, 0)
    (document,) = documents_in(tmp_path / "out")
    assert (len(document.entities), document.labels) == (2, ("x",))


def test_a_model_that_fails_on_everything_is_no_matter_of_documents(tmp_path: Path) -> None:
    broken = Pipeline.from_models([finder(tmp_path / "model", poison="")])
    source = write_lines(tmp_path / "in.jsonl", TEXTS)
    with pytest.raises(ValueError, match="a bug in the model"):
        annotate(broken, [source], tmp_path / "out")


def test_a_part_without_documents_is_not_written(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", ["poison"])
    counts = annotate(pipeline, [source], tmp_path / "out").manifest.counts
    assert (counts["parts"], counts["set aside"]) == (0, 1)
    assert not list((tmp_path / "out").glob("part-*"))


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_to_annotate_is_an_empty_result(pipeline: Pipeline, tmp_path: Path, form: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    counts = annotate(
        pipeline, [tmp_path / "empty.jsonl"], tmp_path / "out", AnnotateSettings(format=form)
    ).manifest.counts
    assert (counts["read"], counts["written"], counts["set aside"]) == (1, 0, 1)
    assert set_aside_in(tmp_path / "out")[0]["kind"] == "file"


def test_folders_compressed_files_and_a_corpus_are_inputs(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    write_lines(folder / "deep/b.jsonl", TEXTS[3:5], first=3)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(write_lines(tmp_path / "a.jsonl", TEXTS[:3]).read_bytes()))
    annotate(pipeline, [folder], tmp_path / "of folder")
    build([folder / "a.jsonl.gz", folder / "deep/b.jsonl"], tmp_path / "corpus", workers=1)
    annotate(pipeline, [tmp_path / "corpus"], tmp_path / "of corpus")
    names = [[document.id for document in documents_in(tmp_path / name)] for name in ("of folder", "of corpus")]
    assert names == [["d0", "d1", "d2", "d3", "d4"]] * 2


def test_what_one_format_had_is_read_again(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS[:4])
    annotate(pipeline, [source], tmp_path / "brat", AnnotateSettings(format="brat"))
    annotate(pipeline, [tmp_path / "brat/part-00000"], tmp_path / "again")
    counts = artifact.open_artifact(tmp_path / "again").counts
    assert counts["entities of the input left out"] == counts["entities"] > 0


def test_progress_begins_at_nothing_and_ends_at_the_total(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS)
    told: list[Progress] = []
    annotate(pipeline, [source], tmp_path / "out", AnnotateSettings(part_characters=500), on_progress=told.append)
    assert (told[0].done, told[-1].done, told[-1].total) == (0, source.stat().st_size, source.stat().st_size)
    assert told[-1].documents == len(TEXTS)
    assert told[-1].tokens > 0


def test_the_same_again_has_nothing_to_do_and_another_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS[:3])
    assert annotate(pipeline, [source], tmp_path / "out").fresh
    assert not annotate(pipeline, [source], tmp_path / "out").fresh
    other = AnnotateSettings(format="brat")
    with pytest.raises(BadFile, match="complete Annotations already"):
        annotate(pipeline, [source], tmp_path / "out", other)
    assert annotate(pipeline, [source], tmp_path / "out", other, overwrite=True).fresh


def test_another_model_is_another_result(pipeline: Pipeline, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", TEXTS[:3])
    annotate(pipeline, [source], tmp_path / "out")
    (tmp_path / "model/task.json").write_text('{"changed": true}')
    with pytest.raises(BadFile, match="complete Annotations already"):
        annotate(pipeline, [source], tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"format": "word"}, "expected one of jsonl, bioc"),
        ({"input_format": "word"}, "no reader"),
        ({"part_characters": 0}, "expected 1 or more"),
        ({"max_characters": 0}, "expected 1 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        AnnotateSettings(**settings)


def test_inputs_that_are_not_there_are_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadFile, match="does not exist"):
        annotate(pipeline, [tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(BadFile, match="is empty"):
        annotate(pipeline, [tmp_path / "nothing"], tmp_path / "out")


def test_brat_files_are_annotated_once_however_they_are_named(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "brat"
    folder.mkdir()
    for name in ("x", "y"):
        (folder / f"{name}.txt").write_text("aspirin")
        (folder / f"{name}.ann").write_text("T1\tDrug 0 7\taspirin\n")
    result = annotate(pipeline, [*sorted(folder.iterdir()), folder / "x.txt"], tmp_path / "out")
    assert [document.id for document in documents_in(tmp_path / "out")] == ["x", "y"]
    assert any("each document is read once" in note for note in result.notes)


def letters(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"aspirin for {name}")
    return folder


@pytest.mark.parametrize("form", FORMATS)
def test_letters_of_one_name_have_ids_of_their_own(pipeline: Pipeline, tmp_path: Path, form: str) -> None:
    folder = letters(tmp_path / "in", "a/letter.txt", "b/letter.txt", "b/other.txt")
    annotate(pipeline, [folder], tmp_path / "out", AnnotateSettings(format=form))
    found = {document.id: document.text for document in documents_in(tmp_path / "out")}
    assert found == {
        "a/letter": "aspirin for a/letter.txt",
        "b/letter": "aspirin for b/letter.txt",
        "other": "aspirin for b/other.txt",
    }


@pytest.mark.parametrize("form", ["jsonl", "bioc", "bioc-json", "parquet"])
def test_documents_say_which_item_of_which_file_they_were(pipeline: Pipeline, tmp_path: Path, form: str) -> None:
    letters(tmp_path / "in", "a/letter.txt")
    write_lines(tmp_path / "in/lines.jsonl", TEXTS[:2])
    annotate(pipeline, [tmp_path / "in"], tmp_path / "out", AnnotateSettings(format=form))
    sources = [(each.meta["source_file"], each.meta["source_item"]) for each in documents_in(tmp_path / "out")]
    assert sources == [("a/letter.txt", "1"), ("lines.jsonl", "1"), ("lines.jsonl", "2")]


def test_ids_that_stand_twice_inside_files_are_counted(pipeline: Pipeline, tmp_path: Path) -> None:
    inputs = [write_lines(tmp_path / f"{k}.jsonl", TEXTS[:3], first=k) for k in range(2)]
    counts = annotate(pipeline, inputs, tmp_path / "out", AnnotateSettings(part_characters=50)).manifest.counts
    assert counts["repeated ids"] == 2


@pytest.mark.parametrize("keep", [False, True])
def test_what_lexicons_found_in_a_corpus_is_an_annotation_of_the_input(tmp_path: Path, keep: bool) -> None:
    source = write_lines(tmp_path / "in.jsonl", ["The gout of this patient came back after a week of aspirin."])
    (tmp_path / "disease.tsv").write_text("gout\tD006073\n")
    build(
        [source],
        tmp_path / "corpus",
        lexicon_files=LexiconFiles(lexicons={"Disease": tmp_path / "disease.tsv"}),
        workers=1,
    )
    pipeline = Pipeline.from_models([finder(tmp_path / "model")], keep=keep)
    counts = annotate(pipeline, [tmp_path / "corpus"], tmp_path / "out").manifest.counts
    (document,) = documents_in(tmp_path / "out")
    found = [(each.label, each.concepts, dict(each.attributes)) for each in document.entities if each.start < 10]
    assert found == ([("Disease", ("D006073",), {"source": "lexicon"})] if keep else [])
    assert counts.get("entities of the input left out", 0) == (0 if keep else 1)


def test_terms_of_a_lexicon_stand_beside_what_the_models_find(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", ["aspirin against gout and breast cancer"])
    (tmp_path / "words.tsv").write_text("gout\tD006073\ncancer\tD009369\n")
    (tmp_path / "none.txt").write_text("quinine\n")
    lexicons = {"Term": tmp_path / "words.tsv", "Other": tmp_path / "none.txt"}
    pipeline = Pipeline.from_models([finder(tmp_path / "model")], lexicons=lexicons)
    result = annotate(pipeline, [source], tmp_path / "out")
    (document,) = documents_in(tmp_path / "out")
    found = [(document.text[each.start : each.end], each.label, each.concepts) for each in document.entities]
    assert found == [
        ("aspirin", "Drug", ()),
        ("gout", "Term", ("D006073",)),
        ("breast cancer", "Disease", ()),
    ]
    assert dict(document.entities[1].attributes) == {"source": "lexicon"}
    assert result.manifest.counts["entities: Term"] == 1
    assert [note for note in result.notes if "none of the terms of the lexicon Other" in note]
    (tmp_path / "words.tsv").write_text("gout\tD006073\n")
    with pytest.raises(BadFile, match="complete Annotations already"):
        annotate(Pipeline.from_models([finder(tmp_path / "model")], lexicons=lexicons), [source], tmp_path / "out")


class _Stopped(Exception):
    pass


@pytest.mark.parametrize("is_brat", [False, True])
def test_a_stopped_run_goes_on_when_its_result_lies_in_the_input(
    pipeline: Pipeline, tmp_path: Path, is_brat: bool
) -> None:
    folder = letters(tmp_path / "in", *(f"{n}.txt" for n in range(4)))
    if is_brat:
        (folder / "0.ann").write_text("T1\tDrug 0 7\taspirin\n")
    settings = AnnotateSettings(part_characters=1)

    def stop(progress: Progress) -> None:
        if progress.documents == 2:
            raise _Stopped

    with pytest.raises(_Stopped):
        annotate(pipeline, [folder], folder / "out", settings, on_progress=stop)
    assert (folder / "out.partial").is_dir()
    counts = annotate(pipeline, [folder], folder / "out", settings).manifest.counts
    assert (counts["written"], counts["set aside"]) == (4, 0)
    assert not annotate(pipeline, [folder], folder / "out", settings).fresh


def test_an_empty_folder_among_the_inputs_is_said(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = letters(tmp_path / "in", "a.txt")
    (folder / "empty").mkdir()
    result = annotate(pipeline, [folder], tmp_path / "out")
    assert result.manifest.counts["written"] == 1
    assert "empty folders among the inputs: 1" in result.notes
