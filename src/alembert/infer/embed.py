"""`embed encode` and what `embed search` opens: a corpus of any size to vectors on the disk, and back to its texts.

What an index is made of: the documents or sentences of files, or of a Corpus, one after the other. A chunk of the input
(`stream_job`) is computed whole: its texts are packed into batches without padding, one stream of batches a core. Its
vectors and units are then appended to files that a kill cannot spoil.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import split_into_sentences
from alembert.corpus.document import Document, Span
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.infer.embedder import Embedder, ModelOrigin
from alembert.infer.index import (
    CONFIG_FILE,
    FORMAT,
    INT8_COPY_FILE,
    KIND,
    ROW_DTYPE,
    ROWS_FILE,
    UNITS_FILE,
    VECTOR_DTYPES,
    VECTORS_FILE,
    IndexConfig,
    StoredVectors,
    TextUnit,
    VectorIndex,
    npy_header,
    to_stored,
    unit_line,
)
from alembert.infer.stream import InputItem
from alembert.infer.stream_job import SET_ASIDE_FILE, Ledger, StreamJob, StreamRun, count_set_aside, set_aside_lines
from alembert.tasks.example import Coverage
from alembert.text.language import detect_language

UnitKind = Literal["document", "sentence"]
_COUNT_NAMES: Final = (
    "documents",
    "set aside",
    "units",
    "characters",
    "tokens",
    "windows",
    "units in windows",
    "unknown pieces",
)


@dataclass(frozen=True, kw_only=True)
class EncodeSettings:
    """What becomes a vector, and how it is stored."""

    unit: UnitKind = "document"
    """One vector per document, or per sentence."""
    dtype: Literal["float32", "float16", "int8"] = "float32"
    """Type of the stored numbers; int8 has one scale per vector."""
    int8_copy: bool = False
    """Also write an int8 copy, a quarter of the size, for a faster first pass of the search."""
    chunk_characters: int = 200_000
    """Characters per chunk. A chunk is held in memory as a whole; a stopped run repeats the chunks under way."""
    format: str | None = None
    """Format of all inputs; none: detected for each file."""
    read: ReadOptions = field(default_factory=ReadOptions)
    """How files are read."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise BadSetting(f"`format` is {self.format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
        if self.int8_copy and self.dtype == "int8":
            raise BadSetting("The vectors are int8 already: a copy in int8 adds nothing. Leave one of them out.")
        if self.chunk_characters < 1:
            raise BadSetting(f"`chunk_characters` is {self.chunk_characters}; a chunk holds at least one.")


def encode(
    embedder: Embedder,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> StreamRun:
    """Make a vector of each document or sentence, or resume that where it was stopped; a complete result is left as it is."""
    return EmbeddingJob(embedder, settings or EncodeSettings()).run(
        inputs, out, overwrite=overwrite, on_progress=on_progress
    )


def open_embedder(index: VectorIndex, model: str | Path | None = None, device: str = "cpu") -> Embedder:
    """Open the model that made an index, or the same one at another place."""
    facts = index.facts
    folder = Path(model or facts.model)
    if not folder.is_dir():
        raise BadFile(
            f"The model of {index.folder} was at {folder}, and there is no folder now. Say where it is with --model."
            if model is None
            else f"There is no folder {folder}. Check the path."
        )
    if ModelOrigin.from_folder(folder).fingerprint != facts.fingerprint:
        raise BadFile(
            f"{folder} is not the model that made the vectors of {index.folder}, or it was changed since: vectors of "
            "two models cannot be compared. Name the right one with --model, or encode again."
        )
    return Embedder.open(folder, mode=facts.pooling["mode"], length=facts.length, device=device)


def select_units(item: InputItem, kind: UnitKind) -> InputItem:
    """Find what of a document becomes a vector; one without a word is set aside."""
    document = item.document
    if document is None:
        return item
    spans = _sentences(document, item.sentences) if kind == "sentence" else [(0, len(document.text))]
    units = tuple((start, end) for start, end in spans if document.text[start:end].strip())
    return replace(item, units=units) if units else item.reject("the text is blank")


def _sentences(document: Document, known: Sequence[Span] | None) -> Sequence[Span]:
    if known is not None:
        return known
    return list(split_into_sentences(document, document.language or detect_language(document.text)))


def iter_units(item: InputItem) -> Iterator[TextUnit]:
    """Yield the texts of an item that become vectors."""
    if item.document is not None:
        for start, end in item.units or ():
            yield TextUnit(item.document.id, item.source, start, end, item.document.text[start:end])


def count_item(item: InputItem) -> Mapping[str, int]:
    """Count a document, what was set aside, or a remark."""
    if item.set_aside:
        return count_set_aside(item.set_aside)
    return {"documents": 1} if item.document else item.remarks()


@dataclass(frozen=True, eq=False)
class EmbeddedChunk:
    """A chunk after the model."""

    items: Sequence[InputItem]
    units: Sequence[TextUnit]
    vectors: StoredVectors
    coverage: Coverage

    @property
    def amounts(self) -> dict[str, int]:
        return {"characters": self.coverage.characters}


class EmbeddingJob(StreamJob[EmbeddedChunk]):
    """Each chunk becomes rows of the index."""

    kind = KIND
    phase = "encoding"
    count_names = _COUNT_NAMES

    def __init__(self, embedder: Embedder, settings: EncodeSettings) -> None:
        super().__init__(settings.read, settings.format, settings.chunk_characters)
        self._embedder = embedder
        self._settings = settings

    def config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "model": self._embedder.origin.fingerprint,
            "pooling": asdict(self._embedder.pooling),
            "length": self._embedder.length,
            "settings": asdict(self._settings),
        }

    def file_heads(self, rows: int = 0) -> dict[str, bytes]:
        shape = (rows, self._embedder.pooling.dimension)
        heads = {
            VECTORS_FILE: npy_header(np.dtype(VECTOR_DTYPES[self._settings.dtype]), shape),
            ROWS_FILE: npy_header(ROW_DTYPE, (rows,)),
            UNITS_FILE: b"",
            SET_ASIDE_FILE: b"",
        }
        return heads | ({INT8_COPY_FILE: npy_header(np.dtype(np.int8), shape)} if self._settings.int8_copy else {})

    def begin(self, ledger: Ledger, counts: Mapping[str, int]) -> None:
        artifact.atomic_write(ledger.folder / CONFIG_FILE, self._index_config().to_bytes())

    def prepare(self, item: InputItem) -> InputItem:
        return select_units(item, self._settings.unit)

    def compute(self, chunk: Sequence[InputItem]) -> EmbeddedChunk:
        units = [unit for item in chunk for unit in iter_units(item)]
        embedded = self._embedder.embed([unit.text for unit in units])
        vectors = to_stored(embedded.vectors_ND, self._settings.dtype, copy=self._settings.int8_copy)
        return EmbeddedChunk(chunk, units, vectors, embedded.coverage)

    def write(self, result: EmbeddedChunk, ledger: Ledger, counts: Counter[str]) -> dict[str, bytes]:
        for item in result.items:
            counts.update(count_item(item))
        counts.update(_count_coverage(result.coverage))
        lines, vectors = [unit_line(unit) for unit in result.units], result.vectors
        vectors.rows["start"] = list(accumulate(map(len, lines), initial=ledger.size(UNITS_FILE)))[:-1]
        copy = {} if vectors.copy is None else {INT8_COPY_FILE: vectors.copy.tobytes()}
        return copy | {
            VECTORS_FILE: vectors.matrix.tobytes(),
            ROWS_FILE: vectors.rows.tobytes(),
            UNITS_FILE: b"".join(lines),
            SET_ASIDE_FILE: set_aside_lines(item.set_aside for item in result.items if item.set_aside),
        }

    def finish(self, ledger: Ledger, counts: Counter[str]) -> None:
        for name, head in self.file_heads(counts["units"]).items():
            ledger.overwrite_start(name, head)

    def _index_config(self) -> IndexConfig:
        embedder, settings = self._embedder, self._settings
        return IndexConfig(
            model=embedder.origin.model,
            fingerprint=embedder.origin.fingerprint,
            pooling=asdict(embedder.pooling),
            dimension=embedder.pooling.dimension,
            length=embedder.length,
            unit=settings.unit,
            dtype=settings.dtype,
            copy=settings.int8_copy,
        )


def _count_coverage(coverage: Coverage) -> dict[str, int]:
    return {
        "units": coverage.examples,
        "characters": coverage.characters,
        "tokens": coverage.tokens,
        "windows": coverage.windows,
        "units in windows": coverage.split_examples,
        "unknown pieces": coverage.unknown,
    }
