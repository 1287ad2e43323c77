"""brat standoff: a folder with a text file and an annotation file per document, and the types that they use.

Files are named by document id, with characters that file names cannot hold as ``%2F`` and ``%~2`` at the end of a
second document of the same id. Ids of entities and relations are kept when they are brat's (T1, R1, E1), else numbered.
A relation of two arguments is an R line; one whose first argument is a trigger is an event. Labels and roles hold no
spaces in brat: "_" stands for them. Concepts are normalisations, attributes are A lines, or notes when they have
spaces.

`annotation.conf` lists the types that the annotations use, without which brat shows none of them. The arguments of
relations and events may be of any type, so that a person who corrects annotations can add others. The values of an
attribute are listed if there are few and they are not measured (a score).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.readers.brat import NO_DATABASE, TRIGGER
from alembert.corpus.writers import ConversionLosses, OutputTarget, count_unsupported_fields, replace_forbidden
from alembert.errors import BadSetting

CONFIGURATION: Final = "annotation.conf"
_MAX_VALUES: Final = 50
_FRACTION: Final = re.compile(r"-?\d+\.\d+")


@dataclass
class BratTypes:
    """The types, roles and attributes that were written."""

    entities: set[str] = field(default_factory=set)
    relations: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Roles of arguments, by type."""
    events: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attributes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Values, by name; a flag has none."""

    def to_text(self) -> str:
        """Return the content of `annotation.conf`."""
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
    is_list = 0 < len(values) <= _MAX_VALUES and not all(map(_FRACTION.fullmatch, values))
    return f", Value:{'|'.join(sorted(values))}" if is_list else ""


_SPACES = " \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029"
_LONGEST_NAME = 180


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents into a folder, which is created if needed; return what brat cannot hold."""
    if not isinstance(target, Path):
        raise BadSetting("brat is written to a folder of pairs of files: give a path, not a stream.")
    target.mkdir(parents=True, exist_ok=True)
    losses = ConversionLosses()
    types = BratTypes()
    seen: Counter[str] = Counter()
    for document in documents:
        count_unsupported_fields(document, losses, "relations")
        name = _file_name(document.id, losses)
        seen[name] += 1
        name += f"%~{seen[name]}" if seen[name] > 1 else ""
        (target / f"{name}.txt").write_bytes(document.text.encode())
        lines = _Lines(document, losses, types).all()
        (target / f"{name}.ann").write_bytes("".join(line + "\n" for line in lines).encode())
    (target / CONFIGURATION).write_bytes(types.to_text().encode())
    return +losses


def _file_name(name: str, losses: ConversionLosses) -> str:
    quoted = quote(name, safe=" ()[]+,=@") or "%00"
    if quoted.startswith("."):  # a hidden file would not be read
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _LONGEST_NAME:
        return quoted
    losses["ids too long for a file name were shortened"] += 1
    return quoted[:120].rsplit("%", 1)[0] + "-" + sha256(name.encode()).hexdigest()[:16]


class _Lines:
    """The annotation lines of one document."""

    def __init__(self, document: Document, losses: ConversionLosses, types: BratTypes) -> None:
        self.document, self.losses, self.types = document, losses, types
        self.ids = _numbered([entity.id for entity in document.entities], "T")
        self.kinds = [_kind(relation) for relation in document.relations]
        self.ids |= _numbered([relation.id for relation in document.relations], "R", self.kinds)
        self.mention_of = {concept: entity.id for entity in reversed(document.entities) for concept in entity.concepts}
        self.numbers: Counter[str] = Counter()
        losses["annotation ids were numbered anew"] += sum(old != new for old, new in self.ids.items())

    def all(self) -> Iterator[str]:
        for entity in self.document.entities:
            yield self._mention(entity)
            yield from self._concepts(entity)
            yield from self._attributes(entity)
        for relation, kind in zip(self.document.relations, self.kinds, strict=True):
            yield from self._relation(relation, kind)

    def _mention(self, entity: Entity) -> str:
        spans = ";".join(f"{start} {end}" for start, end in entity.spans)
        surface = entity.surface(self.document.text)
        surface = surface.translate(str.maketrans("\t\r\n", "   "))
        label = self._word(entity.label)
        self.types.entities.add(label)
        return f"{self.ids[entity.id]}\t{label} {spans}\t{surface}"

    def _concepts(self, entity: Entity) -> Iterator[str]:
        for concept in entity.concepts:
            self.numbers["N"] += 1
            name = replace_forbidden(concept, "\t\r", self.losses)
            reference = name if ":" in name else NO_DATABASE + name
            yield f"N{self.numbers['N']}\tReference {self.ids[entity.id]} {reference}\t"

    def _attributes(self, owner: Entity | Relation) -> Iterator[str]:
        target = self.ids[owner.id]
        for name, value in owner.attributes:
            if name != "note" and value and not any(character.isspace() for character in value):
                self.numbers["A"] += 1
                word = self._word(name)
                self.types.attributes[word] |= {value} - {"true"}
                yield f"A{self.numbers['A']}\t{word} {target} {value}".removesuffix(" true")
            else:
                self.numbers["#"] += 1
                kind = "AnnotatorNotes" if name == "note" else self._word(name)
                yield f"#{self.numbers['#']}\t{kind} {target}\t{replace_forbidden(value, chr(13), self.losses)}"

    def _relation(self, relation: Relation, kind: str) -> Iterator[str]:
        arguments = [(self._word(role), self._target(target)) for role, target in relation.arguments]
        if len(arguments) != 2 and kind == "R":
            self.losses["relations of other than two arguments, and no events, were lost"] += 1
            return
        label = self._word(relation.label)
        if kind == "E":
            self.types.events[label] |= {role for role, _ in arguments[1:]}
            label, arguments = f"{label}:{arguments[0][1]}", arguments[1:]
        else:
            self.types.relations[label] |= {role for role, _ in arguments}
        yield f"{self.ids[relation.id]}\t{label} " + " ".join(f"{role}:{target}" for role, target in arguments)
        yield from self._attributes(relation)

    def _target(self, target: str) -> str:
        if target not in self.ids:
            self.losses["relations between concepts were written between their first mentions"] += 1
            target = self.mention_of[target]
        return self.ids[target]

    def _word(self, name: str) -> str:
        return replace_forbidden(name, _SPACES, self.losses)


def _kind(relation: Relation) -> str:
    return "E" if relation.arguments and relation.arguments[0][0] == TRIGGER else "R"


def _numbered(ids: list[str], letter: str, kinds: list[str] | None = None) -> dict[str, str]:
    """Keep ids if all of them are valid in brat, else number all of them."""
    letters = kinds or [letter] * len(ids)
    if all(re.fullmatch(kind + r"\d+", name) for name, kind in zip(ids, letters, strict=True)):
        return {name: name for name in ids}
    return {name: f"{kind}{number}" for number, (name, kind) in enumerate(zip(ids, letters, strict=True), start=1)}
