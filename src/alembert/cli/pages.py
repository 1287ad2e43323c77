"""How commands write a page: refused before the work if it cannot be written, and whole or not there."""

from __future__ import annotations

from pathlib import Path


def check_page(path: Path | None) -> None:
    """Refuse a name that something else has."""
    from alembert.errors import BadFile

    if path is not None and (path.is_dir() or path.parent.is_file()):
        raise BadFile(f"The page cannot be written to {path}: a folder or a file is in its way. Choose another name.")


def write_page(path: Path, text: str) -> None:
    """Write a page, and say where it is."""
    from alembert.artifact import atomic_write
    from alembert.errors import BadFile
    from alembert.terminal.output import note

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as problem:
        raise BadFile(f"{path} cannot be written: {problem.strerror}.") from None
    note(f"the page is {path}")
