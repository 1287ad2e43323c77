"""One chunk of `annotate`: from items of the input to a part of the output, here or on a Ray cluster.

A document that cannot be used (blank, too long) is set aside before it is computed, and one on which the models fail
after that (`Pipeline.annotate_each`); that is a bug, and costs one document.

The Annotations artefact has numbered parts in one of the writers' formats:

    part-00000.jsonl.gz ...   documents in the order of the input, with what was found in them; for brat folders
    parts.jsonl               a line a part: its documents, characters, and from which to which item of the input it goes
    set-aside.jsonl           what is not in a part: file, position, id, reason

A part has its name only when all of it is on the disk. One that was written and is not in the record yet is written
again by the next run, with the same bytes. A document that a writer cannot write at all is left out and named; what a
format has no place for is counted by the writer.

On a Ray cluster chunks are computed by its workers, and read and written here as ever; results come in the order of
the input, whichever workers died meanwhile. Every worker opens the models once, so their folders must be there under
the same paths; inputs and output are needed here alone. The price: texts go to the workers and come back annotated.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from alembert.artifact.disk import iter_visible_files, sync_folder
from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.readers import SetAside
from alembert.corpus.writers import write
from alembert.errors import BadFile, UserError
from alembert.infer.annotate_pipeline import Pipeline, PipelineOutput
from alembert.infer.stream import InputItem, StreamPosition
from alembert.infer.stream_job import count_set_aside
from alembert.tasks.example import Coverage
from alembert.workers.ray import RayCluster, WorkerSpec, connect


def check_document(item: InputItem, max_characters: int) -> InputItem:
    """Set a document aside that cannot be annotated."""
    if item.document is None:
        return item
    text = item.document.text
    if not text or text.isspace():
        return item.reject("the text is blank")
    if len(text) > max_characters:
        return item.reject(f"the text has {len(text)} characters, more than max_characters ({max_characters})")
    return item


@dataclass(frozen=True)
class AnnotatedChunk:
    """A chunk after the models: what they found in which document, and what was set aside, by position."""

    items: Sequence[InputItem]
    annotated: Sequence[tuple[InputItem, PipelineOutput]]
    set_aside: Sequence[tuple[StreamPosition, SetAside]]

    @property
    def amounts(self) -> dict[str, int]:
        return {
            "documents": len(self.annotated),
            "tokens": sum(output.coverage.tokens for _, output in self.annotated),
        }

    def drop(self, refused: Mapping[int, str]) -> AnnotatedChunk:
        """Set aside annotated documents by their numbers."""
        if not refused:
            return self
        dropped = [(self.annotated[number][0], reason) for number, reason in refused.items()]
        annotated = [pair for number, pair in enumerate(self.annotated) if number not in refused]
        records = [(item.position, item.explain(reason)) for item, reason in dropped]
        return replace(self, annotated=annotated, set_aside=[*self.set_aside, *records])

    def set_aside_in_order(self) -> list[SetAside]:
        """Return what was set aside in the order of the input."""
        return [record for _, record in sorted(self.set_aside, key=lambda pair: pair[0])]

    def counts(self, pipeline: Pipeline) -> Counter[str]:
        """Count what became of everything that was read (read = written + set aside), and what was found."""
        counts: Counter[str] = Counter()
        for item in self.items:
            counts.update(item.remarks())
        for _, record in self.set_aside:
            is_annotation = record.kind == "annotation"
            counts.update(
                count_set_aside(record, "annotations of the input set aside" if is_annotation else "set aside")
            )
        for item, output in self.annotated:
            counts.update(_count_annotations(pipeline, _require_document(item), output))
        counts.update(_count_coverage(Coverage.total(output.coverage for _, output in self.annotated)))
        counts["written"] = len(self.annotated)
        counts["read"] = counts["written"] + counts["set aside"]
        return counts


def annotate_chunk(pipeline: Pipeline, chunk: Sequence[InputItem]) -> AnnotatedChunk:
    """Let the models work on the documents of a chunk."""
    items = [item for item in chunk if item.document]
    outputs = pipeline.annotate_each([_require_document(item) for item in items])
    pairs = list(zip(items, outputs, strict=True))
    unread = [(item.position, item.set_aside) for item in chunk if item.set_aside]
    failed = [(item.position, item.explain(reason)) for item, reason in pairs if isinstance(reason, str)]
    annotated = [(item, output) for item, output in pairs if isinstance(output, PipelineOutput)]
    return AnnotatedChunk(chunk, annotated, unread + failed)


def _require_document(item: InputItem) -> Document:
    if item.document is None:
        raise ValueError("the item has no document")
    return item.document


def _count_annotations(pipeline: Pipeline, before: Document, output: PipelineOutput) -> Counter[str]:
    """Count what the models have found, by label, and what had to make way for it."""
    counts = Counter({"pairs too far apart": output.unread_pairs})
    counts["documents with nothing to relate"] = int(output.has_no_pairs)
    counts["cut characters"] = output.coverage.cut_characters
    for name in pipeline.replaced_fields:
        counts[f"{name} of the input left out"] = len(getattr(before, name))
    for name in pipeline.output_fields:
        known = () if name in pipeline.replaced_fields else getattr(before, name)
        added = _count_labels(getattr(output.document, name)) - _count_labels(known)
        counts[name] = added.total()
        counts.update({f"{name}: {label}": count for label, count in added.items()})
    return +counts


def _count_labels(annotations: Iterable[Entity | Relation | str]) -> Counter[str]:
    return Counter(item if isinstance(item, str) else item.label for item in annotations)


def _count_coverage(coverage: Coverage) -> dict[str, int]:
    return {
        "characters": coverage.characters,
        "tokens": coverage.tokens,
        "windows": coverage.windows,
        "documents in windows": coverage.split_examples,
        "unknown pieces": coverage.unknown,
        "withheld": coverage.withheld,
    }


KIND: Final = "Annotations"
PARTS_FILE: Final = "parts.jsonl"
PART_NAME: Final = re.compile(r"part-(\d{5,})(\..+)?")
_SURROGATE_REASON: Final = (
    "the format cannot hold it: it has half of a surrogate pair, or another value that is no text"
)
_BOM_REASON: Final = (
    "brat cannot hold it: a text file that begins with U+FEFF is read without it, and offsets would shift"
)
PartFormat = Literal["jsonl", "bioc", "bioc-json", "pubtator", "brat", "parquet", "conll", "label-studio"]


@dataclass(frozen=True)
class PartFormatSpec:
    """How a format is written: by which writer, and how the name of a part ends."""

    writer: str
    suffix: str
    has_meta: bool = True
    """Whether there is room for what is known about a document as a whole."""


PART_FORMATS: Final[dict[PartFormat, PartFormatSpec]] = {
    "jsonl": PartFormatSpec("jsonl", ".jsonl.gz"),
    "bioc": PartFormatSpec("bioc-xml", ".xml"),
    "bioc-json": PartFormatSpec("bioc-json", ".json"),
    "pubtator": PartFormatSpec("pubtator", ".pubtator", has_meta=False),
    "brat": PartFormatSpec("brat", "", has_meta=False),
    "parquet": PartFormatSpec("parquet", ".parquet"),
    "conll": PartFormatSpec("conll", ".conll", has_meta=False),
    "label-studio": PartFormatSpec("label-studio", ".json"),
}


@dataclass(frozen=True)
class WrittenPart:
    """A part on the disk; without a name, if none of its documents could be written."""

    name: str | None
    losses: Counter[str] = field(default_factory=Counter)
    """What the format could not hold, counted by reason."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Numbers of the documents that could not be written, and why."""


def write_part(folder: Path, number: int, documents: Sequence[Document], format: PartFormat) -> WrittenPart:  # noqa: A002
    """Write a part under its name; may be killed and called again at any point."""
    form = PART_FORMATS[format]
    name = f"part-{number:05}{form.suffix}"
    hidden = folder / f".{name}"  # with the same ending, by which writers tell compression
    numbered = dict(enumerate(documents))
    refused = {n: _BOM_REASON for n, one in numbered.items() if format == "brat" and one.text.startswith("\ufeff")}
    losses = _write_documents(hidden, _drop_refused(numbered, refused), form)
    if losses is None:
        refused |= {
            n: _SURROGATE_REASON for n, one in numbered.items() if _write_documents(hidden, [one], form) is None
        }
        losses = _write_documents(hidden, _drop_refused(numbered, refused), form)
    if losses is None:
        raise RuntimeError(f"documents that can be written one by one cannot be written together as {format}")
    if len(refused) == len(documents):
        _remove(hidden)
        return WrittenPart(None, rejected=refused)
    _publish(hidden, folder / name)
    return WrittenPart(name, losses, refused)


def remove_parts_from(folder: Path, parts: int) -> None:
    """Remove what a killed run left of parts that were not recorded, and see that those before them are there."""
    parts_by_number = {int(match[1]): path for path in folder.iterdir() if (match := PART_NAME.fullmatch(path.name))}
    for number, path in parts_by_number.items():
        if number >= parts:
            _remove(path)
    if missing := [number for number in range(parts) if number not in parts_by_number]:
        raise BadFile(
            f"Part {missing[0]} in {folder} was written, and is not there any more. Delete {folder}, and run the command "
            "again."
        )


def _write_documents(target: Path, documents: Sequence[Document], form: PartFormatSpec) -> Counter[str] | None:
    """Write documents anew; None: one of them cannot be written."""
    _remove(target)
    try:
        return write(documents, target, form.writer)
    except (UserError, OSError):
        raise
    except Exception:  # such as text that is no Unicode: which document it is, is found one by one
        return None


def _drop_refused(numbered: Mapping[int, Document], refused: Container[int]) -> list[Document]:
    return [document for number, document in numbered.items() if number not in refused]


def _publish(hidden: Path, target: Path) -> None:
    """Bring a file, or all files of a folder, to the disk, and give it its name."""
    for path in iter_visible_files(hidden) if hidden.is_dir() else [hidden]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if hidden.is_dir():
        sync_folder(hidden)
        _remove(target)
    hidden.replace(target)
    sync_folder(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class RayExecutor:
    """A cluster; `open_pipeline` runs on each worker, and must give the models that the run was started with."""

    cluster: RayCluster
    open_pipeline: Callable[[], Pipeline]

    def run(self, chunks: Iterator[list[InputItem]]) -> Generator[AnnotatedChunk, None, None]:
        first = next(chunks, None)
        if first is None:  # no cluster is started for nothing
            return
        work = WorkerSpec(partial(_open_worker, self.open_pipeline), _describe_chunk)
        with (
            connect(self.cluster) as connection,
            closing(connection.run(work, chain([first], chunks))) as results,
        ):
            yield from results


def _open_worker(open_pipeline: Callable[[], Pipeline]) -> Callable[[Sequence[InputItem]], AnnotatedChunk]:
    return partial(annotate_chunk, open_pipeline())


def _describe_chunk(chunk: Sequence[InputItem]) -> str:
    """Name the documents of a chunk, without a word of their text."""
    first, last = chunk[0], chunk[-1]
    if first.source == last.source:
        return f"items {first.position.items} to {last.position.items} of {first.source}"
    return f"the documents from item {first.position.items} of {first.source} to item {last.position.items} of {last.source}"
