"""The nouns of training data: a stretch of the shards, and the instance that it becomes.

A `Stretch` says which tokens of the shards make one training sequence, and is small: a window of thousands of them is
planned ahead. An `Instance` holds the tokens themselves, with `[CLS]` and `[SEP]`, and is made when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A training sequence as ranges of the shards' tokens."""

    document: int
    a: Range
    b: Range | None = None
    label: int | None = None
    """0: B follows A. 1: B is random, or the two are swapped. None: a single sequence."""

    @property
    def length(self) -> int:
        """Tokens with `[CLS]` and `[SEP]`."""
        own = self.a[1] - self.a[0]
        return own + 2 if self.b is None else own + self.b[1] - self.b[0] + 3


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One training sequence, not masked."""

    ids: npt.NDArray[np.int32]
    segments: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    """The shards' flags of each token; 0 at special tokens."""
    special: npt.NDArray[np.bool_]
    """True at `[CLS]` and `[SEP]`."""
    label: int | None = None

    def __len__(self) -> int:
        return len(self.ids)
