"""What the task `answer` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from alembert.errors import BadSetting
from alembert.tasks.setting_checks import check_choices

Kind = Literal["span", "label"]
"""Answers are stretches of the passage, or labels such as yes, no and maybe."""
MAINS: Final[dict[str, tuple[str, ...]]] = {
    "span": ("f1", "exact", "mrr", "strict_accuracy", "lenient_accuracy"),
    "label": ("accuracy", "macro_f1"),
}
"""Kind -> the measures that models can be chosen by, the usual one first."""
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *MAINS),
    "script": ("auto", "squad", "cmrc"),
    "main": ("auto", *(name for names in MAINS.values() for name in names)),
}
_LEAST: Final = {"length": 16, "overlap": 0, "question_length": 1, "answer_length": 1, "best": 1}


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """How questions are answered."""

    kind: Literal["auto", "span", "label"] = "auto"
    """span (answers stand in the passage) or label (yes, no, maybe); auto: told from the training data."""
    script: Literal["auto", "squad", "cmrc"] = "auto"
    """Whose words are compared in scores: squad (English) or cmrc (Chinese characters); auto: told from the questions."""
    main: str = "auto"
    """Measure that models are chosen by; auto: f1 for span, accuracy for label."""
    length: int = 384
    """Tokens of a window at most, with question and special ones; longer passages are read through several."""
    overlap: int = 128
    """Tokens that neighbouring windows of a passage share."""
    question_length: int = 64
    """Tokens of a question that are read at most; what is cut is counted."""
    answer_length: int = 30
    """Tokens of an answer that is given at most."""
    best: int = 20
    """Starts and ends that are tried in each window, and answers that are kept."""
    null_threshold: float | None = None
    """How much better no answer must score than the best answer to be given; none: chosen on development data."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise BadSetting(f"`{name}` of the task is {getattr(self, name)}; expected {least} or more.")
        if self.overlap > self.length // 2:
            raise BadSetting(
                f"`overlap` of the task is {self.overlap}; expected 0 to half of `length` ({self.length // 2})."
            )
        if self.kind != "auto" and self.main not in ("auto", *MAINS[self.kind]):
            raise BadSetting(wrong_main(self.main, self.kind))


def main_of(settings: AnswerSettings, kind: Kind) -> str:
    """Name the measure that models of a kind are chosen by."""
    if settings.main not in ("auto", *MAINS[kind]):
        raise BadSetting(wrong_main(settings.main, kind))
    return MAINS[kind][0] if settings.main == "auto" else settings.main


def wrong_main(main: str, kind: str) -> str:
    """Say that a measure is none of a kind's."""
    return f"`main` of the task is {main}, and its kind is {kind}; expected one of {', '.join(MAINS[kind])}."
