"""What `corpus build` can be told: one frozen dataclass, the same in Python, in a TOML file and in the manifest.

In: keyword arguments, or a TOML file whose tables `[clean]` and `[read]` are the dataclasses inside. Out: settings that
were checked. Paths of lexicons and lists are not
settings but inputs: they are known by their content, so a corpus does not depend on where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembert.corpus.clean import CleanSettings
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadSetting
from alembert.settings import apply_changes, as_table, read_toml


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How a corpus is built."""

    format: str | None = None
    """Format of all inputs; recognised for each when not given."""
    part_characters: int = 4_000_000
    """A part is closed when it holds so many characters: the unit of work, of resuming and of memory."""
    part_documents: int = 20_000
    """A part is closed when it holds so many documents, those that are dropped or set aside included."""
    default_stop_words: bool = True
    """Leave lexicon terms out that are ordinary English words, units or abbreviations."""
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
        """Give the settings as plain values for the manifest."""
        return as_table(self)


def read_build_settings(path: Path) -> BuildSettings:
    """Read settings from a TOML file."""
    return apply_changes(BuildSettings(), read_toml(path), str(path))
