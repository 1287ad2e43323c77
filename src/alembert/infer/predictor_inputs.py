"""What users hand to a `Predictor`: texts, dicts, documents and pairs, checked and named by their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alembert.corpus.document import Document, find_problems, from_record
from alembert.errors import BadInput

Input = str | Mapping[str, Any] | Document | tuple[str, ...]


def is_single(inputs: Any) -> bool:
    """Tell one input from a list of inputs; a tuple of texts is one input, a pair."""
    return isinstance(inputs, str | Mapping | Document) or (
        isinstance(inputs, tuple) and bool(inputs) and all(isinstance(each, str) for each in inputs)
    )


def is_pair(item: Any) -> bool:
    """Tell whether an input is texts that belong together: a tuple, or a dict with `texts`."""
    return isinstance(item, tuple) or (isinstance(item, Mapping) and "texts" in item)


def input_id(item: Any, number: int) -> str:
    """Return the id of a document or a dict; an input without one is called by its number."""
    given = item.id if isinstance(item, Document) else item.get("id") if isinstance(item, Mapping) else None
    return str(number) if given is None else str(given)


def document_of(item: Any, number: int) -> Document:
    """Make a document of a text, a dict with `text`, or a document; it is called by its number if it has no id."""
    if isinstance(item, Document):
        document = _sound(item, number)
    elif isinstance(item, str):
        document = Document(str(number), item)
    elif isinstance(item, Mapping):
        document = _of_mapping(item, number)
    else:
        raise BadInput(
            f"Input {number} is a {type(item).__name__}; expected a text, a dict with `text`, or a Document."
        )
    if not document.text.strip():
        raise BadInput(f"Input {number} has no text: it is empty or blank.")
    return document


def _sound(document: Document, number: int) -> Document:
    """Refuse a document that was put together wrongly: readers check theirs, users make some of their own."""
    for name in ("id", "text"):
        if not isinstance(getattr(document, name), str):
            kind = type(getattr(document, name)).__name__
            raise BadInput(f"Input {number} is a Document whose `{name}` is a {kind}; expected a str.")
    if wrong := next(find_problems(document), None):
        raise BadInput(f"Input {number} is a Document that is not sound: {wrong}.")
    return document


def _of_mapping(item: Mapping[str, Any], number: int) -> Document:
    if "text" not in item:
        keys = ", ".join(f"`{key}`" for key in list(item)[:5]) or "none"
        raise BadInput(f"Input {number} is a dict without `text`, which it needs; its keys: {keys}.")
    if not isinstance(item["text"], str):
        raise BadInput(f"Input {number} has a {type(item['text']).__name__} as `text`; expected a text (str).")
    try:
        return from_record({**item, "id": input_id(item, number)})
    except BadInput as problem:
        raise BadInput(f"Input {number}: {problem}") from None


def similarity_texts(item: Any, number: int) -> tuple[str, ...]:
    """Return the texts of an input that are compared: a tuple or list of at least two."""
    texts = item.get("texts") if isinstance(item, Mapping) else item
    if isinstance(texts, list | tuple) and len(texts) > 1 and all(isinstance(text, str) for text in texts):
        return tuple(texts)
    raise BadInput(
        f"Input {number} is no pair of texts; expected a tuple of two texts to compare, or a dict with `texts`. For the "
        "vector of a single text use `encode`."
    )
