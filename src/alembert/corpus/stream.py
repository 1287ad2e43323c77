"""An input file as its readers' items, with how far it is read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from alembert.corpus.input_files import InputFile
from alembert.corpus.readers import Item, ReadOptions, read, reader_for
from alembert.errors import BadFile


class Stream:
    """An input that knows how far it is read; folders and Parquet files need their path, and know it at the end."""

    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._ids = file.ids
        self._file: io.BufferedReader | None = None

    def items(self, options: ReadOptions, format: str | None) -> Iterator[Item]:  # noqa: A002
        if format in ("brat", "parquet") or self.path.is_dir():
            return read(self.path, options, format, self._ids)
        try:
            self._file = self.path.open("rb")
        except OSError:
            return read(self.path, options, format, self._ids)  # which sets the file aside, with the reason
        return read(self._file, options, format, self._ids)

    def place(self) -> int:
        return self._file.tell() if self._file else 0

    def close(self) -> None:
        if self._file:
            self._file.close()


def known_format(path: Path) -> str | None:
    """Name the format of an input; None if the reader is to say what is wrong with it."""
    try:
        return reader_for(path)
    except BadFile:
        return None


def size_of(path: Path) -> int:
    """Count the bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(size_of(child) for child in path.iterdir())
    return path.stat().st_size
