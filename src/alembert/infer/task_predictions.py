"""Models that do not annotate whole documents: from what a user hands in to examples of their task, and from its answers
to predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from alembert.corpus.document import Document, Entity
from alembert.errors import BadInput
from alembert.infer.annotate_documents import with_relations
from alembert.infer.embed_model import Embedded
from alembert.infer.predictions import (
    AnnotatedDocument,
    AnswerCandidate,
    AnswerPrediction,
    ChoicePrediction,
    GenerationPrediction,
    PairPrediction,
    Prediction,
    SimilarityPrediction,
)
from alembert.infer.predictor_inputs import document_of, input_id
from alembert.tasks.compare.scores import normalise_vectors
from alembert.tasks.example import Example
from alembert.tasks.relate.data import RelateExample, example_from_document
from alembert.tasks.relate.task import RelateTask
from alembert.tasks.task import AnyTask

_NEEDED: Final = {
    "answer": ("question", "passage"),
    "choose": ("question", "choices"),
}
"""Keys that the dict of a task must have; `context` is another name for `passage`."""


def examples_of(task: AnyTask, item: Any, number: int) -> Any:
    """Make an example of a user's input, and refuse one that the task cannot read."""
    example = _MAKERS[task.name](task, item, number)
    task.check([example])
    return example


def prediction_of(task: AnyTask, example: Any, prediction: Any) -> Prediction:
    """Turn the answer of a task into a prediction for the user."""
    if task.name == "relate":
        return _related(cast(RelateTask, task), example, prediction)
    record = {**task.record(example, prediction), "coverage": prediction.coverage}
    return _PREDICTIONS[task.name](record)


def similarity_of(name: str, texts: tuple[str, ...], embedded: Embedded) -> SimilarityPrediction:
    """Compare the first text with the others by their vectors."""
    units_TD = normalise_vectors(embedded.vectors_ND)
    cosines = (units_TD[1:] @ units_TD[0]).tolist()
    return SimilarityPrediction(id=name, texts=texts, similarities=tuple(cosines), coverage=embedded.coverage)


# -- inputs


def _of_text(task: AnyTask, item: Any, number: int) -> Example:
    """Read one text, of a task that writes or extracts."""
    return cast(Example, task.of_texts([document_of(item, number).text], [input_id(item, number)])[0])


def _of_pair(task: AnyTask, item: Any, number: int) -> Example:
    texts = item.get("texts") if isinstance(item, Mapping) else item
    if isinstance(texts, list | tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
        blank: Example = task.of_texts([""], [input_id(item, number)])[0]
        return replace(blank, texts=tuple(texts))
    raise BadInput(
        f"Input {number} is no pair; this model classifies pairs of texts. Give a tuple of two texts, or a dict with "
        "`texts`."
    )


def _of_record(task: AnyTask, item: Any, number: int) -> Example:
    """Read a dict with the keys that the task needs."""
    needed = _NEEDED[task.name]
    if not isinstance(item, Mapping):
        keys = " and ".join(f"`{key}`" for key in needed)
        raise BadInput(f"Input {number} is a {type(item).__name__}; expected a dict with {keys}.")
    known = {*item, "passage"} if "context" in item else {*item}
    missing = [key for key in needed if key not in known]
    if missing:
        raise BadInput(f"Input {number} is a dict without `{missing[0]}`, which this model needs.")
    return cast(Example, task.of_records([item], [input_id(item, number)])[0])


def _of_entities(task: AnyTask, item: Any, number: int) -> RelateExample:
    """Read a marked text, or a document with entities."""
    if isinstance(item, str):
        return cast(RelateExample, task.of_texts([item], [str(number)])[0])
    return example_from_document(document_of(item, number), "", is_annotated=False)[0]


_MAKERS: Final[Mapping[str, Callable[[AnyTask, Any, int], Any]]] = {
    "classify": _of_pair,
    "answer": _of_record,
    "choose": _of_record,
    "relate": _of_entities,
    "generate": _of_text,
}


# -- predictions


def _related(task: RelateTask, example: RelateExample, prediction: Any) -> AnnotatedDocument:
    mentions = [
        Entity(mention.id, mention.type or "entity", ((mention.start, mention.end),), mention.concepts)
        for mention in example.mentions
    ]
    bare = Document(example.id, example.text, entities=tuple(mentions))
    document = with_relations(bare, example, prediction, task.rules.negative)
    return AnnotatedDocument(
        document.id,
        document.text,
        entities=document.entities,
        relations=document.relations,
        coverage=prediction.coverage,
    )


def _pair(record: Mapping[str, Any]) -> PairPrediction:
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


def _answer(record: Mapping[str, Any]) -> AnswerPrediction:
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


def _choice(record: Mapping[str, Any]) -> ChoicePrediction:
    choices = record["choices"]
    return ChoicePrediction(
        **{name: record[name] for name in ("id", "question", "score", "coverage")},
        choices=tuple(each["text"] for each in choices),
        choice=record["text"],
        index=record["choice"] - 1,
        probabilities=tuple(each["probability"] for each in choices),
    )


def _generation(record: Mapping[str, Any]) -> GenerationPrediction:
    return GenerationPrediction(
        id=record["id"],
        text=record["text"],
        score=record.get("score"),
        candidates=tuple(each["text"] for each in record.get("others", ())),
        coverage=record["coverage"],
    )


_PREDICTIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], Prediction]]] = {
    "classify": _pair,
    "answer": _answer,
    "choose": _choice,
    "generate": _generation,
}
