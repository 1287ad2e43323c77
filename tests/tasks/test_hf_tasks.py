"""What a folder without task.json is taken for, by its Hugging Face files."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.errors import BadFile
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.files import (
    describe_inferred_task,
    has_task,
    read_task,
    write_tasks,
)
from alembert.tasks.tag.task import TagTask


def folder_of(folder: Path, architecture: str, labels: list[str] | None = None, **config: Any) -> Path:
    named = {} if labels is None else {"id2label": {str(n): name for n, name in enumerate(labels)}}
    table = {"model_type": "bert", "architectures": [architecture], **named, **config}
    (folder / "config.json").write_text(json.dumps(table), encoding="utf8")
    return folder


def test_a_tagger_keeps_the_order_and_the_spelling_of_its_tags(tmp_path: Path) -> None:
    task = read_task(folder_of(tmp_path, "BertForTokenClassification", ["B_gene", "O", "I_gene"])).open()
    assert isinstance(task, TagTask)
    assert (task.types, task.labels) == (("gene",), ("B_gene", "O", "I_gene"))
    assert task.tags == ("B-gene", "O", "I-gene")


def test_its_task_survives_saving(tmp_path: Path) -> None:
    task = read_task(folder_of(tmp_path, "BertForTokenClassification", ["gene", "O"])).open()
    write_tasks(tmp_path, {task.name: (task, {})})
    assert read_task(tmp_path).open().to_table() == task.to_table()
    assert describe_inferred_task(tmp_path) is None


def test_labels_of_every_word_are_read_from_the_tags_of_tokens(tmp_path: Path) -> None:
    task = read_task(folder_of(tmp_path, "AlbertForTokenClassification", ["NOUN", "VERB"])).open()
    assert task.settings.every_token


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"labels": ["a", "b"]}, "single"),
        ({"labels": ["a", "b"], "problem_type": "multi_label_classification"}, "multi"),
        ({"labels": ["LABEL_0"], "problem_type": "regression"}, "number"),
        ({"labels": ["LABEL_0"]}, "number"),
        ({}, "single"),
    ],
)
def test_kinds_of_classifiers(config: dict[str, Any], kind: str, tmp_path: Path) -> None:
    task = read_task(folder_of(tmp_path, "BertForSequenceClassification", **config)).open()
    assert isinstance(task, ClassifyTask)
    assert task.kind == kind


def test_a_classifier_reads_texts_and_pairs(tmp_path: Path) -> None:
    task = read_task(folder_of(tmp_path, "BertForSequenceClassification", ["a", "b"])).open()
    task.check(task.examples_from_texts(["one text", "one\tother"]))


@pytest.mark.parametrize(
    ("architecture", "labels", "said"),
    [
        ("BertForTokenClassification", ["O", "B-x", "I-x"], "a tagger (BIO, 1 type: x)"),
        ("BertForTokenClassification", None, "its labels have no names"),
        ("AlbertForSequenceClassification", ["a", "b"], "a classifier (one label of 2: a, b)"),
        ("BertForQuestionAnswering", None, "a question answering model"),
        ("BertForMultipleChoice", None, "a multiple choice model"),
    ],
)
def test_the_decision_is_a_sentence(architecture: str, labels: list[str] | None, said: str, tmp_path: Path) -> None:
    remark = describe_inferred_task(folder_of(tmp_path, architecture, labels), "work/x")
    assert remark is not None
    assert remark.startswith("work/x has no task.json")
    assert said in remark


def test_a_language_model_is_told_what_it_can_do(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="alembert fill"):
        read_task(folder_of(tmp_path, "BertForMaskedLM"))
    assert not has_task(tmp_path)


@pytest.mark.parametrize("config", [{"id2label": {"1": "a"}}, {"id2label": ["a"]}, {"id2label": {"x": "a"}}])
def test_labels_without_numbers_are_refused(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="id2label"):
        read_task(folder_of(tmp_path, "BertForTokenClassification", **config))


def test_a_regression_of_several_numbers_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, "BertForSequenceClassification", ["a", "b"], problem_type="regression")
    with pytest.raises(BadFile, match="2 outputs"):
        read_task(tmp_path)


def test_a_configuration_of_another_program_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2]", encoding="utf8")
    assert not has_task(tmp_path)
    with pytest.raises(BadFile, match="damaged"):
        read_task(tmp_path)
