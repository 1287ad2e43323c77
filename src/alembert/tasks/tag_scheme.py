"""Tag names of heads that were trained elsewhere, read as tags of our own scheme.

In: the names of a head's outputs, in any order and spelling: `B-gene`, `I_gene`, `U-gene`, `gene`, `NOUN`, `LABEL_3`. Out:
for each the tag that means the same here (`B-gene`, `I-gene`, `S-gene`, `I-gene`, `B-NOUN`, `I-LABEL_3`, `O`), so that one
pair of functions turns words into tags and back. A name without a prefix continues an entity of the same name beside it,
as in the pipelines of transformers; where there is no `O` either, every word is an entity of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from alembert.tasks.tag_words import OUTSIDE

UNNAMED: Final = "entity"
"""The type of tags that are prefixes alone: B, I, O."""
_PREFIXES: Final = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
"""Prefix of any scheme -> the one of BIOES that means the same."""
_NUMBERED: Final = re.compile(r"LABEL_\d+")


@dataclass(frozen=True)
class TagScheme:
    """What the outputs of a head mean."""

    name: str
    """How people call it: BIO, IO, BIOES, BILOU, BMES, or `one label a word`."""
    tags: tuple[str, ...]
    """For each output: O, or B-, I-, E- or S- and the type."""
    is_nameless: bool = False
    """Whether the outputs have no names but their numbers."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types of entities, in the order of the outputs."""
        return tuple(dict.fromkeys(tag[2:] for tag in self.tags if tag != OUTSIDE))

    @property
    def is_every_token(self) -> bool:
        """Whether each word is an entity of its own, as with parts of speech."""
        return self.name == _EVERY_TOKEN

    @classmethod
    def of(cls, names: Sequence[str]) -> TagScheme:
        """Recognise the scheme of a head by the names of its outputs.

        >>> TagScheme.of(["B_gene", "O", "I_gene"])
        TagScheme(name='BIO', tags=('B-gene', 'O', 'I-gene'), is_nameless=False)
        >>> TagScheme.of(["O", "gene"]).tags, TagScheme.of(["NOUN", "VERB"]).tags
        (('O', 'I-gene'), ('B-NOUN', 'B-VERB'))
        """
        if are_nameless(names):
            return cls("IO", tuple(f"I-{name}" for name in names), is_nameless=True)
        inside = {name for name in names if name != OUTSIDE}
        if inside <= _PREFIXES.keys() and inside & {"B", "I"}:
            return cls(_scheme_name(inside), tuple(map(_without_type, names)))
        for separator in "-_":
            parts = [_part(name, separator, inside) for name in names]
            used = {prefix for prefix, _ in parts if prefix}
            if used:
                return cls(_scheme_name(used), tuple(_joined(*part) for part in parts))
        if OUTSIDE in names:
            return cls("IO", tuple(_joined("", name) for name in names))
        return cls(_EVERY_TOKEN, tuple(f"B-{name}" for name in names))


def are_nameless(names: Sequence[str]) -> bool:
    """Tell whether the outputs of a head have no names but the numbers that transformers gives them."""
    return all(_NUMBERED.fullmatch(name) for name in names)


_EVERY_TOKEN: Final = "one label a word"  # noqa: S105 (no password)


def _part(name: str, separator: str, names: set[str]) -> tuple[str, str]:
    """Divide a name into prefix and type; E, S and the like are prefixes only beside a B of the same type."""
    prefix, found, label = name.partition(separator)
    is_prefix = prefix in ("B", "I") or (prefix in _PREFIXES and f"B{separator}{label}" in names)
    return (prefix, label) if found and label and is_prefix else ("", name)


def _joined(prefix: str, label: str) -> str:
    if not prefix:
        return label if label == OUTSIDE else f"I-{label}"
    return f"{_PREFIXES[prefix]}-{label}"


def _without_type(name: str) -> str:
    return name if name == OUTSIDE else f"{_PREFIXES[name]}-{UNNAMED}"


def _scheme_name(prefixes: set[str]) -> str:
    """Name a scheme by its prefixes.

    >>> _scheme_name({"B", "I"}), _scheme_name({"I"}), _scheme_name({"B", "I", "L", "U"})
    ('BIO', 'IO', 'BILOU')
    """
    if prefixes & {"L", "U"}:
        return "BILOU"
    if "M" in prefixes:
        return "BMES"
    return "BIOES" if prefixes & {"E", "S"} else "BIO" if "B" in prefixes else "IO"
