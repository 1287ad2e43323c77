"""What a corpus of any size is read from: files, folders of files, or one Corpus, as one stream of items.

In: paths, and how to read them. Out: items in their order, each with its position, so that work which was stopped
goes on behind it: inputs that are done are not opened again, and of the one that was not, items are read and passed
over, which costs little beside a model. Items go together in chunks whose borders depend on the input alone, so that
work on whole chunks gives the same result however often it was stopped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from alembert.corpus.document import Document, Span
from alembert.corpus.inputs import InputFile, InputFiles, InputReader, count_bytes, open_input_corpus, try_detect_format
from alembert.corpus.readers import DeletedRecord, Item, ReadOptions, Remark, SetAside
from alembert.corpus.store import Corpus

_MAX_CHUNK_ITEMS: Final = 4096
"""Items of a chunk: what is set aside has no characters, and still takes memory."""


class StreamPosition(NamedTuple):
    """How many items of which input were read; those of the inputs before it all were."""

    input: int = 0
    items: int = 0


@dataclass(frozen=True)
class InputItem:
    """An item of an input, and where reading stands behind it."""

    position: StreamPosition
    progress: int
    """How far that is, in the measure of `InputStream.total`."""
    source: str
    item: Item
    sentences: tuple[Span, ...] | None = None
    """Those of the document, if they are known."""
    number: int | None = None
    """Which item of its source it is; none: the source is that of a Corpus, which does not say."""
    units: tuple[Span, ...] | None = None
    """Spans of the text that are worked on one by one; none: the text is worked on as a whole."""

    @property
    def document(self) -> Document | None:
        return self.item if isinstance(self.item, Document) else None

    @property
    def set_aside(self) -> SetAside | None:
        return replace(self.item, source=self.source) if isinstance(self.item, SetAside) else None

    @property
    def characters(self) -> int:
        """Characters of the text that is worked on."""
        if self.units is not None:
            return sum(end - start for start, end in self.units)
        return len(self.item.text) if isinstance(self.item, Document) else 0

    def remarks(self) -> dict[str, int]:
        """Return what is to be counted about the input beside its documents."""
        if isinstance(self.item, Remark):
            return {f"remark: {self.item.reason}": self.item.count}
        return {"deletions not applied": 1} if isinstance(self.item, DeletedRecord) else {}

    def explain(self, reason: str) -> SetAside:
        """Return the record of a document that is not used."""
        name = self.document.id if self.document else None
        return SetAside(self.source, f"item {self.position.items}", name, reason)

    def reject(self, reason: str) -> InputItem:
        """Set the document aside."""
        return replace(self, item=self.explain(reason))


class InputStream(Protocol):
    """Inputs that can be read from any position on."""

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""

    def read_from(self, after: StreamPosition) -> Iterator[InputItem]:
        """Read what follows a position."""


def open_input_stream(
    inputs: InputFiles,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> InputStream:
    """Open one Corpus folder, or files of any format that has a reader."""
    corpus = open_input_corpus(inputs.paths)
    return _FileStream(inputs.files, options, format) if corpus is None else _CorpusStream(corpus)


T = TypeVar("T")


def iter_chunks(items: Iterator[InputItem], characters: int) -> Iterator[list[InputItem]]:
    """Put items together until they have so many characters; where borders fall depends on the input alone."""
    chunk: list[InputItem] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += item.characters
        if size >= characters or len(chunk) >= _MAX_CHUNK_ITEMS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Make the next item in a thread of its own while the last one is being used.

    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


@dataclass(frozen=True)
class _FileStream:
    files: tuple[InputFile, ...]
    options: ReadOptions
    format: str | None

    @cached_property
    def total(self) -> int:
        return self._size(len(self.files))

    def read_from(self, after: StreamPosition) -> Iterator[InputItem]:
        before = self._size(after.input)
        for number in range(after.input, len(self.files)):
            yield from self._read_file(number, after.items if number == after.input else 0, before)
            before += count_bytes(self.files[number].path)

    def _read_file(self, number: int, skipped: int, before: int) -> Iterator[InputItem]:
        file = self.files[number]
        with closing(InputReader(file)) as reader:
            items = reader.items(self.options, self.format or try_detect_format(file.path))
            for count, item in enumerate(islice(items, skipped, None), skipped + 1):
                yield InputItem(
                    StreamPosition(number, count), before + reader.get_position(), file.name, item, number=count
                )

    def _size(self, count: int) -> int:
        return sum(count_bytes(file.path) for file in self.files[:count])


@dataclass(frozen=True)
class _CorpusStream:
    corpus: Corpus

    @property
    def total(self) -> int:
        return self.corpus.counts.get("documents", 0)

    def read_from(self, after: StreamPosition) -> Iterator[InputItem]:
        for count, entry in enumerate(islice(self.corpus.entries(), after.items, None), after.items + 1):
            yield InputItem(StreamPosition(0, count), count, entry.source, entry.with_terms(), entry.sentences)
