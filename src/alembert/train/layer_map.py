"""Which of the teacher's layers each layer of a student imitates."""

from __future__ import annotations

from itertools import pairwise

from alembert.errors import BadSetting
from alembert.train.distill_settings import InsideWeights


def layer_map(weights: InsideWeights, student: int, teacher: int) -> tuple[int, ...]:
    """Give, for each of the student's layers, the number (from 1) of the teacher's layer that it imitates.

    The state after student layer i goes with the state after that layer, and its attention with that layer's: layer
    i k of the teacher, counted from 1, where k is the ratio of the depths.

    >>> layer_map(InsideWeights(hidden=1), 4, 12)
    (3, 6, 9, 12)
    >>> layer_map(InsideWeights(hidden=1, layer_map="last"), 4, 12)
    (9, 10, 11, 12)
    """
    if student > teacher:
        raise BadSetting(
            f"The student has {student} layers and its teacher {teacher}; a student cannot be deeper than its teacher. "
            f"Choose one of up to {teacher} layers."
        )
    if weights.layer_map == "last":
        return tuple(range(teacher - student + 1, teacher + 1))
    if weights.layer_map == "uniform":
        return tuple((layer + 1) * teacher // student for layer in range(student))
    given = weights.layers
    rises = all(one < other for one, other in pairwise(given))
    if len(given) != student or not rises or not 1 <= given[0] <= given[-1] <= teacher:
        raise BadSetting(
            f"`layers` is {list(given)}; expected {student} rising numbers from 1 to {teacher}, the teacher's layer for "
            "each of the student's."
        )
    return given
