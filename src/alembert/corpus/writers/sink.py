"""Where writers write: a path, plain or compressed by its ending, or a binary stream.

Compressed files hold no time stamp, so the same documents give the same bytes. Whether a half-written file may be seen
is the caller's business: writers write in place.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from alembert.extras import require

Target = Path | BinaryIO
Losses = Counter[str]
"""What the format could not hold, counted by reason."""


@contextmanager
def opened(target: Target) -> Iterator[BinaryIO]:
    """Open a target for writing bytes; a stream stays open afterwards."""
    if not isinstance(target, Path):
        yield target
    elif target.suffix == ".zst":
        require("Writing a .zst file", "pyarrow")
        import pyarrow as pa

        with pa.CompressedOutputStream(str(target), "zstd") as packed:
            yield cast(BinaryIO, packed)
    elif target.suffix == ".gz":
        with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    else:
        with target.open("wb") as file:
            yield file
