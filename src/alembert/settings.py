"""Settings: one frozen dataclass per verb, the same in Python, in a TOML file and in the manifest.

In: a settings object and a table of plain values, whose inner tables are the dataclasses inside. Out: settings that
were checked, or a table again. An unknown key is an error that names the nearest known one, and the table it belongs
to.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import sys
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from alembert.errors import BadFile, BadSetting

T = TypeVar("T")
_NONE: Final = "none"
"""How a file says that something is off, for which TOML has no word."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as plain values."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(f"The settings {path} cannot be read: {error.strerror}. Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"The settings {path} are not TOML: {error}.") from None


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
    """Give a settings dataclass as plain values."""
    return dataclasses.asdict(settings)


def to_toml(settings: Any, table: str = "") -> str:
    """Write settings as TOML, each key under its explanation, as the docstrings of the fields have it.

    What is off (None) is spelt out as "none", since the file may be read on top of settings in which it is on. `table` is the
    one that they stand in, whose name those inside it carry too.
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
    """Give the docstring that stands under each field of a dataclass."""
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
    options = [names[option] for option in typing.get_args(hint) or (hint,) if option in names]
    return " or ".join(options) or "a table"
