"""Continue texts with a model that reads from left to right.

In: an engine whose model has causal attention, or prefix attention (the prompt is then the prefix), and prompts. Out:
each prompt with what the model writes after it. A model learnt from `[CLS] text [SEP]`, so writing begins after
`[CLS] prompt` and ends with [SEP] or at a limit. Many prompts run together, packed without padding. There is no memory
of keys and values between steps: each token reads its whole row again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from alembert.errors import BadInput, BadSetting
from alembert.infer.next_token import Rules, Sampler, most_likely
from alembert.infer.search import Beams, Lines, Row, Search
from alembert.text.joining import join_pieces
from alembert.text.tokenizer import Tokenizer

Method = Literal["greedy", "sample", "beam"]

ROWS_TOGETHER: Final = 64
"""Rows that share a pass of the model; each holds a logit for every piece of the vocabulary."""

_WHOLE: Final = {
    "longest": (1, 1_000_000),
    "top_k": (1, 10_000_000),
    "beams": (1, 1_000),
    "no_repeat": (1, 1_000_000),
    "seed": (0, 2**63),
    "count": (1, 1_000),
}
_METHOD_OF: Final = {
    "temperature": "sample",
    "top_k": "sample",
    "top_p": "sample",
    "beams": "beam",
    "length_penalty": "beam",
}


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """How texts are continued."""

    method: Method = "greedy"
    """`greedy` takes the likeliest token, `sample` draws by probability, `beam` looks for the likeliest text."""
    longest: int = 128
    """New tokens at most; the model's own limit counts too."""
    temperature: float = 1.0
    """Sampling: below 1 keeps to what is likely, above 1 dares more."""
    top_k: int | None = None
    """Sampling: draw from so many of the likeliest tokens."""
    top_p: float | None = None
    """Sampling: draw from the likeliest tokens that together have this probability."""
    beams: int = 4
    """Beam search: rows that go on side by side."""
    length_penalty: float = 1.0
    """Beam search compares log probability / length ** penalty; larger prefers longer texts."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that have occurred become less likely, as in CTRL."""
    no_repeat: int | None = None
    """Length of the n-grams of tokens that may not occur twice."""
    seed: int = 0
    """A sample depends on the seed, its prompt and its number alone."""
    count: int = 1
    """Texts for each prompt: samples, or the best of the beams."""

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            known = ", ".join(get_args(Method))
            raise BadSetting(f"`method` is {self.method!r}; expected one of {known}.")
        self._check_whole_numbers()
        self._check_numbers()
        self._check_method()

    def _check_whole_numbers(self) -> None:
        for name, (least, most) in _WHOLE.items():
            value = getattr(self, name)
            if value is None and name in ("top_k", "no_repeat"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from {least} to {most:,}.")

    def _check_numbers(self) -> None:
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            if not _is_finite(value) or value <= 0:
                raise BadSetting(f"`{name}` is {value!r}; expected a number above 0.")
        if self.top_p is not None and not (_is_finite(self.top_p) and 0 < self.top_p <= 1):
            raise BadSetting(f"`top_p` is {self.top_p!r}; expected a number above 0, at most 1.")
        if not _is_finite(self.length_penalty):
            raise BadSetting(f"`length_penalty` is {self.length_penalty!r}; expected a number.")

    def _check_method(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name, method in _METHOD_OF.items():
            if self.method != method and getattr(self, name) != usual[name]:
                raise BadSetting(
                    f"`{name}` is a setting of the method `{method}`, and the method is `{self.method}`. "
                    f"Leave it out, or use `{method}`."
                )
        most = {"greedy": 1, "beam": self.beams}.get(self.method, self.count)
        if self.count > most:
            raise BadSetting(
                f"`count` is {self.count}, and the method `{self.method}` finds {most} for each prompt. "
                "Use the method `sample`, or more beams."
            )

    @property
    def rows(self) -> int:
        """Rows that one prompt may need at once."""
        return self.beams if self.method == "beam" else self.count


@dataclass(frozen=True)
class Generated:
    """A prompt and its continuation."""

    text: str
    """The prompt as it was given, and what the model wrote after it."""
    ids: tuple[int, ...]
    """The new tokens, without the [SEP] at the end."""
    score: float
    """Sum of the log probabilities that the model gives the new tokens, [SEP] included."""
    finished: bool
    """The model ended the text; otherwise it reached a limit."""


class CausalEngine(Protocol):
    """What computes; it knows token ids and numbers, not texts."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""

    @property
    def attention(self) -> str:
        """Who sees whom in the model: `bidirectional`, `causal` or `prefix`."""

    def next_token_logits(
        self, rows: Sequence[Sequence[int]], prefixes: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Return logits over the vocabulary for the token after each row; prefixes matter to prefix attention."""


def generate(
    engine: CausalEngine, prompt: str, settings: GenerateSettings | None = None
) -> tuple[Generated, ...]:
    """Continue one text; an empty prompt lets the model begin as it likes."""
    return next(generate_batch(engine, [prompt], settings))


def generate_batch(
    engine: CausalEngine, prompts: Sequence[str], settings: GenerateSettings | None = None
) -> Iterator[tuple[Generated, ...]]:
    """Continue many texts, several at a time, in their order; all prompts are checked first."""
    settings = settings or GenerateSettings()
    if engine.attention == "bidirectional":
        raise BadSetting(
            "The model has bidirectional attention: it was trained to fill masks and cannot continue a text. "
            "Use a model trained with `alembert pretrain --objective causal`."
        )
    rows = [prompt_ids(engine, prompt) for prompt in prompts]
    return _in_turn(engine, prompts, rows, settings)


def prompt_ids(engine: CausalEngine, prompt: str) -> list[int]:
    """Encode a prompt as the model begins a text, and refuse one that leaves no room for a token."""
    tokenizer = engine.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(prompt, add_special_tokens=False).ids]
    if len(ids) >= engine.longest:
        raise BadInput(
            f"The prompt has {len(ids):,} tokens with {tokenizer.vocabulary.special.cls}, and the model reads "
            f"{engine.longest:,} at once, which leaves no room to go on. Give a shorter prompt."
        )
    return ids


def _in_turn(
    engine: CausalEngine, prompts: Sequence[str], rows: Sequence[list[int]], settings: GenerateSettings
) -> Iterator[tuple[Generated, ...]]:
    share = max(1, ROWS_TOGETHER // settings.rows)
    for start in range(0, len(rows), share):
        some = slice(start, start + share)
        searches = _search(engine, rows[some], settings)
        for prompt, ids, search in zip(prompts[some], rows[some], searches, strict=True):
            found = search.best(settings.count)
            yield tuple(_written(engine.tokenizer, prompt, row, len(ids)) for row in found)


def _search(engine: CausalEngine, prompts: Sequence[list[int]], settings: GenerateSettings) -> list[Search]:
    rules = _rules(engine.tokenizer, settings)
    searches = [_begin(ids, rules, engine.longest, settings) for ids in prompts]
    while open_searches := [
        (search, len(ids)) for search, ids in zip(searches, prompts, strict=True) if search.waiting
    ]:
        rows = [(row.ids, prefix) for search, prefix in open_searches for row in search.waiting]
        logits = engine.next_token_logits([ids for ids, _ in rows], [prefix for _, prefix in rows])
        logits = logits[:, : engine.tokenizer.vocab_size]  # a model may have rows without a piece
        start = 0
        for search, _ in open_searches:
            stop = start + len(search.waiting)
            search.step(logits[start:stop])
            start = stop
    return searches


def _rules(tokenizer: Tokenizer, settings: GenerateSettings) -> Rules:
    never = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id, tokenizer.unk_id)
    return Rules(
        end=tokenizer.sep_id,
        never=np.array(never),
        repetition_penalty=settings.repetition_penalty,
        no_repeat=settings.no_repeat,
    )


def _begin(ids: list[int], rules: Rules, limit: int, settings: GenerateSettings) -> Search:
    longest = min(settings.longest, limit - len(ids))
    if settings.method == "beam":
        penalty = settings.length_penalty
        return Beams(ids, rules, longest=longest, beams=settings.beams, length_penalty=penalty)
    if settings.method == "greedy":
        return Lines(ids, rules, [most_likely], longest=longest)
    samplers = [_sampler(ids, number, settings) for number in range(settings.count)]
    return Lines(ids, rules, samplers, longest=longest)


def _sampler(ids: list[int], number: int, settings: GenerateSettings) -> Sampler:
    return Sampler(
        rng=np.random.default_rng([settings.seed, number, *ids]),
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
    )


def _written(tokenizer: Tokenizer, prompt: str, row: Row, start: int) -> Generated:
    ids = row.ids[start : len(row.ids) - row.finished]
    text = join_pieces(tokenizer.tokens(ids), before=prompt)
    return Generated(text, ids, row.score, row.finished)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
