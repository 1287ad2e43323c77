"""The native annotation format: one JSON object a line, everything a document has."""

from __future__ import annotations

import json
from collections.abc import Iterable

from alembert.corpus.document import Document, to_record
from alembert.corpus.writers import ConversionLosses, OutputTarget, open_output


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as JSON lines; nothing is lost."""
    with open_output(target) as file:
        for document in documents:
            line = json.dumps(to_record(document), ensure_ascii=False, separators=(",", ":"))
            file.write(line.encode() + b"\n")
    return ConversionLosses()
