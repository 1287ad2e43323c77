"""Continue texts with a model that reads from left to right.

In: an engine whose model has causal attention, or prefix attention (the prompt is then the prefix), and prompts. Out:
each prompt with what the model writes after it. A model learnt from `[CLS] text [SEP]`, so writing begins after
`[CLS] prompt` and ends with [SEP] or at a limit. How tokens are searched is in `tasks.decoding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from alembert.data.windows import Row
from alembert.errors import BadInput, BadSetting
from alembert.infer.fill_mask import TokenEngine
from alembert.tasks.decoding.generation import (
    GeneratedTokens,
    IncrementalDecoder,
    Prompt,
    generate_texts,
)
from alembert.tasks.decoding.settings import DecodeSettings
from alembert.text.tokenizer import Tokenizer, detokenize


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and its continuation."""

    text: str
    """The prompt as it was given, and what the model wrote after it."""
    ids: tuple[int, ...]
    """The new tokens, without the [SEP] at the end."""
    score: float
    """Sum of the log probabilities that the model gives the new tokens, [SEP] included."""
    finished: bool
    """The model ended the text; otherwise it reached a limit."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


class CausalEngine(TokenEngine, Protocol):
    """What continues texts."""

    @property
    def attention(self) -> str:
        """Who sees whom in the model: `bidirectional`, `causal` or `prefix`."""

    def writer(self) -> IncrementalDecoder:
        """What writes with the model."""


def generate(engine: CausalEngine, prompt: str, settings: DecodeSettings | None = None) -> tuple[GeneratedText, ...]:
    """Continue one text; an empty prompt lets the model begin as it likes."""
    return next(generate_batch(engine, [prompt], settings))


def generate_batch(
    engine: CausalEngine, prompts: Sequence[str], settings: DecodeSettings | None = None
) -> Iterator[tuple[GeneratedText, ...]]:
    """Continue many texts, several at a time, in their order; all prompts are checked first."""
    settings = settings or DecodeSettings()
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
    engine: CausalEngine, prompts: Sequence[str], rows: Sequence[list[int]], settings: DecodeSettings
) -> Iterator[tuple[GeneratedText, ...]]:
    found = generate_texts(engine.writer(), [_prompt(ids, engine.longest) for ids in rows], engine.tokenizer, settings)
    for prompt, texts in zip(prompts, found, strict=True):
        yield tuple(_generated(engine.tokenizer, prompt, text) for text in texts)


def _prompt(ids: list[int], limit: int) -> Prompt:
    row = Row(np.array(ids), np.array([len(ids) - 1]), prefix=len(ids))
    return Prompt(row, room=limit - len(ids), counted=tuple(ids))


def _generated(tokenizer: Tokenizer, prompt: str, written: GeneratedTokens) -> GeneratedText:
    text = detokenize(tokenizer.tokens(written.ids), before=prompt)
    return GeneratedText(text, written.ids, written.score, written.finished)
