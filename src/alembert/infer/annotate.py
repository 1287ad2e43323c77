"""`annotate`: a corpus of any size in, the same documents with what models find in them out, each exactly once.

Each chunk of the input (`stream_job`) becomes one part of the output (`annotate_chunks`), which is on the disk
before the record that counts it. Each document that is read is in a part, or in `set-aside.jsonl` with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from alembert.corpus.document import Document, hash_id
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadSetting, require
from alembert.infer.annotate_chunks import (
    KIND,
    PART_FORMATS,
    PARTS_FILE,
    AnnotatedChunk,
    PartFormat,
    annotate_chunk,
    check_document,
    remove_parts_from,
    write_part,
)
from alembert.infer.annotate_pipeline import Pipeline, with_source
from alembert.infer.stream import InputItem
from alembert.infer.stream_job import SET_ASIDE_FILE, Executor, Ledger, StreamJob, StreamRun, json_line, set_aside_lines

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
    """Characters per part. A part is computed as a whole; a stopped run repeats the parts under way."""
    max_characters: int = 1_000_000
    """Maximum characters of a document; longer ones are set aside."""
    input_format: str | None = None
    """Format of all inputs; none: detected for each file."""
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


def annotate(
    pipeline: Pipeline,
    inputs: Sequence[str | Path],
    out: str | Path,
    settings: AnnotateSettings | None = None,
    *,
    executor: Executor[AnnotatedChunk] | None = None,
    overwrite: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> StreamRun:
    """Annotate documents, or resume that where it was stopped; a complete result is left as it is."""
    asked = settings or AnnotateSettings()
    settings = replace(asked, read=pipeline.read_options(asked.read))
    if settings.format == "parquet":
        require("Writing Parquet", "pyarrow")
    job = AnnotationJob(pipeline, settings)
    run = job.run(inputs, out, executor=executor, overwrite=overwrite, on_progress=on_progress)
    unmatched = _notes_on_lexicons(pipeline, run.manifest.counts) if run.fresh else ()
    notes = (*pipeline.notes, *run.notes, *_notes_on_columns(asked.read, settings.read), *unmatched)
    return replace(run, notes=notes)


def _notes_on_columns(named: ReadOptions, used: ReadOptions) -> Iterator[str]:
    if used.text != named.text:
        yield f"in tables and JSON the text is read from {', '.join(used.text)}, as in training (--set read.text names another)"


def _notes_on_lexicons(pipeline: Pipeline, counts: Mapping[str, int]) -> Iterator[str]:
    handed_on = {label for model in pipeline.models for label in model.task.lexicon_labels}
    for label, path in pipeline.lexicons.items():
        if label not in handed_on and not counts.get(f"entities: {label}"):
            yield f"none of the terms of the lexicon {label} ({path}) was found where no entity stands"


class AnnotationJob(StreamJob[AnnotatedChunk]):
    """Each chunk becomes one part of the output."""

    kind = KIND
    phase = "annotating"
    count_names = COUNT_NAMES

    def __init__(self, pipeline: Pipeline, settings: AnnotateSettings) -> None:
        super().__init__(settings.read, settings.input_format, settings.part_characters)
        self._pipeline = pipeline
        self._settings = settings

    def config(self) -> dict[str, Any]:
        thresholds = [model.min_score for model in self._pipeline.models]
        return {
            "format": FORMAT,
            "tasks": list(self._pipeline.tasks),
            "replaced": list(self._pipeline.replaced_fields),
            "lexicons": list(self._pipeline.lexicons),
            **({"added_terms": added} if (added := self._notes_on_terms()) else {}),
            **({"min_score": thresholds} if any(thresholds) else {}),
            "settings": asdict(self._settings),
        }

    def _notes_on_terms(self) -> list[str]:
        return [note for model in self._pipeline.models for note in model.task.lexicon_notes()]

    def model_files(self) -> Sequence[Path]:
        return [*self._pipeline.folders, *self._pipeline.lexicons.values()]

    def file_heads(self) -> dict[str, bytes]:
        return {PARTS_FILE: b"", SET_ASIDE_FILE: b"", _IDS_FILE: b""}

    def begin(self, ledger: Ledger, counts: Mapping[str, int]) -> None:
        remove_parts_from(ledger.folder, counts["parts"])

    def prepare(self, item: InputItem) -> InputItem:
        return check_document(item, self._settings.max_characters)

    def compute(self, chunk: Sequence[InputItem]) -> AnnotatedChunk:
        return annotate_chunk(self._pipeline, chunk)

    def write(self, result: AnnotatedChunk, ledger: Ledger, counts: Counter[str]) -> dict[str, bytes]:
        """Write a part; return its record, with what was set aside on the way to it."""
        part = write_part(ledger.folder, counts["parts"], list(self._documents(result)), self._settings.format)
        result = result.drop(part.rejected)
        counts.update(result.counts(self._pipeline))
        counts.update({f"format: {reason}": count for reason, count in part.losses.items()})
        counts["parts"] += part.name is not None
        ids = [hash_id(output.document.id) for _, output in result.annotated]
        return {
            PARTS_FILE: b"" if part.name is None else json_line(describe_part(part.name, result)),
            SET_ASIDE_FILE: set_aside_lines(result.set_aside_in_order()),
            _IDS_FILE: np.array(ids, np.uint64).tobytes(),
        }

    def finish(self, ledger: Ledger, counts: Counter[str]) -> None:
        counts["repeated ids"] = _count_repeated_ids(ledger.folder / _IDS_FILE)

    def _documents(self, chunk: AnnotatedChunk) -> Iterator[Document]:
        """Yield the documents of a part, with their source where the format has room for it."""
        has_room = PART_FORMATS[self._settings.format].has_meta
        for item, output in chunk.annotated:
            yield with_source(output.document, item.source, item.number) if has_room else output.document


def _count_repeated_ids(path: Path) -> int:
    """Count the documents whose id an earlier one has."""
    keys = np.fromfile(path, np.uint64)
    keys.sort()
    return int((keys[1:] == keys[:-1]).sum())


def describe_part(name: str, chunk: AnnotatedChunk) -> dict[str, Any]:
    """Return the line of a part in `parts.jsonl`: how much it holds, and from which to which item of the input."""
    first, last = chunk.annotated[0][0], chunk.annotated[-1][0]
    return {
        "part": name,
        "documents": len(chunk.annotated),
        "characters": sum(len(output.document.text) for _, output in chunk.annotated),
        "from": {"file": first.source, "item": first.position.items},
        "to": {"file": last.source, "item": last.position.items},
    }
