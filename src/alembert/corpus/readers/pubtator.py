"""PubTator: ``id|t|title``, ``id|a|abstract``, a tab-separated row per mention or relation, a blank line.

Offsets count from the title, the abstract begins one character behind it; the text is therefore title, line break,
abstract (the title alone when the abstract is empty). Quirks handled: blank lines at the start of the file, several
blank lines or none between documents, trailing white space in mentions and concept ids, rows with no concept, composite
rows with a seventh column, several concepts joined by "|", "," or ";", documents that occur twice (both are given; ids
are not checked here). Relations stand between concept ids, not mentions, and stay so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from alembert.corpus.document import Document, Entity, Relation, Section
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.mentions import locate_mention, partition_relations, split_concepts, unlinked_reason
from alembert.corpus.readers.source import SourceFile, SourceLine, split_paragraphs

_TITLE_PATTERN = re.compile(r"([^|\t]+)\|t\|(.*)", re.DOTALL)
_ABSTRACT_PATTERN = re.compile(r"([^|\t]+)\|a\|(.*)", re.DOTALL)


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a PubTator file."""
    for paragraph in split_paragraphs(source):
        if isinstance(paragraph, SetAside):
            yield paragraph
            continue
        for lines in _split(paragraph):
            yield from _document(lines, source)


def _split(lines: list[SourceLine]) -> Iterator[list[SourceLine]]:
    """Split a run of lines before each title, for files without blank lines."""
    starts = [0, *(index for index, line in enumerate(lines) if index and _TITLE_PATTERN.match(line.text)), len(lines)]
    for start, end in pairwise(starts):
        yield lines[start:end]


def _document(lines: list[SourceLine], source: SourceFile) -> Iterator[Item]:
    title = _TITLE_PATTERN.match(lines[0].text)
    position = f"line {lines[0].number}"
    if title is None:
        yield source.set_aside("these lines do not begin with a title (id|t|...)", position=position)
        return
    abstract = _ABSTRACT_PATTERN.match(lines[1].text) if len(lines) > 1 else None
    text = title[2] + ("\n" + abstract[2] if abstract and abstract[2] else "")
    if not text.strip():
        yield source.set_aside("the document has no text", title[1], position)
        return
    rows = _Rows(title[1], text, source)
    yield from filter(None, map(rows.add, lines[2 if abstract else 1 :]))
    entities = tuple(rows.linked_entities())
    relations, unlinked = partition_relations(rows.relations, entities)
    yield from (source.set_aside(unlinked_reason(link), title[1], position, "annotation") for link in unlinked)
    yield Document(
        title[1],
        text,
        _sections(len(title[2]), len(text)),
        entities,
        tuple(relations),
        unlinked_relations=tuple(unlinked),
    )


def _sections(title: int, whole: int) -> tuple[Section, ...]:
    sections = [Section(0, title, "title"), Section(title + 1, whole, "abstract")]
    return tuple(section for section in sections if section.start < section.end)


class _Rows:
    """Collects the rows of one document."""

    def __init__(self, name: str, text: str, source: SourceFile) -> None:
        self.name, self.text, self.source = name, text, source
        self.entities: list[Entity] = []
        self.concepts: list[str] = []
        """The concept column of each entity."""
        self.relations: list[Relation] = []

    def linked_entities(self) -> Iterator[Entity]:
        """Yield the entities with their concepts; a concept that a relation names as a whole is not split."""
        named = {target for relation in self.relations for _, target in relation.arguments}
        for entity, column in zip(self.entities, self.concepts, strict=True):
            yield replace(entity, concepts=split_concepts(column, named))

    def add(self, line: SourceLine) -> SetAside | None:
        """Add a row, or return why it is set aside."""
        columns = line.text.split("\t")
        if columns[0] != self.name or len(columns) < 4:
            reason = "the row belongs to another document or has too few columns"
        elif not (columns[1].isdecimal() and columns[2].isdecimal()):
            self._add_relation(columns[1:])
            return None
        elif self._add_mention(columns[1:]):
            return None
        else:
            reason = "the mention is not where the row says and cannot be placed for certain"
        return self.source.set_aside(reason, self.name, f"line {line.number}", "annotation")

    def _add_relation(self, columns: list[str]) -> None:
        label, first, second, *rest = columns
        arguments = (("Arg1", first.strip()), ("Arg2", second.strip()))
        extras = tuple(("extra", value) for value in rest if value)
        self.relations.append(Relation(f"R{len(self.relations) + 1}", label, arguments, extras))

    def _add_mention(self, columns: list[str]) -> bool:
        start, end, surface, *rest = columns
        spans = locate_mention(self.source, self.text, ((int(start), int(end)),), surface)
        if spans is None:
            return False
        label, concept, *parts = [*rest, "", ""][: max(2, len(rest))]
        composite = tuple(("parts", value) for value in parts if value)
        name = f"T{len(self.entities) + 1}"
        self.entities.append(Entity(name, label.strip() or "entity", spans, attributes=composite))
        self.concepts.append(concept)
        return True
