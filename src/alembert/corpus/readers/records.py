"""Convert a record with named fields (a JSON object, a table row, a Parquet row) to a document.

The fields are those of the options, or the usual names. The text is one field, unchanged, or is composed of a title,
an abstract (a string or a list), paragraphs and sections with headings, nested as in full-text articles. Headings like
``ABSTRACT.METHODS:`` on lines of their own, which evidence-inference uses, become sections. Entities may be native
ones, ``{start, end, label}``, ``[start, end, label]`` or a mention with its words and offset; relations name two of
them by their ids. A malformed entity is set aside alone, without quoting the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from alembert.corpus.document import (
    SCORE_ATTRIBUTE,
    Document,
    Entity,
    Relation,
    Section,
    StringPairs,
    from_record,
    parse_offset,
)
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside, describe_option
from alembert.corpus.readers.mentions import (
    Composer,
    locate_mention,
    make_ids_unique,
    partition_relations,
    unlinked_reason,
)
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

ID_FIELDS = ("id", "pmid", "pmcid", "doi", "_id", "docid", "doc_id", "document_id", "uid")
TEXT_FIELDS = ("text", "sentence", "content", "body", "text_a", "question")
LABEL_FIELDS = ("label", "labels", "class", "category")
ENTITY_FIELDS = ("entities", "mention_data", "spans")
_NATIVE_FIELDS = {"id", "text", "language", "sections", "entities", "relations", "labels", "meta"} | {
    "unlinked_relations"
}
_PART_HEADING = re.compile(
    r"^[ \t]*(?:(?P<title>TITLE):\s*|(?P<part>ABSTRACT|BODY)(?P<heading>(?:\.[^\n]*)?):[ \t]*\n)", re.MULTILINE
)
_MAX_META_LENGTH = 500
_TextContent = tuple[str, tuple[Section, ...], int]


def build_record_items(record: Any, source: SourceFile, options: ReadOptions, number: int) -> Iterator[Item]:
    """Yield the document of a record, and what of it had to be set aside."""
    if not isinstance(record, Mapping):
        yield source.set_aside("the record is not a JSON object with named fields")
        return
    name = _id(record, options, source, number)
    try:
        if _is_native(record, options):
            yield from_record({"id": name, **record})
        else:
            yield from _mapped(record, source, options, name)
    except BadInput as wrong:
        yield source.set_aside(str(wrong), name)


def _mapped(record: Mapping[str, Any], source: SourceFile, options: ReadOptions, name: str) -> Iterator[Item]:
    text, sections, shift = _content(record, options)
    if not text.strip():
        raise BadInput(_no_text(record, options))
    entities: list[Entity] = []
    for entity in _entities(record, options, source, name, (text, shift)):
        if isinstance(entity, SetAside):
            yield entity
        else:
            entities.append(entity)
    entities = list(make_ids_unique(entities, source))
    stated, unread = _relations(record)
    relations, unlinked = partition_relations(stated, entities)
    reasons = [*unread, *map(unlinked_reason, unlinked)]
    yield from (source.set_aside(reason, name, kind="annotation") for reason in reasons)
    yield Document(
        id=name,
        text=text,
        sections=sections,
        entities=tuple(entities),
        relations=tuple(relations),
        labels=_labels(record, options),
        # What `meta` says may be about places in the text, which a title before it would move.
        meta={**({} if shift else _stated_meta(record)), **_meta(record, options)},
        unlinked_relations=tuple(unlinked),
    )


def get_field(record: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field; dots lead into nested objects."""
    if path in record:
        return record[path]
    value: Any = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def get_first_field(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of the first of these fields that has one."""
    return next((value for name in names if (value := get_field(record, name)) is not None), None)


def _id(record: Mapping[str, Any], options: ReadOptions, source: SourceFile, number: int) -> str:
    value = get_first_field(record, (options.id,) if options.id else ID_FIELDS)
    return str(value) if isinstance(value, str | int) and value != "" else f"{source.stem}-{number}"


def _is_native(record: Mapping[str, Any], options: ReadOptions) -> bool:
    if options.text or options.entities or not isinstance(record.get("text"), str) or not record["text"].strip():
        return False
    entities = record.get("entities") or ()
    return set(record) <= _NATIVE_FIELDS and all(
        isinstance(entity, Mapping) and "spans" in entity for entity in entities
    )


def _no_text(record: Mapping[str, Any], options: ReadOptions) -> str:
    expected = options.text or (TEXT_FIELDS[0], "title", "abstract", "sections", "paragraphs")
    has = ", ".join(list(record)[:12])
    return f"The record has no text in {', '.join(expected)}; {describe_option('text')} (it has {has})"


def _content(record: Mapping[str, Any], options: ReadOptions) -> _TextContent:
    """Return the text, its sections, and the offset of the text field."""
    title = _flat(get_field(record, options.title or "title"))
    texts = _texts(record, options)
    if not texts:
        composer = _nested(record, title)
        return composer.text, composer.sections, 0
    before = title.strip() + "\n" if title.strip() else ""
    head = (Section(0, len(before) - 1, "title"),) if before else ()
    text = before + "\n".join(part for _, part in texts)
    return text, head + tuple(_text_sections(texts, len(before))), len(before)


def _texts(record: Mapping[str, Any], options: ReadOptions) -> list[tuple[str, str]]:
    if options.text:
        parts = [(name, _flat(get_field(record, name))) for name in options.text]
        return [(name, part) for name, part in parts if part]
    texts = (_lines(record.get(name)) for name in TEXT_FIELDS)
    return next(([("text", text)] for text in texts if text is not None), [])


def _lines(value: Any) -> str | None:
    """Return a text unchanged, or a list of strings joined as lines."""
    if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value if isinstance(value, str) else None


def _text_sections(texts: list[tuple[str, str]], start: int) -> Iterator[Section]:
    for name, part in texts:
        marked = list(_marked_sections(part, start))
        yield from marked or [Section(start, start + len(part), name)]
        start += len(part) + 1


def _marked_sections(text: str, shift: int) -> Iterator[Section]:
    headings = list(_PART_HEADING.finditer(text)) if text.lstrip().startswith("TITLE:") else []
    ends = [match.start() for match in headings[1:]] + [len(text)] * bool(headings)
    for match, end in zip(headings, ends, strict=True):
        heading, body = match[0].strip(), text[match.end() : end].rstrip()
        start = match.end() - len(match[0].lstrip())
        yield Section(start + shift, start + len(heading) + shift, "heading")
        kind = (match["title"] or match["part"]).lower()
        start = match.end() + shift
        yield Section(start, start + len(body), kind, (match["heading"] or "").strip(". "))


def _flat(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(part for part in map(_flat, value) if part)
    return "" if value is None or isinstance(value, Mapping) else str(value)


def _nested(record: Mapping[str, Any], title: str) -> Composer:
    composer = Composer()
    composer.add(title, "title")
    for key, kind in (("abstract", "abstract"), ("paragraphs", "body")):
        for part in _parts(record.get(key)):
            composer.add(part, kind)
    _add_sections(composer, record.get("sections"))
    return composer


def _add_sections(composer: Composer, sections: Any) -> None:
    for section in sections if isinstance(sections, list) else ():
        if not isinstance(section, Mapping):
            raise BadInput("`sections` is not a list of objects with `heading` and `paragraphs`.")
        heading = _flat(section.get("heading") or section.get("title")).strip()
        composer.add(heading, "heading")
        for part in _parts(section.get("paragraphs") or section.get("text")):
            composer.add(part, "body", heading)
        _add_sections(composer, section.get("sections"))


def _parts(value: Any) -> list[str]:
    return [_flat(part) for part in value] if isinstance(value, list) else [_flat(value)]


def _labels(record: Mapping[str, Any], options: ReadOptions) -> tuple[str, ...]:
    value = get_first_field(record, (options.label,) if options.label else LABEL_FIELDS)
    values = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(str(label) for label in values if isinstance(label, str | int | float))


def _stated_meta(record: Mapping[str, Any]) -> dict[str, Any]:
    stated = record.get("meta")
    return dict(stated) if isinstance(stated, Mapping) else {}


def _meta(record: Mapping[str, Any], options: ReadOptions) -> dict[str, Any]:
    """Collect the short values that are not used elsewhere in the document."""
    used = {*options.text, *TEXT_FIELDS, *ID_FIELDS[:1], *LABEL_FIELDS, *ENTITY_FIELDS, "abstract", "paragraphs"}
    used |= {name for name in (options.id, options.title or "title", options.label, options.entities) if name}
    return {name: value for name, value in record.items() if name not in used and _is_short(value)}


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _MAX_META_LENGTH)


def _entities(
    record: Mapping[str, Any], options: ReadOptions, source: SourceFile, name: str, text_and_shift: tuple[str, int]
) -> Iterator[Entity | SetAside]:
    stated = get_first_field(record, (options.entities,) if options.entities else ENTITY_FIELDS)
    for number, entity in enumerate(stated if isinstance(stated, list) else (), start=1):
        try:
            yield _entity(entity, number, source, text_and_shift)
        except (BadInput, KeyError, TypeError, ValueError, IndexError):
            yield source.set_aside(
                f"entity {number} of the record has no place in the text that its fields agree on",
                name,
                kind="annotation",
            )


def _relations(record: Mapping[str, Any]) -> tuple[list[Relation], list[str]]:
    """Read relations: native ones, or a label with the ids of two entities as `head` and `tail` or as in doccano.

    Return also why others are left out.
    """
    relations: list[Relation] = []
    strange: list[str] = []
    stated = record.get("relations")
    for number, relation in enumerate(stated if isinstance(stated, list) else (), start=1):
        try:
            label = get_first_field(relation, ("label", "type", "relation"))
            name = str(relation.get("id") or f"R{number}")
            relations.append(Relation(name, str(label or "relation"), _arguments(relation)))
        except (AttributeError, TypeError, ValueError):
            strange.append(f"relation {number} of the record does not name a label and what it is between")
    return relations, strange


def _arguments(record: Mapping[str, Any]) -> StringPairs:
    if "arguments" in record:
        return tuple((str(role), str(target)) for role, target in record["arguments"])
    ends = (("head", "from_id", "from"), ("tail", "to_id", "to"))
    targets = (get_first_field(record, names) for names in ends)
    return tuple((f"Arg{number}", str(target)) for number, target in enumerate(targets, start=1))


def _entity(record: Any, number: int, source: SourceFile, text_and_shift: tuple[str, int]) -> Entity:
    text, shift = text_and_shift
    if not isinstance(record, Mapping):
        start, end, label = record[:3]
        record = {"start": start, "end": end, "label": label}
    surface = get_first_field(record, ("mention", "surface", "text", "word"))
    spans = tuple((start + shift, end + shift) for start, end in _spans(record, surface))
    located = locate_mention(source, text, spans, surface if isinstance(surface, str) else None)
    if located is None:
        raise BadInput("The mention is not where it is said to be.")
    label = get_first_field(record, ("label", "type", "entity", "entity_group"))
    return Entity(str(record.get("id") or f"T{number}"), str(label), located, _concepts(record), _score(record))


def _spans(record: Mapping[str, Any], surface: Any) -> list[tuple[int, int]]:
    if "spans" in record:
        return [(parse_offset(start), parse_offset(end)) for start, end in record["spans"]]
    start = parse_offset(get_first_field(record, ("start", "start_offset", "offset", "begin")))
    end = get_first_field(record, ("end", "end_offset", "stop"))
    return [(start, parse_offset(end) if end is not None else start + len(surface))]


def _score(record: Mapping[str, Any]) -> StringPairs:
    """Keep how sure a model was, as `predict --json` writes it."""
    score = record.get("score")
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return ((SCORE_ATTRIBUTE, str(score)),) if is_number else ()


def _concepts(record: Mapping[str, Any]) -> tuple[str, ...]:
    value = get_first_field(record, ("concepts", "concept", "identifier", "cui", "guid"))
    values = value if isinstance(value, list) else [value]
    return tuple(str(concept) for concept in values if concept not in (None, "", "None"))
