"""Files that only grow, and a record of how far they count.

In go blocks of bytes for several files, together with any state; out come files that a kill cannot spoil. Each block is
brought to the disk before the record that counts it, which is replaced as a whole; whatever stands behind the recorded
sizes when the work goes on was never counted, and is cut off. So the files can be of any size, nothing is written twice,
and work that was killed ends with the bytes of work that was not. The price is an fsync a file and block.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy

from alembert import artifact
from alembert.errors import BadFile

RECORD: Final = ".ledger.json"


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
        if (self._folder / RECORD).is_file():
            record = json.loads((self._folder / RECORD).read_bytes())
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

    def add(self, blocks: Mapping[str, bytes], state: Any) -> None:
        """Append to some of the files, and record where the work stands now."""
        for name, block in blocks.items():
            file = self._files[name]
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            self._sizes[name] += len(block)
        self.state = state
        record = json.dumps({"state": state, "sizes": self._sizes})
        artifact.atomic_write(self._folder / RECORD, record.encode())

    def begin_with(self, name: str, head: bytes) -> None:
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


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Write the head of a `.npy` file, which is equally long for any number of rows.

    >>> len(npy_head(np.dtype("<f4"), (0, 384))) == len(npy_head(np.dtype("<f4"), (10**9, 384)))
    True
    """
    head = io.BytesIO()
    facts = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(head, facts)
    return head.getvalue()
