"""What several writers have to give up in the same way, and count in the same words."""

from __future__ import annotations

from alembert.corpus.document import Document, Entity, Relation, Span
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


def count_absent(document: Document, losses: Losses, *held: str) -> None:
    """Count the fields of a document that a format has no place for: all but those it is said to hold."""
    for name in ("sections", "relations", "labels", "meta", "language"):
        if name not in held and (value := getattr(document, name)):
            losses[f"no place in the format for {name}"] += 1 if isinstance(value, str) else len(value)


def count_attributes(owner: Entity | Relation, losses: Losses, *held: str) -> None:
    """Count the attributes that a format has no place for."""
    losses["no place in the format for attributes"] += sum(name not in held for name, _ in owner.attributes)
