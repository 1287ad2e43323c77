"""Compiled lexicons in files that all processes map into memory.

Arrays in one file, mapped into memory when they are opened, so that processes share them.

In: named arrays and a head that JSON can hold. Out: the same, read-only. A file begins with a mark and the SHA-256 of
everything after it, which is checked before anything is mapped: a file that is truncated, damaged or of another kind is a
`ValueError`. There is no pickle in it. Numbers have the byte order of the machine.

Lexicons that are compiled once: later runs, and the workers of a run, map the same file into memory.

In: sources of terms, in order of precedence, and the stop lists. Out: their gazetteer, and the rows that could not be used.
The file lies in the cache folder (`ALEMBERT_CACHE`) and is named by the hash of all that it depends on: the content of the
lexicons, their labels and order, the stop lists, the code that compiles and the tables of Unicode. A file that is damaged
or of another kind is compiled again, a folder that cannot be written costs time alone, and what was not used for longest
is deleted.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from alembert.artifact import atomic_write, hash_file
from alembert.errors import BadFile
from alembert.hardware.environment import get_cache_folder
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import BadLexiconRow, BadLexiconRows, Lexicon, is_named_csv, read_lexicon
from alembert.text.lexicon_compiler import STOP_WORDS, GazetteerCounts
from alembert.text.term_tables import GazetteerTables

LARGEST: Final = 1 << 31
"""Bytes of a file, at most."""
_MARK: Final = b"alembert arrays\n"
_HASH_BYTES: Final = hashlib.sha256().digest_size
_HEAD_START: Final = len(_MARK) + _HASH_BYTES + 8
_ALIGNMENT: Final = 64
_TYPES: Final = {np.dtype(name).str for name in ("bool", "uint8", "int32", "int64", "uint64")}

AnyArray = NDArray[Any]


def pack_arrays(arrays: Mapping[str, AnyArray], head: Mapping[str, Any]) -> bytes:
    """Return the content of a file."""
    table, start = {}, 0
    for name, array in arrays.items():
        if array.dtype.str not in _TYPES or not array.flags.c_contiguous:
            raise TypeError(f"array {name} has the type {array.dtype}, or is not contiguous")
        table[name] = {"dtype": array.dtype.str, "shape": array.shape, "start": start}
        start += _padded(array.nbytes)
    described = json.dumps({"head": head, "arrays": table}).encode()
    parts: list[Any] = [len(described).to_bytes(8, "little"), described, bytes(_gap(_HEAD_START + len(described)))]
    for array in arrays.values():
        parts += (array.data, bytes(_gap(array.nbytes)))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join((_MARK, digest.digest(), *parts))


def map_arrays(path: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Map a file and return its arrays and its head."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not _HEAD_START <= size <= LARGEST:
            raise ValueError(f"a file of arrays cannot have {size} bytes")
        mark, expected = file.read(len(_MARK)), file.read(_HASH_BYTES)
        if mark != _MARK or hashlib.file_digest(file, "sha256").digest() != expected:
            raise ValueError("it is no file of arrays, or it is damaged")
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    length = int.from_bytes(content[_HEAD_START - 8 : _HEAD_START], "little")
    described = json.loads(content[_HEAD_START : _HEAD_START + length])
    base = _padded(_HEAD_START + length)
    return {name: _view(content, base, **row) for name, row in described["arrays"].items()}, described["head"]


def _view(content: mmap.mmap, base: int, *, dtype: str, shape: list[int], start: int) -> AnyArray:
    if dtype not in _TYPES:
        raise ValueError(f"{dtype} is no type of a file of arrays")
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(content, dtype, count, base + start).reshape(shape)  # refuses what is out of the file


def _padded(size: int) -> int:
    return size + _gap(size)


def _gap(size: int) -> int:
    return -size % _ALIGNMENT


FORMAT: Final = 1
MAX_CACHE_FILES: Final = 16
MAX_CACHE_BYTES: Final = 1 << 29
"""Bytes of all files that are kept; half a million terms take about 50 MB."""
MIN_CACHED_TERMS: Final = 5_000
"""Fewer are compiled in a few hundredths of a second."""
_ENDING: Final = ".arrays"
_COMPILING_MODULES: Final = ("lexicon", "lexicon_compiler", "term_tables", "wordhash")
_Tables = TypeVar("_Tables")


class LexiconSource(Protocol):
    """Terms of a label that can be read, and told apart from others without reading them."""

    @property
    def label(self) -> str: ...

    @property
    def path(self) -> Path | None:
        """Return the file that messages name."""

    def identify(self) -> str | None:
        """Return a text that differs for other terms, None if there is none."""

    def read(self) -> Lexicon: ...


@dataclass(frozen=True)
class LexiconFile:
    """A lexicon that a user gives."""

    label: str
    path: Path

    def identify(self) -> str | None:
        if not self.path.is_file():  # a pipe can be read once, and what is absent is refused when it is read
            return None
        return f"file {hash_file(self.path)} {is_named_csv(self.path)}"

    def read(self) -> Lexicon:
        return read_lexicon(self.path, self.label)


@dataclass(frozen=True)
class OpenedLexicons:
    """Lexicons ready for matching."""

    gazetteer: Gazetteer
    sources: tuple[LexiconSource, ...]
    bad: tuple[BadLexiconRows, ...]
    """What could not be used of each source."""

    @property
    def bad_count(self) -> int:
        return sum(rows.count for rows in self.bad)

    def warnings(self) -> list[str]:
        """Return a sentence for each bad row of the sources, with the file and the line."""
        pairs = zip(self.sources, self.bad, strict=True)
        return [warning for source, rows in pairs for warning in rows.warnings(source.path)]


@dataclass(frozen=True, kw_only=True)
class StopLists:
    """Which terms are not looked for, as `Gazetteer.from_lexicons` has it."""

    stop: Iterable[str] = STOP_WORDS
    keep: Iterable[str] = ()
    ordinary: Iterable[str] = ()


def open_lexicons(sources: Iterable[LexiconSource], lists: StopLists | None = None) -> OpenedLexicons:
    """Map lexicons that were compiled before, or compile them and keep the result."""
    sources, lists = tuple(sources), lists or StopLists()
    lists = StopLists(**{name: frozenset(words) for name, words in vars(lists).items()})
    key = _make_key(sources, lists)
    if key is not None and (found := _load(key, sources)) is not None:
        return found
    lexicons = [source.read() for source in sources]
    gazetteer = Gazetteer.from_lexicons(lexicons, **vars(lists))
    compiled = OpenedLexicons(gazetteer, sources, tuple(lexicon.bad for lexicon in lexicons))
    if key is None or gazetteer.counts.rows < MIN_CACHED_TERMS or _make_key(sources, lists) != key:
        return compiled  # a file that was changed meanwhile is not kept under the hash that it had
    _store(key, compiled)
    return _load(key, sources) or compiled


def get_lexicon_folder() -> Path:
    """Name the folder of compiled lexicons."""
    return get_cache_folder() / "lexicons"


def _make_key(sources: Sequence[LexiconSource], lists: StopLists) -> str | None:
    try:
        parts = [(source.label, source.identify()) for source in sources]
        code = _hash_code()
    except OSError:
        return None
    if any(identity is None for _, identity in parts):
        return None
    words = {name: sorted(words) for name, words in vars(lists).items()}
    described = [FORMAT, code, unicodedata.unidata_version, sys.byteorder, parts, words]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


@cache
def _hash_code() -> str:
    """Hash the modules that decide what is compiled, so that nobody has to remember to raise a number."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _COMPILING_MODULES)).hexdigest()


def _load(key: str, sources: tuple[LexiconSource, ...]) -> OpenedLexicons | None:
    """Map what was kept under a key; None: there is nothing, or it is damaged."""
    path = _path(key)
    try:
        arrays, head = map_arrays(path)
        if head["key"] != key:
            return None
        tables = _restore(GazetteerTables, arrays, "")
        gazetteer = Gazetteer(tuple(head["labels"]), tables, GazetteerCounts(**head["counts"]))
        bad = tuple(_parse_bad_rows(rows) for rows in head["bad"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    with suppress(OSError):
        os.utime(path)
    return OpenedLexicons(gazetteer, sources, bad)


def _store(key: str, compiled: OpenedLexicons) -> None:
    """Keep compiled lexicons, unless the folder cannot be written."""
    gazetteer = compiled.gazetteer
    head = {
        "key": key,
        "labels": gazetteer.labels,
        "counts": asdict(gazetteer.counts),
        "bad": [asdict(rows) for rows in compiled.bad],
    }
    content = pack_arrays(dict(_flatten(gazetteer.tables, "")), head)
    if len(content) > min(LARGEST, MAX_CACHE_BYTES):
        return
    try:
        get_lexicon_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        atomic_write(_path(key), content)
        _delete_oldest()
    except (OSError, BadFile):
        return


def _delete_oldest() -> None:
    """Delete the files that were not used for longest, beyond the number and the size that are kept."""
    with_times = [(path.stat(), path) for path in get_lexicon_folder().glob(f"*{_ENDING}")]
    size = 0
    for number, (facts, path) in enumerate(sorted(with_times, key=lambda each: -each[0].st_mtime_ns)):
        size += facts.st_size
        if number >= MAX_CACHE_FILES or size > MAX_CACHE_BYTES:
            path.unlink(missing_ok=True)


def _path(key: str) -> Path:
    return get_lexicon_folder() / f"{key[:32]}{_ENDING}"


def _parse_bad_rows(rows: Mapping[str, Any]) -> BadLexiconRows:
    return BadLexiconRows(tuple(BadLexiconRow(**row) for row in rows["first"]), rows["count"])


def _flatten(tables: Any, prefix: str) -> Iterator[tuple[str, AnyArray]]:
    """Yield the arrays of tables within tables by their path: `trie.words.keys`."""
    for field in fields(tables):
        value, name = getattr(tables, field.name), f"{prefix}{field.name}"
        yield from _flatten(value, f"{name}.") if is_dataclass(value) else [(name, value)]


def _restore(kind: type[_Tables], arrays: Mapping[str, AnyArray], prefix: str) -> _Tables:
    """Put arrays back into tables of a kind."""
    types = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(
        **{
            name: _restore(types[name], arrays, f"{prefix}{name}.")
            if is_dataclass(types[name])
            else arrays[f"{prefix}{name}"]
            for name in names
        }
    )
