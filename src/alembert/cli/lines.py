"""Texts from stdin, one a line: a line that cannot be used is named, and the rest goes on."""

from collections.abc import Callable

from alembert.cli.output import note, read_stdin
from alembert.errors import BadInput


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
