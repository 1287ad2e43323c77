"""Tasks of models that were fine-tuned elsewhere: what the Hugging Face files of a folder say of its head.

In: a folder without `task.json`. Out: the table that `task.json` would hold, and a sentence that says what was
decided and from what, for the command that opens the model. `config.json` names the architecture, the labels and the
kind of answers; sentence-transformers states the pooling in files of its own. How a model was trained is not known:
windows are as long as the model allows, and nothing is calibrated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembert.artifact import shortlist
from alembert.artifact.disk import read_json
from alembert.errors import BadFile
from alembert.tasks.tag.tags import TagScheme, are_default_labels

CONFIG_FILE: Final = "config.json"
MODULES_FILE: Final = "modules.json"
_MAX_CONFIG_BYTES: Final = 5_000_000
"""Bytes of a configuration, at most."""
_DEFAULT_POSITIONS: Final = 512
"""Tokens that BERT and ALBERT read at once where `config.json` does not say it."""
_MIN_WINDOW: Final = 16
"""Tokens of a window, at least."""


@dataclass(frozen=True)
class InferredTask:
    """What a folder was taken for."""

    table: Mapping[str, Any]
    """What `task.json` would hold."""
    description: str
    """What it is, in a few words."""
    source: str = CONFIG_FILE
    """The file that says it."""

    def remark(self, model: str) -> str:
        """Describe what was decided of a model, which is called as its user calls it."""
        return f"{model} has no task.json; by its {self.source} it is {self.description}"


def infer_task(folder: Path) -> InferredTask | None:
    """Detect by the files of a folder which task its model was fine-tuned for; none: for none that alembert has."""
    if not (folder / CONFIG_FILE).is_file():
        return None
    if (folder / MODULES_FILE).is_file():
        return _infer_sentence_encoder(folder)
    config = read_json(folder / CONFIG_FILE, largest=_MAX_CONFIG_BYTES)
    build = next((make for head, make in _BUILDERS.items() if _architecture(config).endswith(head)), None)
    return None if build is None else build(config)


def explain_missing_task(folder: Path) -> str:
    """Explain why a folder without `task.json` cannot be asked, and what to do with it."""
    known = (
        _architecture(read_json(folder / CONFIG_FILE, largest=_MAX_CONFIG_BYTES))
        if (folder / CONFIG_FILE).is_file()
        else ""
    )
    if re.search("ForMaskedLM|ForPreTraining|LMHeadModel", known):
        return (
            f"{folder} is a language model ({known}) and has no task.json, so it was fine-tuned for no task. It fills "
            "masks (alembert fill) and can be fine-tuned (alembert finetune)."
        )
    return (
        f"{folder} has no task.json, so it was not fine-tuned for a task here. Fine-tune it first: alembert finetune."
    )


# -- one function for each kind of head


def _infer_tagger(config: Mapping[str, Any]) -> InferredTask:
    names = _labels(config)
    scheme = TagScheme.from_names(names)
    table = {
        "task": "tag",
        "types": list(scheme.types),
        "names": list(names),
        "partial": False,
        "temperature": 1.0,
        "settings": {"max_length": _window_length(config), "every_token": scheme.is_every_token},
    }
    many = "type" if len(scheme.types) == 1 else "types"
    return InferredTask(
        table,
        f"a tagger ({scheme.name}, {len(scheme.types)} {many}: {shortlist(scheme.types)}){_default_labels_note(names)}",
    )


def _infer_classifier(config: Mapping[str, Any]) -> InferredTask:
    names, problem = _labels(config), config.get("problem_type")
    if problem == "regression" and len(names) > 1:
        raise BadFile(
            f"{CONFIG_FILE} asks for a regression with {len(names)} outputs; alembert predicts one number a text."
        )
    is_number = len(names) == 1 and problem != "multi_label_classification"
    kind = "number" if is_number else "multi" if problem == "multi_label_classification" else "single"
    table = {
        "task": "classify",
        "kind": kind,
        "labels": [] if is_number else list(names),
        "pairs": None,
        "mean": 0.0,
        "deviation": 1.0,
        "temperature": 1.0,
        "thresholds": {},
        "settings": {"kind": kind, "max_length": _window_length(config)},
    }
    if is_number:
        return InferredTask(table, "a regression model (a number for each text)")
    share = "one label" if kind == "single" else "any number of labels"
    return InferredTask(
        table, f"a classifier ({share} of {len(names)}: {shortlist(names)}){_default_labels_note(names)}"
    )


def _infer_question_answering(config: Mapping[str, Any]) -> InferredTask:
    table = {
        "task": "answer",
        "kind": "span",
        "has_none": False,
        "script": "squad1",
        "threshold": 0.0,
        "settings": {"kind": "span"},
    }
    return InferredTask(table, "a question answering model (words of the passage; each question is answered)")


def _infer_multiple_choice(config: Mapping[str, Any]) -> InferredTask:
    table = {
        "task": "choose",
        "choices": [2, 2],
        "passages": True,
        "temperature": 1.0,
        "settings": {"max_length": _window_length(config)},
    }
    return InferredTask(table, "a multiple choice model (any number of choices)")


_BUILDERS: Final[dict[str, Callable[[Mapping[str, Any]], InferredTask]]] = {
    "ForTokenClassification": _infer_tagger,
    "ForSequenceClassification": _infer_classifier,
    "ForQuestionAnswering": _infer_question_answering,
    "ForMultipleChoice": _infer_multiple_choice,
}
"""How the name of an architecture ends -> what it is."""


def _infer_sentence_encoder(folder: Path) -> InferredTask | None:
    """Read a folder of sentence-transformers."""
    # It reads task.json with the module that calls this one.
    from alembert.tasks.compare.pooling import read_pooling

    pooling = read_pooling(folder)
    if pooling is None:
        return None
    table = {
        "task": "compare",
        "kind": "scores",
        "pooling": pooling.name,
        "normalise": pooling.normalise,
        "dimension": pooling.dimension,
        "window": pooling.length,
        "low": 0.0,
        "high": 1.0,
        "settings": {},
    }
    return InferredTask(table, f"a sentence encoder ({pooling.in_words()})", MODULES_FILE)


# -- config.json


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """List the names of the outputs; transformers leaves them out if they are LABEL_0 and LABEL_1."""
    table = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        by_number = {int(number): str(name) for number, name in table.items()}
        return tuple(by_number[number] for number in range(len(by_number)))
    except (AttributeError, KeyError, ValueError):
        raise BadFile(
            f"{CONFIG_FILE} has an `id2label` that does not number its labels 0, 1, 2, ...; mend the numbers."
        ) from None


def _default_labels_note(names: tuple[str, ...]) -> str:
    if not are_default_labels(names):
        return ""
    return f"; its labels have no names: put them into `id2label` of {CONFIG_FILE}"


def _window_length(config: Mapping[str, Any]) -> int:
    """Tokens of a window: all that the model can read."""
    longest = config.get("max_position_embeddings")
    return max(_MIN_WINDOW, longest) if isinstance(longest, int) else _DEFAULT_POSITIONS
