"""A comparison as files: JSON, one HTML page that opens anywhere, and the plot as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from alembert.artifact import atomic_write
from alembert.artifact.json_files import to_json_bytes
from alembert.inspect.comparison import Comparison
from alembert.inspect.comparison_plot import png, svg
from alembert.inspect.comparison_report import sentences, table
from alembert.plots import figure
from alembert.plots import page as framed


def write(found: Comparison, folder: str | Path) -> list[Path]:
    """Write `comparison.json`, `.html` and, where matplotlib is installed, `.png`; say which were written."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    contents = {"json": to_json_bytes(found.to_table()), "html": page(found).encode(), "png": png(found)}
    written = []
    for ending, content in contents.items():
        if content is not None:
            path = place / f"comparison.{ending}"
            atomic_write(path, content)
            written.append(path)
    return written


def page(found: Comparison) -> str:
    """Return the page."""
    title = f"Comparison of {len(found.models)} models"
    about = f"<p>Task {escape(found.task)}, {escape(', '.join(found.files))}: {found.examples:,} examples.</p>"
    return framed(title, title, "\n".join([about, *section(found)]))


def section(found: Comparison) -> Iterator[str]:
    """Give plot, table and sentences, to stand in any page."""
    drawn = table(found)
    yield figure(svg(found), f"{found.measure} with its 95 % interval, size and speed of {_listed(found)}")
    yield f"<h2>{escape(drawn.title)}</h2>\n{drawn.html()}"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in sentences(found))


def _listed(found: Comparison) -> str:
    return ", ".join(model.name for model in found.models)
