"""Models in one pass over documents: each adds what it finds, and the next one sees it; lexicons add what they miss.

In: fine-tuned models whose answers are annotations (`Task.annotation`), any number of them. Out: documents with
entities, labels and relations. Tasks that read entities come last, whatever their order was: they see the entities that
the document has by then: those of the models and lexicons before them, or those of the input if there is none. What the
input had of the same kind is left out and counted, unless it is to be kept. A document's result does not depend on the
documents beside it, but for the last digits of numbers: which rows share a batch changes the order of sums.

Lexicons add an entity for each place where a term stands and no entity does: what a model found, or what was kept of
the input, was chosen by its context, and a term was not. Labelled sentences are no such entities: they cover the whole
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from alembert.corpus.document import Document, add_lexicon_terms
from alembert.corpus.readers import ReadOptions
from alembert.errors import BadInput, BadSetting, UserError
from alembert.infer.task_model import ModelTask, TaskModel
from alembert.infer.triples import check_types
from alembert.tasks.example import AnnotationField, Coverage, drop_annotations
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon_cache import LexiconFile, open_lexicons

SOURCE_FILE_KEY: Final = "source_file"
SOURCE_ITEM_KEY: Final = "source_item"


def with_source(document: Document, file: str, item: int | None) -> Document:
    """Write into `meta` which item of which file a document was; one that has been annotated before keeps its source."""
    if SOURCE_FILE_KEY in document.meta:
        return document
    source = {SOURCE_FILE_KEY: file} | ({} if item is None else {SOURCE_ITEM_KEY: str(item)})
    return replace(document, meta={**document.meta, **source})


@dataclass(frozen=True)
class PipelineOutput:
    """A document with what was found in it."""

    document: Document
    coverage: Coverage
    """Tokens and windows of all models together; characters count once."""
    unread_pairs: int = 0
    """Pairs of entities that are too far apart for the relation model."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of every label that classifiers of the document know."""
    value: float | None = None
    """The number that a regression model gives the document."""
    has_no_pairs: bool = False
    """Whether it has no two entities of types that the relation model relates."""


class PipelineStage(Protocol):
    """A model, or several that run together."""

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        """Add to each document what is found."""


@dataclass(frozen=True)
class LexiconMatcher:
    """Lexicons that are looked up in documents."""

    gazetteer: Gazetteer
    sentence_labels: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What a user should know about the terms."""

    @classmethod
    def from_lexicons(
        cls, lexicons: Mapping[str, Path], sentence_labels: frozenset[str] = frozenset()
    ) -> LexiconMatcher:
        """Read lexicons by label, in order of precedence."""
        opened = open_lexicons(LexiconFile(label, path) for label, path in lexicons.items())
        notes = (*opened.warnings(), *opened.gazetteer.counts.warnings())
        return cls(opened.gazetteer, sentence_labels, notes)

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        matches_by_document = self.gazetteer.find_all([document.text for document in documents])
        for document, matches in zip(documents, matches_by_document, strict=True):
            covered = self._mark_entities(document)
            free = [match for match in matches if covered.find(1, match.start, match.end) < 0]
            yield PipelineOutput(add_lexicon_terms(document, free), Coverage())

    def _mark_entities(self, document: Document) -> bytearray:
        """Return a byte for each character: 1 where an entity is."""
        covered = bytearray(len(document.text))
        for entity in document.entities:
            if entity.label not in self.sentence_labels:
                for start, end in entity.spans:
                    covered[start:end] = b"\1" * (end - start)
        return covered


_SAMPLE_DOCUMENT: Final = Document("plain", "text")


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
    models: tuple[ModelTask, ...] = ()
    """The tasks of all models, one by one."""
    lexicons: Mapping[str, Path] = field(default_factory=dict)
    """Files of terms by label: those that a tagger reads, and those that are looked up beside the models."""
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
        models = [TaskModel.open(folder, device, task).with_threshold(min_score, min_precision) for folder in folders]
        return cls.from_models(models, keep=keep, lexicons=lexicons)

    @classmethod
    def from_models(
        cls,
        models: Sequence[TaskModel],
        *,
        keep: bool = False,
        lexicons: Mapping[str, str | Path] | None = None,
    ) -> Pipeline:
        """Put models and lexicons together; `keep` leaves what the input had beside what they find.

        Terms of a lexicon that a tagger reads are handed to it, which decides by the context; those of others are
        marked.
        """
        files = {label: Path(path) for label, path in (lexicons or {}).items()}
        models = [
            model.with_lexicons([f"{label}={path}" for label, path in files.items() if label in model.lexicon_labels])
            for model in models
        ]
        marked = files.keys() - frozenset().union(*(model.lexicon_labels for model in models))
        parts = [part for model in models for part in model.tasks.values()]
        for model in models:
            _check(model)
        specs = [part.task.annotation for part in parts]
        if not keep and not marked:
            _check_types(parts)
        sentence_labels = frozenset(label for spec in specs for label in spec.sentence_labels)
        looked_up = {label: path for label, path in files.items() if label in marked}
        matching = LexiconMatcher.from_lexicons(looked_up, sentence_labels) if looked_up else None
        found = tuple(dict.fromkeys(spec.writes for spec in specs if spec.writes))
        on_text = [stage for model in models for stage in _stages(model, "text")]
        on_entities = [stage for model in models for stage in _stages(model, "entities")]
        return cls(
            stages=(*on_text, *([matching] if matching else []), *on_entities),
            folders=tuple(model.folder for model in models),
            tasks=tuple(part.name for part in parts),
            output_fields=tuple(dict.fromkeys((*found, "entities"))) if matching else found,
            replaced_fields=() if keep else _replaced_fields(found),
            models=tuple(parts),
            lexicons=files,
            notes=(
                *(note for model in models for note in model.lexicon_notes()),
                *(matching.notes if matching else ()),
            ),
        )

    def read_options(self, options: ReadOptions) -> ReadOptions:
        """Return options with the columns that the models were trained on, unless others are named."""
        known = [part.saved.apply_columns(options) for part in self.models]
        texts = {each.text: each for each in known if each.text}
        if len(texts) > 1:
            columns = " and ".join(", ".join(names) for names in texts)
            raise BadSetting(
                f"The models were trained on the texts of different columns: {columns}. Say which column has the text: "
                "--set read.text=COLUMN."
            )
        for part in self.models:
            options = part.saved.apply_columns(options)
        return options

    def annotate(self, documents: Sequence[Document | str]) -> list[PipelineOutput]:
        """Let every model add to the documents, which may be plain texts; results are in their order."""
        ready = _to_documents(documents)
        found = [PipelineOutput(drop_annotations(document, self.replaced_fields), _NO_COVERAGE) for document in ready]
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
    return PipelineOutput(
        after.document,
        _merge_coverages(before.coverage, after.coverage, len(after.document.text)),
        before.unread_pairs + after.unread_pairs,
        {**before.probabilities, **after.probabilities},
        before.value if after.value is None else after.value,
        before.has_no_pairs or after.has_no_pairs,
    )


_NO_COVERAGE: Final = Coverage()


def _merge_coverages(before: Coverage, after: Coverage, characters: int) -> Coverage:
    """Add up what stages saw of a document, which counts once."""
    total = after if before is _NO_COVERAGE else Coverage.total((before, after))
    split = min(1, total.split_examples)
    if (total.examples, total.characters, total.split_examples) == (1, characters, split):
        return total
    return replace(total, examples=1, characters=characters, split_examples=split)


@dataclass(frozen=True)
class _ModelStage:
    """Tasks of one model that read the same of a document: the encoder runs once for rows that they share."""

    model: TaskModel

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        examples = self.model.examples_from_documents(documents)
        for document, example, found in zip(documents, examples, self.model.predict_all(examples), strict=True):
            facts: dict[str, Any] = {}
            for name, part in self.model.tasks.items():
                document = part.task.annotate(document, example[name], found[name])  # noqa: PLW2901
                facts |= part.task.annotation_facts(example[name], found[name])
            yield PipelineOutput(document, Coverage.total(each.coverage for each in found.values()), **facts)


def annotates_documents(model: TaskModel) -> bool:
    """Return whether a model's answers are annotations of single texts: entities, labels, relations."""
    return all(part.task.annotation.writes for part in model.tasks.values())


def _stages(model: TaskModel, reads: str) -> Iterator[PipelineStage]:
    """Return what runs the tasks of a model that read this of a document, if it has any."""
    parts = {
        name: replace(part, task=part.task.for_documents())
        for name, part in model.tasks.items()
        if part.task.annotation.reads == reads
    }
    if parts:
        yield _ModelStage(replace(model, tasks=parts))


def _check(model: TaskModel) -> None:
    """Refuse a model whose answers are no annotations."""
    for part in model.tasks.values():
        spec = part.task.annotation
        problem = spec.problem or (
            f"is for the task {part.task.name}, whose answers are no annotations of a document; expected tag, classify or "
            "relate"
        )
        if spec.problem or not spec.writes:
            is_one = len(model.tasks) == 1
            named = f"{model.folder}" if is_one else f"{model.folder} (task {part.name})"
            others = "" if is_one else "To use another task of this model, give its name: --task NAME. "
            raise BadSetting(f"{named} {problem}. {others}Ask it with `alembert predict`.")


def _check_types(parts: Sequence[ModelTask]) -> None:
    """Refuse a tagger and a relation model that have no pair of types in common; of several taggers another may have."""
    finders = [part for part in parts if part.task.annotation.entity_types]
    for part in parts if len(finders) == 1 else ():
        check_types(finders[0], part)


def _replaced_fields(gives: Sequence[AnnotationField]) -> tuple[AnnotationField, ...]:
    """Relations are between entities, and go with them."""
    return (*gives, "relations") if "entities" in gives and "relations" not in gives else tuple(gives)
