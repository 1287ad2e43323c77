"""The shape of a student: its settings, and its configuration checked against the teacher's.

In: a size (`4x312`, `half`), the teacher's configuration and `StudentSettings`. Out: a `StudentShape`, the student's
configuration with the teacher's layer for each of its own; or an error. No torch is needed, so that settings are
checked before it is loaded.

A teacher whose layers share weights (ALBERT) has students that share theirs alike: as many groups, or one a layer where
the student has fewer layers than groups. Embeddings that are narrower than the states keep their width.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, get_args

from alembert.errors import BadSetting
from alembert.nn.config import ACTIVATIONS, EncoderConfig

StudentStart = Literal["auto", "scratch", "teacher"]


@dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How a student begins."""

    start: StudentStart = "auto"
    """Initial weights. teacher: the teacher's layers, reduced to the student's width; scratch: random; auto: teacher if its
    weights fit the student's shape, else scratch."""
    heads: int | None = None
    """Attention heads; none: as many as the teacher has, or the next lower number that divides the hidden size."""
    inner: int | None = None
    """Intermediate size of the feed-forward layers; none: the teacher's for the same hidden size, else four times the hidden
    size (1,200 for 312, as published), at most the teacher's."""
    activation: str | None = None
    """Activation of the feed-forward layers: gelu, gelu_new or relu, which is the fastest on CPUs; none: the teacher's."""
    layers: tuple[int, ...] = ()
    """Teacher layers, from 1, that initialise the student's layers; empty: evenly spaced, including the last."""

    def __post_init__(self) -> None:
        starts = get_args(StudentStart)
        if self.start not in starts:
            raise BadSetting(f"`start` of the student is {self.start!r}; expected one of {', '.join(starts)}.")
        for name in ("heads", "inner"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadSetting(f"`{name}` of the student is {value}; expected a whole number from 1 up.")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise BadSetting(
                f"`activation` of the student is {self.activation!r}; expected one of {', '.join(ACTIVATIONS)}."
            )
        if self.layers and self.start == "scratch":
            raise BadSetting(
                "`layers` of the student names layers of the teacher, and `start` is scratch, which takes none of them. "
                "Leave one of the two out."
            )
        if any(one >= other for one, other in pairwise(self.layers)):
            raise BadSetting(f"`layers` of the student is {list(self.layers)}; expected rising numbers.")


DEPTH_DIVISORS: Final = {"half": 2, "third": 3, "quarter": 4}
"""Every second, third or fourth of the teacher's layers, at its width."""
_SIZE: Final = re.compile(r"([1-9]\d*)x([1-9]\d*)")
_PUBLISHED_INNER: Final = {312: 1200}
"""TinyBERT's narrow student has a little less than four times its width."""


@dataclass(frozen=True)
class StudentSize:
    """How deep and how wide a student is."""

    layers: int
    width: int


@dataclass(frozen=True)
class StudentShape:
    """The student's configuration, and what it begins as."""

    config: EncoderConfig
    layers: tuple[int, ...]
    """For each of its layers, the teacher's (from 1) that it begins as; empty: it begins from scratch."""


def is_size(text: str) -> bool:
    """Whether a text is a size and no folder: `4x312` is a size, `./4x312` a folder."""
    return text in DEPTH_DIVISORS or _SIZE.fullmatch(text) is not None


def parse_size(text: str, teacher: EncoderConfig) -> StudentSize:
    """Read a size, which may depend on the teacher's.

    >>> parse_size("half", EncoderConfig(vocab_size=9))
    StudentSize(layers=6, width=768)
    """
    match = _SIZE.fullmatch(text)
    if match is None and text not in DEPTH_DIVISORS:
        raise BadSetting(
            f"{text!r} is no size of a student and no folder. Write layers x width (4x312), or one of "
            f"{', '.join(DEPTH_DIVISORS)} for that part of the teacher's layers, or the folder of a student."
        )
    size = (
        StudentSize(int(match[1]), int(match[2]))
        if match
        else StudentSize(teacher.num_hidden_layers // DEPTH_DIVISORS[text], teacher.hidden_size)
    )
    if not size.layers:
        raise BadSetting(
            f"The teacher has {teacher.num_hidden_layers} layers, of which there is no {text}. Use half, or a size."
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


def resolve_shape(size: StudentSize, teacher: EncoderConfig, settings: StudentSettings) -> StudentShape:
    """Fill in what the size leaves open, and find out whether the teacher's weights can be narrowed to it."""
    config = replace(
        teacher,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=_heads(size.width, teacher, settings),
        intermediate_size=_inner(size.width, teacher, settings),
        hidden_act=settings.activation or teacher.hidden_act,
        num_hidden_groups=teacher.num_hidden_groups and min(teacher.num_hidden_groups, size.layers),
    )
    obstacle = explain_incompatibility(config, teacher)
    if settings.start == "scratch" or (settings.start == "auto" and obstacle and not settings.layers):
        return StudentShape(config, ())
    if obstacle:
        raise BadSetting(f"{obstacle} Or begin with fresh weights: `start` = scratch.")
    return StudentShape(config, _layers(size.layers, teacher, settings.layers))


def explain_incompatibility(student: EncoderConfig, teacher: EncoderConfig) -> str | None:
    """Explain why a student cannot begin as its teacher; none: it can."""
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
    usual = _PUBLISHED_INNER.get(width, 4 * width)
    return min(usual, teacher.intermediate_size) if width < teacher.hidden_size else usual


def _layers(count: int, teacher: EncoderConfig, chosen: tuple[int, ...]) -> tuple[int, ...]:
    deepest = teacher.num_hidden_layers
    if not chosen:
        return tuple((layer + 1) * deepest // count for layer in range(count))
    if len(chosen) != count or not 1 <= chosen[0] <= chosen[-1] <= deepest:
        raise BadSetting(
            f"`layers` of the student is {list(chosen)}; expected {count} rising numbers from 1 to {deepest}, the "
            "teacher's layer for each of the student's."
        )
    return chosen
