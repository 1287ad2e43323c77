"""The file of decisions: a line each, whole or not there, and training data at the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadInput
from alembert.serve.labels import LabelFile
from alembert.serve.wire import DecidedEntity, Decision, DecisionRequest
from alembert.tasks.task import get_task_class
from serving import Client, in_background, started

TEXT = "😀 咳嗽 after aspirin 👩‍⚕️."


def decided(state: str = "reviewed", **changes: Any) -> DecisionRequest:
    entities = [DecidedEntity(2, 4, "sign"), DecidedEntity(11, 18, "chemical")]
    fields = {"id": "a", "text": TEXT, "entities": entities, "decision": Decision("accept", 11, 18, "chemical")}
    return DecisionRequest(**{**fields, "state": state, "by": "Ada", **changes})


@pytest.fixture
def labels(tmp_path: Path) -> LabelFile:
    return LabelFile(tmp_path / "new" / "labels.jsonl", now=lambda: "2026-01-02T03:04:05+00:00")


def test_a_line_says_who_decided_what_and_when(labels: LabelFile) -> None:
    labels.append(decided())
    (record,) = map(json.loads, labels.path.read_text().splitlines())
    assert record["decision"] == {"action": "accept", "start": 11, "end": 18, "label": "chemical"}
    assert (record["by"], record["at"], record["state"]) == ("Ada", "2026-01-02T03:04:05+00:00", "reviewed")


def test_decisions_of_one_step_are_one_line(labels: LabelFile) -> None:
    labels.append(decided(also=[Decision("accept", 2, 4, "sign")]))
    (record,) = map(json.loads, labels.path.read_text().splitlines())
    assert record["also"] == [{"action": "accept", "start": 2, "end": 4, "label": "sign"}]


def test_the_last_line_of_a_text_counts_and_open_texts_are_left_out(labels: LabelFile) -> None:
    labels.append(decided("open"))
    labels.append(decided("open", id="b"))
    labels.append(decided(entities=[]))
    assert labels.read_reviewed() == [{"id": "a", "text": TEXT, "entities": []}]


def test_reviewed_texts_are_training_data(labels: LabelFile, tmp_path: Path) -> None:
    labels.append(decided())
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in labels.read_reviewed()))
    tag = get_task_class("tag")
    (example,) = tag.read([file], tag.settings_class(), ReadOptions()).examples
    assert example.text == TEXT
    assert [TEXT[start:end] for start, end, *_ in example.entities] == ["咳嗽", "aspirin"]


def test_a_line_that_a_crash_cut_off_is_ended(labels: LabelFile) -> None:
    labels.append(decided())
    with labels.path.open("a") as file:
        file.write('{"id": "cut')
    labels.append(decided(id="b"))
    assert [record["id"] for record in labels.read_reviewed()] == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"entities": [DecidedEntity(3, 99, "x")]}, "Span 1 is 3-99, outside of the text"),
        ({"entities": [DecidedEntity(3, 3, "x")]}, "Span 1 is 3-3"),
        ({"entities": [DecidedEntity(3, 4, " ")]}, "no label"),
        ({"decision": Decision("guess", 0, 1, "x")}, "accept, reject, relabel, add, undo"),
        ({"also": [Decision("guess", 0, 1, "x")]}, "accept, reject, relabel, add, undo"),
        ({"also": [Decision("accept", 0, 99, "x")]}, "Span 4 is 0-99"),
        ({"state": "maybe"}, "open or reviewed"),
    ],
)
def test_what_does_not_fit_the_text_is_refused(changes: dict[str, Any], part: str, labels: LabelFile) -> None:
    with pytest.raises(BadInput, match=part):
        labels.append(decided(**changes))
    assert labels.path.read_bytes() == b""


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot be written"):
        LabelFile(tmp_path)


def test_browsers_append_at_the_same_time(tagger: Path, tmp_path: Path) -> None:
    with started(tagger, label=tmp_path / "labels.jsonl") as server:
        client = Client(server.url)
        body = {
            "text": TEXT,
            "entities": [{"start": 2, "end": 4, "label": "sign"}],
            "state": "reviewed",
            "decision": {"action": "add", "start": 2, "end": 4, "label": "sign"},
        }
        calls = [in_background(client.post, "/v1/decisions", {**body, "id": str(number)}) for number in range(8)]
        assert [call.result.status for call in calls] == [200] * 8
        downloaded = client.get("/v1/labels")
        assert sorted(record["id"] for record in downloaded.lines) == list("01234567")
        assert client.get("/v1/models").json["keeps_labels"]
