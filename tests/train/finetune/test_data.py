"""What training examples leave open is told from large files; development data count all types, unless it is said."""

from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import preset
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.data import DataFiles, PreparedData, TaskSpec, prepare_data
from alembert.train.finetune.data_reports import build_reports
from sample_lines import write_lines


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> Checkpoint:
    config = preset("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=128)
    return Checkpoint.new(Blueprint(config=config), tokenizer, seed=3)


def write(path: Path, documents: int, *labels: str) -> Path:
    """Documents that each have an entity of each type; no two of them have the same text."""
    entities = [{"start": 0, "end": len(path.stem), "label": label} for label in labels]
    lines = [{"text": f"{path.stem} {number}", "entities": entities} for number in range(documents)]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(path, lines)


@pytest.fixture
def corpora(tmp_path: Path) -> tuple[Path, ...]:
    """Two large training files and two small ones for development, of diseases and of genes."""
    names = [("disease", 150), ("gene", 150), ("disease-dev", 5), ("gene-dev", 5)]
    return tuple(write(tmp_path / f"{name}.jsonl", count, name.split("-")[0]) for name, count in names)


def prepared(model: Checkpoint, data: DataFiles, task: str = "tag") -> PreparedData:
    return prepare_data({task: TaskSpec(task=task, data=data)}, model)


def types_of(examples: Any) -> set[frozenset[str] | None]:
    return {example.types for example in examples}


def test_only_training_examples_have_types_that_were_told(model: Checkpoint, corpora: tuple[Path, ...]) -> None:
    found = prepared(model, DataFiles(train=corpora[:2], dev=corpora[2:]))
    (part,) = found.tasks
    assert types_of(part.train.examples) == {frozenset({"disease"}), frozenset({"gene"})}
    assert types_of(part.dev.examples) == {None}
    decided = build_reports(found)["tag"].decided
    assert sum("disease.jsonl annotates disease; gene.jsonl annotates gene" in each for each in decided) == 1


@pytest.mark.parametrize("given", [{"unsplit": 2, "split": "70/20/10"}, {"train": 2}])
def test_a_part_that_was_set_apart_counts_all_types(
    model: Checkpoint, corpora: tuple[Path, ...], given: dict[str, Any]
) -> None:
    data = {name: corpora[:value] if isinstance(value, int) else value for name, value in given.items()}
    (part,) = prepared(model, DataFiles(**data)).tasks
    assert types_of(part.train.examples) == {frozenset({"disease"}), frozenset({"gene"})}
    assert types_of(part.dev.examples) == {None}


def test_what_is_said_holds_for_training_and_development(model: Checkpoint, corpora: tuple[Path, ...]) -> None:
    said = ReadOptions(types=(f"{corpora[0]}=disease", f"{corpora[2]}=disease", f"{corpora[3]}=gene"))
    (part,) = prepared(model, DataFiles(train=(corpora[0], corpora[3]), dev=(corpora[2],), options=said)).tasks
    assert types_of(part.train.examples) == {frozenset({"disease"}), frozenset({"gene"})}
    assert types_of(part.dev.examples) == {frozenset({"disease"})}
    assert part.task.to_table()["partial"] is True


def test_a_file_that_is_not_read_is_refused(model: Checkpoint, corpora: tuple[Path, ...]) -> None:
    said = ReadOptions(types=("elsewhere.tsv=disease",))
    with pytest.raises(BadSetting, match=r"elsewhere\.tsv"):
        prepared(model, DataFiles(train=corpora[:1], options=said))


def test_a_corpus_of_many_small_files_is_annotated_everywhere(model: Checkpoint, tmp_path: Path) -> None:
    labels = [["disease"], ["gene"], []]
    files = tuple(write(tmp_path / f"n{number}.jsonl", 1, *labels[number % 3]) for number in range(60))
    (part,) = prepared(model, DataFiles(train=files)).tasks
    assert types_of(part.train.examples) == types_of(part.dev.examples) == {None}
    assert part.task.to_table()["partial"] is False


def test_a_folder_of_files_is_read_like_its_files(model: Checkpoint, tmp_path: Path) -> None:
    files = [write(tmp_path / name, 20, "gene") for name in ("train/a.jsonl", "train/deep/b.jsonl")]
    dev = write(tmp_path / "dev/c.jsonl", 5, "gene")
    (whole,) = prepared(model, DataFiles(train=(tmp_path / "train",), dev=(tmp_path / "dev",))).tasks
    (single,) = prepared(model, DataFiles(train=tuple(files), dev=(dev,))).tasks
    assert whole.train.examples == single.train.examples != ()
    assert whole.dev.examples == single.dev.examples != ()


def test_a_folder_is_one_source_of_types(model: Checkpoint, tmp_path: Path) -> None:
    for number in range(150):
        write(tmp_path / f"disease/d{number}.jsonl", 1, "disease")
        write(tmp_path / f"gene/g{number}.jsonl", 1, "gene")
    folders = (tmp_path / "disease", tmp_path / "gene")
    dev = (write(tmp_path / "dev.jsonl", 5, "gene"),)
    (part,) = prepared(model, DataFiles(train=folders, dev=dev)).tasks
    assert types_of(part.train.examples) == {frozenset({"disease"}), frozenset({"gene"})}


def test_what_is_said_about_a_folder_holds_for_the_files_in_it(model: Checkpoint, tmp_path: Path) -> None:
    write(tmp_path / "corpus/disease/a.jsonl", 20, "disease")
    write(tmp_path / "corpus/gene/b.jsonl", 20, "gene")
    options = ReadOptions(types=(f"{tmp_path}/corpus/gene=gene", f"{tmp_path}/corpus/disease=disease"))
    (part,) = prepared(model, DataFiles(train=(tmp_path / "corpus",), options=options)).tasks
    assert types_of(part.train.examples) == {frozenset({"disease"}), frozenset({"gene"})}


def test_a_brat_corpus_of_folders_in_folders_is_learnt_from(model: Checkpoint, tmp_path: Path) -> None:
    for number in range(12):
        place = tmp_path / f"Train/{'ab'[number % 2]}/{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".txt").write_text(f"{number} aspirin cures cough")
        start = len(str(number)) + 1
        mentions = f"T1\tDrug {start} {start + 7}\taspirin\nT2\tSign {start + 14} {start + 19}\tcough\n"
        label = "cures" if number % 3 else "causes"
        place.with_suffix(".ann").write_text(f"{mentions}R1\t{label} Arg1:T1 Arg2:T2\n")
    (tmp_path / "Train/annotation.conf").write_text("[entities]\nDrug\n")
    data = DataFiles(train=(tmp_path / "Train",), dev=(tmp_path / "Train/a/0.txt",))
    (part,) = prepared(model, data, "relate").tasks
    assert len(part.train.examples) == 11
    assert part.splits.set_aside == ()
    assert [path.name for path in data.contents] == ["a", "b", "0.txt", "0.ann"]
