"""The contract of a task: how examples are read, which head learns them, what its loss is, how its answers are read
and how they are scored.

A task is one file in this folder with a subclass of `Task` and a frozen dataclass of settings; `names.TASKS` has it, and
the contract suite tests it. The loop, evaluation, prediction and the inspectors know tasks by this contract alone.
A task is also what is saved beside the weights (`task.json`): whatever was decided from the data (labels, scheme,
thresholds) is part of it. Modules of tasks load no torch when they are imported, since exported models run without
it: `head`, `loss` and `bind` import it when they are called.
"""

# P places, C outputs of the head
from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks import TASKS, find_task_by_alias
from alembert.tasks.example import Coverage, E, EncodedExample, ReadResult
from alembert.tasks.runtime import Runner
from alembert.tasks.settings import DistillLossSettings, LossSettings
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.corpus.examples.tag_check import TagProblem
    from alembert.nn.heads import HeadSpec
    from alembert.tasks.rewriting import Rewriter
    from alembert.tasks.runtime.torch import TaskBatch

P = TypeVar("P")
SampleMetric = Callable[[npt.NDArray[np.int64]], float]
"""The main score of a sample of examples, given by their numbers, with repetitions: what a bootstrap draws."""


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """How good predictions are."""

    main: str
    """The measure that models are chosen by; higher is better."""
    measures: Mapping[str, float]
    by_label: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    notes: tuple[str, ...] = ()
    """What must be known with the scores, in sentences: that guessing would do as well, for instance."""
    untuned: str = ""
    """The measure that steps of a run are compared by, if a threshold that is chosen after the last of them decides about
    the main one; empty: the main one."""

    @property
    def value(self) -> float:
        return self.measures[self.main]

    @property
    def selection_score(self) -> float:
        """What the model is worth during a run, before anything is tuned."""
        return self.measures[self.untuned or self.main]


class Task(ABC, Generic[E, P]):
    """Something that a model can be fine-tuned for; instances know their labels."""

    name: ClassVar[str]
    settings_class: ClassVar[type[Any]]
    answer_name: ClassVar[str] = "answers"
    """What answers are called, in the plural."""
    default_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of a run that are other than most tasks have them, as they would stand in a file of --config."""
    settings: Any

    # -- data

    @classmethod
    @abstractmethod
    def read(cls, files: Sequence[Path], settings: Any, options: ReadOptions) -> ReadResult[E]:
        """Read labelled examples from files; bad ones are set aside with file and line."""

    @classmethod
    def mark_unknown(
        cls, examples: Sequence[E], settings: Any, sources: Sequence[Path]
    ) -> tuple[Sequence[E], Sequence[str]]:
        """Mark in training examples what their files leave open, as far as it can be told, and say so in sentences.

        `sources` are the files and folders as they were named: all files of a folder leave the same open.
        """
        return examples, ()

    @classmethod
    def read_unlabelled(cls, files: Sequence[Path], settings: Any, options: ReadOptions) -> ReadResult[E]:
        """Read examples to be predicted from files, which may have no right answers where the format allows it."""
        return cls.read(files, settings, options)

    @classmethod
    def resolve_settings(cls, examples: Sequence[E], settings: Any) -> Any:
        """Return settings with what training examples tell, so that other files are read as they were."""
        return settings

    @classmethod
    @abstractmethod
    def learn(cls, examples: Sequence[E], settings: Any) -> Task[E, P]:
        """Decide from the training examples what the task is: its labels, and what else is not a setting."""

    def adopt_model_settings(self, folder: Path) -> Task[E, P]:
        """Take over what the folder of the model that learns says of itself, where the settings leave it open."""
        return self

    @classmethod
    @abstractmethod
    def examples_from_texts(cls, texts: Sequence[str], ids: Sequence[str] | None = None) -> list[E]:
        """Make examples without answers of plain texts."""

    @classmethod
    def examples_from_documents(cls, documents: Sequence[Document]) -> list[E]:
        """Make examples without answers of documents, cut as examples of the same documents from a file are."""
        return cls.examples_from_texts([each.text for each in documents], [each.id for each in documents])

    @classmethod
    def examples_from_records(cls, records: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> list[E]:
        """Make examples without answers of dicts with named parts, for tasks that read more than one text."""
        raise BadInput(f"The task {cls.name} reads texts, and was given a dict with parts. Give it texts.")

    @abstractmethod
    def describe(self) -> list[str]:
        """Say in sentences what was told from the data."""

    @abstractmethod
    def check(self, examples: Sequence[E]) -> None:
        """Refuse examples whose answers are not of this task: another kind, or labels that it does not know."""

    def check_reading(self, options: ReadOptions, files: Sequence[Path]) -> None:
        """Refuse what was said about files, if it cannot be meant."""
        if options.types:
            raise BadSetting(
                f"`types` says which types of entities files annotate, which the task {self.name} does not ask; it is for "
                "the task tag. Leave it out, or say it under [task.NAME.read] if there are several tasks."
            )

    @abstractmethod
    def gold_answers(self, example: E) -> list[str]:
        """Name the right answers of an example (its labels, the types of its entities), to be counted."""

    def advice(self, examples: Sequence[E], encoded: Sequence[EncodedExample]) -> Iterator[str]:
        """Say which settings do not suit the training examples, and what to set instead."""
        return iter(())

    def rewriter(self) -> Rewriter[E]:
        """Give what replaces words of examples, for augmentation, and carries their answers along."""
        raise BadSetting(
            f"Examples of the task {self.name} cannot be augmented: their answers are texts of their own, which would "
            "have to change with the words. Leave augmentation out."
        )

    def entity_surfaces(self, examples: Sequence[E]) -> Iterator[tuple[str, str]]:
        """Give text and label of what tasks that find things have found, to tell seen from unseen ones later."""
        return iter(())

    def data_notes(self, examples: Sequence[E]) -> list[str]:
        """Say what keeps examples from having any answer, a sentence each; nothing if all is well."""
        return []

    def find_tag_problems(self, files: Sequence[Path], options: ReadOptions) -> Iterator[TagProblem]:
        """Find what is wrong in files beyond what cannot be read: tags that break their scheme, with their lines."""
        return iter(())

    # -- the model

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the head's outputs, in order; empty: they have none."""

    @property
    def loss_unit(self) -> Literal["places", "rows", "examples"]:
        """What the loss is a mean over; the windows of one example are computed together if examples are counted."""
        return "places"

    @abstractmethod
    def head(self) -> HeadSpec:
        """Describe the head; it is called as the kind is."""

    @abstractmethod
    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        """Turn examples into rows of at most `longest` tokens; those with answers have labels."""

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Name the pieces that rows need beside those of the tokenizer, each with a word that its row begins as."""
        return {}

    @property
    def loss_group_size(self) -> int:
        """How many examples the loss compares with each other: they are always computed together. 1: each is alone."""
        return 1

    @property
    def attention_pattern(self) -> str | None:
        """Which tokens see each other, if it is not what the model was made with."""
        return None

    @property
    def needs_full_vocabulary(self) -> bool:
        """Whether the loss reads the rows of all pieces, and not of those that occur in the examples alone."""
        return False

    def for_training(self) -> Task[E, P]:
        """Give the task as it encodes training examples, if that differs."""
        return self

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> Task[E, P]:
        """Learn from encoded training examples how much each label counts, for balanced class weights."""
        return self

    @abstractmethod
    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        """Add up the loss over all answers of a micro-batch; `outputs` are the head's at the places of the target."""

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        """Add up how far two outputs for the same rows are apart (R-Drop): both directions of KL, halved."""
        from alembert.nn.losses import symmetric_kl

        return symmetric_kl(one, other)

    def teacher_targets(
        self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        """Give what a student is to imitate of a teacher's outputs, one line for each of theirs; `head` is the teacher's.

        Half precision has to be enough for it. What the labels of the target say is not looked at.
        """
        return outputs

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        """Add up how far a student's outputs are from what it was taught, over the answers that `loss` adds up.

        `head` is the student's. The loss is zero if the student's outputs are the teacher's.
        """
        from alembert.nn.losses import soft_cross_entropy

        return soft_cross_entropy(outputs, taught, settings.temperature)

    def for_student(self) -> Task[E, P]:
        """Give the task as a student begins it, without what was told from the weights of the teacher."""
        return self

    @property
    def decoding_weights(self) -> tuple[str, ...]:
        """Name the weights of the head that decoding needs (CRF transitions); most tasks need none."""
        return ()

    def with_head_weights(self, head: nn.Module) -> Task[E, P]:
        """Take along what decoding needs of the head."""
        named = {name: head.get_parameter(name) for name in self.decoding_weights}
        return self.with_decoding_weights({name: each.detach().float().cpu().numpy() for name, each in named.items()})

    def with_decoding_weights(self, weights: Mapping[str, npt.NDArray[np.float32]]) -> Task[E, P]:
        """Take along the weights that `decoding_weights` names, wherever they were kept."""
        return self

    # -- answers

    def run(self, runner: Runner, encoded: Sequence[EncodedExample]) -> Sequence[Any]:
        """Let the model work on examples; give what `decode` reads of each: mostly the head's outputs for its rows."""
        return runner.outputs(encoded)

    @abstractmethod
    def decode(self, encoded: EncodedExample, outputs: Any) -> P:
        """Read the answers of one example from what `run` gave: the head's outputs at the places of each of its rows."""

    def apply_min_score(self, prediction: P, min_score: float) -> P:
        """Leave out the answers whose confidence is below a score, and count them in `coverage.withheld`."""
        raise BadSetting(
            f"Answers of the task {self.name} have no confidence to withhold them by. Leave the least score out."
        )

    def tune(self, examples: Sequence[E], encoded: Sequence[EncodedExample], outputs: Sequence[Any]) -> Task[E, P]:
        """Choose thresholds and temperature on development data, after training; most tasks have none."""
        return self

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[P]) -> TaskScores:
        """Compare predictions with the right answers."""

    @abstractmethod
    def sample_metric(self, examples: Sequence[E], predictions: Sequence[P]) -> SampleMetric:
        """Prepare the main score for resampling."""

    def confidences(self, example: E, prediction: P) -> Iterator[tuple[float, bool]]:
        """Give for each answer how sure the model is of it, and whether it is right; none if that is not known."""
        return iter(())

    def label_pairs(
        self, examples: Sequence[E], predictions: Sequence[P]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        """Give right and guessed labels, one each an answer, for a confusion matrix; none: answers are no labels."""
        return None

    @abstractmethod
    def comparison_key(self) -> dict[str, Any]:
        """Say what two models must have in common so that their scores can be compared."""

    @abstractmethod
    def to_record(self, example: E, prediction: P) -> dict[str, Any]:
        """Give a prediction as a JSON object, offsets into the text as it was given."""

    @abstractmethod
    def to_lines(self, example: E, prediction: P) -> list[str]:
        """Give a prediction as lines for people."""

    # -- files

    @abstractmethod
    def to_table(self) -> dict[str, Any]:
        """Give all that must be saved beside the weights, as JSON."""

    def extra_files(self) -> Mapping[str, bytes]:
        """Give files that other programs look for beside the weights: path in the folder -> content."""
        return {}

    @classmethod
    @abstractmethod
    def from_table(cls, table: Mapping[str, Any]) -> Task[E, P]:
        """Make the task again from what was saved; raise KeyError, TypeError or ValueError for what is none."""


AnyTask = Task[Any, Any]


def get_task_class(name: str) -> type[AnyTask]:
    """Find a task by its name."""
    if name not in TASKS:
        advice = f" For {name}, use --task {other}." if (other := find_task_by_alias(name)) else ""
        raise BadSetting(f"There is no task {name!r}; expected one of {', '.join(TASKS)}.{advice}")
    module = importlib.import_module(f"alembert.tasks.{name}.task")
    found: type[AnyTask] = getattr(module, TASKS[name])
    return found
