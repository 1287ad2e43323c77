"""`annotation.conf` of a brat folder: the types that its annotations use, without which brat shows none of them.

The arguments of relations and events may be of any type: what a person who corrects annotations wants to add is not known
from those that are there. An attribute of a few values has them listed, one of many or of measured ones (a score) has not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

NAME: Final = "annotation.conf"
_MOST_VALUES: Final = 50
_FRACTION: Final = re.compile(r"-?\d+\.\d+")


@dataclass
class BratTypes:
    """The names that were written."""

    entities: set[str] = field(default_factory=set)
    relations: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Roles of arguments, by type."""
    events: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attributes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Values, by name; one that is only there or not has none."""

    def to_text(self) -> str:
        """Write the file's content."""
        relations = _with_roles(self.relations, "{}:<ENTITY>")
        events = _with_roles(self.events, "{}*:<ANY>")
        attributes = (f"{name}\tArg:<ANY>{_values(self.attributes[name])}" for name in sorted(self.attributes))
        sections = {
            "entities": sorted(self.entities - self.events.keys()),  # the trigger of an event has its type
            "relations": relations,
            "events": events,
            "attributes": attributes,
        }
        return "\n".join(_section(name, lines) for name, lines in sections.items())


def _section(name: str, lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in (f"[{name}]", *lines))


def _with_roles(types: Mapping[str, set[str]], form: str) -> Iterator[str]:
    for name in sorted(types):
        yield f"{name}\t" + ", ".join(form.format(role) for role in sorted(types[name]))


def _values(values: set[str]) -> str:
    is_list = 0 < len(values) <= _MOST_VALUES and not all(map(_FRACTION.fullmatch, values))
    return f", Value:{'|'.join(sorted(values))}" if is_list else ""
