"""`corpus build`: raw files to a Corpus of cleaned documents with sentences and dictionary entities.

A build has three phases. It may be killed at any point and resumes where it stopped:

1. Worker processes read the inputs, split them into chunks, and clean, annotate and stage each chunk (`chunks`,
   `chunks`).
2. One process decides over all documents: superseded and deleted citations, exact and near duplicates (`decide`).
3. Worker processes write the remaining documents to the final parts; a chunk that loses none is only renamed.

Chunks and decisions depend on the inputs and settings alone, so any number of workers, on this machine or on a cluster
(`BuildExecutorFactory`, `build_ray`), writes the same bytes. Memory holds one chunk per worker, the lexicons once, and
what the decision needs of each document (`decide`).

Workers claim the chunks of an input in order. A worker without an input of its own reads along in a file of another
worker and takes every chunk that nobody has claimed. One huge file thus keeps as many cores busy as a chunk costs more
than reading it (3 to 4 workers for MEDLINE, 15 to 20 for JSON lines); several files have no such limit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import ChunkProcessor, ChunkStore
from alembert.corpus.clean import BuildSettings
from alembert.corpus.decide import KEPT, ChunkId, Decisions, decide, read_set_aside, sum_counts
from alembert.corpus.fetch import check_inputs, fetch_inputs
from alembert.corpus.inputs import InputFile, check_paths_exist, list_input_files
from alembert.corpus.jobs import ChunkScheduler, CorpusPart, Progress, stage_chunks, write_parts
from alembert.corpus.readers.encoding import resolve_encoding
from alembert.corpus.store import KIND, PARTS_FOLDER, PYARROW_PURPOSE, SET_ASIDE_FILE
from alembert.errors import BadFile, BadSetting, require
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import read_word_list
from alembert.text.lexicon_cache import LexiconFile, OpenedLexicons, StopLists, open_lexicons
from alembert.text.lexicon_compiler import STOP_WORDS
from alembert.workers import pool

_MAX_TERMS_NAMED: Final = 3


@dataclass(frozen=True, kw_only=True)
class LexiconFiles:
    """The files that define which terms are entities: lexicons by label in order of precedence, and exceptions."""

    lexicons: Mapping[str, Path] = field(default_factory=dict)
    stop: Path | None = None
    """Terms that are not matched, beside the built-in stop list."""
    keep: Path | None = None
    """Terms that are matched although a stop list has them."""

    @property
    def files(self) -> list[Path]:
        return [*self.lexicons.values(), *(path for path in (self.stop, self.keep) if path)]

    def as_config(self) -> dict[str, Any]:
        names = [{"label": label, "file": path.name} for label, path in self.lexicons.items()]
        return {"lexicons": names, "stop": bool(self.stop), "keep": bool(self.keep)}


@dataclass(frozen=True)
class BuildResult:
    """A complete corpus; `fresh` is False if it was complete before this call."""

    manifest: artifact.Manifest
    fresh: bool
    notes: tuple[str, ...] = ()
    """What a user should know about the inputs and the lexicons."""


@dataclass(frozen=True)
class StagingJob:
    """The work of the first phase: the inputs, which of them are done, and how to process chunks."""

    files: Sequence[InputFile]
    done: Sequence[bool]
    stage: ChunkStore
    processor: ChunkProcessor
    settings: BuildSettings


class BuildExecutor(Protocol):
    """Runs the work of a build."""

    def stage(self, staging: StagingJob, on_progress: Callable[[Progress], None]) -> None:
        """Stage all chunks of all inputs that are not done."""

    def write(self, parts: Sequence[CorpusPart], on_progress: Callable[[Progress], None]) -> None:
        """Write the parts that are not there yet."""


BuildExecutorFactory = Callable[[], AbstractContextManager[BuildExecutor]]
"""Starts an executor, and stops it at the end of the build."""


@contextmanager
def local_executor(workers: int) -> Iterator[BuildExecutor]:
    """Run the build in processes of this machine, started anew for each phase."""
    yield _LocalExecutor(workers)


@dataclass(frozen=True)
class _LocalExecutor:
    workers: int

    def stage(self, staging: StagingJob, on_progress: Callable[[Progress], None]) -> None:
        scheduler = ChunkScheduler(staging.files, staging.done)
        job = partial(stage_chunks, scheduler, staging.stage, staging.processor, staging.settings)
        pool.run_processes(job, self.workers, lambda: on_progress(scheduler.progress()))

    def write(self, parts: Sequence[CorpusPart], on_progress: Callable[[Progress], None]) -> None:
        counter = pool.get_context().Value("q", 0)
        job = partial(write_parts, parts, counter)
        pool.run_processes(job, self.workers, lambda: on_progress(Progress("writing", counter.value, len(parts))))


def build(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    lexicon_files: LexiconFiles | None = None,
    settings: BuildSettings | None = None,
    workers: int | None = None,
    executor_factory: BuildExecutorFactory | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> BuildResult:
    """Build a corpus from files, or resume a stopped build; a complete corpus of the same plan is left as it is.

    `overwrite` replaces a complete corpus that was built from other inputs or with other settings. Without an
    `executor_factory` the build runs in `workers` processes of this machine.
    """
    lexicon_files, settings = lexicon_files or LexiconFiles(), settings or BuildSettings()
    _check(inputs, lexicon_files, settings)
    executor_factory = executor_factory or partial(local_executor, workers or pool.default_workers())
    with fetch_inputs(inputs, out, on_progress) as local:
        files = list_input_files(local.paths, out=out, get_display_name=local.get_display_name, format=settings.format)
        _refuse_streams(files.paths)
        plan: dict[str, Any] = {
            "config": {**settings.as_config(), **lexicon_files.as_config()},
            "inputs": [*local.to_manifest_inputs(files.contents), *lexicon_files.files],
        }
        if done := artifact.find_finished(out, KIND, **plan):
            return BuildResult(done, fresh=False, notes=tuple(files.notes()))
        with (
            artifact.create(out, KIND, resume=True, overwrite=overwrite, **plan) as draft,
            executor_factory() as executor,
        ):
            job = _Build(draft.path, files.files, lexicon_files, settings, executor, on_progress)
            draft.counts.update(job.run())
    return BuildResult(artifact.open_artifact(out, KIND), fresh=True, notes=(*files.notes(), *job.notes))


def _check(inputs: Sequence[str | Path], lexicon_files: LexiconFiles, settings: BuildSettings) -> None:
    """Check all that can be checked before anything is fetched."""
    require(PYARROW_PURPOSE, "pyarrow")
    if settings.read.encoding:
        resolve_encoding(settings.read.encoding)
    if not inputs:
        raise BadSetting("No input was given. Name at least one file.")
    check_inputs(inputs)
    check_paths_exist(lexicon_files.files)
    _refuse_streams(lexicon_files.files)


def _refuse_streams(files: Sequence[Path]) -> None:
    for path in files:
        if _is_stream(path):
            raise BadFile(
                f"The input {path} is a pipe or a device, not a file or folder. Inputs are read more than once: "
                "save it to a file first."
            )


def _is_stream(path: Path) -> bool:
    """Check for a path that can be read only once; a worker has another standard input, even if it is a file here."""
    name = str(path.absolute())
    standard = name == "/dev/stdin" or name.startswith(("/dev/fd/", "/proc/self/fd/"))
    return standard or (path.exists() and not (path.is_file() or path.is_dir()))


@dataclass
class _Build:
    """One run of a build."""

    folder: Path
    files: Sequence[InputFile]
    lexicon_files: LexiconFiles
    settings: BuildSettings
    executor: BuildExecutor
    on_progress: Callable[[Progress], None]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage = ChunkStore(self.folder / ".stage", tuple(self.lexicon_files.lexicons))
        self.stage.prepare(len(self.files))
        (self.folder / PARTS_FOLDER).mkdir(exist_ok=True)

    def run(self) -> dict[str, int]:
        """Run the phases that are not done yet and return all counts."""
        chunk_counts = [self.stage.get_chunk_count(number) for number in range(len(self.files))]
        if None in chunk_counts:
            self._stage_inputs([chunks is not None for chunks in chunk_counts])
        chunk_ids = list(self._list_chunks())
        decisions = self._load_or_decide(chunk_ids)
        self._write_parts(chunk_ids, decisions)
        with (self.folder / SET_ASIDE_FILE).open("w", encoding="utf-8") as lines:
            lines.writelines(
                f"{json.dumps(row, ensure_ascii=False)}\n" for row in read_set_aside(self.stage, chunk_ids)
            )
        counts = {**sum_counts(self.stage, chunk_ids, decisions), "inputs": len(self.files)}
        lexicons: dict[str, int] = json.loads((self.stage.folder / "lexicons.json").read_bytes())
        return counts | lexicons | self._count_terms_not_found(chunk_ids)

    def _list_chunks(self) -> Iterator[ChunkId]:
        for file in range(len(self.files)):
            chunks = self.stage.get_chunk_count(file)
            if chunks is None:
                raise RuntimeError(f"input {file} was not staged to its end")
            yield from ((file, chunk) for chunk in range(chunks))

    def _stage_inputs(self, done: list[bool]) -> None:
        self.on_progress(Progress("reading the lexicons", 0, 0))
        gazetteer = self._gazetteer()
        processor = ChunkProcessor(self.settings.clean, gazetteer)
        staging = StagingJob(self.files, done, self.stage, processor, self.settings)
        self.executor.stage(staging, self.on_progress)

    @cached_property
    def _lexicons(self) -> OpenedLexicons:
        """Open the lexicons once, before the workers are forked."""
        files = self.lexicon_files
        stop = STOP_WORDS if self.settings.default_stop_words else frozenset()
        lists = StopLists(
            stop=stop | (read_word_list(files.stop) if files.stop else frozenset()),
            keep=read_word_list(files.keep) if files.keep else (),
        )
        return open_lexicons((LexiconFile(label, path) for label, path in files.lexicons.items()), lists)

    def _gazetteer(self) -> Gazetteer | None:
        """Return what finds the terms; store its counts for a run that resumes this one."""
        opened = self._lexicons if self.lexicon_files.lexicons else None
        if opened is not None:
            self.notes += [*opened.warnings(), *opened.gazetteer.counts.warnings()]
        counts = {} if opened is None else _lexicon_counts(opened)
        artifact.atomic_write(self.stage.folder / "lexicons.json", json.dumps(counts).encode())
        return None if opened is None else opened.gazetteer

    def _count_terms_not_found(self, chunk_ids: list[ChunkId]) -> dict[str, int]:
        """Count the terms that no document has, by lexicon, and note a few of each."""
        if not self.lexicon_files.lexicons:
            return {}
        matched = {entry for chunk_id in chunk_ids for entry in self.stage.read_sidecar(*chunk_id).matched}
        unmatched = self._lexicons.gazetteer.list_unmatched(matched, _MAX_TERMS_NAMED)
        self.notes += [
            f"{label}: {terms.count:,} of {terms.total:,} terms were not found, such as {', '.join(terms.first)}"
            for label, terms in unmatched.items()
            if terms.count
        ]
        return {f"terms not found: {label}": terms.count for label, terms in unmatched.items() if terms.count}

    def _load_or_decide(self, chunk_ids: list[ChunkId]) -> list[Decisions]:
        """Decide, or load the decisions of a run that was stopped."""
        self.on_progress(Progress("looking for duplicates", 0, 0))
        path = self.stage.folder / "decisions.npy"
        if not path.exists():
            decisions = decide(self.stage, chunk_ids, self.settings.clean, self.stage.folder)
            content = io.BytesIO()
            np.save(content, np.concatenate([*decisions, np.zeros(0, np.uint8)]))
            artifact.atomic_write(path, content.getvalue())
        lengths = [len(self.stage.read_sidecar(*chunk_id).signatures) for chunk_id in chunk_ids]
        return np.split(np.load(path), np.cumsum(lengths)[:-1]) if chunk_ids else []

    def _write_parts(self, chunk_ids: list[ChunkId], decisions: list[Decisions]) -> None:
        chunks = [pair for pair in zip(chunk_ids, decisions, strict=True) if (pair[1] == KEPT).any()]
        parts = [
            CorpusPart(
                self.folder / PARTS_FOLDER / f"part-{number:05}.parquet",
                self.stage.get_documents_path(*chunk_id),
                chunk_decisions,
            )
            for number, (chunk_id, chunk_decisions) in enumerate(chunks)
        ]
        self.executor.write(parts, self.on_progress)


def _lexicon_counts(opened: OpenedLexicons) -> dict[str, int]:
    counts = opened.gazetteer.counts
    return {
        "lexicon rows": counts.rows,
        "lexicon rows set aside": opened.bad_count,
        "lexicon rows stopped": counts.stopped,
        "lexicon names turned round": counts.turned,
    }
