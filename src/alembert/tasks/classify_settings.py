"""What the task `classify` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from alembert.errors import BadSetting
from alembert.tasks.setting_checks import check_choices, check_windows

Kind = Literal["single", "multi", "number"]
"""One label, any number of labels, or a number for each text."""
Main = Literal["auto", "accuracy", "macro_f1", "micro_f1", "mcc", "subset_accuracy", "spearman", "pearson"]
TOKENS: Final = 256
DOCUMENT_TOKENS: Final = 512
MAINS: Final[dict[str, tuple[str, ...]]] = {
    "single": ("accuracy", "macro_f1", "micro_f1", "mcc"),
    "multi": ("micro_f1", "macro_f1", "subset_accuracy"),
    "number": ("spearman", "pearson"),
}
"""Kind -> the measures that models can be chosen by, the usual one first."""
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *get_args(Kind)),
    "context": ("none", "document"),
    "main": get_args(Main),
    "pool": ("mean", "max"),
    "pooling": ("first", "mean", "layers"),
}


@dataclass(frozen=True, kw_only=True)
class ClassifySettings:
    """How texts are classified."""

    kind: Literal["auto", "single", "multi", "number"] = "auto"
    """single (one label a text), multi (any number of labels) or number; auto: told from the training data."""
    context: Literal["none", "document"] = "none"
    """document: the sentences of a document are read together, and each is classified with its neighbours in view."""
    main: Main = "auto"
    """Measure that models are chosen by; auto: accuracy for one label, micro_f1 for several, spearman for numbers."""
    separator: str = "|"
    """Sign between the labels of a row of a table, if kind is multi; JSON has lists."""
    length: int | None = None
    """Tokens of a window at most, with special ones; none: 256, and 512 for documents. Longer texts need several."""
    overlap: int = 32
    """Tokens that neighbouring windows share."""
    pool: Literal["mean", "max"] = "mean"
    """How the outputs for the windows of one text are put together."""
    pooling: Literal["first", "mean", "layers"] = "first"
    """What is classified: the first token, the mean of all tokens, or their mean over all layers."""
    train_windows: int | None = None
    """Windows of one text that are learnt from at most, evenly spread; what is cut is counted. none: all."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        self._check_sizes()
        self._check_together()

    def _check_sizes(self) -> None:
        check_windows(self.window, self.overlap)
        if self.train_windows is not None and self.train_windows < 1:
            raise BadSetting(
                f"`train_windows` of the task is {self.train_windows}; expected 1 or more, or none for all."
            )
        if not self.separator.strip():
            raise BadSetting("`separator` of the task is blank; expected a sign such as | or ;.")

    def _check_together(self) -> None:
        if self.kind != "auto" and self.main not in ("auto", *MAINS[self.kind]):
            raise BadSetting(wrong_main(self.main, self.kind))
        if self.context == "document" and (self.pooling != "first" or self.train_windows):
            raise BadSetting(
                "With `context` document each sentence is classified at the token after it, so there is no `pooling` and "
                "no `train_windows` to choose. Leave them out."
            )

    @property
    def window(self) -> int:
        """Tokens of a window at most."""
        usual = DOCUMENT_TOKENS if self.context == "document" else TOKENS
        return usual if self.length is None else self.length


def wrong_main(main: str, kind: str) -> str:
    """Say that a measure is none of a kind's."""
    return f"`main` of the task is {main}, and its kind is {kind}; expected one of {', '.join(MAINS[kind])}."
