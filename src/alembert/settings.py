"""Settings: one frozen dataclass per verb, the same in Python, in a TOML file and in the manifest.

In: a settings object and layers of plain values (a TOML file, `--set KEY=VALUE`, flags), whose inner tables are the
dataclasses inside; later layers win. Out: settings that were checked, or a table again. An unknown key is an error that
names the nearest known one, and the table it belongs to. A name of the last version is read as the new one.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
import sys
import tomllib
import types
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from alembert.errors import BadFile, BadSetting

T = TypeVar("T")
SETTINGS_HELP: Final = "help"
"""What --set takes in place of KEY=VALUE, to have all settings printed."""
_NONE: Final = "none"
"""How a file says that something is off, for which TOML has no word."""
Layers = Mapping[str, Mapping[str, Any]]
"""Tables of plain values by where they come from; later ones win."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as plain values."""
    try:
        return rename_old_keys(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise BadFile(f"The settings {path} cannot be read: {error.strerror}. Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"The settings {path} are not TOML: {error}.") from None


def read_layers(config: Path | None, words: Sequence[str] | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers of a command: its file, then --set and its flags, of which those that are None are dropped.

    What the command line says is one layer, since settings may only fit together.
    """
    own = _merge(parse_assignments(words or ()), drop_none(**flags))
    return {str(config): read_toml(config) if config else {}, "The command line": own}


def _merge(table: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both tables; those of the other win."""
    both = {
        name: _merge(table[name], value) if isinstance(value, Mapping) and isinstance(table[name], Mapping) else value
        for name, value in other.items()
        if name in table
    }
    return {**table, **other, **both}


def apply_layers(settings: T, layers: Layers) -> T:
    """Change a settings dataclass by layers."""
    for where, table in layers.items():
        settings = apply_changes(settings, table, where)
    return settings


def split_table(settings: T, name: str, layers: Layers) -> tuple[T, dict[str, dict[str, Any]]]:
    """Take an inner table that has settings of its own out of all layers; return these settings, and what is left."""
    rest: dict[str, dict[str, Any]] = {}
    for where, table in layers.items():
        rest[where] = dict(table)
        settings = apply_changes(settings, pop_table(rest[where], name, where), f"{where}, `{name}`")
    return settings, rest


def split_value(usual: str, name: str, layers: Layers) -> tuple[str, dict[str, dict[str, Any]]]:
    """Take a word out of all layers; return the last one, and what is left."""
    rest = {where: dict(table) for where, table in layers.items()}
    for table in rest.values():
        value = table.pop(name, usual)
        usual = str(value.parse(str) if isinstance(value, Assigned) else value)
    return usual, rest


def drop_none(**values: Any) -> dict[str, Any]:
    """Return the values that were given; inner tables that hold none are dropped too.

    >>> drop_none(seed=None, optimiser={"learning_rate": None}, task={"head": "crf"})
    {'task': {'head': 'crf'}}
    """
    tables = {name: drop_none(**value) if isinstance(value, dict) else value for name, value in values.items()}
    return {name: value for name, value in tables.items() if value is not None and value != {}}


@dataclass(frozen=True)
class Assigned:
    """The value of a setting as the command line has it, several if it was repeated; its type depends on the setting."""

    texts: tuple[str, ...]

    def parse(self, hint: Any) -> Any:
        """Return the value for a setting of a type; a list may be one value in brackets, or repeated."""
        if typing.get_origin(hint) is tuple:
            if len(self.texts) == 1 and isinstance(listed := _parse_toml_value(self.texts[0]), list):
                return listed
            return [_parse_text(typing.get_args(hint)[0], text) for text in self.texts]
        values = [_parse_text(hint, text) for text in self.texts]
        return values[0] if len(values) == 1 else values


def parse_assignments(words: Sequence[str]) -> dict[str, Any]:
    """Read the KEY=VALUE of --set, whose keys are dotted, as a table.

    >>> parse_assignments(["optimiser.learning_rate=1e-4", "read.text=a", "read.text=b"])["optimiser"]
    {'learning_rate': Assigned(texts=('1e-4',))}
    """
    texts: dict[str, tuple[str, ...]] = {}
    for word in words:
        if word == SETTINGS_HELP:
            continue
        key, sign, value = word.partition("=")
        if not sign or not all(key.split(".")):
            raise BadSetting(f"--set is {word!r}; expected KEY=VALUE, such as --set optimiser.learning_rate=1e-4.")
        texts[key] = (*texts.get(key, ()), value)
    table: dict[str, Any] = {}
    for key, values in texts.items():
        *tables, name = key.split(".")
        inner = table
        for part in tables:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise BadSetting(f"--set gives {key}, and `{part}` is set as a value too. Leave one of them out.")
        if isinstance(inner.get(name), dict):
            raise BadSetting(f"--set gives {key}, which is a table. Set the keys inside it.")
        inner[name] = Assigned(values)
    return rename_old_keys(table, "--set")


def parse_count(text: str) -> int:
    """Read a number with k, M or G.

    >>> parse_count("20M"), parse_count("1.5k"), parse_count("300")
    (20000000, 1500, 300)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text.strip())
    if not match:
        raise BadSetting(f"The count is {text!r}; expected a number such as 500k, 20M or 1G.")
    return round(float(match[1]) * (1, 10**3, 10**6, 10**9)[" kmg".index(match[2].lower() or " ")])


def _parse_text(hint: Any, text: str) -> Any:
    """Read a value as TOML if that fits the type of the setting, else as the words that it is; 20M is a number."""
    value = _parse_toml_value(text)
    if value is None and _fits(hint, 0) and re.fullmatch(r"[0-9.]+[kKmMgG]", text):
        return parse_count(text)
    return text if value is None or (not _fits(hint, value) and _fits(hint, text)) else value


def _parse_toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return None


OLD_KEYS: Final = {
    "augment.entities": "entity_probability",
    "augment.rate": "replace_probability",
    "decoding.longest": "max_new_tokens",
    "decoding.no_repeat": "no_repeat_ngram",
    "decoding.shortest": "min_new_tokens",
    "export.limit": "max_score_loss",
    "export.rows": "calibration_rows",
    "looks": "evals_per_epoch",
    "losses.hard": "labels",
    "most_texts": "max_texts",
    "optimiser.rate": "learning_rate",
    "saving.average": "ema_decay",
    "sequences.length": "max_length",
    "several": "multitask",
    **{
        f"{table}.{old}": new
        for table in ("task", "task.*", "of_the_task")
        for old, new in {
            "answer_length": "max_answer_length",
            "batch": "batch_size",
            "best": "n_best",
            "distance": "max_distance",
            "judged": "eval_examples",
            "length": "max_length",
            "negative": "negative_label",
            "question_length": "max_question_length",
            "reads": "pooling",
            "source": "max_source_length",
            "target": "max_target_length",
        }.items()
    },
}
"""Names of the last version -> the new name in the same table; `*` is any table. Accepted for one version."""


def rename_old_keys(table: Mapping[str, Any], where: str | None = None, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Rename keys of the last version; `where` names what a user wrote, for the note about each old key.

    >>> rename_old_keys({"optimiser": {"rate": 1e-4}})
    {'optimiser': {'learning_rate': 0.0001}}
    """
    renamed: dict[str, Any] = {}
    for key, value in table.items():
        new = _new_key((*path, key))
        if new and where:
            note = f"{where}: the key `{key}` is now `{new}`; the old name is accepted for one version"
            warnings.warn(note, FutureWarning, stacklevel=2)
        inner = rename_old_keys(value, where, (*path, new or key)) if isinstance(value, Mapping) else value
        renamed[new or key] = inner
    return renamed


def _new_key(path: tuple[str, ...]) -> str | None:
    for old, new in OLD_KEYS.items():
        parts = tuple(old.split("."))
        tail = path[-len(parts) :]
        if len(tail) == len(parts) and all(part in ("*", name) for part, name in zip(parts, tail, strict=True)):
            return new
    return None


def apply_changes(settings: T, table: Mapping[str, Any], where: str) -> T:
    """Change a settings dataclass by a table of plain values, checking names and types."""
    hints = typing.get_type_hints(type(settings))
    for name in table:
        if name not in hints:
            raise BadSetting(f"{where} has the key `{name}`, which is unknown here.{_advice(name, hints)}")
    changes = {
        name: _value(hints[name], getattr(settings, name), value, f"{where}, `{name}`") for name, value in table.items()
    }
    return dataclasses.replace(settings, **changes)  # type: ignore[type-var]


def pop_table(table: dict[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Take an inner table that has settings of its own out of a table; empty if there is none."""
    inner = table.pop(name, {})
    if not isinstance(inner, Mapping):
        raise BadSetting(f"{where}, `{name}` is {inner!r}; expected a table, which begins with [{name}].")
    return inner


def as_table(settings: Any) -> dict[str, Any]:
    """Return a settings dataclass as plain values."""
    return dataclasses.asdict(settings)


def to_toml(settings: Any, table: str = "") -> str:
    """Write settings as TOML, each key under its explanation, as the docstrings of the fields have it.

    What is off (None) is spelt out as "none", since the file may be read on top of settings in which it is on. `table`
    is the one that they stand in, whose name those inside it carry too.
    """
    return "\n".join(_toml_lines(settings, table)) + "\n"


def _toml_lines(settings: Any, table: str) -> Iterator[str]:
    inner = []
    explanations = read_field_docs(type(settings))  # type: ignore[arg-type]  # a class is hashable
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            inner.append((item.name, value))
            continue
        yield from (f"# {line}" for line in explanations.get(item.name, "").splitlines())
        yield f"{item.name} = {_toml_value(value)}"
    for name, value in inner:
        path = f"{table}.{name}" if table else name
        yield from ("", f"[{path}]", *_toml_lines(value, path))


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    # Strings, whole numbers and booleans are spelt alike in both.
    return json.dumps(_NONE if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


@functools.cache
def read_field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the docstring under each field of a dataclass."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]).body
        found |= _field_docs(body)
    return found


def _field_docs(body: list[Any]) -> dict[str, str]:
    import ast
    import inspect

    return {
        before.target.id: inspect.cleandoc(after.value.value)
        for before, after in pairwise(body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }


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


def _value(hint: Any, present: Any, value: Any, where: str) -> Any:
    if isinstance(value, Assigned):
        value = value.parse(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return apply_changes(present, value, where)
    if value == _NONE and types.NoneType in typing.get_args(hint):
        return None
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        item = typing.get_args(hint)[0]
        if all(_fits(item, each) for each in value):
            return tuple(float(each) if item is float else each for each in value)
    elif _fits(hint, value):
        return float(value) if hint is float else value
    raise BadSetting(f"{where} is {value!r}, which is not {_describe_type(hint)}.")


def _fits(hint: Any, value: Any) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_fits(option, value) for option in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        # A whole number of a file may be larger than any float.
        return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)
    return isinstance(hint, type) and type(value) is hint


def _describe_type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    names = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
    names[types.NoneType] = f'"{_NONE}"'
    if typing.get_origin(hint) is tuple:
        return {str: "a list of strings", int: "a list of whole numbers"}.get(
            typing.get_args(hint)[0], "a list of numbers"
        )
    options = [
        _describe_type(option) if typing.get_origin(option) is typing.Literal else names[option]
        for option in typing.get_args(hint) or (hint,)
        if option in names or typing.get_origin(option) is typing.Literal
    ]
    return " or ".join(options) or "a table"
