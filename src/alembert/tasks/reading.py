"""The part of a task's contract that is about examples: how they are read, made, checked, described and rewritten."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import E, EncodedExample, Example, P, ReadResult, check_labels

if TYPE_CHECKING:
    from alembert.corpus.examples.tag_check import TagProblem
    from alembert.tasks.rewriting import Rewriter
    from alembert.tasks.task import Task


class TaskReading(ABC, Generic[E, P]):
    """What a task knows about its examples."""

    name: ClassVar[str]
    settings_class: ClassVar[type[Any]]
    example_class: ClassVar[type[Example]] = Example
    """What plain texts become."""
    answer_name: ClassVar[str] = "answers"
    """What answers are called, in the plural."""
    text_name: ClassVar[str] = "text-"
    """What texts without a name are called, before their number."""
    default_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of a run that are other than most tasks have them, as they would stand in a file of --config."""
    settings: Any

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the head's outputs, in order; empty: they have none."""
        return ()

    @classmethod
    @abstractmethod
    def read(cls, files: Sequence[Path], settings: Any, options: ReadOptions) -> ReadResult[E]:
        """Read labelled examples from files (`collect`); bad ones are set aside with file and line."""

    @classmethod
    def read_unlabelled(cls, files: Sequence[Path], settings: Any, options: ReadOptions) -> ReadResult[E]:
        """Read examples to be predicted from files, which may have no right answers where the format allows it."""
        return cls.read(files, settings, options)

    @classmethod
    def example_from_text(cls, text: str, name: str) -> E:
        """Make an example without answers of a plain text, or of several that the task separates."""
        return cast(E, cls.example_class(id=name, texts=(text,)))

    @classmethod
    def example_from_record(cls, record: Mapping[str, Any], name: str) -> E:
        """Make an example without answers of a dict with named parts, if the task reads more than one text."""
        raise BadInput(f"The task {cls.name} reads texts, and was given a dict with parts. Give it texts.")

    @classmethod
    def examples_from_texts(cls, texts: Sequence[str], ids: Sequence[str] | None = None) -> list[E]:
        """Make examples without answers of plain texts, numbered if they have no ids."""
        names = ids or [f"{cls.text_name}{number}" for number in range(1, len(texts) + 1)]
        return [cls.example_from_text(text, name) for text, name in zip(texts, names, strict=True)]

    @classmethod
    def examples_from_documents(cls, documents: Sequence[Document]) -> list[E]:
        """Make examples without answers of documents, cut as examples of the same documents from a file are."""
        return cls.examples_from_texts(
            [document.text for document in documents], [document.id for document in documents]
        )

    @classmethod
    def mark_unknown(
        cls, examples: Sequence[E], settings: Any, sources: Sequence[Path]
    ) -> tuple[Sequence[E], Sequence[str]]:
        """Mark in training examples what their files leave open, as far as it can be detected; describe it in sentences.

        `sources` are the files and folders as they were named: all files of a folder leave the same open.
        """
        return examples, ()

    def read_warm_up(self, files: Sequence[Path], options: ReadOptions, min_score: float) -> ReadResult[E]:
        """Read examples to learn from before the others; labels below `min_score`, if they have scores, are unknown."""
        raise BadSetting(f"Warm-up files are for the task tag, and this is {self.name}. Leave them out.")

    def for_warm_up(self) -> Self:
        """Return the task as it is learnt from warm-up examples."""
        return self

    @classmethod
    def resolve_settings(cls, examples: Sequence[E], settings: Any) -> Any:
        """Complete the settings with what training examples show, so that other files are read as they were."""
        return settings

    @classmethod
    @abstractmethod
    def learn(cls, examples: Sequence[E], settings: Any) -> Task[E, P]:
        """Decide from the training examples what the task is: its labels, and what else is not a setting."""

    def adopt_model_settings(self, folder: Path) -> Self:
        """Take over what the folder of the model that learns says of itself, where the settings leave it open."""
        return self

    def describe(self) -> list[str]:
        """Describe in sentences what was detected in the data."""
        return [f"{len(self.labels)} labels: {', '.join(self.labels)}."] if self.labels else []

    def gold_answers(self, example: E) -> list[str]:
        """Name the right answers of an example (its labels, the types of its entities), to be counted."""
        return list(example.gold_labels)

    def check(self, examples: Sequence[E]) -> None:
        """Refuse examples whose answers are not of this task: another kind, or labels that it does not know."""
        if self.labels:
            for example in examples:
                check_labels(example, self.gold_answers(example), self.labels)

    def check_gold(self, examples: Sequence[E]) -> None:
        """Refuse to score by examples whose right answers are known in part alone."""

    def check_reading(self, options: ReadOptions, files: Sequence[Path]) -> None:
        """Refuse what was said about files, if it cannot be meant."""
        if options.types:
            raise BadSetting(
                f"`types`, the types of entities that files annotate, is for the task tag, and this is {self.name}. Leave "
                "it out, or write it under [task.NAME.read] if there are several tasks."
            )

    def advice(self, examples: Sequence[E], encoded: Sequence[EncodedExample]) -> Iterator[str]:
        """Name settings that do not suit the training examples, and what to set instead."""
        return iter(())

    def data_notes(self, examples: Sequence[E]) -> list[str]:
        """List what keeps examples from having any answer, a sentence each; nothing if all is well."""
        return []

    def find_tag_problems(self, files: Sequence[Path], options: ReadOptions) -> Iterator[TagProblem]:
        """Find what is wrong in files beyond what cannot be read: tags that break their scheme, with their lines."""
        return iter(())

    def entity_surfaces(self, examples: Sequence[E]) -> Iterator[tuple[str, str]]:
        """Yield text and label of the entities in examples, by which later ones are seen or unseen."""
        return iter(())

    def rewriter(self) -> Rewriter[E]:
        """Return what replaces words of examples, for augmentation, and carries their answers along."""
        raise BadSetting(
            f"Examples of the task {self.name} cannot be augmented: their answers are texts of their own, which would "
            "have to change with the words. Leave augmentation out."
        )
