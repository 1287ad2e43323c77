"""What a corpus of any size is read from: files, folders of files, or one Corpus, as one stream of items.

In: paths, and how to read them. Out: items in their order, each with its place, so that work which was stopped goes on
behind it: inputs that are done are not opened again, and of the one that was not, items are read and passed over, which
costs little beside a model. Items go together in chunks whose borders depend on the input alone, so that work on whole
chunks gives the same result however often it was stopped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from alembert.corpus.document import Span
from alembert.corpus.inputs import InputFile, InputFiles, InputReader, count_bytes, open_input_corpus, try_detect_format
from alembert.corpus.readers import Item, ReadOptions
from alembert.corpus.store import Corpus

_MOST_ITEMS: Final = 4096
"""Items of a chunk: what is set aside has no characters, and still takes memory."""


class Place(NamedTuple):
    """How many items of which input were taken; those of the inputs before it all were."""

    input: int = 0
    items: int = 0


@dataclass(frozen=True)
class Taken:
    """An item of an input, and where reading stands behind it."""

    place: Place
    done: int
    """How far that is, in the measure of `Supply.total`."""
    source: str
    item: Item
    sentences: tuple[Span, ...] | None = None
    """Those of the document, if they are known."""
    number: int | None = None
    """Which item of its source it is; none: the source is that of a Corpus, which does not say."""


class Supply(Protocol):
    """Inputs that can be read from any place on."""

    @property
    def total(self) -> int:
        """How much there is to read: bytes, or documents."""

    def items(self, after: Place) -> Iterator[Taken]:
        """Give what follows a place."""


def supply_of(
    inputs: InputFiles,
    options: ReadOptions,
    format: str | None = None,  # noqa: A002
) -> Supply:
    """Take one Corpus folder, or files of any format that has a reader."""
    corpus = open_input_corpus(inputs.paths)
    return _Files(inputs.files, options, format) if corpus is None else _OfCorpus(corpus)


class Sized(Protocol):
    """What goes into chunks."""

    @property
    def characters(self) -> int: ...


S = TypeVar("S", bound=Sized)
T = TypeVar("T")


def chunks(items: Iterator[S], characters: int) -> Iterator[list[S]]:
    """Put items together until they have so many characters; where borders fall depends on the input alone."""
    chunk: list[S] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += item.characters
        if size >= characters or len(chunk) >= _MOST_ITEMS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def one_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Make the next item in a thread of its own while the last one is being used.

    >>> list(one_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


@dataclass(frozen=True)
class _Files:
    files: tuple[InputFile, ...]
    options: ReadOptions
    format: str | None

    @cached_property
    def total(self) -> int:
        return self._size(len(self.files))

    def items(self, after: Place) -> Iterator[Taken]:
        before = self._size(after.input)
        for number in range(after.input, len(self.files)):
            yield from self._of_file(number, after.items if number == after.input else 0, before)
            before += count_bytes(self.files[number].path)

    def _of_file(self, number: int, passed: int, before: int) -> Iterator[Taken]:
        file = self.files[number]
        with closing(InputReader(file)) as stream:
            items = stream.items(self.options, self.format or try_detect_format(file.path))
            for count, item in enumerate(islice(items, passed, None), passed + 1):
                yield Taken(Place(number, count), before + stream.place(), file.name, item, number=count)

    def _size(self, count: int) -> int:
        return sum(count_bytes(file.path) for file in self.files[:count])


@dataclass(frozen=True)
class _OfCorpus:
    corpus: Corpus

    @property
    def total(self) -> int:
        return self.corpus.counts.get("documents", 0)

    def items(self, after: Place) -> Iterator[Taken]:
        for count, entry in enumerate(islice(self.corpus.entries(), after.items, None), after.items + 1):
            yield Taken(Place(0, count), count, entry.source, entry.with_terms(), entry.sentences)
