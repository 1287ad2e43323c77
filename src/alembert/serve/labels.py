"""Reviewed entities: decisions of people in a file of JSON lines, and their texts as files to save.

Each line is whole by itself: the text, its entities as they are by now, what was decided, by whom and when. A line is
appended in one write under a lock, so that several processes and browsers may share a file; the rest of a line that was
cut off by a crash is ended first. The last line of a text counts. Reviewed texts are training data as they stand.

Texts are saved in formats of the corpus (docs/formats.md), with a count of what the format cannot hold. brat, which is a
folder, becomes a zip file. What a client sent is never quoted in an error.
"""

from __future__ import annotations

import datetime
import fcntl
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembert.artifact.disk import describe_os_error
from alembert.corpus.document import Document, from_record
from alembert.corpus.writers import write
from alembert.errors import BadFile, BadInput
from alembert.serve.wire import DecidedEntity, Decision, DecisionRequest

ACTIONS: Final = ("accept", "reject", "relabel", "add", "undo")
STATES: Final = ("open", "reviewed")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class LabelFile:
    """A file of decisions."""

    def __init__(self, path: Path, now: Callable[[], str] = _now) -> None:
        """Open a file, or make it; one that cannot be written is refused at once."""
        self.path = path
        self._now = now
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(self._open())
        except OSError as problem:
            raise BadFile(f"--label {path} cannot be written: {describe_os_error(problem)}") from None

    def append(self, request: DecisionRequest) -> dict[str, Any]:
        """Check a decision and append it; return the line as a record."""
        check_decision(request)
        record = {
            "id": request.id,
            "text": request.text,
            "entities": [{"start": e.start, "end": e.end, "label": e.label} for e in request.entities],
            "state": request.state,
            "decision": _to_dict(request.decision),
            **({"also": list(map(_to_dict, request.also))} if request.also else {}),
            "by": request.by,
            "at": self._now(),
        }
        self._append_line(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        return record

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)

    def _append_line(self, line: bytes) -> None:
        file = None
        try:
            file = self._open()
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            is_cut_off = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            written = os.write(file, b"\n" + line if is_cut_off else line)
            if written < len(line):
                os.ftruncate(file, size)
                raise OSError(28, "the disk is full")
            os.fsync(file)
        except OSError as problem:
            raise BadFile(f"The decision was not saved: {describe_os_error(problem)}") from None
        finally:
            if file is not None:
                os.close(file)

    def read_reviewed(self) -> list[dict[str, Any]]:
        """Return the last state of each text whose entities are all decided, as training data."""
        last: dict[str, dict[str, Any]] = {}
        try:
            for record in self._records():
                last[record["id"]] = record
        except OSError as problem:
            raise BadFile(f"The decisions cannot be read: {describe_os_error(problem)}") from None
        return [to_training_record(record) for record in last.values() if record["state"] == "reviewed"]

    def _records(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:  # a line that a crash cut off
                    continue
                if isinstance(record, dict) and {"id", "text", "entities", "state"} <= record.keys():
                    yield record


def _to_dict(decision: Decision) -> dict[str, Any]:
    return {name: value for name in decision.__struct_fields__ if (value := getattr(decision, name)) != ""}


def to_training_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `alembert finetune --task tag` reads of a record.

    >>> to_training_record({"id": "1", "text": "Fever", "entities": [{"start": 0, "end": 5, "label": "sign"}], "by": "A"})
    {'id': '1', 'text': 'Fever', 'entities': [{'id': 'T1', 'label': 'sign', 'spans': [[0, 5]]}]}
    """
    entities = [
        {"id": f"T{number}", "label": entity["label"], "spans": [[entity["start"], entity["end"]]]}
        for number, entity in enumerate(record["entities"], 1)
    ]
    return {"id": record["id"], "text": record["text"], "entities": entities}


def check_decision(request: DecisionRequest) -> None:
    """Refuse a decision that does not fit its text."""
    if any(each.action not in ACTIONS for each in (request.decision, *request.also)):
        raise BadInput(f"The decision is of no known kind; expected {', '.join(ACTIONS)}.")
    if request.state not in STATES:
        raise BadInput(f"The state of the text is not known; expected {' or '.join(STATES)}.")
    spans: list[DecidedEntity | Decision] = [*request.entities, request.decision, *request.also]
    for number, entity in enumerate(spans, 1):
        if not 0 <= entity.start < entity.end <= len(request.text):
            raise BadInput(
                f"Span {number} is {entity.start}-{entity.end}, outside of the text with {len(request.text):,} characters. "
                "Offsets count Unicode code points from 0."
            )
        if not entity.label.strip():
            raise BadInput(f"Span {number} has no label.")


# -- files to save

FILE_NAMES: Final = {
    "jsonl": ("labels.jsonl", "application/x-ndjson"),
    "brat": ("labels-brat.zip", "application/zip"),
    "pubtator": ("labels.pubtator.txt", "text/plain"),
    "conll": ("labels.conll", "text/plain"),
    "label-studio": ("labels-label-studio.json", "application/json"),
    "bioc-json": ("labels.bioc.json", "application/json"),
    "bioc-xml": ("labels.bioc.xml", "application/xml"),
}
"""Formats that a browser can save: the name and the media type of the file."""
_ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SavedFile:
    """A file for a browser to save."""

    name: str
    media_type: str
    content: bytes
    losses: Mapping[str, int]
    """What the format could not hold, counted by reason."""


def export_records(records: Sequence[Mapping[str, Any]], format_name: str) -> SavedFile:
    """Write records in a format."""
    if format_name not in FILE_NAMES:
        raise BadInput(f"`format` is not one of {', '.join(FILE_NAMES)}.")
    documents = list(_read_documents(records))
    name, media_type = FILE_NAMES[format_name]
    content, losses = _write_zip(documents) if format_name == "brat" else _write_stream(documents, format_name)
    return SavedFile(name, media_type, content, losses)


def _read_documents(records: Sequence[Mapping[str, Any]]) -> Iterator[Document]:
    for number, record in enumerate(records, 1):
        try:
            document = from_record(record)
            document.text.encode()
        except (BadInput, UnicodeError):
            raise BadInput(
                f"Document {number} cannot be read. It needs `id` and `text` in valid Unicode, and entities with `id`, "
                "`label` and `spans` inside the text, as docs/formats.md shows."
            ) from None
        yield document


def _write_stream(documents: Sequence[Document], format_name: str) -> tuple[bytes, Mapping[str, int]]:
    stream = io.BytesIO()
    losses = write(documents, stream, format_name)
    return stream.getvalue(), losses


def _write_zip(documents: Sequence[Document]) -> tuple[bytes, Mapping[str, int]]:
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        losses = write(documents, Path(folder) / "labels", "brat")
        for path in sorted(Path(folder, "labels").iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name, _ZIP_DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue(), losses
