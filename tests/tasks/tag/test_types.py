"""Which types files annotate: as it is said, or told from training files where that is safe."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.tasks.tag.types import MIN_DOCUMENTS, MIN_EXPECTED_DOCUMENTS, infer_types


def source(name: str, documents: int, **counts: int) -> list[TagExample]:
    """Examples of one source, so many of which have an entity of each type."""
    return [
        TagExample(
            id=f"{name}-{number}",
            texts=("a b",),
            source=name,
            entities=tuple((0, 1, label) for label, count in counts.items() if number < count),
        )
        for number in range(documents)
    ]


def told(*sources: Sequence[TagExample]) -> dict[str, set[str] | None]:
    """What is told of each source."""
    examples, _ = infer_types([each for members in sources for each in members])
    return {each.source: None if each.types is None else set(each.types) for each in examples}


MANY = MIN_DOCUMENTS


def test_a_type_that_is_frequent_in_other_large_files_is_unknown_where_it_never_occurs() -> None:
    found = told(source("a", MANY, Disease=50), source("b", MANY, Disease=50, Gene=50))
    assert found == {"a": {"Disease"}, "b": None}


@pytest.mark.parametrize(
    "sources",
    [
        [source(f"{number}.ann", 1, Disease=1, Gene=number % 2) for number in range(500)],
        [source("a", MANY - 1, Disease=50), source("b", MANY, Gene=50)],
        [source("a", MANY, Disease=50), source("b", 5, Gene=5)],
        [source("a", MANY, Disease=50), source("b", MANY, Disease=50, Gene=MIN_EXPECTED_DOCUMENTS - 1)],
        [source("negatives", MANY), source("b", MANY, Disease=50)],
        [source("a", MANY, Disease=50)],
    ],
    ids=[
        "many small files",
        "a small file",
        "another small file",
        "a rare type",
        "no entity at all",
        "one file",
    ],
)
def test_elsewhere_all_types_count_as_annotated(sources: list[list[TagExample]]) -> None:
    assert set(told(*sources).values()) == {None}


def test_the_order_of_files_does_not_matter() -> None:
    sources = [
        source("a", MANY, Disease=50),
        source("b", MANY, Gene=50),
        source("c", MANY, Disease=9, Drug=90),
    ]
    assert told(*sources) == told(*sources[::-1])


def test_what_is_told_is_said() -> None:
    _, notes = infer_types([*source("a", MANY, Disease=50), *source("b", MANY, Gene=50)])
    assert len(notes) == 1
    assert "a annotates Disease; b annotates Gene; other types count as unknown" in notes[0]


def test_small_files_with_different_types_are_mentioned() -> None:
    _, notes = infer_types([*source("a", 2, Disease=2), *source("b", 2, Gene=2)])
    assert len(notes) == 1
    assert "--set read.types" in notes[0]


def test_what_was_said_is_not_changed() -> None:
    said = [TagExample(id="1", texts=("a",), source="a", types=frozenset({"Gene"}))] * MANY
    examples, _ = infer_types([*said, *source("b", MANY, Disease=50, Gene=50)])
    assert {each.types for each in examples} == {frozenset({"Gene"}), None}


def write(path: Path, *labels: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    entities = [{"start": 0, "end": 1, "label": label} for label in labels]
    path.write_text(json.dumps({"id": path.stem, "text": "a b", "entities": entities}) + "\n")
    return path


def read(files: Sequence[Path], *types: str) -> dict[str, tuple[list[str], set[str] | None]]:
    reading = TagTask.read(files, TagSettings(), ReadOptions(types=types))
    return {each.source: (each.labels, None if each.types is None else set(each.types)) for each in reading.examples}


def test_types_are_never_told_when_files_are_read(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.jsonl", "Disease"), write(tmp_path / "b.jsonl", "Gene")]
    assert read(files) == {str(files[0]): (["Disease"], None), str(files[1]): (["Gene"], None)}


def test_what_is_said_about_a_folder_or_a_file_holds_for_it_and_the_nearest_counts(tmp_path: Path) -> None:
    files = [write(tmp_path / "ncbi" / name, "Disease", "Gene") for name in ("train.jsonl", "dev.jsonl")]
    files.append(write(tmp_path / "other.jsonl", "Disease"))
    found = read(files, f"{tmp_path / 'ncbi'}=Disease", f"{files[1]}=Gene")
    assert list(found.values()) == [(["Disease"], {"Disease"}), (["Gene"], {"Gene"}), (["Disease"], None)]


def test_paths_may_be_written_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.jsonl", "Disease")
    monkeypatch.chdir(tmp_path)
    assert read([file], "./a.jsonl=Disease") == {str(file): (["Disease"], {"Disease"})}


def test_a_document_may_say_it_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a b", "meta": {"annotated_types": ["Disease"]}}) + "\n")
    assert read([path]) == {str(path): ([], {"Disease"})}
    assert read([path], "Disease,Gene") == {str(path): ([], {"Disease"})}
