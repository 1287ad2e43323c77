"""The numbers of an index: how vectors are stored, and how far a stored or rounded number may be from the true one.

float32 keeps a vector as it is, float16 takes half the room, int8 a quarter: whole numbers from -127 to 127 with one
scale a row. An int8 copy may also stand beside the full vectors, to be looked through first; with each row goes the
length of what the copy lacks, so that nobody has to guess how wrong a score from the copy can be.
"""

# N vectors, D width
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.errors import BadFile

Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]

TYPES: Final = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
ROW: Final = np.dtype([("start", "<i8"), ("norm", "<f4"), ("scale", "<f4"), ("error", "<f4")])
"""What is known of a row: the byte at which its unit begins, the length of its vector as stored, the scale of its int8
numbers, and the length of the difference between the vector and its int8 copy."""
_LARGEST: Final = 127


@dataclass(frozen=True, eq=False)
class Stored:
    """Vectors as they go to the disk; `rows` has no starts yet, `copy` is the int8 copy if one was asked for."""

    matrix: Numbers
    rows: Numbers
    copy: Numbers | None = None


def stored(vectors_ND: Vectors, dtype: str, *, copy: bool = False) -> Stored:
    """Turn vectors into what the disk gets."""
    rows = np.zeros(len(vectors_ND), ROW)
    matrix: Numbers = vectors_ND
    if dtype == "int8":
        matrix, rows["scale"] = quantised(vectors_ND)
    else:
        with np.errstate(over="ignore"):  # what float16 cannot hold is refused below, in words
            matrix = vectors_ND.astype(TYPES[dtype])
    _check_finite(vectors_ND, matrix, dtype)
    full = restored(matrix, rows["scale"] if dtype == "int8" else None)
    rows["norm"] = np.sqrt((full * full).sum(1))
    if not copy:
        return Stored(matrix, rows)
    short, rows["scale"] = quantised(full.astype(np.float32))
    rows["error"] = _upwards(np.sqrt(((full - restored(short, rows["scale"])) ** 2).sum(1)))
    return Stored(matrix, rows, short)


def quantised(vectors_ND: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round vectors to int8; give also the scale of each row, 0 for a vector of zeros.

    >>> quantised(np.array([[1.27, -0.635, 0.0]], np.float32))[0].tolist()
    [[127, -64, 0]]
    """
    scales_N = (np.abs(vectors_ND).max(1, initial=0) / np.float32(_LARGEST)).astype(np.float32)
    steps_ND = vectors_ND / np.where(scales_N > 0, scales_N, np.float32(1))[:, None]
    return np.rint(steps_ND).clip(-_LARGEST, _LARGEST).astype(np.int8), scales_N


def restored(matrix: Numbers, scales_N: Numbers | None) -> npt.NDArray[np.float64]:
    """Give stored numbers as float64, in which a float32 times a scale is exact."""
    full = matrix.astype(np.float64)
    return full if scales_N is None else full * scales_N.astype(np.float64)[:, None]


def _upwards(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Round up to float32: a bound must not become smaller."""
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))


def _check_finite(vectors_ND: Vectors, matrix: Numbers, dtype: str) -> None:
    if not np.isfinite(vectors_ND).all():
        raise BadFile(
            "The model gives vectors with numbers that are infinite or none at all: its weights are damaged. "
            "Restore the checkpoint, or train it again."
        )
    if not np.isfinite(matrix).all():
        raise BadFile(f"Some numbers of the vectors are too large for {dtype}. Use --dtype float32.")
