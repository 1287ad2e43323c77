"""What the task `compare` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from alembert.errors import BadSetting
from alembert.tasks.compare_pooling import Name
from alembert.tasks.setting_checks import check_choices

Kind = Literal["unsupervised", "pairs", "triples", "scores"]
"""Texts alone, texts with one that means the same, those and one that does not, or pairs with a number."""
POOLINGS: Final[dict[Kind, Name]] = {
    "unsupervised": "cls_train_layer",
    "pairs": "cls_layer",
    "triples": "cls_layer",
    "scores": "mean",
}
"""Kind -> what a vector is where neither the settings nor the model's folder say it: SimCSE's, and Sentence-BERT's."""
CONTRASTIVE_TOKENS: Final = 32
SCORE_TOKENS: Final = 128
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *get_args(Kind)),
    "pooling": ("auto", *get_args(Name)),
    "unit": ("text", "sentence"),
}


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """How texts are compared."""

    kind: Literal["auto", "unsupervised", "pairs", "triples", "scores"] = "auto"
    """unsupervised (texts), pairs (that mean the same), triples (and one that does not), scores; auto: told from data."""
    pooling: Literal["auto", "cls", "cls_layer", "cls_train_layer", "mean"] = "auto"
    """What a vector is: cls, cls_layer, cls_train_layer or mean; auto: as the model's folder states, else by the kind."""
    normalise: bool = False
    """Scale vectors to length 1; with `pooling` auto also if the model's folder states it. Similarities stay the same."""
    temperature: float = 0.05
    """What cosines are divided by before they are compared."""
    batch: int = 64
    """Examples that are compared with each other, all in one pass."""
    length: int | None = None
    """Tokens of a training text, with special ones; the rest is cut, and counted. none: 32, and 128 for scores."""
    window: int | None = None
    """Tokens read at once afterwards; of longer texts the windows' vectors are averaged. none: all that the model can."""
    unit: Literal["text", "sentence"] = "text"
    """unsupervised: learn from each text (line, record) as it is, or from each of its sentences."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        for name in ("length", "window"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < 8:
                raise BadSetting(f"`{name}` of the task is {tokens}; expected at least 8 tokens.")
        if not 0.001 <= self.temperature <= 10:
            raise BadSetting(f"`temperature` of the task is {self.temperature}; expected 0.001 to 10.")
        if self.batch < 2:
            raise BadSetting(
                f"`batch` of the task is {self.batch}; expected 2 or more: examples are told apart from each other."
            )

    def tokens_of(self, kind: Kind) -> int:
        """Give how many tokens of a training text are learnt from."""
        usual = SCORE_TOKENS if kind == "scores" else CONTRASTIVE_TOKENS
        return usual if self.length is None else self.length
