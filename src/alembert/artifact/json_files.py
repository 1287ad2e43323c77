"""JSON files that anyone may have written, and tables whose shape is not known yet.

In: a path, or bytes. Out: plain values, or a sentence. Each reader of a `task.json`, `config.json`, `manifest.json` or
tokenizer file comes through here, so that a damaged or hostile file is refused in one way: too large, no UTF-8, no JSON,
nested too deeply, or no object. What a table says is for its reader to check, inside `refuse_malformed`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile

MAX_JSON_BYTES: Final = 50_000_000
"""Bytes of a file, unless its reader expects another size."""
MALFORMED_ERRORS: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What Python raises for values of another type, size or shape than the code that reads them expects."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def read_json(path: Path, *, shown: str | None = None, largest: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read the JSON object in a file, which messages call `shown`; refuse anything else with a sentence."""
    name = shown or str(path)
    try:
        size = path.stat().st_size
        if size > largest:
            raise BadFile(f"{name} has {size:,} bytes; expected at most {largest:,}. Check the file.")
        content = parse_json(path.read_bytes())
    except OSError as problem:
        raise BadFile(f"{name} cannot be read: {problem.strerror}.") from None
    except ValueError:
        raise BadFile(f"{name} is damaged or cut off: it is not readable as JSON. Restore or rebuild it.") from None
    if not isinstance(content, dict):
        raise BadFile(f"{name} is damaged: it holds no JSON object. Restore or rebuild it.")
    return content


def parse_json(data: bytes, *, unique: bool = False) -> Any:
    """Parse JSON in UTF-8; raise ValueError for what is none, NaN and infinite numbers included.

    With `unique` an object that has one name twice is refused as well.
    """
    try:
        # Manifests of the past hold the bytes of file names that are not Unicode as surrogates.
        return json.loads(
            data.decode("utf-8", "surrogatepass"),
            object_pairs_hook=_unique if unique else None,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {name!r} occurs twice")
    return table


def to_json_bytes(value: Any, *, allow_nan: bool = True) -> bytes:
    r"""Write a value as JSON for people and programs: UTF-8, with escapes for what UTF-8 cannot hold.

    Python gives file names that are not Unicode with lone surrogates. Their escapes are read back as the same name.

    >>> to_json_bytes({"name": "caf\udce9"})
    b'{\n  "name": "caf\\udce9"\n}\n'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, indent=2)
    return (_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n").encode()


@contextmanager
def refuse_malformed(sentence: str) -> Iterator[None]:
    """Refuse with this sentence a table that the code inside cannot read; its own sentences pass."""
    try:
        yield
    except MALFORMED_ERRORS:
        raise BadFile(sentence) from None


def check_whole_number(value: Any, smallest: int | None = 0) -> int:
    """Return a whole number of a table; raise ValueError for anything else, true and false included."""
    if type(value) is not int or (smallest is not None and value < smallest):
        raise ValueError("no whole number, or too small a one")
    return value


def check_text(value: Any) -> str:
    """Return a text of a table; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value
