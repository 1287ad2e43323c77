"""What a task knows about its examples: how they are read, made, checked, described and rewritten; and how they are
split.

Which part an example falls into is decided by its text and a seed alone, so neither the order of the files nor their
number matters, and examples with the same text are never on both sides. Texts are ranked by a hash and the ranks are
cut, rather than each hash compared with a threshold: the shares are exact, and small sets have no empty part by chance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.data.order import stable_hash
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import E, EncodedExample, Example, P, ReadResult, check_labels

if TYPE_CHECKING:
    from alembert.corpus.examples.tag_check import TagProblem
    from alembert.tasks.example import Rewriter
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


@dataclass(frozen=True)
class SplitShares:
    """Percentages of the different texts that go to each part; no test part if its share is 0."""

    train: float
    dev: float
    test: float = 0.0

    def counts(self, texts: int) -> tuple[int, int, int]:
        """Share out a number of texts; each part with a share gets one before any gets more.

        >>> SplitShares(80, 10, 10).counts(25)
        (20, 3, 2)
        """
        exact = [texts * share / 100 for share in (self.train, self.dev, self.test)]
        shared = [int(part) for part in exact]
        by_remainder = sorted(range(3), key=lambda part: shared[part] - exact[part])
        for part in by_remainder[: texts - sum(shared)]:
            shared[part] += 1
        for part in range(3):
            richest = shared.index(max(shared))
            if exact[part] and not shared[part] and shared[richest] > 1:
                shared[richest] -= 1
                shared[part] += 1
        return shared[0], shared[1], shared[2]


@dataclass(frozen=True)
class SplitOverlap(Generic[E]):
    """Examples of one set whose texts another set has too."""

    examples: tuple[E, ...]

    @property
    def count(self) -> int:
        return len(self.examples)


def parse_split(text: str) -> SplitShares:
    """Read the shares of training, development and, if there is a third, test.

    >>> parse_split("80/10/10")
    SplitShares(train=80.0, dev=10.0, test=10.0)
    """
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        shares = []
    if len(shares) not in (2, 3) or not all(share > 0 for share in shares) or abs(sum(shares) - 100) > 1e-6:
        raise BadSetting(
            f"The split {text!r} cannot be used; expected percentages of train/dev/test or train/dev, each above 0, "
            "that add up to 100, such as 80/10/10 or 90/10."
        )
    return SplitShares(*shares)


def split_examples(
    examples: Sequence[E], shares: SplitShares, seed: int
) -> tuple[tuple[E, ...], tuple[E, ...], tuple[E, ...]]:
    """Divide examples into training, development and test, each in the given order.

    Examples of one document, and those whose texts are the same but for white space and case, stay together.
    """
    keys = [example.group_id for example in examples]
    ranked = sorted(set(keys), key=lambda key: (stable_hash(seed, "split", key), str(key)))
    train, dev, _ = shares.counts(len(ranked))
    part_of = {key: (rank >= train) + (rank >= train + dev) for rank, key in enumerate(ranked)}
    parts: tuple[list[E], list[E], list[E]] = ([], [], [])
    for example, key in zip(examples, keys, strict=True):
        parts[part_of[key]].append(example)
    return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])


def find_overlap(first: Sequence[Example], second: Sequence[E]) -> SplitOverlap[E]:
    """Find the examples of the second set whose text the first has, but for white space and case."""
    keys = {example.key for example in first}
    return SplitOverlap(tuple(example for example in second if example.key in keys))
