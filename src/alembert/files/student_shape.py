"""What shape a student has: `4x312`, `half`, and what is left to the teacher, as a checked configuration.

In: what was asked for, the teacher's configuration and `StudentSettings`. Out: a `Shape`, the student's
configuration with the teacher's layer for each of its own; or a sentence. No torch is needed to find out.

A teacher whose layers share weights (ALBERT) has students that share theirs alike: as many groups, or one a layer where
the student has fewer layers than groups. Embeddings that are narrower than the states keep their width.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from alembert.errors import BadSetting
from alembert.files.student_settings import StudentSettings
from alembert.nn.config import EncoderConfig

PARTS: Final = {"half": 2, "third": 3, "quarter": 4}
"""Every second, third or fourth of the teacher's layers, at its width."""
_SIZE: Final = re.compile(r"([1-9]\d*)x([1-9]\d*)")
_PUBLISHED_INNER: Final = {312: 1200}
"""TinyBERT's narrow student has a little less than four times its width."""


@dataclass(frozen=True)
class Size:
    """How deep and how wide a student is."""

    layers: int
    width: int


@dataclass(frozen=True)
class Shape:
    """The student's configuration, and what it begins as."""

    config: EncoderConfig
    layers: tuple[int, ...]
    """For each of its layers, the teacher's (from 1) that it begins as; empty: it begins from scratch."""


def is_size(wanted: str) -> bool:
    """Tell a size from a folder that is named like one: `4x312` is a size, `./4x312` a folder."""
    return wanted in PARTS or _SIZE.fullmatch(wanted) is not None


def parse_size(wanted: str, teacher: EncoderConfig) -> Size:
    """Read a size, which may depend on the teacher's.

    >>> parse_size("half", EncoderConfig(vocab_size=9))
    Size(layers=6, width=768)
    """
    found = _SIZE.fullmatch(wanted)
    if found is None and wanted not in PARTS:
        raise BadSetting(
            f"{wanted!r} is no size of a student and no folder. Write layers x width (4x312), or one of "
            f"{', '.join(PARTS)} for that part of the teacher's layers, or the folder of a student."
        )
    size = (
        Size(int(found[1]), int(found[2]))
        if found
        else Size(teacher.num_hidden_layers // PARTS[wanted], teacher.hidden_size)
    )
    if not size.layers:
        raise BadSetting(
            f"The teacher has {teacher.num_hidden_layers} layers, of which there is no {wanted}. Use half, or a size."
        )
    check_depth(size.layers, teacher)
    return size


def check_depth(layers: int, teacher: EncoderConfig) -> None:
    """Refuse a student that is deeper than its teacher."""
    if layers > teacher.num_hidden_layers:
        raise BadSetting(
            f"The student has {layers} layers and its teacher {teacher.num_hidden_layers}; a student cannot be deeper "
            f"than its teacher. Choose one of up to {teacher.num_hidden_layers} layers."
        )


def shape_of(size: Size, teacher: EncoderConfig, settings: StudentSettings) -> Shape:
    """Fill in what the size leaves open, and find out whether the teacher's weights can be narrowed to it."""
    config = replace(
        teacher,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=_heads(size.width, teacher, settings),
        intermediate_size=_inner(size.width, teacher, settings),
        num_hidden_groups=teacher.num_hidden_groups and min(teacher.num_hidden_groups, size.layers),
    )
    obstacle = why_not(config, teacher)
    if settings.start == "scratch" or (settings.start == "auto" and obstacle and not settings.layers):
        return Shape(config, ())
    if obstacle:
        raise BadSetting(f"{obstacle} Or begin with fresh weights: `start` = scratch.")
    return Shape(config, _layers(size.layers, teacher, settings.layers))


def why_not(student: EncoderConfig, teacher: EncoderConfig) -> str | None:
    """Say why a student cannot begin as its teacher; none: it can."""
    narrower = student.hidden_size != teacher.hidden_size
    for what, ours, theirs in (
        ("wide", student.hidden_size, teacher.hidden_size),
        ("wide inside its feed-forward part", student.intermediate_size, teacher.intermediate_size),
    ):
        if ours > theirs:
            return (
                f"The student is {ours} {what} and its teacher {theirs}; weights can be narrowed, not widened. "
                f"Choose up to {theirs}."
            )
    if student.num_attention_heads > teacher.num_attention_heads or student.head_size > teacher.head_size:
        return (
            f"The student has {student.num_attention_heads} heads of {student.head_size} and its teacher "
            f"{teacher.num_attention_heads} of {teacher.head_size}; it can have neither more heads nor larger ones. "
            f"{_advice(student.hidden_size, teacher)}"
        )
    if narrower and teacher.position_embedding_type != "absolute":
        return (
            f"The teacher has {teacher.position_embedding_type} positions, which change with the width, so that its "
            f"weights mean nothing at another. Keep its width of {teacher.hidden_size}."
        )
    return None


def _heads(width: int, teacher: EncoderConfig, settings: StudentSettings) -> int:
    """Take the number that is asked for; else the teacher's, or the nearest below it that divides the width."""
    if settings.heads is not None:
        if width % settings.heads:
            raise BadSetting(
                f"`heads` of the student is {settings.heads}, which does not divide its width of {width}. "
                f"{_advice(width, teacher)}"
            )
        return settings.heads
    return max(heads for heads in range(1, teacher.num_attention_heads + 1) if width % heads == 0)


def _advice(width: int, teacher: EncoderConfig) -> str:
    heads = teacher.num_attention_heads
    fitting = [n for n in range(heads, 0, -1) if width % n == 0 and width // n <= teacher.head_size]
    if fitting:
        return f"Use {fitting[0]} heads."
    return f"Use a width of {max(1, width // heads) * heads} with {heads} heads."


def _inner(width: int, teacher: EncoderConfig, settings: StudentSettings) -> int:
    if settings.inner is not None:
        return settings.inner
    if width == teacher.hidden_size:
        return teacher.intermediate_size
    wanted = _PUBLISHED_INNER.get(width, 4 * width)
    return min(wanted, teacher.intermediate_size) if width < teacher.hidden_size else wanted


def _layers(count: int, teacher: EncoderConfig, given: tuple[int, ...]) -> tuple[int, ...]:
    deepest = teacher.num_hidden_layers
    if not given:
        return tuple((layer + 1) * deepest // count for layer in range(count))
    if len(given) != count or not 1 <= given[0] <= given[-1] <= deepest:
        raise BadSetting(
            f"`layers` of the student is {list(given)}; expected {count} rising numbers from 1 to {deepest}, the "
            "teacher's layer for each of the student's."
        )
    return given
