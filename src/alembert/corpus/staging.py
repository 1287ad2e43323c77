"""The state of an unfinished build: staged chunks, each whole or not there.

    .stage/00003/000012.parquet   documents of chunk 12 of input 3, before duplicates are taken out
    .stage/00003/000012.side      what the decision needs of them: a line of JSON, signatures, sizes, ids; written last
    .stage/00003/end              the number of chunks, written when the input was read to its end
    .stage/decisions.npy          for each document of all chunks, why it is dropped or that it is kept

Where a chunk ends depends on the input alone, so every worker, before or after a kill, makes the same chunks; one whose
side file exists is not made again. Side files are small: the decision over all documents reads them one by one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alembert import artifact
from alembert.corpus.chunks import Chunk, Citation, compute_sizes, to_set_aside_records
from alembert.corpus.document import Document
from alembert.corpus.duplicates import SIGNATURE_BYTES
from alembert.corpus.readers import Item
from alembert.corpus.settings import BuildSettings
from alembert.corpus.store import to_bytes, to_table

SIZE_NAMES = ("sentences", "words", "characters", "gold entities")
"""The counts of each document, before those of the entities of each lexicon."""


@dataclass(frozen=True)
class ChunkSidecar:
    """The side file of a chunk."""

    counts: dict[str, int]
    citations: list[Citation]
    set_aside: list[dict[str, str | None]]
    annotated: list[int]
    """Numbers of the documents with annotations of the input."""
    matched: list[int]
    """Entries of the gazetteer that were found."""
    signatures: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    keys: NDArray[np.uint64]
    """A hash of the id of each document."""


@dataclass(frozen=True)
class ChunkStore:
    """The folder of staged chunks of a build; `labels` are those of its lexicons."""

    folder: Path
    labels: tuple[str, ...]

    def prepare(self, inputs: int) -> None:
        for number in range(inputs):
            self._input(number).mkdir(parents=True, exist_ok=True)

    def has(self, file: int, chunk: int) -> bool:
        return self._path(file, chunk, "side").exists()

    def get_chunk_count(self, file: int) -> int | None:
        """Return the number of chunks of an input that was read to its end, if all of them exist."""
        try:
            chunks = int((self._input(file) / "end").read_text())
        except FileNotFoundError:
            return None
        return chunks if all(self.has(file, chunk) for chunk in range(chunks)) else None

    def mark_complete(self, file: int, chunks: int) -> None:
        artifact.atomic_write(self._input(file) / "end", str(chunks).encode())

    def write_chunk(self, file: int, number: int, chunk: Chunk) -> None:
        """Write a chunk; it counts as done when its side file is there."""
        artifact.atomic_write(self.get_documents_path(file, number), to_bytes(to_table(chunk.entries)))
        head = {
            "counts": dict(sorted(chunk.counts.items())),
            "citations": [asdict(citation) for citation in chunk.citations],
            "set_aside": to_set_aside_records(chunk.set_aside),
            "annotated": [n for n, entry in enumerate(chunk.entries) if entry.document.is_annotated],
            "matched": sorted(chunk.matched),
        }
        sizes = [compute_sizes(entry, self.labels) for entry in chunk.entries]
        content = json.dumps(head).encode() + b"\n" + b"".join(chunk.signatures)
        content += np.array(sizes, dtype=np.int32).tobytes()
        content += np.array([hash_id(entry.document.id) for entry in chunk.entries], dtype=np.uint64).tobytes()
        artifact.atomic_write(self._path(file, number, "side"), content)

    def read_sidecar(self, file: int, number: int) -> ChunkSidecar:
        """Read what the decision needs of a chunk."""
        line, _, rest = self._path(file, number, "side").read_bytes().partition(b"\n")
        head = json.loads(line)
        columns = len(SIZE_NAMES) + len(self.labels)
        documents = len(rest) // (SIGNATURE_BYTES + 4 * columns + 8)
        border, last = documents * SIGNATURE_BYTES, documents * (SIGNATURE_BYTES + 4 * columns)
        return ChunkSidecar(
            head["counts"],
            [Citation(**citation) for citation in head["citations"]],
            head["set_aside"],
            head.get("annotated", []),  # a build that an earlier version began has none
            head["matched"],
            np.frombuffer(rest[:border], dtype=np.uint8).reshape(documents, SIGNATURE_BYTES),
            np.frombuffer(rest[border:last], dtype=np.int32).reshape(documents, columns),
            np.frombuffer(rest[last:], dtype=np.uint64),
        )

    def get_documents_path(self, file: int, number: int) -> Path:
        return self._path(file, number, "parquet")

    def _input(self, file: int) -> Path:
        return self.folder / f"{file:05}"

    def _path(self, file: int, number: int, ending: str) -> Path:
        return self._input(file) / f"{number:06}.{ending}"


def hash_id(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def split_into_chunks(items: Iterator[Item], settings: BuildSettings) -> Iterator[Sequence[Item]]:
    """Cut the items of an input into chunks; a translation stays with the citation before it."""
    chunk: list[Item] = []
    characters = 0
    for item in items:
        full = characters >= settings.part_characters or len(chunk) >= settings.part_documents
        if full and not (isinstance(item, Document) and "translation_of" in item.meta):
            yield chunk
            chunk, characters = [], 0
        chunk.append(item)
        characters += len(item.text) if isinstance(item, Document) else 0
    if chunk:
        yield chunk
