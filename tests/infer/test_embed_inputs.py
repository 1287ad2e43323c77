"""`embed encode` reads whatever `annotate` reads: folders, patterns, compressed files, standard input, object stores."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from alembert import artifact
from alembert.infer.embed import EncodeSettings, encode
from alembert.infer.index import VectorIndex
from fake_s3 import FakeS3, serving
from scripted_embedder import Scripted

SETTINGS = EncodeSettings(unit="sentence", chunk_characters=100)


def lines(first: int, last: int) -> bytes:
    records = [{"id": f"d{n}", "text": f"Case {n} has aspirin. It helps."} for n in range(first, last)]
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with documents in files of several kinds."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(0, 6), mtime=0))
    (folder / "b.jsonl").write_bytes(lines(6, 12) + b"{broken\n")
    (folder / "deep/c.jsonl").write_bytes(lines(12, 15))
    return folder


def ids(folder: Path) -> list[str]:
    index = VectorIndex.open(folder)
    return [index.read_unit(row).id for row in range(0, len(index), 2)]


def content(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which names the inputs."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != artifact.MANIFEST}


@pytest.mark.parametrize(
    ("select", "last"),
    [
        (lambda notes: [notes], 15),
        (lambda notes: [notes / "*.jsonl*", notes / "deep"], 15),
        (lambda notes: [str(notes / "**/*.jsonl*")], 15),
        (lambda notes: [notes / "a.jsonl.gz"], 6),
    ],
)
def test_folders_patterns_and_compressed_files(
    notes: Path, tmp_path: Path, select: Callable[[Path], list[str | Path]], last: int
) -> None:
    result = encode(Scripted(), select(notes), tmp_path / "v", SETTINGS)
    assert ids(tmp_path / "v") == [f"d{n}" for n in range(last)]
    assert result.manifest.counts["set aside"] == (last > 6)


def test_zstandard(notes: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with pyarrow.CompressedOutputStream(str(tmp_path / "a.jsonl.zst"), "zstd") as file:
        file.write(lines(0, 6))
    encode(Scripted(), [tmp_path / "a.jsonl.zst"], tmp_path / "v", SETTINGS)
    assert ids(tmp_path / "v") == [f"d{n}" for n in range(6)]


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(0, 6))))
    encode(Scripted(), ["-"], tmp_path / "v", SETTINGS)
    assert ids(tmp_path / "v") == [f"d{n}" for n in range(6)]


def test_objects_in_a_store_give_the_bytes_of_files(notes: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    encode(Scripted(), [notes], tmp_path / "near", SETTINGS)
    with serving(FakeS3()) as store:
        store.put(notes, "data/notes/")
        address = f"s3://me:secret@bucket/data/notes/?scheme=http&endpoint_override=127.0.0.1:{store.port}"
        result = encode(Scripted(), [address], tmp_path / "far", SETTINGS)
    assert content(tmp_path / "far") == content(tmp_path / "near")
    assert [each.name for each in result.manifest.inputs] == [
        f"s3://bucket/data/notes/{name}" for name in ("a.jsonl.gz", "b.jsonl", "deep/c.jsonl")
    ]
