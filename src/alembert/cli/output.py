"""Texts of the command line, or one a line on stdin: a line that cannot be used is named, and the rest goes on.

How commands write a page: refused before the work if it cannot be written, and whole or not there.

Exit codes of every command, beside 0 (done), 1 (a bug, Python's own) and 143 (terminated).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.terminal import note, read_stdin

TEXTS_HELP = "Texts; one a line on stdin if none."
"""Help of an argument that takes texts."""


def for_each_line(use: Callable[[str], object]) -> int:
    """Call `use` with each line that is not blank; return how many were set aside because it refused them."""
    set_aside = 0
    for number, ended in enumerate(read_stdin().split("\n"), 1):
        line = ended.removesuffix("\r")
        if not line.strip():
            continue
        try:
            use(line)
        except BadInput as problem:
            set_aside += 1
            note(f"line {number} set aside: {problem}")
    return set_aside


def for_each_text(texts: Sequence[str], use: Callable[[str], object]) -> int:
    """Call `use` with each text, or with each line of stdin if there are none; return how many lines were set aside."""
    used = list(texts)
    for text in texts:
        use(text)

    def take(line: str) -> None:
        use(line)
        used.append(line)

    set_aside = 0 if texts else for_each_line(take)
    if not used and not set_aside:
        raise BadInput("There is no text. Give texts after the model, or one a line on stdin.")
    return set_aside


def find_file_path(texts: Sequence[str]) -> str | None:
    """Return the first text that is the path of a file: its name would be read in place of its lines."""
    return next((text for text in texts if os.path.isfile(text)), None)  # noqa: PTH113 (a text may be too long)


def refuse_files(texts: Sequence[str], command: str) -> None:
    """Refuse paths where a command takes texts."""
    if path := find_file_path(texts):
        raise BadSetting(
            f"{path} is a file, and texts were expected. To read its lines: alembert {command} MODEL < {path}"
        )


def check_page(path: Path | None) -> None:
    """Refuse a name that something else has."""

    if path is not None and (path.is_dir() or path.parent.is_file()):
        raise BadFile(f"The page cannot be written to {path}: a folder or a file is in its way. Choose another name.")


def write_page(path: Path, text: str) -> None:
    """Write a page, and say where it is."""

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as problem:
        raise BadFile(f"{path} cannot be written: {problem.strerror}.") from None
    note(f"the page is {path}")


REFUSED: Final = 2
"""Something that the user can mend; one sentence on stderr says what."""
SET_ASIDE: Final = 3
"""Finished, and some of the input could not be used."""
INTERRUPTED: Final = 130
