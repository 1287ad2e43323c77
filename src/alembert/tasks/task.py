"""The contract of a task: how examples are read, which head learns them, its loss, how its answers are read and scored.

A task is a folder beside this file with a subclass of `Task` and a frozen dataclass of settings, and a line in `TASKS`;
the contract suite tests it. The loop, evaluation, prediction and the inspectors know tasks by this contract alone. A
task is also what is saved beside the weights (`task.json`): whatever was decided from the data (labels, scheme,
thresholds) is part of it. Modules of tasks load no torch when they are imported, since exported models run without it:
`head`, `loss` and `with_head_weights` import it when they are called.

A `DelegatingTask` has a model that learns another task: questions that are answered with a label are pairs for
`classify`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.errors import BadSetting
from alembert.tasks import TASKS, get_task_class, register_task
from alembert.tasks.example import AnnotationSpec, E, EncodedExample, P, SampleMetric, TaskScores
from alembert.tasks.margin import EXPLAINED_TASKS, TaskMargins
from alembert.tasks.reading import TaskReading
from alembert.tasks.runtime import Runner
from alembert.tasks.settings import DistillLossSettings, LossSettings, load_settings
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


# P places, C outputs of the head


__all__ = ["TASKS", "AnyTask", "LossUnit", "SampleMetric", "Task", "TaskScores", "get_task_class", "register_task"]

LossUnit = Literal["places", "rows", "examples"]


class Task(TaskReading[E, P]):
    """Something that a model can be fine-tuned for; instances know their labels.

    A first model needs a class of examples with `gold_labels`, and a subclass of this one: a frozen dataclass with
    `settings`, and `labels` if the outputs have names. It has a `name`, a `settings_class` and an `example_class`, and

    - `read`: labelled examples from files
    - `learn`: the task, with what its examples say (labels)
    - `head`: which head answers
    - `encode`: examples as rows of tokens
    - `loss`: how wrong the head is
    - `decode`: its outputs as a prediction
    - `score`: predictions against right answers

    All others have defaults. Those of `to_table` and `from_table` save the dataclass, whose fields beside the settings
    need a default value.
    """

    # -- encoding

    @abstractmethod
    def head(self) -> HeadSpec:
        """Describe the head; it is called as the kind is."""

    @abstractmethod
    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        """Turn examples into rows of at most `longest` tokens; those with answers have labels."""

    def for_training(self) -> Task[E, P]:
        """Return the task as it encodes training examples, if that differs."""
        return self

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Pieces that rows need beside those of the tokenizer, each with a word that its row begins as."""
        return {}

    @property
    def token_features(self) -> Mapping[str, int]:
        """Rows of the embedding of features that the model reads beside its pieces, by what they stand for, in order."""
        return {}

    @property
    def attention_pattern(self) -> str | None:
        """Which tokens see each other, if it is not what the model was made with."""
        return None

    @property
    def needs_full_vocabulary(self) -> bool:
        """Whether the loss reads the rows of all pieces, and not of those that occur in the examples alone."""
        return False

    # -- loss

    @property
    def loss_unit(self) -> LossUnit:
        """What the loss is a mean over; the windows of one example are computed together if examples are counted."""
        return "places"

    @property
    def loss_group_size(self) -> int:
        """How many examples the loss compares with each other: they are always computed together. 1: each is alone."""
        return 1

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
        """Return what a student is to imitate of a teacher's outputs, a line for each of theirs; `head` is the teacher's.

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

    def for_student(self, *, lexicons: bool = False) -> Task[E, P]:
        """Return the task as a student begins it, without what the weights of the teacher decided, or its lexicons."""
        return self

    # -- decoding

    @property
    def decoding_weights(self) -> tuple[str, ...]:
        """Names of the weights of the head that decoding needs (CRF transitions); most tasks need none."""
        return ()

    def with_head_weights(self, head: nn.Module) -> Task[E, P]:
        """Take along what decoding needs of the head."""
        parameters = {name: head.get_parameter(name) for name in self.decoding_weights}
        return self.with_decoding_weights(
            {name: weight.detach().float().cpu().numpy() for name, weight in parameters.items()}
        )

    def with_decoding_weights(self, weights: Mapping[str, npt.NDArray[np.float32]]) -> Task[E, P]:
        """Take along the weights that `decoding_weights` names, wherever they were kept."""
        return self

    def run(self, runner: Runner, encoded: Sequence[EncodedExample]) -> Sequence[Any]:
        """Let the model work on examples; return what `decode` reads: mostly the head's outputs for the rows of each."""
        return runner.outputs(encoded)

    @abstractmethod
    def decode(self, encoded: EncodedExample, outputs: Any) -> P:
        """Read the answers of one example from what `run` gave: the head's outputs at the places of each of its rows."""

    def decode_batch(self, encoded: Sequence[EncodedExample], outputs: Sequence[Any]) -> list[P]:
        """Read the answers of several examples; tasks that do it faster together than one by one do."""
        return [self.decode(*pair) for pair in zip(encoded, outputs, strict=True)]

    def margins(self) -> TaskMargins[E]:
        """Return what compares an answer with the best other one, so that it can be explained."""
        raise BadSetting(
            f"Answers of the task {self.name} cannot be explained: there is no other answer to compare them with. Tasks "
            f"whose answers can be are {', '.join(EXPLAINED_TASKS)}."
        )

    def apply_min_score(self, prediction: P, min_score: float) -> P:
        """Leave out the answers whose confidence is below a score, and count them in `coverage.withheld`."""
        raise BadSetting(
            f"Answers of the task {self.name} have no confidence to withhold them by. Leave the least score out."
        )

    def tune(self, examples: Sequence[E], encoded: Sequence[EncodedExample], outputs: Sequence[Any]) -> Task[E, P]:
        """Choose thresholds and temperature on development data, after training; most tasks have none."""
        return self

    def to_record(self, example: E, prediction: P) -> dict[str, Any]:
        """Return a prediction as a JSON object, offsets into the text as it was given."""
        return prediction.to_record(example)

    def to_lines(self, example: E, prediction: P) -> list[str]:
        """Return a prediction as lines for people."""
        return prediction.to_lines(example)

    # -- scores

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[P]) -> TaskScores:
        """Compare predictions with the right answers."""

    def sample_metric(self, examples: Sequence[E], predictions: Sequence[P]) -> SampleMetric:
        """Prepare the main score for resampling; tasks that can do it faster than by scoring each sample do."""
        return lambda numbers: self.score([examples[n] for n in numbers], [predictions[n] for n in numbers]).value

    def confidences(self, example: E, prediction: P) -> Iterator[tuple[float, bool]]:
        """Yield for each answer how sure the model is of it, and whether it is right; none if that is not known."""
        return iter(())

    def label_pairs(
        self, examples: Sequence[E], predictions: Sequence[P]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        """Return right and guessed labels, one each an answer, for a confusion matrix; none: answers are no labels."""
        return None

    def comparison_key(self) -> dict[str, Any]:
        """Return what two models must have in common so that their scores can be compared."""
        return {"labels": sorted(self.labels)}

    # -- documents

    @property
    def annotation(self) -> AnnotationSpec:
        """What the task reads of a document, and which field of it the answers go into."""
        return AnnotationSpec()

    def for_documents(self) -> Task[E, P]:
        """Return the task as it reads documents, if that differs."""
        return self

    def annotate(self, document: Document, example: E, prediction: P) -> Document:
        """Add the answers to the document that the example was made of."""
        raise BadSetting(f"Answers of the task {self.name} are no annotations of a document.")

    def annotation_facts(self, example: E, prediction: P) -> Mapping[str, Any]:
        """Return what is to be known of an annotated document beside its annotations, by fields of `PipelineOutput`."""
        return {}

    # -- files

    def to_table(self) -> dict[str, Any]:
        """Return all that must be saved beside the weights, as JSON."""
        return asdict(cast(Any, self))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Task[E, P]:
        """Make the task again from what was saved; raise KeyError, TypeError or ValueError for what is none."""
        make: Callable[..., Task[E, P]] = cls
        values = {item.name: table[item.name] for item in fields(cast(Any, cls))}
        return load_settings(lambda: make(settings=cls.settings_class()), values)

    def extra_files(self) -> Mapping[str, bytes]:
        """Return files that other programs look for beside the weights: path in the folder -> content."""
        return {}

    def resource_files(self) -> Mapping[str, bytes]:
        """Return files that the task itself needs beside its table, in Checkpoints and Exports: path -> content."""
        return {}

    def load_resources(self, folder: Path, table: Mapping[str, Any]) -> Task[E, P]:
        """Take along what the files of `resource_files` in the model's folder hold; `table` is the task's."""
        return self

    def with_lexicons(self, lexicons: Sequence[str]) -> Task[E, P]:
        """Add terms, in files given as LABEL=FILE, to the lexicons that the model reads."""
        raise BadSetting(f"A model of the task {self.name} reads no lexicons. Leave them out.")

    @property
    def lexicon_labels(self) -> tuple[str, ...]:
        """Names of the lexicons that the model reads."""
        return ()

    def lexicon_notes(self) -> list[str]:
        """Describe what the lexicons have beside the terms that the model was trained with."""
        return []


AnyTask = Task[Any, Any]


class DelegatingTask(Task[E, P]):
    """A frozen dataclass with another task, `inner`, whose head, weights and losses are its own.

    Subclasses turn their examples into those of the inner task, and its predictions into theirs.
    """

    inner: AnyTask

    def to_inner(self, examples: Sequence[E]) -> Sequence[Any]:
        """Turn examples into those of the inner task."""
        raise NotImplementedError

    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        return self.inner.encode(self.to_inner(examples), tokenizer, longest)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.inner.labels

    @property
    def loss_unit(self) -> LossUnit:
        return self.inner.loss_unit

    def head(self) -> HeadSpec:
        return self.inner.head()

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> Self:
        return replace(self, inner=self.inner.with_class_weights(encoded))  # type: ignore[type-var]

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        return self.inner.loss(head, outputs, target, settings)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        return self.inner.divergence(one, other, target)

    def teacher_targets(
        self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        return self.inner.teacher_targets(head, outputs, target, settings)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        return self.inner.distillation_loss(head, outputs, taught, target, settings)
