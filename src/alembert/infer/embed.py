"""`embed encode` and what `embed search` opens: a corpus of any size to vectors on the disk, and back to its texts.

Inputs are read as a stream and cut into chunks, whose borders depend on the input alone. A chunk is computed whole: its
texts are packed into batches without padding, one stream of batches a core. Its vectors and units are then appended to
files that a kill cannot spoil (`ledger`). So memory is that of one chunk, a stopped run loses one chunk at most,
and the same command goes on to the bytes of a run that was not stopped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import to_set_aside_records
from alembert.corpus.fetch import fetch_inputs
from alembert.corpus.inputs import list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.infer.embed_model import Embedded, Embedder, Origin
from alembert.infer.embed_numbers import ROW, TYPES, stored
from alembert.infer.embed_store import (
    COPY,
    FACTS,
    FORMAT,
    KIND,
    MATRIX,
    ROWS,
    SET_ASIDE,
    UNITS,
    Facts,
    Index,
    unit_line,
)
from alembert.infer.embed_units import Portion, UnitKind, UnitSupply, supply_of
from alembert.infer.ledger import Ledger, json_line, npy_head
from alembert.infer.supply import Place, chunks
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.example import Coverage

_ALWAYS: Final = (
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


class Embeds(Protocol):
    """What makes vectors of texts (`Embedder`)."""

    @property
    def pooling(self) -> Pooling: ...

    @property
    def origin(self) -> Origin: ...

    @property
    def length(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Embedded: ...


@dataclass(frozen=True)
class Result:
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
    embedder: Embeds,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: EncodeSettings | None = None,
    *,
    overwrite: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Make a vector of each document or sentence, or go on where that was stopped; a complete result is left as it is."""
    settings = settings or EncodeSettings()
    with fetch_inputs(inputs, out, tell) as given:
        files = list_input_files(given.paths, out=out, called=given.called, format=settings.format)
        supply = supply_of(files, settings.unit, settings.read, settings.format)
        origins = given.recorded(files.contents)
        plan: dict[str, Any] = {"config": _config(embedder, settings), "inputs": origins}
        if done := artifact.find_finished(out, KIND, **plan):
            return Result(done, fresh=False, notes=tuple(files.notes()))
        with artifact.create(out, KIND, resume=True, overwrite=overwrite, **plan) as draft:
            job = _Encoding(draft.path, embedder, settings, tell)
            draft.counts.update(job.run(supply))
    manifest, notes = artifact.open_artifact(out, KIND), tuple(files.notes())
    return Result(manifest, fresh=True, units=job.fresh, seconds=job.seconds, notes=notes)


def embedder_of(index: Index, model: str | Path | None = None, device: str = "cpu") -> Embedder:
    """Open the model that made an index, or the same one at another place."""
    facts = index.facts
    folder = Path(model or facts.model)
    if not folder.is_dir():
        raise BadFile(
            f"The model of {index.folder} was at {folder}, and there is no folder now. Say where it is with --model."
            if model is None
            else f"There is no folder {folder}. Check the path."
        )
    if Origin.of(folder).fingerprint != facts.fingerprint:
        raise BadFile(
            f"{folder} is not the model that made the vectors of {index.folder}, or it was changed since: vectors of "
            "two models cannot be compared. Name the right one with --model, or encode again."
        )
    return Embedder.open(folder, mode=facts.pooling["mode"], length=facts.length, device=device)


def _config(embedder: Embeds, settings: EncodeSettings) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": embedder.origin.fingerprint,
        "pooling": asdict(embedder.pooling),
        "length": embedder.length,
        "settings": asdict(settings),
    }


class _Encoding:
    """One run."""

    def __init__(
        self, folder: Path, embedder: Embeds, settings: EncodeSettings, tell: Callable[[Progress], None]
    ) -> None:
        self.fresh = 0
        self.seconds = 0.0
        self._folder = folder
        self._embedder = embedder
        self._settings = settings
        self._tell = tell
        self._width = embedder.pooling.dimension

    def run(self, supply: UnitSupply) -> dict[str, int]:
        """Encode what is left, and give all counts."""
        began, total = time.perf_counter(), supply.total
        artifact.atomic_write(self._folder / FACTS, self._facts().to_bytes())
        with Ledger(self._folder, self._heads(0)) as ledger:
            place, counts = _recorded(ledger)
            characters = 0
            for chunk in chunks(supply.portions(place), self._settings.chunk_characters):
                characters += self._add(chunk, ledger, counts)
                self._tell(Progress("encoding", chunk[-1].done, total, characters))
            for name, head in self._heads(counts["units"]).items():
                ledger.begin_with(name, head)
        self.seconds = time.perf_counter() - began
        return dict(counts)

    def _add(self, chunk: Sequence[Portion], ledger: Ledger, counts: Counter[str]) -> int:
        """Encode a chunk and append it; give its characters."""
        units = [unit for portion in chunk for unit in portion.units]
        embedded = self._embedder.embed([unit.text for unit in units])
        numbers = stored(embedded.vectors_ND, self._settings.dtype, copy=self._settings.int8_copy)
        lines = [unit_line(unit) for unit in units]
        ends = list(accumulate(map(len, lines), initial=ledger.size(UNITS)))
        numbers.rows["start"] = ends[:-1]
        asides = to_set_aside_records([each for portion in chunk for each in portion.set_aside])
        blocks = {
            MATRIX: numbers.matrix.tobytes(),
            ROWS: numbers.rows.tobytes(),
            UNITS: b"".join(lines),
            SET_ASIDE: b"".join(json_line(record) for record in asides),
        }
        if numbers.copy is not None:
            blocks[COPY] = numbers.copy.tobytes()
        _count(counts, chunk, embedded.coverage)
        ledger.add(blocks, {"place": chunk[-1].place, "counts": counts})
        self.fresh += len(units)
        return embedded.coverage.characters

    def _heads(self, rows: int) -> dict[str, bytes]:
        """Give with what each file begins, if it has so many rows."""
        shape = (rows, self._width)
        heads = {
            MATRIX: npy_head(np.dtype(TYPES[self._settings.dtype]), shape),
            ROWS: npy_head(ROW, (rows,)),
            UNITS: b"",
            SET_ASIDE: b"",
        }
        return heads | ({COPY: npy_head(np.dtype(np.int8), shape)} if self._settings.int8_copy else {})

    def _facts(self) -> Facts:
        embedder, settings = self._embedder, self._settings
        return Facts(
            model=embedder.origin.model,
            fingerprint=embedder.origin.fingerprint,
            pooling=asdict(embedder.pooling),
            dimension=self._width,
            length=embedder.length,
            unit=settings.unit,
            dtype=settings.dtype,
            copy=settings.int8_copy,
        )


def _recorded(ledger: Ledger) -> tuple[Place, Counter[str]]:
    counts = Counter(dict.fromkeys(_ALWAYS, 0))
    if ledger.state is None:
        return Place(), counts
    counts.update(ledger.state["counts"])
    return Place(*ledger.state["place"]), counts


def _count(counts: Counter[str], chunk: Sequence[Portion], coverage: Coverage) -> None:
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
