"""The settings of `corpus build`: one frozen dataclass, the same in Python, in a TOML file and in the manifest.

In: keyword arguments, or a TOML file whose tables `[clean]` and `[read]` are the nested dataclasses. Out: checked
settings. Paths of lexicons and word lists are inputs, not settings: they are identified by their content, so a corpus
does not depend on where they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from alembert.corpus.clean import CleanSettings
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadSetting
from alembert.settings import apply_changes, as_table, read_toml


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How a corpus is built."""

    format: str | None = None
    """Format of all inputs; none: detected for each file."""
    part_characters: int = 4_000_000
    """Maximum characters of a part, which is the unit of work, of resuming and of memory."""
    part_documents: int = 20_000
    """Maximum documents of a part, including those that are dropped or set aside."""
    default_stop_words: bool = True
    """Ignore lexicon terms that are ordinary English words, units or abbreviations."""
    clean: CleanSettings = field(default_factory=CleanSettings)
    """The cleaning steps."""
    read: ReadOptions = field(default_factory=ReadOptions)
    """How files are read."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise BadSetting(f"`format` is {self.format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
        for name in ("part_characters", "part_documents"):
            if getattr(self, name) < 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; a part holds at least one.")

    def as_config(self) -> dict[str, Any]:
        """Return plain values for the manifest."""
        return as_table(self)


RAW_FILE_SETTINGS: Final = BuildSettings(
    clean=CleanSettings(
        headings=False,
        notices=False,
        min_characters=0,
        min_words=0,
        exact_duplicates=False,
        near_duplicates=False,
    )
)
"""For files that a user trains on directly: every document is kept as it is."""


def read_build_settings(path: Path) -> BuildSettings:
    return apply_changes(BuildSettings(), read_toml(path), str(path))
