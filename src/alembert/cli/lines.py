"""Texts of the command line, or one a line on stdin: a line that cannot be used is named, and the rest goes on."""

import os
from collections.abc import Callable, Sequence

from alembert.errors import BadInput, BadSetting
from alembert.terminal.output import note, read_stdin

TEXTS = "Texts; one a line on stdin if none."
"""Help of an argument that takes texts."""


def each_line(use: Callable[[str], object]) -> int:
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


def each_text(texts: Sequence[str], use: Callable[[str], object]) -> int:
    """Call `use` with each text, or with each line of stdin if there are none; return how many lines were set aside."""
    used = list(texts)
    for text in texts:
        use(text)

    def take(line: str) -> None:
        use(line)
        used.append(line)

    set_aside = 0 if texts else each_line(take)
    if not used and not set_aside:
        raise BadInput("There is no text. Give texts after the model, or one a line on stdin.")
    return set_aside


def file_among(texts: Sequence[str]) -> str | None:
    """Return the first text that is the path of a file: its name would be read in place of its lines."""
    return next((text for text in texts if os.path.isfile(text)), None)  # noqa: PTH113 (a text may be too long)


def refuse_files(texts: Sequence[str], command: str) -> None:
    """Refuse paths where a command takes texts."""
    if path := file_among(texts):
        raise BadSetting(
            f"{path} is a file, and texts were expected. To read its lines: alembert {command} MODEL < {path}"
        )
