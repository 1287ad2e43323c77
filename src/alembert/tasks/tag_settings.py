"""What the task `tag` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from alembert.errors import BadSetting
from alembert.tasks.tag_words import Scheme

HeadName = Literal["softmax", "crf", "span"]


@dataclass(frozen=True, kw_only=True)
class TagSettings:
    """How entities are found."""

    head: HeadName = "softmax"
    """softmax (one decision a word), crf (the best path of all words) or span (nested and overlapping entities)."""
    scheme: Scheme = "bio"
    """Tags of softmax and crf: bio (begin, inside, outside) or bioes (end and single as well)."""
    every_token: bool = False
    """Every token of a CoNLL file is an entity whose label is its tag: part of speech."""
    length: int = 256
    """Tokens of a window at most, with special ones; longer documents are read through several."""
    overlap: int | None = None
    """Tokens that neighbouring windows share, so that every word is seen with text on both sides; none: a quarter."""
    partial: Literal["auto", "off"] = "auto"
    """auto: if training files differ in the types they annotate, a type that a file lacks counts as unknown there."""

    def __post_init__(self) -> None:
        for name, known in (("head", get_args(HeadName)), ("scheme", get_args(Scheme))):
            if getattr(self, name) not in known:
                raise BadSetting(
                    f"`{name}` of the task is {getattr(self, name)!r}; expected one of {', '.join(known)}."
                )
        if self.partial not in ("auto", "off"):
            raise BadSetting(f"`partial` of the task is {self.partial!r}; expected auto or off.")
        if self.length < 16:
            raise BadSetting(f"`length` of the task is {self.length}; a window needs at least 16 tokens.")
        if self.overlap is not None and not 0 <= self.overlap <= self.length // 2:
            raise BadSetting(
                f"`overlap` of the task is {self.overlap}; expected 0 to half of `length` ({self.length // 2})."
            )

    @property
    def shared(self) -> int:
        """Tokens that windows share."""
        return self.length // 4 if self.overlap is None else self.overlap
