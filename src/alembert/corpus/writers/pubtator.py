"""PubTator: title and abstract on a line each, a row per mention, a row per relation between concepts.

The text is cut at the end of its title, or at its first line break; further line breaks become spaces, one for one, so
that offsets stay. Discontinuous mentions are written as one span, as the format's own corpora do with "breast and
ovarian cancer". A relation between mentions is written between their first concepts and is lost when they have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.writers import (
    ConversionLosses,
    OutputTarget,
    count_unsupported_attributes,
    count_unsupported_fields,
    get_covering_span,
    join_concepts,
    list_all_relations,
    open_output,
    replace_forbidden,
)

_FLAT = str.maketrans("\t\r\n", "   ")


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as PubTator; return what it cannot hold."""
    losses = ConversionLosses()
    with open_output(target) as file:
        for document in documents:
            file.write(("\n".join(_lines(document, losses)) + "\n\n").encode())
    return +losses


def _lines(document: Document, losses: ConversionLosses) -> Iterator[str]:
    name = replace_forbidden(document.id, "|\t\r", losses)
    count_unsupported_fields(document, losses, "sections", "relations", "unlinked_relations")
    losses["no place in the format for sections"] += sum(
        section.kind not in ("title", "abstract") or bool(section.heading) for section in document.sections
    )
    title, abstract = _halves(document)
    losses["line breaks were written as spaces"] += sum((title + abstract).count(end) for end in "\r\n")
    yield f"{name}|t|{_one_line(title)}"
    yield f"{name}|a|{_one_line(abstract)}"
    for entity in document.entities:
        yield f"{name}\t{_mention(entity, document.text, losses)}"
    for relation in list_all_relations(document):
        row = _relation(relation, {entity.id: entity for entity in document.entities}, losses)
        if row:
            yield f"{name}\t{row}"


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _halves(document: Document) -> tuple[str, str]:
    text = document.text
    first = document.sections[0] if document.sections else None
    is_title = first is not None and first.kind == "title" and first.start == 0
    cut = first.end if first and is_title and text[first.end : first.end + 1] == "\n" else text.find("\n")
    return (text[:cut], text[cut + 1 :]) if 0 <= cut < len(text) - 1 else (text, "")


def _mention(entity: Entity, text: str, losses: ConversionLosses) -> str:
    start, end = get_covering_span(entity, losses)
    count_unsupported_attributes(entity, losses, "parts")
    columns = [
        str(start),
        str(end),
        text[start:end].translate(_FLAT),
        replace_forbidden(entity.label, "\t\r", losses),
        replace_forbidden(join_concepts(entity, losses), "\t\r", losses),
    ]
    return "\t".join(columns + [value.translate(_FLAT) for name, value in entity.attributes if name == "parts"])


def _relation(relation: Relation, entities: dict[str, Entity], losses: ConversionLosses) -> str | None:
    targets = [target for _, target in relation.arguments]
    mentions = [entities[target] for target in targets if target in entities]
    if len(targets) != 2 or any(not mention.concepts for mention in mentions):
        losses["relations were lost: the format has those between two concepts only"] += 1
        return None
    losses["relations between mentions were written between their concepts"] += bool(mentions)
    count_unsupported_attributes(relation, losses, "extra")
    concepts = [entities[target].concepts[0] if target in entities else target for target in targets]
    extras = [value.translate(_FLAT) for name, value in relation.attributes if name == "extra"]
    return "\t".join([replace_forbidden(relation.label, "\t\r", losses), *concepts, *extras])
