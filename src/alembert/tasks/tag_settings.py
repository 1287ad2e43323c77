"""What the task `tag` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from alembert.tasks.setting_checks import check_choices, check_windows
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
    """auto: a type that never occurs in a training file of 100 documents or more, and is frequent in others, counts as
    unknown there; off: it counts as absent. What `types` under [read] says comes first."""

    def __post_init__(self) -> None:
        choices = {"head": get_args(HeadName), "scheme": get_args(Scheme), "partial": ("auto", "off")}
        check_choices(self, choices)
        check_windows(self.length, self.shared)

    @property
    def shared(self) -> int:
        """Tokens that windows share."""
        return self.length // 4 if self.overlap is None else self.overlap
