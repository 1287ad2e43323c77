"""Label Studio JSON, for reviewing and correcting documents; written only.

Each document is a task with one annotation: a region per mention, a link per relation of two mentions, choices for the
labels. Offsets count code points, as Label Studio does since version 1.5. The names "label", "text" and "choice" are
those to use in the labelling configuration. A discontinuous mention becomes one region, counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.writers import (
    ConversionLosses,
    OutputTarget,
    count_unsupported_attributes,
    count_unsupported_fields,
    get_covering_span,
    open_output,
)


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as a JSON array of tasks; return what the tasks cannot hold."""
    losses = ConversionLosses()
    with open_output(target) as file:
        file.write(b"[")
        for number, document in enumerate(documents):
            task = json.dumps(_task(document, losses), ensure_ascii=False, separators=(",", ":"))
            file.write((b",\n" if number else b"\n") + task.encode())
        file.write(b"\n]\n")
    return +losses


def _task(document: Document, losses: ConversionLosses) -> dict[str, Any]:
    count_unsupported_fields(document, losses, "relations", "labels", "meta", "language")
    data = {"text": document.text, "id": document.id, "language": document.language, "meta": dict(document.meta)}
    return {"data": data, "annotations": [{"result": list(_results(document, losses))}]}


def _results(document: Document, losses: ConversionLosses) -> Iterator[dict[str, Any]]:
    for entity in document.entities:
        yield _region(entity, document.text, losses)
    mentions = {entity.id for entity in document.entities}
    for relation in document.relations:
        targets = [target for _, target in relation.arguments]
        if len(targets) == 2 and mentions.issuperset(targets):
            yield _link(relation, targets, losses)
        else:
            losses["relations of other than two mentions were lost"] += 1
    if document.labels:
        value = {"choices": list(document.labels)}
        yield {"from_name": "choice", "to_name": "text", "type": "choices", "value": value}


def _region(entity: Entity, text: str, losses: ConversionLosses) -> dict[str, Any]:
    start, end = get_covering_span(entity, losses)
    count_unsupported_attributes(entity, losses)
    value = {"start": start, "end": end, "text": text[start:end], "labels": [entity.label]}
    region = {"id": entity.id, "from_name": "label", "to_name": "text", "type": "labels", "value": value}
    return region | ({"meta": {"text": list(entity.concepts)}} if entity.concepts else {})


def _link(relation: Relation, targets: list[str], losses: ConversionLosses) -> dict[str, Any]:
    count_unsupported_attributes(relation, losses)
    first, second = targets
    return {"type": "relation", "from_id": first, "to_id": second, "direction": "right", "labels": [relation.label]}
