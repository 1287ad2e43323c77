"""A fine-tuned model in Python: what it takes to predict, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput
from alembert.infer.task_model import MultiTaskModel, TaskModel
from small_checkpoints import fine_tuned, fine_tuned_together

TEXTS = ["aspirin helps", "the patient has cancer"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> TaskModel:
    folder = tmp_path_factory.mktemp("model")
    fine_tuned("tag", folder / "tagger", folder / "train.jsonl")
    return TaskModel.open(folder / "tagger")


def test_texts_are_predicted_as_examples_are(tagger: TaskModel) -> None:
    assert tagger.predict(TEXTS) == tagger.predict(tagger.task.examples_from_texts(TEXTS))


@pytest.mark.parametrize("wrong", ["aspirin helps", [b"aspirin"], [1], [None]])
def test_what_is_no_list_of_texts_is_refused(tagger: TaskModel, wrong: Any) -> None:
    with pytest.raises(BadInput, match="list of texts"):
        tagger.predict(wrong)


def test_a_model_of_several_tasks_takes_texts_too(tmp_path: Path) -> None:
    fine_tuned_together({"ner": "tag", "topic": "classify"}, tmp_path / "model", tmp_path)
    model = MultiTaskModel.open(tmp_path / "model")
    assert [set(each) for each in model.iter_predictions(TEXTS)] == [{"ner", "topic"}] * 2
    with pytest.raises(BadInput, match="list of texts"):
        list(model.iter_predictions("aspirin"))  # type: ignore[arg-type]


def test_texts_are_read_from_all_files_of_a_folder(tagger: TaskModel, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.txt").write_text("aspirin helps\n\nno cancer\n")
    (tmp_path / "b.jsonl").write_text('{"id": "d", "text": "the patient"}\n')
    found = tagger.read_texts(tmp_path, ReadOptions()).examples
    assert [(each.id, each.texts[0]) for each in found] == [
        ("d", "the patient"),
        ("a-1", "aspirin helps"),
        ("a-2", "no cancer"),
    ]


def test_what_a_folder_has_beside_texts_is_counted(tagger: TaskModel, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("aspirin helps\n")
    reasons = [remark.reason for remark in tagger.read_texts(tmp_path, ReadOptions()).remarks]
    assert reasons == ["empty folders among the inputs: 1"]
