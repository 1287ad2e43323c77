"""A job over a stream: what is read, computed and written at the same time, and what a stopped run leaves."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.jobs import Progress
from alembert.infer.embed import EncodeSettings, encode
from alembert.infer.embedder import EmbeddedTexts
from alembert.infer.stream_job import LEDGER_FILE, Ledger
from scripted_embedder import Scripted

PATIENCE = 60
ONE_EACH = EncodeSettings(chunk_characters=1)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(f"{json.dumps({'id': f'd{n}', 'text': f'Text number {n}.'})}\n" for n in range(8)))
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@dataclass(frozen=True)
class Meeting(Scripted):
    """Computes a chunk only while another one is computed as well."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=PATIENCE))

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        self.barrier.wait()
        return super().embed(texts)


def test_two_chunks_are_under_way_and_come_out_in_order(docs: Path, tmp_path: Path) -> None:
    encode(Meeting(), [docs], tmp_path / "together", ONE_EACH)
    encode(Scripted(), [docs], tmp_path / "plain", ONE_EACH)
    assert content(tmp_path / "together") == content(tmp_path / "plain")


@dataclass(frozen=True)
class Announcing(Scripted):
    """Says when it computes a text."""

    computing: threading.Event = field(default_factory=threading.Event)

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        if "Text number 2." in texts:
            self.computing.set()
        return super().embed(texts)


def test_a_chunk_is_written_while_others_are_computed(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, append, seen = Announcing(), Ledger.append, []

    def waiting_append(ledger: Ledger, blocks: dict[str, bytes], state: Any) -> None:
        seen.append(embedder.computing.wait(PATIENCE))
        append(ledger, blocks, state)

    monkeypatch.setattr(Ledger, "append", waiting_append)
    encode(embedder, [docs], tmp_path / "v", ONE_EACH)
    assert seen == [True] * 8


def test_an_error_of_the_writer_ends_the_run_and_the_same_call_resumes_it(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(ledger: Ledger, blocks: dict[str, bytes], state: Any) -> None:
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", broken)
        with pytest.raises(RuntimeError, match="the disk is gone"):
            encode(Scripted(), [docs], tmp_path / "v", ONE_EACH)
    assert encode(Scripted(), [docs], tmp_path / "v", ONE_EACH).added["units"] == 8


class _Stopped(Exception):
    pass


def stop_half_way(progress: Progress) -> None:
    if 2 * progress.done > progress.total:
        raise _Stopped


@pytest.mark.parametrize("names", [("place", "done", "counts"), ("place", "counts")])
def test_a_stopped_run_is_resumed_from_its_record(docs: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    # Records of version 0.1 did not say how far an encoding has come.
    encode(Scripted(), [docs], tmp_path / "quiet", ONE_EACH)
    with pytest.raises(_Stopped):
        encode(Scripted(), [docs], tmp_path / "v", ONE_EACH, on_progress=stop_half_way)
    ledger = tmp_path / "v.partial" / LEDGER_FILE
    record = json.loads(ledger.read_bytes())
    assert set(record["state"]) == {"place", "done", "counts"}
    ledger.write_text(json.dumps(record | {"state": {name: record["state"][name] for name in names}}))
    result = encode(Scripted(), [docs], tmp_path / "v", ONE_EACH)
    assert content(tmp_path / "v") == content(tmp_path / "quiet")
    assert 0 < result.added["units"] == 8 - record["state"]["counts"]["units"] < 8


def test_progress_begins_at_nothing_and_ends_at_the_total(docs: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    encode(Scripted(), [docs], tmp_path / "v", ONE_EACH, on_progress=told.append)
    assert (told[0].done, told[-1].done, told[-1].total) == (0, docs.stat().st_size, docs.stat().st_size)
    assert told[-1].characters == 8 * len("Text number 0.")
