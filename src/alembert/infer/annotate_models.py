"""Models in one pass over documents: each adds what it finds, and the next one sees it.

In: fine-tuned models for the tasks tag, classify and relate, any number of them. Out: documents with entities, labels
and relations. Relation models come last, whatever their order was: they relate the entities that the document has by
then, those of the taggers before them, or those of the input if there is no tagger. What the input had of the same kind
is left out and counted, unless it is to be kept. A document's result does not depend on the documents beside it, but
for the last digits of numbers: which rows share a batch changes the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, cast

from alembert.corpus.document import Document
from alembert.errors import BadSetting
from alembert.infer.annotate_documents import (
    Field,
    with_entities,
    with_labelled_sentences,
    with_labels,
    with_relations,
    without,
)
from alembert.infer.several import SeveralModel, open_model
from alembert.infer.task_model import TaskModel
from alembert.infer.triples import TripleModel
from alembert.tasks.classify import ClassifyTask
from alembert.tasks.classify_decode import ClassifyPrediction
from alembert.tasks.classify_example import sentence_spans
from alembert.tasks.example import Coverage
from alembert.tasks.relate import RelateTask
from alembert.tasks.relate_example import of_document
from alembert.tasks.tag_examples import Tagged

READ_AS_TEXT: Final = ("tag", "classify")
"""Tasks that need the text of a document alone."""


@dataclass(frozen=True)
class Annotated:
    """A document with what was found in it."""

    document: Document
    coverage: Coverage
    """Tokens and windows of all models together; characters count once."""
    unread: int = 0
    """Pairs of entities that are too far apart for the relation model."""


class Stage(Protocol):
    """A model, or several that run together."""

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        """Add to each document what is found."""


@dataclass(frozen=True)
class Pipeline:
    """Models that work on documents one after the other."""

    stages: tuple[Stage, ...]
    folders: tuple[Path, ...]
    tasks: tuple[str, ...]
    """Of each model, with the name of one of several."""
    gives: tuple[Field, ...]
    """What the models find."""
    replaced: tuple[Field, ...]
    """What of the input makes way for it."""

    @classmethod
    def open(
        cls,
        folders: Sequence[str | Path],
        *,
        task: str | None = None,
        keep: bool = False,
        device: str = "cpu",
    ) -> Pipeline:
        """Open the folders of fine-tuned models; `task` is one of a model of several."""
        if task is not None and len(folders) > 1:
            raise BadSetting(
                "A task was named, and several models were given. Name a task for one model alone."
            )
        return cls.of([open_model(folder, device, task) for folder in folders], keep=keep)

    @classmethod
    def of(cls, models: Sequence[TaskModel | SeveralModel], *, keep: bool = False) -> Pipeline:
        """Put models together; `keep` leaves what the input had beside what they find."""
        single = [each for model in models for each in _single(model)]
        for model in single:
            _check(model)
        relaters = [model for model in single if model.task.name == "relate"]
        _check_types([model for model in single if model.task.name == "tag"], relaters, keep=keep)
        stages = [stage for model in models for stage in _stages(model)]
        gives = tuple(dict.fromkeys(map(_gives, single)))
        return cls(
            stages=(*stages, *map(_Relating, relaters)),
            folders=tuple(model.folder for model in models),
            tasks=tuple(model.name or model.task.name for model in single),
            gives=gives,
            replaced=() if keep else _replaced(gives),
        )

    def annotate(self, documents: Sequence[Document]) -> list[Annotated]:
        """Let every model add to the documents; results are in their order."""
        found = [Annotated(without(document, self.replaced), Coverage()) for document in documents]
        for stage in self.stages:
            added = stage.add([each.document for each in found])
            found = [_joined(before, after) for before, after in zip(found, added, strict=True)]
        return found


def _joined(before: Annotated, after: Annotated) -> Annotated:
    total = Coverage.total((before.coverage, after.coverage))
    once = {
        "examples": 1,
        "characters": len(after.document.text),
        "split_examples": min(1, total.split_examples),
    }
    return Annotated(after.document, replace(total, **once), before.unread + after.unread)


@dataclass(frozen=True)
class _Reading:
    """A model that reads texts."""

    model: TaskModel

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        examples = self.model.task.of_texts(
            [each.text for each in documents], [each.id for each in documents]
        )
        predictions = self.model.predict(examples)
        for document, example, prediction in zip(documents, examples, predictions, strict=True):
            yield Annotated(_said(self.model, document, example, prediction), prediction.coverage)


@dataclass(frozen=True)
class _ReadingTogether:
    """Tasks of one model that read the same texts: the encoder runs once for rows that they share."""

    model: SeveralModel

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        examples = self.model.task.of_texts([each.text for each in documents])
        predictions = self.model.predictions(examples)
        for document, example, by_task in zip(documents, examples, predictions, strict=True):
            for name, model in self.model.models.items():
                document = _said(model, document, example.by_task[name], by_task[name])  # noqa: PLW2901
            yield Annotated(document, Coverage.total(each.coverage for each in by_task.values()))


@dataclass(frozen=True)
class _Relating:
    """A model that reads the entities of a document as well."""

    model: TaskModel

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        bare = [without(document, ["relations"]) for document in documents]
        examples = [of_document(document, "", is_annotated=False)[0] for document in bare]
        negative = cast(RelateTask, self.model.task).rules.negative
        predictions = self.model.predict(examples)
        for document, example, found in zip(documents, examples, predictions, strict=True):
            related = with_relations(document, example, found, negative)
            yield Annotated(related, found.coverage, len(found.pairs) - found.coverage.windows)


def _said(model: TaskModel, document: Document, example: Any, prediction: Any) -> Document:
    """Put the answer of a model that reads texts into the document."""
    if model.task.name == "tag":
        return with_entities(document, cast(Tagged, prediction).entities)
    answers = cast(ClassifyPrediction, prediction).answers
    if cast(ClassifyTask, model.task).is_document:
        return with_labelled_sentences(document, sentence_spans(example) or (), answers)
    return with_labels(document, answers[0])


def _single(model: TaskModel | SeveralModel) -> list[TaskModel]:
    return [model] if isinstance(model, TaskModel) else list(model.models.values())


def _stages(model: TaskModel | SeveralModel) -> Iterator[Stage]:
    """Give what runs the tasks of a model that read texts."""
    if isinstance(model, TaskModel):
        if model.task.name in READ_AS_TEXT:
            yield _Reading(_of_single_texts(model))
        return
    texts: Mapping[str, TaskModel] = {
        name: each for name, each in model.models.items() if each.task.name in READ_AS_TEXT
    }
    if texts:
        yield _ReadingTogether(replace(model, models=texts))


def _of_single_texts(model: TaskModel) -> TaskModel:
    """Let a model that was fine-tuned elsewhere, for texts or for pairs, read a document as one text."""
    task = model.task
    if isinstance(task, ClassifyTask) and task.pairs is None:
        return replace(model, task=replace(task, pairs=False))
    return model


def _check(model: TaskModel) -> None:
    """Refuse a model whose answers are no annotations."""
    task = model.task
    named = f"{model.folder}" + (f" (task {model.name})" if model.name else "")
    if task.name not in (*READ_AS_TEXT, "relate"):
        raise BadSetting(
            f"{named} is for the task {task.name}, whose answers are no annotations of a document; expected tag, "
            f"classify or relate. {_other_task(model)}Ask it with `alembert predict`."
        )
    if isinstance(task, ClassifyTask) and task.pairs:
        raise BadSetting(
            f"{named} classifies pairs of texts, and a document is one text. Ask it with `alembert predict`."
        )
    if isinstance(task, ClassifyTask) and task.is_document and task.kind == "number":
        raise BadSetting(
            f"{named} gives each sentence a number, and a format has labels alone. Ask it with `alembert predict`."
        )


def _other_task(model: TaskModel) -> str:
    return "To use another task of this model, give its name: --task NAME. " if model.name else ""


def _check_types(taggers: Sequence[TaskModel], relaters: Sequence[TaskModel], *, keep: bool) -> None:
    """Refuse a tagger and a relation model that have no pair of types in common; more models may have."""
    if len(taggers) == 1 and not keep:
        for relater in relaters:
            TripleModel(taggers[0], relater)


def _gives(model: TaskModel) -> Field:
    if isinstance(model.task, ClassifyTask):
        return "entities" if model.task.is_document else "labels"
    return "entities" if model.task.name == "tag" else "relations"


def _replaced(gives: Sequence[Field]) -> tuple[Field, ...]:
    """Relations are between entities, and go with them."""
    return (*gives, "relations") if "entities" in gives and "relations" not in gives else tuple(gives)
