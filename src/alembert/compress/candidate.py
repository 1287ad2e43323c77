"""A form of a model that may become the Export: what it answers, how good that is, how far it is from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from alembert.errors import BadFile
from alembert.files.checkpoint import Checkpoint
from alembert.tasks.example import EncodedExample
from alembert.tasks.runtime import Runner
from alembert.tasks.task import AnyTask


class Clocked(Protocol):
    """How fast a form answered."""

    @property
    def texts_per_second(self) -> float: ...

    @property
    def tokens_per_second(self) -> float: ...


@dataclass(frozen=True)
class Candidate:
    """A task with the tokenizer of its checkpoint and something that computes; `infer.speed` can measure it."""

    task: AnyTask
    checkpoint: Checkpoint
    runner: Runner

    def encode(self, examples: Sequence[Any]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        longest = self.checkpoint.blueprint.config.max_position_embeddings
        return self.task.encode(examples, tokenizer_of(self.checkpoint), longest)

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        """Answer examples."""
        encoded = self.encode(examples)
        outputs = self.task.run(self.runner, encoded)
        return [self.task.decode(*pair) for pair in zip(encoded, outputs, strict=True)]


def tokenizer_of(checkpoint: Checkpoint) -> Any:
    """Give the tokenizer of a checkpoint; one without is refused."""
    if checkpoint.tokenizer is None:
        raise BadFile("The checkpoint has no tokenizer (vocab.txt or tokenizer.json), so it cannot read texts.")
    return checkpoint.tokenizer


def same_answers(task: AnyTask, examples: Sequence[Any], one: Sequence[Any], other: Sequence[Any]) -> float:
    """Give the share of examples that two forms answer alike, whatever they think of their answers' chances."""
    triples = zip(examples, one, other, strict=True)
    alike = [bool(bare(task.record(each, a)) == bare(task.record(each, b))) for each, a, b in triples]
    return sum(alike) / len(alike)


def bare(value: Any) -> Any:
    """Leave out numbers that are not whole from a record: scores, chances, vectors.

    >>> bare({"label": "yes", "score": 0.93, "spans": [{"start": 3, "score": 0.5}]})
    {'label': 'yes', 'spans': [{'start': 3}]}
    """
    if isinstance(value, Mapping):
        return {name: bare(item) for name, item in value.items() if not isinstance(item, float)}
    if isinstance(value, list | tuple):
        return [bare(item) for item in value if not isinstance(item, float)]
    return value


Stopwatch = Callable[[Sequence[Candidate], Sequence[Any]], Sequence[Clocked]]
"""Measures candidates on examples: `infer.speed.speeds` is one."""
