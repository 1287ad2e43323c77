"""A document's text put together from parts, with the sections they make.

Parts are joined by one line break, so a title of n characters is followed by text that starts at n + 1, which is also
how PubTator and BioC count. White space at the ends of a part goes; inside it stays as it is.
"""

from __future__ import annotations

import re

from alembert.corpus.document import Section

_LAYOUT = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


class Composer:
    """Collects parts; `text` and `sections` are the result."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._sections: list[Section] = []
        self.length = 0

    def add(self, part: str, kind: str, heading: str = "") -> None:
        """Append a part as a section of its own; an empty part adds nothing."""
        part = part.strip()
        if part:
            start = self.length + (1 if self._parts else 0)
            self._parts.append(part)
            self.length = start + len(part)
            self._sections.append(Section(start, self.length, kind, heading))

    @property
    def text(self) -> str:
        return "\n".join(self._parts)

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(self._sections)


def unwrap(text: str) -> str:
    """Turn the line breaks and indents of a pretty-printed file into single spaces.

    >>> unwrap("two\\n      lines")
    'two lines'
    """
    return _LAYOUT.sub(" ", text) if "\n" in text or "\r" in text else text
