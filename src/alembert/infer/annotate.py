"""`annotate`: a corpus of any size in, the same documents with what models find in them out, each exactly once.

Inputs are read as a stream and cut into chunks, whose borders depend on the input alone. A chunk is computed whole and
becomes one part of the output (`annotate_parts`), which is on the disk before the record that counts it (`ledger`).
While a chunk is computed, others are encoded or decoded, read and written, each in a thread of its own; the model
has all cores as it is. So memory is that of four chunks, a stopped run loses three at most, and the same command goes on
to the bytes of a run that was not stopped. Each document that is read is in a part, or in `set-aside.jsonl` with the
reason. Where chunks are computed (`Executor`: here, or on a cluster, `annotate_ray`) is no matter of the result, so a run
may go on elsewhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import to_set_aside_records
from alembert.corpus.document import Document
from alembert.corpus.fetch import fetch_inputs
from alembert.corpus.inputs import list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import FORMATS, ReadOptions, SetAside
from alembert.corpus.staging import hash_id
from alembert.data.batching import map_in_threads
from alembert.errors import BadSetting
from alembert.extras import require
from alembert.infer.annotate_chunks import (
    KIND,
    PART_FORMATS,
    PARTS_FILE,
    SET_ASIDE_FILE,
    AnnotatedChunk,
    PartFormat,
    WorkItem,
    WrittenPart,
    annotate_chunk,
    remove_parts_from,
    to_work_item,
    write_part,
)
from alembert.infer.annotate_documents import with_source
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.stream import (
    InputStream,
    Ledger,
    StreamPosition,
    iter_chunks,
    json_line,
    open_input_stream,
    prefetch,
)
from alembert.infer.task_model import PARALLEL_BATCHES

FORMAT: Final = 2
_IDS_FILE: Final = ".ids"
"""A hash of the id of each document that was written, eight bytes each; kept until the run is complete."""
COUNT_NAMES: Final = (
    "read",
    "written",
    "set aside",
    "repeated ids",
    "parts",
    "characters",
    "tokens",
    "windows",
    "documents in windows",
    "unknown pieces",
    "withheld",
    "entities",
    "relations",
    "labels",
)


@dataclass(frozen=True, kw_only=True)
class AnnotateSettings:
    """What is read, and what is written."""

    format: PartFormat = "jsonl"
    """Format of the output: jsonl, bioc (XML), bioc-json, pubtator, brat, parquet, conll or label-studio."""
    part_characters: int = 200_000
    """Text that goes into one part: what is computed together, and what a stopped run can lose."""
    max_characters: int = 1_000_000
    """A longer document is set aside: it would hold up the others, and a stopped run would begin it again."""
    input_format: str | None = None
    """Format of all inputs; recognised for each when not given."""
    read: ReadOptions = field(default_factory=ReadOptions)
    """How files are read."""

    def __post_init__(self) -> None:
        if self.format not in PART_FORMATS:
            raise BadSetting(f"`format` is {self.format!r}; expected one of {', '.join(PART_FORMATS)}.")
        if self.input_format is not None and self.input_format not in FORMATS:
            raise BadSetting(
                f"`input_format` is {self.input_format!r}, which no reader has. Use one of {', '.join(FORMATS)}."
            )
        for name in ("part_characters", "max_characters"):
            if getattr(self, name) < 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected 1 or more.")


@dataclass(frozen=True)
class AnnotationRun:
    """Finished annotations; `fresh` is False if they were complete before."""

    manifest: artifact.Manifest
    fresh: bool
    documents: int = 0
    """Documents that this run has written, without those of a run that it went on with."""
    tokens: int = 0
    seconds: float = 0.0
    """What that took."""
    notes: tuple[str, ...] = ()
    """What a user should know about inputs and lexicons."""


class Executor(Protocol):
    """Where chunks are computed."""

    def run(self, chunks: Iterator[list[WorkItem]]) -> Generator[AnnotatedChunk, None, None]:
        """Compute chunks, taking a few of them ahead at most; results are in their order."""


@dataclass(frozen=True)
class LocalExecutor:
    """This process."""

    pipeline: Pipeline

    def run(self, chunks: Iterator[list[WorkItem]]) -> Generator[AnnotatedChunk, None, None]:
        with closing(
            map_in_threads(partial(annotate_chunk, self.pipeline), chunks, PARALLEL_BATCHES, ahead=1)
        ) as found:
            yield from found


def annotate(
    pipeline: Pipeline,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: AnnotateSettings | None = None,
    *,
    site: Executor | None = None,
    overwrite: bool = False,
    tell: Callable[[Progress], None] = lambda _: None,
) -> AnnotationRun:
    """Annotate documents, or go on where that was stopped; a complete result is left as it is.

    Chunks are computed at `site`, in this process if none is given.
    """
    given_settings, site = settings or AnnotateSettings(), site or LocalExecutor(pipeline)
    settings = replace(given_settings, read=pipeline.read_options(given_settings.read))
    if settings.format == "parquet":
        require("Writing Parquet", "pyarrow")
    with fetch_inputs(inputs, out, tell) as given:
        files = list_input_files(
            given.paths, out=out, get_display_name=given.get_display_name, format=settings.input_format
        )
        supply = open_input_stream(files, settings.read, settings.input_format)
        origins = [*pipeline.folders, *pipeline.lexicons.values(), *given.to_manifest_inputs(files.contents)]
        plan: dict[str, Any] = {"config": _config(pipeline, settings), "inputs": origins}
        notes = (*pipeline.notes, *files.notes(), *_notes_on_columns(given_settings.read, settings.read))
        if done := artifact.find_finished(out, KIND, **plan):
            return AnnotationRun(done, fresh=False, notes=notes)
        with artifact.create(out, KIND, resume=True, overwrite=overwrite, **plan) as draft:
            job = _AnnotationJob(draft.path, pipeline, settings, supply, site=site, tell=tell)
            draft.counts.update(job.run())
    manifest = artifact.open_artifact(out, KIND)
    notes += tuple(_notes_on_lexicons(pipeline, manifest.counts))
    return AnnotationRun(manifest, True, job.documents, job.tokens, job.seconds, notes)


def _notes_on_columns(named: ReadOptions, used: ReadOptions) -> Iterator[str]:
    if used.text != named.text:
        yield f"in tables and JSON the text is read from {', '.join(used.text)}, as in training (--set read.text names another)"


def _notes_on_lexicons(pipeline: Pipeline, counts: Mapping[str, int]) -> Iterator[str]:
    for label, path in pipeline.lexicons.items():
        if not counts.get(f"entities: {label}"):
            yield f"none of the terms of the lexicon {label} ({path}) was found where no entity stands"


def _config(pipeline: Pipeline, settings: AnnotateSettings) -> dict[str, Any]:
    thresholds = [model.min_score for model in pipeline.models]
    return {
        "format": FORMAT,
        "tasks": list(pipeline.tasks),
        "replaced": list(pipeline.replaced_fields),
        "lexicons": list(pipeline.lexicons),
        **({"min_score": thresholds} if any(thresholds) else {}),
        "settings": asdict(settings),
    }


class _AnnotationJob:
    """One run."""

    def __init__(
        self,
        folder: Path,
        pipeline: Pipeline,
        settings: AnnotateSettings,
        supply: InputStream,
        *,
        site: Executor,
        tell: Callable[[Progress], None],
    ) -> None:
        self.documents = self.tokens = 0
        self.seconds = 0.0
        self._folder = folder
        self._pipeline = pipeline
        self._settings = settings
        self._supply = supply
        self._site = site
        self._tell = tell
        self._counts = Counter(dict.fromkeys(COUNT_NAMES, 0))

    def run(self) -> dict[str, int]:
        """Annotate what is left, and give all counts."""
        began = time.perf_counter()
        with Ledger(self._folder, {PARTS_FILE: b"", SET_ASIDE_FILE: b"", _IDS_FILE: b""}) as ledger:
            place, done = self._recorded(ledger)
            remove_parts_from(self._folder, self._counts["parts"])
            self._progress(done)
            self._annotate(place, ledger)
        self._counts["repeated ids"] = _count_repeated_ids(self._folder / _IDS_FILE)
        self.seconds = time.perf_counter() - began
        return dict(self._counts)

    def _recorded(self, ledger: Ledger) -> tuple[StreamPosition, int]:
        """Take up what a stopped run has left: where it stands, and how far that is."""
        if ledger.state is None:
            return StreamPosition(), 0
        self._counts.update(ledger.state["counts"])
        return StreamPosition(*ledger.state["place"]), ledger.state["done"]

    def _annotate(self, place: StreamPosition, ledger: Ledger) -> None:
        """Compute one chunk after the other; each is written while the next is computed."""
        writing: Future[None] | None = None
        with (
            ThreadPoolExecutor(1, thread_name_prefix="write") as pool,
            closing(self._chunks(place)) as coming,
            closing(self._site.run(coming)) as results,
        ):
            for computed in results:
                if writing is not None:
                    writing.result()  # what it raises ends the run before more is computed
                writing = pool.submit(self._add, computed, ledger)
                self.documents += len(computed.annotated)
                self.tokens += computed.tokens
                self._progress(computed.items[-1].progress)
            if writing is not None:
                writing.result()

    def _chunks(self, place: StreamPosition) -> Generator[list[WorkItem], None, None]:
        portions = (to_work_item(taken, self._settings.max_characters) for taken in self._supply.read_from(place))
        return prefetch(iter_chunks(portions, self._settings.part_characters))

    def _progress(self, done: int) -> None:
        rates = {"documents": self.documents, "tokens": self.tokens}
        self._tell(Progress("annotating", done, self._supply.total, **rates))

    def _documents(self, computed: AnnotatedChunk) -> Iterator[Document]:
        """Yield the documents of a part, with their source where the format has room for it."""
        has_room = PART_FORMATS[self._settings.format].has_meta
        for portion, each in computed.annotated:
            document = each.document
            yield with_source(document, portion.source, portion.number) if has_room else document

    def _add(self, computed: AnnotatedChunk, ledger: Ledger) -> None:
        """Write a part, and record it with what was set aside on the way to it."""
        number = self._counts["parts"]
        documents = list(self._documents(computed))
        written = write_part(self._folder, number, documents, self._settings.format)
        computed = computed.drop(written.rejected)
        self._counts.update(computed.counts(self._pipeline))
        self._counts.update({f"format: {reason}": many for reason, many in written.losses.items()})
        self._counts["parts"] += written.name is not None
        blocks = {
            PARTS_FILE: b"" if written.name is None else json_line(describe_part(written, computed)),
            SET_ASIDE_FILE: b"".join(json_line(record) for record in to_set_aside_records(_sort_set_aside(computed))),
            _IDS_FILE: np.array([hash_id(each.document.id) for _, each in computed.annotated], np.uint64).tobytes(),
        }
        last = computed.items[-1]
        ledger.annotate(blocks, {"place": last.position, "done": last.progress, "counts": self._counts})


def _count_repeated_ids(path: Path) -> int:
    """Count the documents whose id an earlier one has."""
    keys = np.fromfile(path, np.uint64)
    keys.sort()
    return int((keys[1:] == keys[:-1]).sum())


def _sort_set_aside(computed: AnnotatedChunk) -> list[SetAside]:
    """Give what was set aside in the order of the input."""
    return [aside for _, aside in sorted(computed.set_aside, key=lambda pair: pair[0])]


def describe_part(written: WrittenPart, computed: AnnotatedChunk) -> dict[str, Any]:
    """Say what a part holds: how much, and from which to which item of the input."""
    first, last = computed.annotated[0][0], computed.annotated[-1][0]
    return {
        "part": written.name,
        "documents": len(computed.annotated),
        "characters": sum(len(each.document.text) for _, each in computed.annotated),
        "from": {"file": first.source, "item": first.position.items},
        "to": {"file": last.source, "item": last.position.items},
    }
