"""A fine-tuned model in Python: what it takes to predict, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput
from alembert.infer.task_model import TaskModel
from alembert.tasks import files
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
    model = TaskModel.open(tmp_path / "model")
    assert [set(each) for each in model.predict_all(model.to_examples(TEXTS))] == [{"ner", "topic"}] * 2
    with pytest.raises(BadInput, match="list of texts"):
        model.to_examples("aspirin")


def test_the_description_of_the_tasks_is_parsed_once(
    tagger: TaskModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Path] = []
    read_json = files.read_json
    monkeypatch.setattr(files, "read_json", lambda path: parsed.append(path) or read_json(path))
    (tmp_path / "a.txt").write_text("aspirin helps\n")
    model = TaskModel.open(tagger.folder).with_threshold(min_score=0.1)
    list(model.predict_all(model.read_texts(tmp_path / "a.txt", ReadOptions()).examples))
    assert parsed == [tagger.folder / "task.json"]


def test_many_examples_of_several_tasks_come_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine_tuned_together({"ner": "tag", "topic": "classify"}, tmp_path / "model", tmp_path)
    model = TaskModel.open(tmp_path / "model")
    documents = [Document(f"doc-{n}", f"aspirin helps {'no cancer ' * (n % 3)}") for n in range(7)]
    examples = model.examples_from_documents(documents)
    assert [(each["ner"].id, each["topic"].id) for each in examples] == [(each.id, each.id) for each in documents]
    whole = [model.to_record(*pair) for pair in zip(examples, model.predict_all(examples), strict=True)]
    monkeypatch.setattr("alembert.infer.task_model.BATCH_EXAMPLES", 2)
    parts = [model.to_record(*pair) for pair in zip(examples, model.predict_all(examples), strict=True)]
    assert [each["ner"]["text"] for each in parts] == [each["ner"]["text"] for each in whole]
    assert [each["topic"]["label"] for each in parts] == [each["topic"]["label"] for each in whole]


def test_tasks_that_read_other_texts_of_a_file_are_asked_one_by_one(tmp_path: Path) -> None:
    fine_tuned_together({"ner": "tag", "related": "relate"}, tmp_path / "model", tmp_path)
    (tmp_path / "a.txt").write_text("<< aspirin >> helps against [[ cancer ]]\n")
    model = TaskModel.open(tmp_path / "model")
    examples = model.read_texts(tmp_path / "a.txt", ReadOptions()).examples
    assert [[*each] for each in examples] == [["ner", "related"]]
    (tmp_path / "b.jsonl").write_text('{"id": "d", "text": "the patient"}\n')
    with pytest.raises(BadInput, match=r"do not read the same texts .* \(1 for ner, 0 for related\)"):
        model.read_texts(tmp_path / "b.jsonl", ReadOptions())


def test_texts_are_read_from_all_files_of_a_folder(tagger: TaskModel, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/a.txt").write_text("aspirin helps\n\nno cancer\n")
    (tmp_path / "b.jsonl").write_text('{"id": "d", "text": "the patient"}\n')
    found = tagger.read_texts(tmp_path, ReadOptions()).examples
    assert [(each["tag"].id, each["tag"].texts[0]) for each in found] == [
        ("d", "the patient"),
        ("a-1", "aspirin helps"),
        ("a-2", "no cancer"),
    ]


def test_what_a_folder_has_beside_texts_is_counted(tagger: TaskModel, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("aspirin helps\n")
    reasons = [remark.reason for remark in tagger.read_texts(tmp_path, ReadOptions()).remarks]
    assert reasons == ["empty folders among the inputs: 1"]
