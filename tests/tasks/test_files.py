"""What tasks leave in model folders: copies without hashes of the training data."""

from pathlib import Path

import pytest

from alembert import artifact
from alembert.errors import BadFile
from alembert.infer.task_model import TaskModel
from alembert.tasks.files import forget_training, write_keys, write_surfaces
from small_checkpoints import fine_tuned


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Checkpoint of two seeds that says what it was trained on."""
    fine_tuned("tag", tmp_path / "model", tmp_path / "examples.jsonl")
    with artifact.create(tmp_path / "whole", "Checkpoint", config={"a": 1}, seed=3) as draft:
        for path in sorted((tmp_path / "model").iterdir()):
            if path.is_file() and path.name != "manifest.json":
                (draft.path / path.name).write_bytes(path.read_bytes())
        for part in (draft.path, draft.path / "seeds" / "1"):
            write_keys(part, [1, 2])
            write_surfaces(part, {"0123456789abcdef": 1}, "ner")
        draft.counts["parameters"] = 5
    return tmp_path / "whole"


def test_a_copy_forgets_what_was_trained_on_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    old, new = artifact.open_artifact(folder), artifact.verify(tmp_path / "copy")
    assert old.files.keys() - new.files.keys() == {
        "run/train.keys.npy",
        "run/ner/surfaces.json",
        "seeds/1/run/train.keys.npy",
        "seeds/1/run/ner/surfaces.json",
    }
    assert all(old.files[name] == digest for name, digest in new.files.items())
    assert (new.kind, new.config, new.seed, new.counts) == ("Checkpoint", {"a": 1}, 3, {"parameters": 5})


def test_a_copy_does_not_name_the_files_of_the_training(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    assert [each.name for each in artifact.open_artifact(tmp_path / "copy").inputs] == ["whole"]


def test_the_copy_opens_and_knows_of_no_training_data(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    model = TaskModel.open(tmp_path / "copy")
    assert model.train_keys() is None
    assert model.surfaces() is None


def test_a_folder_without_a_task_is_refused(tmp_path: Path) -> None:
    with artifact.create(tmp_path / "corpus", "Corpus", config={}):
        pass
    with pytest.raises(BadFile, match=r"has no task\.json"):
        forget_training(tmp_path / "corpus", tmp_path / "copy")
