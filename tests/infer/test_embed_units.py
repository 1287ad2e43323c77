"""Units of files and of a Corpus: exact places, several files, nothing lost, and going on from any place."""

import gzip
import json
from pathlib import Path

import pytest

from alembert.corpus.build import build
from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers import ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.infer.embed import count_item, iter_units, select_units
from alembert.infer.stream import InputItem, InputStream, StreamPosition, iter_chunks, open_input_stream
from scripted_models import write_labelled

START = StreamPosition()
TEXTS = {
    "1": "Aspirin helps. It thins the blood in most patients.",
    "2": "Insulin lowers glucose. 糖尿病很常见。",
    "3": "One sentence only, which is long enough to be kept.",
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    first = write_labelled(tmp_path / "a.jsonl", {"1": (TEXTS["1"], "x"), "2": (TEXTS["2"], "x")})
    first.write_text(first.read_text() + "not json\n")
    second = tmp_path / "b.jsonl.gz"
    second.write_bytes(gzip.compress(json.dumps({"id": "3", "text": TEXTS["3"]}).encode()))
    return [first, second]


def open_stream(inputs: list[Path]) -> InputStream:
    return open_input_stream(list_input_files(inputs), ReadOptions())


def items_of(inputs: list[Path], unit: str, after: StreamPosition = START) -> list[InputItem]:
    return [select_units(item, unit) for item in open_stream(inputs).read_from(after)]


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_the_text_of_a_unit_is_what_stands_at_its_place(files: list[Path], unit: str) -> None:
    units = [each for item in items_of(files, unit) for each in iter_units(item)]
    assert len(units) == (3 if unit == "document" else 5)
    assert all(TEXTS[each.id][each.start : each.end] == each.text for each in units)
    assert {each.source for each in units} == {"a.jsonl", "b.jsonl.gz"}


def test_what_cannot_be_read_is_set_aside_and_counted(files: list[Path]) -> None:
    (bad,) = [item for item in items_of(files, "document") if item.set_aside]
    assert (bad.set_aside.source, bad.set_aside.position) == ("a.jsonl", "line 3")
    assert count_item(bad) == {"set aside": 1, "set aside: the line is not JSON": 1}


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_reading_goes_on_behind_any_place(files: list[Path], unit: str) -> None:
    everything = items_of(files, unit)
    for number, item in enumerate(everything, 1):
        assert items_of(files, unit, item.position) == everything[number:]


def test_progress_ends_at_the_total(files: list[Path]) -> None:
    stream = open_stream(files)
    last = list(stream.read_from(START))[-1]
    assert last.progress == stream.total == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_a_corpus_gives_the_same_units_and_goes_on_as_well(files: list[Path], unit: str, tmp_path: Path) -> None:
    build(files, tmp_path / "corpus", workers=1)
    of_corpus = items_of([tmp_path / "corpus"], unit)
    units = [list(iter_units(item)) for item in items_of(files, unit) if item.document]
    assert [list(iter_units(item)) for item in of_corpus] == units
    assert items_of([tmp_path / "corpus"], unit, of_corpus[0].position) == of_corpus[1:]


def test_chunks_close_when_they_are_full_and_keep_everything(files: list[Path]) -> None:
    everything = items_of(files, "document")
    cut = list(iter_chunks(iter(everything), characters=60))
    assert [item for chunk in cut for item in chunk] == everything
    assert [len(chunk) for chunk in cut] == [2, 2]


def test_a_blank_text_is_set_aside(tmp_path: Path) -> None:
    table = tmp_path / "blank.txt"
    table.write_text(" \n \n")
    (item,) = items_of([table], "sentence")
    assert (list(iter_units(item)), count_item(item)["set aside"]) == ([], 1)


def test_inputs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="does not exist"):
        items_of([tmp_path / "nowhere"], "document")
    with pytest.raises(BadSetting, match="No input"):
        items_of([], "document")
