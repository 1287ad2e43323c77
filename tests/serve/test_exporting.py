"""Documents as files: every format that a browser can save, and refusals that repeat nothing."""

import io
import json
import zipfile
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput
from alembert.serve.labels import FILE_NAMES, LabelFile, export_records
from alembert.tasks.task import get_task_class
from serving import Client, started

TEXT = "😀 咳嗽 after aspirin 👩‍⚕️."
RECORD = {
    "id": "a/b",
    "text": TEXT,
    "entities": [{"id": "T1", "label": "sign", "spans": [[2, 4]], "attributes": [["state", "accepted"]]}],
}


@pytest.mark.parametrize("name", FILE_NAMES)
def test_every_format_has_the_entity(name: str) -> None:
    saved = export_records([RECORD], name)
    content = saved.content
    if name == "brat":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"".join(map(archive.read, archive.namelist()))
    assert "咳".encode() in content or b"\\u54b3" in content
    assert b"sign" in content


def test_json_lines_are_training_data(tmp_path: Any) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_bytes(export_records([RECORD], "jsonl").content)
    tag = get_task_class("tag")
    (example,) = tag.read([file], tag.settings_class(), ReadOptions()).examples
    assert [TEXT[start:end] for start, end, *_ in example.entities] == ["咳嗽"]


def test_the_same_documents_give_the_same_bytes() -> None:
    assert export_records([RECORD], "brat") == export_records([RECORD], "brat")


@pytest.mark.parametrize(
    "record",
    [
        {"id": "x"},
        {**RECORD, "text": "canary \ud800"},
        {**RECORD, "entities": [{"id": "canary", "label": "x", "spans": [[3, 99]]}]},
        {**RECORD, "relations": [{"id": "R", "label": "x", "arguments": [["a", "canary"]]}]},
    ],
)
def test_what_is_wrong_is_refused_without_repeating_it(record: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="Document 2 cannot be read") as refusal:
        export_records([RECORD, record], "jsonl")
    assert "canary" not in str(refusal.value)


def test_the_routes_answer_files(tagger: Any, tmp_path: Any) -> None:
    labels = LabelFile(tmp_path / "labels.jsonl")
    reviewed = {"id": "a", "text": "fever", "entities": [{"start": 0, "end": 5, "label": "sign"}], "state": "reviewed"}
    labels.path.write_text(json.dumps(reviewed) + "\n")
    with started(tagger, label=labels.path) as server:
        client = Client(server.url)
        converted = client.post("/v1/convert", {"documents": [RECORD], "format": "conll"})
        assert converted.headers["content-disposition"] == 'attachment; filename="labels.conll"'
        assert json.loads(converted.headers["alembert-losses"])
        assert "咳\tB-sign" in converted.body.decode()
        assert client.get("/v1/labels?format=pubtator").body.endswith(b"a\t0\t5\tfever\tsign\t\n\n")
        refused = client.post("/v1/convert", {"documents": [RECORD], "format": "canary"})
        assert refused.status == 422
        assert "canary" not in refused.sentence
