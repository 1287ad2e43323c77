"""What a corpus of any size is read from: files, folders of files, or one Corpus, as one stream of items.

In: paths, and how to read them. Out: items in their order, each with its place, so that work which was stopped goes on
behind it: inputs that are done are not opened again, and of the one that was not, items are read and passed over, which
costs little beside a model. Items go together in chunks whose borders depend on the input alone, so that work on whole
chunks gives the same result however often it was stopped.

Files that only grow, and a record of how far they count.

In go blocks of bytes for several files, together with any state; out come files that a kill cannot spoil. Each block is
brought to the disk before the record that counts it, which is replaced as a whole; whatever stands behind the recorded
sizes when the work goes on was never counted, and is cut off. So the files can be of any size, nothing is written twice,
and work that was killed ends with the bytes of work that was not. The price is an fsync a file and block.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.lib import format as npy

from alembert import artifact
from alembert.corpus.document import Span
from alembert.corpus.inputs import (
    InputFile,
    InputFiles,
    InputReader,
    count_bytes,
    open_input_corpus,
    try_detect_format,
)
from alembert.corpus.readers import Item, ReadOptions
from alembert.corpus.store import Corpus
from alembert.errors import BadFile

_MAX_CHUNK_ITEMS: Final = 4096
"""Items of a chunk: what is set aside has no characters, and still takes memory."""


class StreamPosition(NamedTuple):
    """How many items of which input were taken; those of the inputs before it all were."""

    input: int = 0
    items: int = 0


@dataclass(frozen=True)
class InputItem:
    """An item of an input, and where reading stands behind it."""

    position: StreamPosition
    progress: int
    """How far that is, in the measure of `Supply.total`."""
    source: str
    item: Item
    sentences: tuple[Span, ...] | None = None
    """Those of the document, if they are known."""
    number: int | None = None
    """Which item of its source it is; none: the source is that of a Corpus, which does not say."""


class InputStream(Protocol):
    """Inputs that can be read from any place on."""

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""

    def read_from(self, after: StreamPosition) -> Iterator[InputItem]:
        """Give what follows a place."""


def open_input_stream(
    inputs: InputFiles,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> InputStream:
    """Take one Corpus folder, or files of any format that has a reader."""
    corpus = open_input_corpus(inputs.paths)
    return _FileStream(inputs.files, options, format) if corpus is None else _CorpusStream(corpus)


class HasCharacters(Protocol):
    """What goes into chunks."""

    @property
    def characters(self) -> int: ...


S = TypeVar("S", bound=HasCharacters)
T = TypeVar("T")


def iter_chunks(items: Iterator[S], characters: int) -> Iterator[list[S]]:
    """Put items together until they have so many characters; where borders fall depends on the input alone."""
    chunk: list[S] = []
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
            yield from self._of_file(number, after.items if number == after.input else 0, before)
            before += count_bytes(self.files[number].path)

    def _of_file(self, number: int, passed: int, before: int) -> Iterator[InputItem]:
        file = self.files[number]
        with closing(InputReader(file)) as stream:
            items = stream.items(self.options, self.format or try_detect_format(file.path))
            for count, item in enumerate(islice(items, passed, None), passed + 1):
                yield InputItem(
                    StreamPosition(number, count), before + stream.get_position(), file.name, item, number=count
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


LEDGER_FILE: Final = ".ledger.json"


class Ledger:
    """The growing files of a folder; `state` is what was recorded with the last block, None before the first."""

    def __init__(self, folder: Path, heads: Mapping[str, bytes]) -> None:
        """Take the folder, and with what each file begins."""
        self.state: Any = None
        self._folder = folder
        self._heads = heads
        self._sizes = {name: len(head) for name, head in heads.items()}
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Ledger:
        if (self._folder / LEDGER_FILE).is_file():
            record = json.loads((self._folder / LEDGER_FILE).read_bytes())
            self.state, self._sizes = record["state"], record["sizes"]
        else:
            for name, head in self._heads.items():
                (self._folder / name).write_bytes(head)
        self._check_sizes()
        for name, size in self._sizes.items():
            file = self._stack.enter_context((self._folder / name).open("r+b"))
            file.truncate(size)
            file.seek(size)
            self._files[name] = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def size(self, name: str) -> int:
        """How many bytes of a file count."""
        return self._sizes[name]

    def annotate(self, blocks: Mapping[str, bytes], state: Any) -> None:
        """Append to some of the files, and record where the work stands now."""
        for name, block in blocks.items():
            file = self._files[name]
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            self._sizes[name] += len(block)
        self.state = state
        record = json.dumps({"state": state, "sizes": self._sizes})
        artifact.atomic_write(self._folder / LEDGER_FILE, record.encode())

    def overwrite_start(self, name: str, head: bytes) -> None:
        """Write over the beginning of a file, whose length stays; may be killed and called again."""
        if len(head) != len(self._heads[name]):
            raise ValueError(f"the head of {name} is {len(head)} bytes and was {len(self._heads[name])}")
        file = self._files[name]
        file.seek(0)
        file.write(head)
        file.flush()

    def _check_sizes(self) -> None:
        for name, size in self._sizes.items():
            path = self._folder / name
            if not path.is_file() or path.stat().st_size < size:
                raise BadFile(
                    f"{path} is shorter than what was written to it: the disk has lost a part. "
                    f"Delete {self._folder} and run the command again."
                )


def json_line(record: Mapping[str, Any]) -> bytes:
    """Write a record as a line; unpaired surrogates become escapes, which JSON has."""
    return f"{json.dumps(record, ensure_ascii=False)}\n".encode("utf8", "backslashreplace")


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Write the head of a `.npy` file, which is equally long for any number of rows.

    >>> len(npy_header(np.dtype("<f4"), (0, 384))) == len(npy_header(np.dtype("<f4"), (10**9, 384)))
    True
    """
    head = io.BytesIO()
    facts = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(head, facts)
    return head.getvalue()
