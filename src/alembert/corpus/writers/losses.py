"""What several writers have to give up in the same way, and count in the same words."""

from __future__ import annotations

from alembert.corpus.document import Document, Entity, Relation, Span
from alembert.corpus.readers.mentions import concepts_of
from alembert.corpus.writers.sink import Losses

DISCONTINUOUS = "discontinuous mentions were written from their first to their last character"
RENAMED = "names were changed because the format cannot hold one of their characters"


def covering(entity: Entity, losses: Losses) -> Span:
    """Give the one span that covers all of a mention."""
    losses[DISCONTINUOUS] += len(entity.spans) > 1
    return entity.start, entity.end


def plain(name: str, forbidden: str, losses: Losses) -> str:
    """Put "_" for each forbidden character of an id or a label."""
    changed = "".join("_" if character in forbidden or character == "\n" else character for character in name)
    losses[RENAMED] += changed != name
    return changed


def every_relation(document: Document) -> tuple[Relation, ...]:
    """Return the relations of a document for formats that do not mind which of them are linked."""
    return (*document.relations, *document.unlinked_relations)


def joined_concepts(entity: Entity, losses: Losses) -> str:
    """Join the concepts of a mention; those that a reader would split are counted."""
    split = sum(concepts_of(concept) != (concept,) for concept in entity.concepts)
    losses["concept ids with a sign that joins several will be read as several"] += split
    return "|".join(entity.concepts)


def count_absent(document: Document, losses: Losses, *held: str) -> None:
    """Count the fields of a document that a format has no place for: all but those it is said to hold."""
    for name in ("sections", "relations", "unlinked_relations", "labels", "meta", "language"):
        if name not in held and (value := getattr(document, name)):
            losses[f"no place in the format for {name.replace('_', ' ')}"] += (
                1 if isinstance(value, str) else len(value)
            )


def count_attributes(owner: Entity | Relation, losses: Losses, *held: str) -> None:
    """Count the attributes that a format has no place for."""
    losses["no place in the format for attributes"] += sum(name not in held for name, _ in owner.attributes)
