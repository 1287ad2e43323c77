"""What `corpus build` can be told: one frozen dataclass, the same in Python, in a TOML file and in the manifest.

In: keyword arguments, or a TOML file whose tables `[clean]` and `[read]` are the dataclasses inside. Out: settings that
were checked. An unknown key is an error that names the nearest known one,
and the table it belongs to. Paths of lexicons and lists are not
settings but inputs: they are known by their content, so a corpus does not depend on where they lie.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from alembert.corpus.clean import CleanSettings
from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadFile, BadSetting

T = TypeVar("T")


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
            raise BadSetting(
                f"`format` is {self.format!r}, which no reader has. Use one of {', '.join(FORMATS)}."
            )
        for name in ("part_characters", "part_documents"):
            if getattr(self, name) < 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; a part holds at least one.")

    def as_config(self) -> dict[str, Any]:
        """Give the settings as plain values for the manifest."""
        return dataclasses.asdict(self)


def read_settings(path: Path) -> BuildSettings:
    """Read settings from a TOML file."""
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"The settings {path} cannot be read: {error.strerror}. Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"The settings {path} are not TOML: {error}.") from None
    return from_table(BuildSettings, record, str(path))


def from_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """Make a settings dataclass from a table of plain values, checking names and types.

    >>> from_table(CleanSettings, {"min_words": 9}, "corpus.toml").min_words
    9
    """
    hints = typing.get_type_hints(kind)
    for name in table:
        if name not in hints:
            raise BadSetting(f"{where} has the key `{name}`, which is unknown here.{_advice(name, hints)}")
    return kind(**{name: _value(hints[name], value, f"{where}, `{name}`") for name, value in table.items()})


def _advice(name: str, hints: Mapping[str, Any]) -> str:
    """Name the nearest known key, of this table or of one inside it."""
    homes = dict.fromkeys(hints, "")
    for table, hint in hints.items():
        if dataclasses.is_dataclass(hint):
            homes |= {item.name: table for item in dataclasses.fields(hint) if item.name not in homes}
    if name in homes:
        return f" `{name}` belongs under [{homes[name]}]."
    near = difflib.get_close_matches(name, homes, n=1, cutoff=0.0)
    return f" The nearest known key is `{near[0]}`{_under(homes[near[0]])}." if near else ""


def _under(table: str) -> str:
    return f", under [{table}]" if table else ""


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_table(typing.cast(type[Any], hint), value, where)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return tuple(value)
    elif _fits(hint, value):
        return float(value) if hint is float else value
    raise BadSetting(f"{where} is {value!r}, which is not {_in_words(hint)}.")


def _fits(hint: Any, value: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_fits(option, value) for option in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(hint, type) and type(value) is hint


def _in_words(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    if typing.get_origin(hint) is tuple:
        return "a list of strings"
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    options = [names[option] for option in typing.get_args(hint) or (hint,) if option in names]
    return " or ".join(options) or "a table"
