"""A rectangle of shaded cells as one small picture: matrices of any size, in charts and in data that a page reads."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from alembert.charts import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADE: Final = (0x3F, 0x85, 0xCF)
"""Colour of the cells of a `GridMark`, which is read on light and on dark paper."""


@dataclass(frozen=True, eq=False)
class GridMark:
    """A rectangle of cells (rows, columns), each shaded by a number from 0 (the paper) to 255, as a small PNG."""

    at: Point
    width: float
    height: float
    cells: npt.NDArray[np.uint8]
    tooltip: str = ""
    levels: int = 256
    """Shades that are told apart: fewer make a smaller file."""

    def svg(self) -> str:
        x, y = self.at
        box = f'x="{x:.1f}" y="{y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}"'
        look = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
        title = f"<title>{escape(self.tooltip)}</title>" if self.tooltip else ""
        return f'<image {box} {look} href="{encode_shades(self.cells, self.levels)}">{title}</image>'

    def draw(self, axes: Axes) -> None:
        rows = [[tuple(part / 255 for part in (*_SHADE, shade)) for shade in row] for row in self.cells.tolist()]
        (x, y), box = self.at, axes.axis()
        axes.imshow(rows, extent=(x, x + self.width, y + self.height, y), aspect="auto", interpolation="nearest")
        axes.axis(box)


def encode_shades(cells: npt.NDArray[np.uint8], levels: int = 256) -> str:
    """Return cells as the address of a PNG with one colour, whose opacity is the number of the cell."""
    rows, columns = cells.shape
    shades = (cells.astype(np.uint16) * (levels - 1) + 127) // 255
    lines = b"".join(b"\0" + row.tobytes() for row in shades.astype(np.uint8))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0),
        b"PLTE": bytes(_SHADE) * levels,
        b"tRNS": bytes(round(255 * level / (levels - 1)) for level in range(levels)),
        b"IDAT": zlib.compress(lines),
        b"IEND": b"",
    }
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()
