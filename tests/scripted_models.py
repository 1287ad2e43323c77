"""Fine-tuned models that say what a test tells them to, with a real task, a real tokenizer and real windows."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembert.infer.engines import ModelSize
from alembert.infer.task_model import ModelTask, TaskExamples, TaskModel
from alembert.tasks.classify.data import ClassifySettings
from alembert.tasks.classify.scores import ClassifyAnswer, ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.files import SavedTask
from alembert.tasks.tag.data import PredictedEntity, TagPrediction, TagSettings
from alembert.tasks.tag.task import TagTask
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-"
PIECES = (*SpecialTokens().roles().values(), *LETTERS, *(f"##{letter}" for letter in LETTERS))
WORDS = ("breast", "cancer", "aspirin", "helps", "against", "the", "patient", "has")
SIZE = ModelSize(parameters=4_000_000, bytes=16_000_000, layers=4, width=128, multiplications=2_000_000)


@dataclass(frozen=True)
class Engine:
    """What a model needs to encode, and nothing that computes."""

    tokenizer: Tokenizer = field(
        default_factory=lambda: Tokenizer.from_vocabulary(Vocabulary((*PIECES, *WORDS)), lowercase=True)
    )
    max_tokens: int = 512
    size: ModelSize = SIZE


class Silent:
    """Runs nothing: a scripted model has its answers already."""

    def outputs(self, encoded: Sequence[Any]) -> list[list[Any]]:
        raise AssertionError("a scripted model computes nothing")


@dataclass(frozen=True)
class Scripted(TaskModel):
    """A model with a script: id of an example -> what it says."""

    script: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[Any, Any], Any] = lambda said, coverage: said
    keys: frozenset[int] | None = None
    known: Mapping[str, int] | None = None
    others: tuple[Path, ...] = ()

    def predict_all(self, examples: Sequence[TaskExamples]) -> Iterator[dict[str, Any]]:
        name = self.only.name
        yield from ({name: said} for said in self.say_all([example[name] for example in examples]))

    def say_all(self, examples: Sequence[Any]) -> list[Any]:
        encoded = self.encode(examples)
        pairs = zip(examples, encoded, strict=True)
        return [self.say(self.script.get(example.id, ()), each.coverage) for example, each in pairs]

    def train_keys(self) -> set[int] | None:
        return None if self.keys is None else set(self.keys)

    def surfaces(self) -> Mapping[str, int] | None:
        return self.known

    def seed_folders(self) -> list[Path]:
        return list(self.others) or [self.folder]


def one_task(task: AnyTask, folder: Path, facts: Mapping[str, Any] | None = None) -> dict[str, ModelTask]:
    """The table of tasks of a model that has one."""
    saved = SavedTask(folder, task.name, {"task": task.name, "training": facts or {}})
    return {task.name: ModelTask(saved, task, Silent())}  # type: ignore[arg-type]


def scripted(task: AnyTask, folder: Path, *, facts: Mapping[str, Any] | None = None, **more: Any) -> Scripted:
    """A model that says what it is told to."""
    return Scripted(folder, Engine(), one_task(task, folder, facts), **more)  # type: ignore[arg-type]


def tagger(script: Mapping[str, Sequence[Any]], types: Sequence[str] = ("Disease", "Drug"), **more: Any) -> Scripted:
    """A tagger that finds (start, end, label, score)."""
    settings = TagSettings(max_length=more.pop("length", 256), overlap=more.pop("overlap", 64))
    task = TagTask(tuple(types), settings)
    folder = more.pop("folder", Path("ner"))
    return scripted(task, folder, script=script, say=_tagged, **more)


def classifier(
    script: Mapping[str, ClassifyAnswer], labels: Sequence[str] = ("no", "yes"), kind: Any = "single", **more: Any
) -> Scripted:
    """A classifier that gives answers."""
    task = ClassifyTask(ClassifySettings(), kind, tuple(labels))
    folder = more.pop("folder", Path("cls"))
    return scripted(task, folder, script=script, say=_classified, **more)


def answer(label: str, score: float) -> ClassifyAnswer:
    return ClassifyAnswer(label=label, score=score, probabilities={label: score})


def write_tagged(path: Path, documents: Mapping[str, tuple[str, Sequence[tuple[int, int, str]]]]) -> Path:
    """Write documents with entities as JSON lines."""
    lines = [
        {
            "id": name,
            "text": text,
            "entities": [{"start": start, "end": end, "label": label} for start, end, label in entities],
        }
        for name, (text, entities) in documents.items()
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def write_labelled(path: Path, rows: Mapping[str, tuple[str, Any]]) -> Path:
    """Write texts with labels as JSON lines."""
    lines = [{"id": name, "text": text, "label": label} for name, (text, label) in rows.items()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _tagged(said: Sequence[Any], coverage: Any) -> TagPrediction:
    return TagPrediction(tuple(PredictedEntity(*entity) for entity in said), coverage)


def _classified(said: ClassifyAnswer, coverage: Any) -> ClassifyPrediction:
    return ClassifyPrediction((said,), coverage)
