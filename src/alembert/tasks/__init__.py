"""Tasks: what a model is fine-tuned for. `task` is the contract; each task is a folder of its own.

Their names stand here, apart from the contract, so that `alembert --help` can list them and load nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from alembert.errors import BadSetting

if TYPE_CHECKING:
    from alembert.tasks.task import AnyTask

TASKS: Final[dict[str, str]] = {
    "answer": "alembert.tasks.answer.task:AnswerTask",
    "choose": "alembert.tasks.choose.task:ChooseTask",
    "classify": "alembert.tasks.classify.task:ClassifyTask",
    "compare": "alembert.tasks.compare.task:CompareTask",
    "generate": "alembert.tasks.generate.task:GenerateTask",
    "relate": "alembert.tasks.relate.task:RelateTask",
    "tag": "alembert.tasks.tag.task:TagTask",
}
"""Name -> module and class. `register_task` adds those of other packages."""
TASK_ALIASES: Final = {
    "tag": ("ner", "named-entity-recognition", "token-classification", "sequence-labelling", "pos"),
    "classify": (
        *("text-classification", "sequence-classification", "sentiment", "sentiment-analysis", "regression"),
        *("nli", "topic", "multi-label"),
    ),
    "relate": ("re", "relation", "relations", "relation-extraction", "relation-classification"),
    "answer": ("qa", "question-answering", "extractive-qa", "squad"),
    "choose": ("multiple-choice", "mcq"),
    "compare": (
        *("sts", "simcse", "similarity", "sentence-similarity", "semantic-similarity", "retrieval"),
        *("embed", "embedding", "embeddings", "sentence-embedding", "sentence-transformers"),
    ),
    "generate": ("seq2seq", "summarize", "summarise", "summarization", "summarisation", "text-generation"),
}
"""Name -> what others call the task."""


def find_task_by_alias(word: str) -> str | None:
    """Find the task that others call so.

    >>> find_task_by_alias("NER"), find_task_by_alias("token_classification"), find_task_by_alias("dance")
    ('tag', 'tag', None)
    """
    plain = word.strip().lower().replace("_", "-").replace(" ", "-")
    return next((name for name, others in TASK_ALIASES.items() if plain == name or plain in others), None)


def register_task(task_class: type[AnyTask]) -> None:
    """Make a task that stands outside of this package known by its name, as a line of `TASKS` does inside."""
    TASKS[task_class.name] = f"{task_class.__module__}:{task_class.__qualname__}"


def get_task_class(name: str) -> type[AnyTask]:
    """Find a task by its name."""
    if name not in TASKS:
        advice = f" For {name}, use --task {other}." if (other := find_task_by_alias(name)) else ""
        raise BadSetting(f"There is no task {name!r}; expected one of {', '.join(TASKS)}.{advice}")
    module, _, class_name = TASKS[name].partition(":")
    task_class: type[AnyTask] = getattr(importlib.import_module(module), class_name)
    return task_class
