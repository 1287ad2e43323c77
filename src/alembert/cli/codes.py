"""Exit codes of every command, beside 0 (done), 1 (a bug, Python's own) and 143 (terminated)."""

from typing import Final

REFUSED: Final = 2
"""Something that the user can mend; one sentence on stderr says what."""
SET_ASIDE: Final = 3
"""Finished, and some of the input could not be used."""
INTERRUPTED: Final = 130
