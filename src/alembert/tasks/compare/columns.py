"""Settings of the task `compare`, and which columns of a table hold the texts that are compared, and their score.

In: all records of a file and the options. Out: the columns, and a sentence that describes them. Options come first,
then usual names, then content: a column of numbers is the score, unless it counts the rows, and the others are texts.
Three texts are an anchor, a partner that means the same and a negative that does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from alembert.corpus.examples.records import (
    GROUP_COLUMNS,
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    ROW_ID_COLUMNS,
    TEXT_COLUMNS,
    are_mostly_numbers,
    parse_number,
)
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, describe_option
from alembert.corpus.readers.records import get_field
from alembert.errors import BadSetting
from alembert.tasks.compare.pooling import PoolingName
from alembert.tasks.settings import check_choices

CompareKind = Literal["unsupervised", "pairs", "triples", "scores"]
"""Texts alone, texts with one that means the same, those and one that does not, or pairs with a number."""
DEFAULT_POOLINGS: Final[dict[CompareKind, PoolingName]] = {
    "unsupervised": "cls_train_layer",
    "pairs": "cls_layer",
    "triples": "cls_layer",
    "scores": "mean",
}
"""Kind -> what a vector is where neither the settings nor the model's folder say it: SimCSE's, and Sentence-BERT's."""
CONTRASTIVE_TOKENS: Final = 32
SCORE_TOKENS: Final = 128
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *get_args(CompareKind)),
    "pooling": ("auto", *get_args(PoolingName)),
    "unit": ("text", "sentence"),
}


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """Settings of sentence embeddings."""

    kind: Literal["auto", "unsupervised", "pairs", "triples", "scores"] = "auto"
    """Training data: unsupervised (texts), pairs (paraphrases), triples (with a negative), scores; auto: detected."""
    pooling: Literal["auto", "cls", "cls_layer", "cls_train_layer", "mean"] = "auto"
    """Pooling: cls, cls_layer, cls_train_layer or mean; auto: as the model's folder states, else by the kind."""
    normalise: bool = False
    """Scale vectors to length 1; with `pooling` auto also if the model's folder states it. Similarities stay the same."""
    temperature: float = 0.05
    """Temperature of the contrastive loss."""
    batch_size: int = 64
    """Examples per batch; the others of the batch are the negatives."""
    max_length: int | None = None
    """Maximum tokens of a training text, special tokens included; truncated text is reported. none: 32, and 128 for scores."""
    window: int | None = None
    """Maximum tokens of a window in prediction; the vectors of several windows are averaged. none: the limit of the model."""
    unit: Literal["text", "sentence"] = "text"
    """unsupervised: train on whole texts (lines, records), or on their sentences."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        for name in ("max_length", "window"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < 8:
                raise BadSetting(f"`{name}` of the task is {tokens}; expected at least 8 tokens.")
        if not 0.001 <= self.temperature <= 10:
            raise BadSetting(f"`temperature` of the task is {self.temperature}; expected 0.001 to 10.")
        if self.batch_size < 2:
            raise BadSetting(
                f"`batch_size` of the task is {self.batch_size}; expected 2 or more: examples are told apart from each other."
            )

    def tokens_of(self, kind: CompareKind) -> int:
        """Return how many tokens of a training text are learnt from."""
        usual = SCORE_TOKENS if kind == "scores" else CONTRASTIVE_TOKENS
        return usual if self.max_length is None else self.max_length


CompareRecords = Sequence[Mapping[str, Any]]
TRIPLES: Final = (
    ("anchor", "positive", "negative"),
    ("query", "positive", "negative"),
    ("premise", "entailment", "contradiction"),
    ("sent0", "sent1", "hard_neg"),
)
"""Anchor, partner and hard negative, as published files call them."""
PARTNERS: Final = (*(names[:2] for names in TRIPLES), *PAIR_COLUMNS)
_NEGATIVES: Final = (
    *("negative", "hard_negative", "hard_neg", "neg", "contradiction"),
    *("negative_0", "negative_1", "negative1", "hard_negative_1"),
)
"""Names of a column of hard negatives beside any pair; the first that a file has is used."""


@dataclass(frozen=True, kw_only=True)
class CompareColumns:
    """Names of columns, or paths of fields inside fields."""

    texts: tuple[str, ...]
    score: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def kind(self) -> CompareKind:
        if self.score is not None:
            return "scores"
        kind: CompareKind = ("unsupervised", "pairs", "triples")[len(self.texts) - 1]
        return kind

    def sentence(self) -> str:
        """Describe what was detected."""
        texts = ", ".join(self.texts)
        what = {
            "unsupervised": f"the text is in column {texts}",
            "pairs": f"texts that mean the same are in columns {texts}",
            "triples": f"anchor, partner and hard negative are in columns {texts}",
            "scores": f"the texts of a pair are in columns {texts}, their score in column {self.score}",
        }[self.kind]
        return what + (f"; not used: {', '.join(self.unused[:12])}" if self.unused else "")


def detect_columns(records: CompareRecords, options: ReadOptions) -> CompareColumns:
    """Detect the columns of a file, or raise `DamagedFile` with the option that would."""
    names = list(dict.fromkeys(name for record in records for name in record))
    texts = _find_requested(options.text, names, records, "text") or find_named_columns(names)
    (score,) = _find_requested((options.label,), names, records, "label") if options.label else (None,)
    if not texts:
        texts, score = _by_content(names, records, score)
    elif len(texts) == 2 and score is None:
        score = _score_beside(texts, names, records)
        if score is None and not options.text:
            texts += _negative_beside(names, records)
    if score is not None and len(texts) != 2:
        raise DamagedFile(f"a score belongs to two texts, and {len(texts)} were found; {describe_option('text')}")
    unused = tuple(name for name in names if name not in (*texts, score))
    return CompareColumns(texts=texts, score=score, unused=unused)


def _find_requested(
    requested: Sequence[str], names: Sequence[str], records: CompareRecords, option: str
) -> tuple[str, ...]:
    """Find columns that were asked for by name, by number, or by a path into nested fields."""
    if len(requested) > 3:
        raise DamagedFile(
            f"{len(requested)} columns of text were asked for; expected one to three; {describe_option(option)}"
        )
    columns = []
    for name in requested:
        if name.isdecimal() and name not in names and 1 <= int(name) <= len(names):
            columns.append(names[int(name) - 1])
        elif name in names or any(get_field(record, name) is not None for record in records):
            columns.append(name)
        else:
            raise DamagedFile(f"there is no column {name}; the file has {_listed(names)}; {describe_option(option)}")
    return tuple(columns)


def find_named_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Find columns by usual names: three texts before two, and two before one."""
    lower = {name.lower(): name for name in reversed(names)}
    for usual in (*TRIPLES, *PARTNERS, *((name,) for name in TEXT_COLUMNS)):
        if all(name in lower for name in usual):
            return tuple(lower[name] for name in usual)
    return ()


def _score_beside(texts: Sequence[str], names: Sequence[str], records: CompareRecords) -> str | None:
    """Find the score of a pair by its name; words there are labels, which say something else."""
    name = next((name for name in names if name.lower() in LABEL_COLUMNS and name not in texts), None)
    if name is None or _are_numbers(name, records):
        return name
    raise DamagedFile(
        f"column {name} holds words, and scores of pairs are numbers; leave it out if all pairs mean the same, give "
        "triples (anchor, positive, negative), or fine-tune for the task classify"
    )


def _negative_beside(names: Sequence[str], records: CompareRecords) -> tuple[str, ...]:
    """Find the hard negatives of pairs by their name; a column without a text is none."""
    lower = {name.lower(): name for name in reversed(names)}
    candidates = (lower[name] for name in _NEGATIVES if name in lower)
    return tuple(name for name in candidates if _are_texts(name, records))[:1]


def _by_content(names: Sequence[str], records: CompareRecords, score: str | None) -> tuple[tuple[str, ...], str | None]:
    rest = [name for name in names if name != score and name.lower() not in (*ROW_ID_COLUMNS, *GROUP_COLUMNS)]
    numbers = [name for name in rest if _are_numbers(name, records)]
    texts = tuple(name for name in rest if name not in numbers)
    scores = [name for name in numbers if score is None and not _is_row_counter(name, records)]
    if not 1 <= len(texts) <= 3 or len(scores) > 1:
        raise DamagedFile(
            f"{len(texts)} columns could be texts and {len(scores)} scores; the file has {_listed(names)}; "
            f"{describe_option('text')}, and `label` for the score"
        )
    return texts, scores[0] if scores and len(texts) == 2 else score


def _are_numbers(name: str, records: CompareRecords) -> bool:
    values = [value for record in records if (value := record.get(name)) not in (None, "")]
    numbers = sum(parse_number(str(value)) is not None for value in values)
    return are_mostly_numbers(numbers, len(values))


def _are_texts(name: str, records: CompareRecords) -> bool:
    has_text = any(str(record.get(name) or "").strip() for record in records)
    return has_text and not _are_numbers(name, records)


def _is_row_counter(name: str, records: CompareRecords) -> bool:
    """Whether a column only counts the rows."""
    values = [parse_number(str(record.get(name))) for record in records]
    whole = [value for value in values if value is not None and value.is_integer()]
    return len(set(whole)) == len(records) > 2


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
