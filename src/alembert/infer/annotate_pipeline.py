"""Models in one pass over documents: each adds what it finds, and the next one sees it; lexicons add what they miss.

In: fine-tuned models for the tasks tag, classify and relate, any number of them. Out: documents with entities, labels
and relations. Relation models come last, whatever their order was: they relate the entities that the document has by
then: those of the taggers and lexicons before them, or those of the input if there is none. What the input had of the
same kind is left out and counted, unless it is to be kept. A document's result does not depend on the documents beside
it, but for the last digits of numbers: which rows share a batch changes the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from alembert.corpus.document import Document
from alembert.corpus.readers import ReadOptions
from alembert.errors import BadInput, BadSetting, UserError
from alembert.infer.annotate_documents import (
    AnnotationField,
    LexiconMatcher,
    PipelineOutput,
    PipelineStage,
    drop_annotations,
    with_entities,
    with_labelled_sentences,
    with_labels,
    with_relations,
)
from alembert.infer.task_model import MultiTaskModel, TaskModel, open_model
from alembert.infer.triples import TripleModel
from alembert.tasks.classify.data import find_sentence_spans
from alembert.tasks.classify.decode import ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import Coverage
from alembert.tasks.files import TASK_FILE, apply_training_columns
from alembert.tasks.relate.data import example_from_document
from alembert.tasks.relate.task import RelateTask
from alembert.tasks.tag.data import TagPrediction

_SAMPLE_DOCUMENT: Final = Document("plain", "text")
TEXT_TASKS: Final = ("tag", "classify")
"""Tasks that need the text of a document alone."""


@dataclass(frozen=True)
class Pipeline:
    """Models that work on documents one after the other."""

    stages: tuple[PipelineStage, ...]
    folders: tuple[Path, ...]
    tasks: tuple[str, ...]
    """Of each model, with the name of one of several."""
    output_fields: tuple[AnnotationField, ...]
    """What the models find."""
    replaced_fields: tuple[AnnotationField, ...]
    """What of the input makes way for it."""
    models: tuple[TaskModel, ...] = ()
    lexicons: Mapping[str, Path] = field(default_factory=dict)
    """Files of terms that are looked up beside the models, by label."""
    notes: tuple[str, ...] = ()
    """What a user should know about the lexicons."""

    @classmethod
    def open(
        cls,
        folders: str | Path | Sequence[str | Path],
        *,
        task: str | None = None,
        keep: bool = False,
        device: str = "cpu",
        min_score: float | None = None,
        min_precision: float | None = None,
        lexicons: Mapping[str, str | Path] | None = None,
    ) -> Pipeline:
        """Open the folder of a fine-tuned model or those of several, and lexicons by label; `task` is one of several."""
        folders = [folders] if isinstance(folders, str | Path) else folders
        if not folders:
            raise BadSetting("No model was given. Name the folder of at least one fine-tuned model.")
        if task is not None and len(folders) > 1:
            raise BadSetting("A task was named, and several models were given. Name a task for one model alone.")
        models = [open_model(folder, device, task).with_threshold(min_score, min_precision) for folder in folders]
        return cls.from_models(models, keep=keep, lexicons=lexicons)

    @classmethod
    def from_models(
        cls,
        models: Sequence[TaskModel | MultiTaskModel],
        *,
        keep: bool = False,
        lexicons: Mapping[str, str | Path] | None = None,
    ) -> Pipeline:
        """Put models and lexicons together; `keep` leaves what the input had beside what they find."""
        single = [each for model in models for each in _split_tasks(model)]
        for model in single:
            _check(model)
        relaters = [model for model in single if model.task.name == "relate"]
        taggers = [model for model in single if model.task.name == "tag"]
        _check_types(taggers, relaters, has_more=keep or bool(lexicons))
        stages = [stage for model in models for stage in _stages(model)]
        files = {label: Path(path) for label, path in (lexicons or {}).items()}
        matching = LexiconMatcher.from_lexicons(files, _sentence_labels(single)) if files else None
        found = tuple(dict.fromkeys(map(_output_field, single)))
        return cls(
            stages=(*stages, *([matching] if matching else []), *map(_RelationStage, relaters)),
            folders=tuple(model.folder for model in models),
            tasks=tuple(model.name or model.task.name for model in single),
            output_fields=tuple(dict.fromkeys((*found, "entities"))) if matching else found,
            replaced_fields=() if keep else _replaced_fields(found),
            models=tuple(single),
            lexicons=files,
            notes=matching.notes if matching else (),
        )

    def read_options(self, options: ReadOptions) -> ReadOptions:
        """Return options with the columns that the models were trained on, unless others are named."""
        known = [
            apply_training_columns(each.training_facts(), options, str(each.folder / TASK_FILE)) for each in self.models
        ]
        texts = {each.text: each for each in known if each.text}
        if len(texts) > 1:
            columns = " and ".join(", ".join(names) for names in texts)
            raise BadSetting(
                f"The models were trained on the texts of different columns: {columns}. Say which column has the text: "
                "--set read.text=COLUMN."
            )
        for each in self.models:
            options = apply_training_columns(each.training_facts(), options, str(each.folder / TASK_FILE))
        return options

    def annotate(self, documents: Sequence[Document | str]) -> list[PipelineOutput]:
        """Let every model add to the documents, which may be plain texts; results are in their order."""
        ready = _to_documents(documents)
        found = [PipelineOutput(drop_annotations(document, self.replaced_fields), Coverage()) for document in ready]
        for stage in self.stages:
            added = stage.annotate([each.document for each in found])
            found = [_merge_outputs(before, after) for before, after in zip(found, added, strict=True)]
        return found

    def annotate_each(self, documents: Sequence[Document]) -> list[PipelineOutput | str]:
        """Annotate documents together; those on which the models fail give the reason in place of a result.

        If the models fail on the documents together, each is tried alone. Models that fail on any text are broken, and
        the error is raised.
        """
        try:
            return list(self.annotate(documents))
        except Exception as error:
            if isinstance(error, UserError) and not isinstance(error, BadInput):
                raise
            return [self._annotate_alone(document) for document in documents]

    def _annotate_alone(self, document: Document) -> PipelineOutput | str:
        try:
            return self.annotate([document])[0]
        except BadInput as problem:
            return str(problem)
        except UserError:
            raise
        except Exception as error:
            self.annotate([_SAMPLE_DOCUMENT])  # which raises, if it is not the document's fault
            # The message of the error may quote the text, so it stays out.
            return f"the model fails on it: {type(error).__name__}"


def _to_documents(given: Sequence[Document | str]) -> list[Document]:
    """Make documents of texts, called text-1 and so on; anything else is refused."""
    if isinstance(given, str):
        raise BadInput("One text was given. Models annotate a list of documents or texts: put it into a list.")
    made = [Document(f"text-{n}", each) if isinstance(each, str) else each for n, each in enumerate(given, 1)]
    strange = next((each for each in made if not isinstance(each, Document)), None)
    if strange is not None:
        raise BadInput(f"Models annotate a list of documents or texts; there is a {type(strange).__name__} in it.")
    return made


def _merge_outputs(before: PipelineOutput, after: PipelineOutput) -> PipelineOutput:
    total = Coverage.total((before.coverage, after.coverage))
    once = {
        "examples": 1,
        "characters": len(after.document.text),
        "split_examples": min(1, total.split_examples),
    }
    return PipelineOutput(
        after.document,
        replace(total, **once),
        before.unread_pairs + after.unread_pairs,
        {**before.probabilities, **after.probabilities},
        before.value if after.value is None else after.value,
        before.has_no_pairs or after.has_no_pairs,
    )


@dataclass(frozen=True)
class _TextStage:
    """A model that reads texts."""

    model: TaskModel

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        examples = self.model.task.examples_from_documents(documents)
        predictions = self.model.predict(examples)
        for document, example, prediction in zip(documents, examples, predictions, strict=True):
            said = _add_prediction(self.model, document, example, prediction)
            yield PipelineOutput(said, prediction.coverage, **_document_scores(self.model, prediction))


@dataclass(frozen=True)
class _MultiTaskStage:
    """Tasks of one model that read the same texts: the encoder runs once for rows that they share."""

    model: MultiTaskModel

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        examples = self.model.task.of_documents(documents)
        predictions = self.model.iter_predictions(examples)
        for document, example, by_task in zip(documents, examples, predictions, strict=True):
            certainty: dict[str, Any] = {}
            for name, model in self.model.models.items():
                document = _add_prediction(model, document, example.by_task[name], by_task[name])  # noqa: PLW2901
                certainty |= _document_scores(model, by_task[name])
            yield PipelineOutput(document, Coverage.total(each.coverage for each in by_task.values()), **certainty)


@dataclass(frozen=True)
class _RelationStage:
    """A model that reads the entities of a document as well."""

    model: TaskModel

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        bare = [drop_annotations(document, ["relations"]) for document in documents]
        examples = [example_from_document(document, "", is_annotated=False)[0] for document in bare]
        rules = cast(RelateTask, self.model.task).rules
        predictions = self.model.predict(examples)
        for document, example, found in zip(documents, examples, predictions, strict=True):
            related = with_relations(document, example, found, rules.negative)
            unread = len(found.pairs) - found.coverage.windows
            yield PipelineOutput(
                related, found.coverage, unread, has_no_pairs=not rules.has_related_types(example.mentions)
            )


def _add_prediction(model: TaskModel, document: Document, example: Any, prediction: Any) -> Document:
    """Put the answer of a model that reads texts into the document."""
    if model.task.name == "tag":
        return with_entities(document, cast(TagPrediction, prediction).entities)
    answers = cast(ClassifyPrediction, prediction).answers
    if cast(ClassifyTask, model.task).is_document:
        return with_labelled_sentences(document, find_sentence_spans(example) or (), answers)
    return with_labels(document, answers[0])


def _document_scores(model: TaskModel, prediction: Any) -> dict[str, Any]:
    """Return the probabilities of a document's labels, or its number, where the model classifies whole documents."""
    if not isinstance(model.task, ClassifyTask) or model.task.is_document:
        return {}
    answer = cast(ClassifyPrediction, prediction).answer
    return {"probabilities": answer.probabilities, "value": answer.value}


def annotates_documents(model: TaskModel | MultiTaskModel) -> bool:
    """Tell whether a model's answers are annotations of single texts: entities, labels, relations."""
    return all(_annotates(each) for each in _split_tasks(model))


def _annotates(model: TaskModel) -> bool:
    is_pairs = isinstance(model.task, ClassifyTask) and model.task.pairs
    return model.task.name in (*TEXT_TASKS, "relate") and not is_pairs


def _split_tasks(model: TaskModel | MultiTaskModel) -> list[TaskModel]:
    return [model] if isinstance(model, TaskModel) else list(model.models.values())


def _stages(model: TaskModel | MultiTaskModel) -> Iterator[PipelineStage]:
    """Give what runs the tasks of a model that read texts."""
    if isinstance(model, TaskModel):
        if model.task.name in TEXT_TASKS:
            yield _TextStage(_as_text_model(model))
        return
    texts: Mapping[str, TaskModel] = {name: each for name, each in model.models.items() if each.task.name in TEXT_TASKS}
    if texts:
        yield _MultiTaskStage(replace(model, models=texts))


def _as_text_model(model: TaskModel) -> TaskModel:
    """Let a model that was fine-tuned elsewhere, for texts or for pairs, read a document as one text."""
    task = model.task
    if isinstance(task, ClassifyTask) and task.pairs is None:
        return replace(model, task=replace(task, pairs=False))
    return model


def _check(model: TaskModel) -> None:
    """Refuse a model whose answers are no annotations."""
    task = model.task
    named = f"{model.folder}" + (f" (task {model.name})" if model.name else "")
    if task.name not in (*TEXT_TASKS, "relate"):
        raise BadSetting(
            f"{named} is for the task {task.name}, whose answers are no annotations of a document; expected tag, "
            f"classify or relate. {_describe_task(model)}Ask it with `alembert predict`."
        )
    if isinstance(task, ClassifyTask) and task.pairs:
        raise BadSetting(
            f"{named} classifies pairs of texts, and a document is one text. Ask it with `alembert predict`."
        )
    if isinstance(task, ClassifyTask) and task.is_document and task.kind == "number":
        raise BadSetting(
            f"{named} gives each sentence a number, and a format has labels alone. Ask it with `alembert predict`."
        )


def _describe_task(model: TaskModel) -> str:
    return "To use another task of this model, give its name: --task NAME. " if model.name else ""


def _check_types(taggers: Sequence[TaskModel], relaters: Sequence[TaskModel], *, has_more: bool) -> None:
    """Refuse a tagger and a relation model that have no pair of types in common; more models or entities may have."""
    if len(taggers) == 1 and not has_more:
        for relater in relaters:
            TripleModel(taggers[0], relater)


def _sentence_labels(models: Sequence[TaskModel]) -> frozenset[str]:
    """Collect the labels that stand for whole sentences."""
    tasks = [each.task for each in models if isinstance(each.task, ClassifyTask) and each.task.is_document]
    return frozenset(label for task in tasks for label in task.labels)


def _output_field(model: TaskModel) -> AnnotationField:
    if isinstance(model.task, ClassifyTask):
        return "entities" if model.task.is_document else "labels"
    return "entities" if model.task.name == "tag" else "relations"


def _replaced_fields(gives: Sequence[AnnotationField]) -> tuple[AnnotationField, ...]:
    """Relations are between entities, and go with them."""
    return (*gives, "relations") if "entities" in gives and "relations" not in gives else tuple(gives)
