"""Temperatures of taggers, fitted on development data: of the words' probabilities, of whole paths, or of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from alembert.tasks.example import Encoded
from alembert.tasks.metrics import calibration
from alembert.tasks.runner import Outputs
from alembert.tasks.tag_examples import TagExample
from alembert.tasks.tag_found import pointed, tagged

if TYPE_CHECKING:
    from alembert.tasks.tag import TagTask

AllOutputs = Sequence[Sequence[Outputs]]


def word_temperature(
    task: TagTask, examples: Sequence[TagExample], encoded: Sequence[Encoded], outputs: AllOutputs
) -> float | None:
    """Fit it to the tags of words, or with a CRF to whole paths, where all types are annotated; none: nowhere."""
    known = [
        (np.concatenate(parts), np.concatenate([row.labels for row in each.rows]))
        for example, each, parts in zip(examples, encoded, outputs, strict=True)
        if each.rows and all(map(example.annotates, task.types)) and all(row.labels is not None for row in each.rows)
    ]
    if not known:
        return None
    logits, labels = zip(*known, strict=True)
    if task.path is not None:
        return task.path.fit_temperature(logits, labels, task.legal)
    return calibration.fit_temperature(np.concatenate(logits), np.concatenate(labels))


def span_temperature(
    task: TagTask, examples: Sequence[TagExample], encoded: Sequence[Encoded], outputs: AllOutputs
) -> float:
    """Fit it to the entities that are found: nearly all other stretches of words are easy, and would decide alone."""
    judged = [
        each
        for example, read, parts in zip(examples, encoded, outputs, strict=True)
        if example.entities is not None
        for each in task.confidences(example, tagged(read, pointed(read.layout, parts, task.types)))
    ]
    scores, right = zip(*judged, strict=True) if judged else ((), ())
    return calibration.fit_binary_temperature(scores, right)
