"""Inputs and answers of a `Predictor`: texts, dicts, documents and pairs in, predictions out.

Inputs are checked and named by their number. For models that do not annotate whole documents, they become examples
of the task, and its answers become predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, cast

from alembert.corpus.document import Document, Entity, find_problems, from_record
from alembert.errors import BadInput
from alembert.infer.embedder import EmbeddedTexts
from alembert.infer.predictions import (
    AnnotatedDocument,
    AnswerCandidate,
    AnswerPrediction,
    ChoicePrediction,
    GenerationPrediction,
    PairPrediction,
    Prediction,
    RecordPrediction,
    SimilarityPrediction,
)
from alembert.tasks.compare.scores import normalise_vectors
from alembert.tasks.example import Example
from alembert.tasks.relate.data import RelateExample, example_from_document
from alembert.tasks.task import AnyTask

_MAX_BATCH_INPUTS: Final = 4096
PredictorInput = str | Mapping[str, Any] | Document | tuple[str, ...]


def is_single(inputs: Any) -> bool:
    """Return whether this is one input, not a list of them; a tuple of texts is one input, a pair."""
    return isinstance(inputs, str | Mapping | Document) or (
        isinstance(inputs, tuple) and bool(inputs) and all(isinstance(each, str) for each in inputs)
    )


def is_pair(item: Any) -> bool:
    """Return whether an input is texts that belong together: a tuple, or a dict with `texts`."""
    return isinstance(item, tuple) or (isinstance(item, Mapping) and "texts" in item)


def input_id(item: Any, number: int) -> str:
    """Return the id of a document or a dict; an input without one is called by its number."""
    given = item.id if isinstance(item, Document) else item.get("id") if isinstance(item, Mapping) else None
    return str(number) if given is None else str(given)


def to_document(item: Any, number: int) -> Document:
    """Make a document of a text, a dict with `text`, or a document; it is called by its number if it has no id."""
    if isinstance(item, Document):
        document = _check_document(item, number)
    elif isinstance(item, str):
        document = Document(str(number), item)
    elif isinstance(item, Mapping):
        document = _document_from_dict(item, number)
    else:
        raise BadInput(
            f"Input {number} is a {type(item).__name__}; expected a text, a dict with `text`, or a Document."
        )
    if not document.text.strip():
        raise BadInput(f"Input {number} has no text: it is empty or blank.")
    return document


def _check_document(document: Document, number: int) -> Document:
    """Refuse a document that was put together wrongly: readers check theirs, users make some of their own."""
    for name in ("id", "text"):
        if not isinstance(getattr(document, name), str):
            kind = type(getattr(document, name)).__name__
            raise BadInput(f"Input {number} is a Document whose `{name}` is a {kind}; expected a str.")
    if wrong := next(find_problems(document), None):
        raise BadInput(f"Input {number} is a Document that is not sound: {wrong}.")
    return document


def _document_from_dict(item: Mapping[str, Any], number: int) -> Document:
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


_REQUIRED_KEYS: Final = {
    "answer": ("question", "passage"),
    "choose": ("question", "choices"),
}
"""Keys that the dict of a task must have; `context` is another name for `passage`."""


def to_example(task: AnyTask, item: Any, number: int) -> Any:
    """Make an example of a user's input, and refuse one that the task cannot read."""
    build: _ExampleBuilder = _EXAMPLE_BUILDERS.get(task.name, _text_example)
    example = build(task, item, number)
    task.check([example])
    return example


def to_read_example(task: AnyTask, item: Any, number: int) -> Any:
    """Make an example of an input for one task, which reads a text alone where it annotates documents."""
    is_text = isinstance(item, str) or not (is_pair(item) or task.annotation.reads == "entities")
    if not is_text or (not isinstance(item, str) and task.annotation.writes is None):
        return to_example(task, item, number)
    text = to_document(item, number).text
    (example,) = task.examples_from_texts([text], [input_id(item, number)])
    task.check([example])
    return example


def to_prediction(task: AnyTask, example: Any, prediction: Any) -> Prediction:
    """Turn the answer of a task into a prediction for the user."""
    if task.name == "relate":
        return _relation_document(task, example, prediction)
    record = {**task.to_record(example, prediction), "coverage": prediction.coverage}
    return _PREDICTION_BUILDERS.get(task.name, _record_prediction)(record)


def to_similarity(name: str, texts: tuple[str, ...], embedded: EmbeddedTexts) -> SimilarityPrediction:
    """Compare the first text with the others by their vectors."""
    units_TD = normalise_vectors(embedded.vectors_ND)
    cosines = (units_TD[1:] @ units_TD[0]).tolist()
    return SimilarityPrediction(id=name, texts=texts, similarities=tuple(cosines), coverage=embedded.coverage)


# -- inputs


def _text_example(task: AnyTask, item: Any, number: int) -> Example:
    """Read one text, as most tasks do."""
    return cast(Example, task.examples_from_texts([to_document(item, number).text], [input_id(item, number)])[0])


def _pair_example(task: AnyTask, item: Any, number: int) -> Example:
    texts = item.get("texts") if isinstance(item, Mapping) else item
    if isinstance(texts, list | tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
        blank: Example = task.examples_from_texts([""], [input_id(item, number)])[0]
        return replace(blank, texts=tuple(texts))
    raise BadInput(
        f"Input {number} is no pair; this model classifies pairs of texts. Give a tuple of two texts, or a dict with "
        "`texts`."
    )


def _record_example(task: AnyTask, item: Any, number: int) -> Example:
    """Read a dict with the keys that the task needs."""
    needed = _REQUIRED_KEYS[task.name]
    if not isinstance(item, Mapping):
        keys = " and ".join(f"`{key}`" for key in needed)
        raise BadInput(f"Input {number} is a {type(item).__name__}; expected a dict with {keys}.")
    known = {*item, "passage"} if "context" in item else {*item}
    missing = [key for key in needed if key not in known]
    if missing:
        raise BadInput(f"Input {number} is a dict without `{missing[0]}`, which this model needs.")
    return cast(Example, task.example_from_record(item, input_id(item, number)))


def _relation_example(task: AnyTask, item: Any, number: int) -> RelateExample:
    """Read a marked text, or a document with entities."""
    if isinstance(item, str):
        return cast(RelateExample, task.examples_from_texts([item], [str(number)])[0])
    return example_from_document(to_document(item, number), "", is_annotated=False)[0]


_ExampleBuilder = Callable[[AnyTask, Any, int], Any]
_EXAMPLE_BUILDERS: Final[Mapping[str, _ExampleBuilder]] = {
    "classify": _pair_example,
    "answer": _record_example,
    "choose": _record_example,
    "relate": _relation_example,
}


# -- predictions


def _relation_document(task: AnyTask, example: RelateExample, prediction: Any) -> AnnotatedDocument:
    mentions = [
        Entity(mention.id, mention.type or "entity", ((mention.start, mention.end),), mention.concepts)
        for mention in example.mentions
    ]
    bare = Document(example.id, example.text, entities=tuple(mentions))
    document = task.annotate(bare, example, prediction)
    return AnnotatedDocument(
        document.id,
        document.text,
        entities=document.entities,
        relations=document.relations,
        coverage=prediction.coverage,
    )


def _pair_prediction(record: Mapping[str, Any]) -> PairPrediction:
    return PairPrediction(
        id=record["id"],
        texts=tuple(record["texts"]),
        label=record.get("label"),
        labels=tuple(record.get("labels") or ()),
        probabilities=record.get("probabilities") or {},
        score=record.get("score"),
        value=record.get("value"),
        coverage=record["coverage"],
    )


def _answer_prediction(record: Mapping[str, Any]) -> AnswerPrediction:
    candidates = record.get("best", ())
    return AnswerPrediction(
        **{name: record[name] for name in ("id", "question", "passage", "coverage")},
        text=record.get("text") or None,
        start=record.get("start"),
        end=record.get("end"),
        label=record.get("label"),
        score=record.get("score"),
        null_score=record.get("null_score"),
        probabilities=record.get("probabilities") or {},
        candidates=tuple(AnswerCandidate(**each) for each in candidates),
    )


def _choice_prediction(record: Mapping[str, Any]) -> ChoicePrediction:
    choices = record["choices"]
    return ChoicePrediction(
        **{name: record[name] for name in ("id", "question", "score", "coverage")},
        choices=tuple(each["text"] for each in choices),
        choice=record["text"],
        index=record["choice"] - 1,
        probabilities=tuple(each["probability"] for each in choices),
    )


def _generation_prediction(record: Mapping[str, Any]) -> GenerationPrediction:
    return GenerationPrediction(
        id=record["id"],
        text=record["text"],
        score=record.get("score"),
        candidates=tuple(each["text"] for each in record.get("others", ())),
        coverage=record["coverage"],
    )


def _record_prediction(record: Mapping[str, Any]) -> RecordPrediction:
    return RecordPrediction(id=record["id"], record=record, coverage=record["coverage"])


_PREDICTION_BUILDERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Prediction]]] = {
    "classify": _pair_prediction,
    "answer": _answer_prediction,
    "choose": _choice_prediction,
    "generate": _generation_prediction,
}


def to_list(inputs: Any) -> list[Any]:
    """Return inputs as a list that is not empty."""
    if isinstance(inputs, bytes) or not isinstance(inputs, Iterable):
        raise BadInput(
            f"The input is a {type(inputs).__name__}; expected a text, a dict, a Document, or a list of them."
        )
    listed = list(inputs)
    if not listed:
        raise BadInput("The list of inputs is empty: there is nothing to predict.")
    return listed


def batch_inputs(inputs: Iterable[PredictorInput], characters: int) -> Iterator[list[tuple[int, PredictorInput]]]:
    """Number the inputs and put them together until they have so many characters.

    If the inputs end in an error, those that came before it are predicted first.
    """
    batch: list[tuple[int, PredictorInput]] = []
    size = 0
    try:
        for number, item in zip(count(1), inputs, strict=False):
            batch.append((number, item))
            size += _length(item)
            if size >= characters or len(batch) >= _MAX_BATCH_INPUTS:
                yield batch
                batch, size = [], 0
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _length(item: PredictorInput) -> int:
    item = item.text if isinstance(item, Document) else item
    values = item.values() if isinstance(item, Mapping) else [item]
    return sum(len(value) for value in values if isinstance(value, str | tuple | list))
