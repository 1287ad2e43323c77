"""`embed encode` and what `embed search` opens: a corpus of any size to vectors on the disk, and back to its texts.

Inputs are read as a stream and cut into chunks, whose borders depend on the input alone. A chunk is computed whole: its
texts are packed into batches without padding, one stream of batches a core. Its vectors and units are then appended to
files that a kill cannot spoil (`ledger`). So memory is that of one chunk, a stopped run loses one chunk at most,
and the same command goes on to the bytes of a run that was not stopped.

What an index is made of: the documents or sentences of files, or of a Corpus, one after the other.

In: paths, and how to read them. Out: portions, one for each item of an input (`stream`), with the units that came of it
and what could not be used.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import generalise_reason, split_into_sentences, to_set_aside_records
from alembert.corpus.document import Document, Span
from alembert.corpus.fetch import fetch_inputs
from alembert.corpus.inputs import InputFiles, list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import FORMATS, ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadSetting
from alembert.infer import stream
from alembert.infer.embedder import EmbeddedTexts, Embedder, ModelOrigin
from alembert.infer.index import (
    CONFIG_FILE,
    FORMAT,
    INT8_COPY_FILE,
    KIND,
    ROW_DTYPE,
    ROWS_FILE,
    SET_ASIDE_FILE,
    UNITS_FILE,
    VECTOR_DTYPES,
    VECTORS_FILE,
    IndexConfig,
    TextUnit,
    VectorIndex,
    to_stored,
    unit_line,
)
from alembert.infer.stream import (
    InputItem,
    InputStream,
    Ledger,
    StreamPosition,
    iter_chunks,
    json_line,
    npy_header,
)
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.example import Coverage
from alembert.text.language import detect_language

UnitKind = Literal["document", "sentence"]


@dataclass(frozen=True)
class UnitItem:
    """What one item of an input gave, and where reading stands behind it."""

    place: StreamPosition
    done: int
    """How far that is, in the measure of `Supply.total`."""
    units: tuple[TextUnit, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def characters(self) -> int:
        return sum(len(unit.text) for unit in self.units)


@dataclass(frozen=True)
class UnitStream:
    """Inputs as the units that they are made of."""

    supply: InputStream
    unit: UnitKind

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""
        return self.supply.total

    def read_from(self, after: StreamPosition) -> Iterator[UnitItem]:
        """Give what follows a place."""
        return map(partial(_to_unit_item, self.unit), self.supply.read_from(after))


def open_unit_stream(
    inputs: InputFiles,
    unit: UnitKind,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> UnitStream:
    """Take one Corpus folder, or files of any format that has a reader."""
    return UnitStream(stream.open_input_stream(inputs, options, format), unit)


def _to_unit_item(unit: UnitKind, taken: InputItem) -> UnitItem:
    item, place, done = taken.item, taken.position, taken.progress
    if isinstance(item, Document):
        spans = _sentences(item, taken.sentences) if unit == "sentence" else _whole_document(item)
        return _document_item(item, taken.source, spans, place, done)
    if isinstance(item, SetAside):
        aside = SetAside(taken.source, item.position, item.id, item.reason, item.kind)
        return UnitItem(place, done, set_aside=(aside,), counts=_count_set_aside(aside))
    if isinstance(item, Remark):
        return UnitItem(place, done, counts={f"remark: {item.reason}": item.count})
    return UnitItem(place, done, counts={"deletions not applied": 1})


def _document_item(
    document: Document, source: str, spans: Sequence[Span], place: StreamPosition, done: int
) -> UnitItem:
    units = tuple(
        TextUnit(document.id, source, start, end, document.text[start:end])
        for start, end in spans
        if not document.text[start:end].isspace()
    )
    if units:
        return UnitItem(place, done, units, counts={"documents": 1})
    aside = SetAside(source, f"item {place.items}", document.id, "the text is blank")
    return UnitItem(place, done, set_aside=(aside,), counts=_count_set_aside(aside))


def _whole_document(document: Document) -> list[Span]:
    return [(0, len(document.text))] if document.text else []


def _sentences(document: Document, known: Sequence[Span] | None) -> Sequence[Span]:
    if known is not None:
        return known
    return list(split_into_sentences(document, document.language or detect_language(document.text)))


def _count_set_aside(aside: SetAside) -> dict[str, int]:
    return {"set aside": 1, f"set aside: {generalise_reason(aside.reason)}": 1}


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
    """What one vector is of: a document or a sentence."""
    dtype: Literal["float32", "float16", "int8"] = "float32"
    """Numbers of the matrix; int8 has one scale a row."""
    int8_copy: bool = False
    """Also write an int8 copy, a quarter of the size, which a search can look through first."""
    chunk_characters: int = 200_000
    """Text that is computed together: what a stopped run can lose, and what is held in memory."""
    format: str | None = None
    """Format of all inputs; recognised for each when not given."""
    read: ReadOptions = field(default_factory=ReadOptions)
    """How files are read."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise BadSetting(f"`format` is {self.format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
        if self.int8_copy and self.dtype == "int8":
            raise BadSetting("The vectors are int8 already: a copy in int8 adds nothing. Leave one of them out.")
        if self.chunk_characters < 1:
            raise BadSetting(f"`chunk_characters` is {self.chunk_characters}; a chunk holds at least one.")


class TextEmbedder(Protocol):
    """What makes vectors of texts (`Embedder`)."""

    @property
    def pooling(self) -> Pooling: ...

    @property
    def origin(self) -> ModelOrigin: ...

    @property
    def length(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts: ...


@dataclass(frozen=True)
class EmbeddingRun:
    """Finished vectors; `fresh` is False if they were complete before."""

    manifest: artifact.Manifest
    fresh: bool
    units: int = 0
    """Vectors that this run made, without those of a run that it went on with."""
    seconds: float = 0.0
    """What that took."""
    notes: tuple[str, ...] = ()
    """What a user should know about the inputs."""


def encode(
    embedder: TextEmbedder,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    overwrite: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> EmbeddingRun:
    """Make a vector of each document or sentence, or go on where that was stopped; a complete result is left as it is."""
    settings = settings or EncodeSettings()
    with fetch_inputs(inputs, out, tell) as given:
        files = list_input_files(given.paths, out=out, get_display_name=given.get_display_name, format=settings.format)
        supply = open_unit_stream(files, settings.unit, settings.read, settings.format)
        origins = given.to_manifest_inputs(files.contents)
        plan: dict[str, Any] = {"config": _config(embedder, settings), "inputs": origins}
        if done := artifact.find_finished(out, KIND, **plan):
            return EmbeddingRun(done, fresh=False, notes=tuple(files.notes()))
        with artifact.create(out, KIND, resume=True, overwrite=overwrite, **plan) as draft:
            job = _EmbeddingJob(draft.path, embedder, settings, tell)
            draft.counts.update(job.run(supply))
    manifest, notes = artifact.open_artifact(out, KIND), tuple(files.notes())
    return EmbeddingRun(manifest, fresh=True, units=job.fresh, seconds=job.seconds, notes=notes)


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


def _config(embedder: TextEmbedder, settings: EncodeSettings) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": embedder.origin.fingerprint,
        "pooling": asdict(embedder.pooling),
        "length": embedder.length,
        "settings": asdict(settings),
    }


class _EmbeddingJob:
    """One run."""

    def __init__(
        self, folder: Path, embedder: TextEmbedder, settings: EncodeSettings, tell: Callable[[Progress], None]
    ) -> None:
        self.fresh = 0
        self.seconds = 0.0
        self._folder = folder
        self._embedder = embedder
        self._settings = settings
        self._tell = tell
        self._width = embedder.pooling.dimension

    def run(self, supply: UnitStream) -> dict[str, int]:
        """Encode what is left, and give all counts."""
        began, total = time.perf_counter(), supply.total
        artifact.atomic_write(self._folder / CONFIG_FILE, self._facts().to_bytes())
        with Ledger(self._folder, self._heads(0)) as ledger:
            place, counts = _read_progress(ledger)
            characters = 0
            for chunk in iter_chunks(supply.read_from(place), self._settings.chunk_characters):
                characters += self._add(chunk, ledger, counts)
                self._tell(Progress("encoding", chunk[-1].done, total, characters))
            for name, head in self._heads(counts["units"]).items():
                ledger.overwrite_start(name, head)
        self.seconds = time.perf_counter() - began
        return dict(counts)

    def _add(self, chunk: Sequence[UnitItem], ledger: Ledger, counts: Counter[str]) -> int:
        """Encode a chunk and append it; give its characters."""
        units = [unit for portion in chunk for unit in portion.units]
        embedded = self._embedder.embed([unit.text for unit in units])
        numbers = to_stored(embedded.vectors_ND, self._settings.dtype, copy=self._settings.int8_copy)
        lines = [unit_line(unit) for unit in units]
        ends = list(accumulate(map(len, lines), initial=ledger.size(UNITS_FILE)))
        numbers.rows["start"] = ends[:-1]
        asides = to_set_aside_records([each for portion in chunk for each in portion.set_aside])
        blocks = {
            VECTORS_FILE: numbers.matrix.tobytes(),
            ROWS_FILE: numbers.rows.tobytes(),
            UNITS_FILE: b"".join(lines),
            SET_ASIDE_FILE: b"".join(json_line(record) for record in asides),
        }
        if numbers.copy is not None:
            blocks[INT8_COPY_FILE] = numbers.copy.tobytes()
        _update_counts(counts, chunk, embedded.coverage)
        ledger.annotate(blocks, {"place": chunk[-1].place, "counts": counts})
        self.fresh += len(units)
        return embedded.coverage.characters

    def _heads(self, rows: int) -> dict[str, bytes]:
        """Give with what each file begins, if it has so many rows."""
        shape = (rows, self._width)
        heads = {
            VECTORS_FILE: npy_header(np.dtype(VECTOR_DTYPES[self._settings.dtype]), shape),
            ROWS_FILE: npy_header(ROW_DTYPE, (rows,)),
            UNITS_FILE: b"",
            SET_ASIDE_FILE: b"",
        }
        return heads | ({INT8_COPY_FILE: npy_header(np.dtype(np.int8), shape)} if self._settings.int8_copy else {})

    def _facts(self) -> IndexConfig:
        embedder, settings = self._embedder, self._settings
        return IndexConfig(
            model=embedder.origin.model,
            fingerprint=embedder.origin.fingerprint,
            pooling=asdict(embedder.pooling),
            dimension=self._width,
            length=embedder.length,
            unit=settings.unit,
            dtype=settings.dtype,
            copy=settings.int8_copy,
        )


def _read_progress(ledger: Ledger) -> tuple[StreamPosition, Counter[str]]:
    counts = Counter(dict.fromkeys(_COUNT_NAMES, 0))
    if ledger.state is None:
        return StreamPosition(), counts
    counts.update(ledger.state["counts"])
    return StreamPosition(*ledger.state["place"]), counts


def _update_counts(counts: Counter[str], chunk: Sequence[UnitItem], coverage: Coverage) -> None:
    for portion in chunk:
        counts.update(portion.counts)
    counts.update(
        {
            "units": coverage.examples,
            "characters": coverage.characters,
            "tokens": coverage.tokens,
            "windows": coverage.windows,
            "units in windows": coverage.split_examples,
            "unknown pieces": coverage.unknown,
        }
    )
