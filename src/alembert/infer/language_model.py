"""Language models at work: fill the masks of a text, continue it, and score it token by token.

`fill_mask` takes an engine and a text, and gives the likeliest pieces for each mask, with character offsets into
the text as it was given.

`generate` takes an engine whose model has causal attention, or prefix attention (the prompt is then the prefix). A
model learnt from `[CLS] text [SEP]`, so writing begins after `[CLS] prompt` and ends with [SEP] or at a limit
(`tasks.generate.decoding`).

`score_text` says how probable a text is. A causal model (or one with prefix attention, which reads the text as a
continuation of nothing) gives the exact probability: the product of the probabilities of its tokens, each given those
before it, and of its end. A masked language model has no such product; its score is the pseudo-log-likelihood of
Salazar et al. 2020: each token is masked in turn and predicted from all others, at the cost of reading the text once
for each of its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Row
from alembert.errors import BadInput, BadSetting
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.tasks.generate.writing import GeneratedTokens, Prompt, generate_texts
from alembert.text.tokenizer import Tokenizer, detokenize

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine


@dataclass(frozen=True)
class MaskCandidate:
    """One piece that could stand at a mask."""

    token: str
    id: int
    score: float
    """Its probability."""


@dataclass(frozen=True)
class FilledMask:
    """A `[MASK]` of the text and what the model expects there, the likeliest first."""

    start: int
    end: int
    candidates: tuple[MaskCandidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def fill_mask(engine: TorchEngine, text: str, top: int = 5) -> tuple[FilledMask, ...]:
    """Predict what stands at each `[MASK]` of a text."""
    tokenizer = engine.tokenizer
    encoding = tokenizer.encode(text)
    positions = [i for i, token in enumerate(encoding.ids) if token == tokenizer.mask_id]
    if not positions:
        mask = tokenizer.vocabulary.special.mask
        raise BadInput(f"The text has no {mask}. Write {mask} where a word is to be found.")
    if len(encoding) > engine.max_tokens:
        raise BadInput(
            f"The text has {len(encoding):,} tokens, and the model reads {engine.max_tokens:,} at once. "
            "Give a shorter passage around the mask."
        )
    rows = engine.vocabulary_probabilities(encoding.ids, positions)
    return tuple(
        FilledMask(*encoding.offsets[position], _top_candidates(row[: tokenizer.vocab_size], tokenizer, top))
        for position, row in zip(positions, rows, strict=True)
    )


def _top_candidates(row: npt.NDArray[np.float32], tokenizer: Tokenizer, top: int) -> tuple[MaskCandidate, ...]:
    ids = [int(i) for i in np.argsort(-row, kind="stable")[:top]]
    return tuple(MaskCandidate(token, i, float(row[i])) for i, token in zip(ids, tokenizer.tokens(ids), strict=True))


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


def generate(engine: TorchEngine, prompt: str, settings: DecodeSettings | None = None) -> tuple[GeneratedText, ...]:
    """Continue one text; an empty prompt lets the model begin as it likes."""
    return next(generate_batch(engine, [prompt], settings))


def generate_batch(
    engine: TorchEngine, prompts: Sequence[str], settings: DecodeSettings | None = None
) -> Iterator[tuple[GeneratedText, ...]]:
    """Continue many texts, several at a time, in their order; all prompts are checked first."""
    settings = settings or DecodeSettings()
    if engine.attention == "bidirectional":
        raise BadSetting(
            "The model has bidirectional attention: it was trained to fill masks and cannot continue a text. "
            "Use a model trained with `alembert pretrain --objective causal`."
        )
    rows = [prompt_ids(engine, prompt) for prompt in prompts]
    return _generate_batches(engine, prompts, rows, settings)


def prompt_ids(engine: TorchEngine, prompt: str) -> list[int]:
    """Encode a prompt as the model begins a text, and refuse one that leaves no room for a token."""
    tokenizer = engine.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(prompt, add_special_tokens=False).ids]
    if len(ids) >= engine.max_tokens:
        raise BadInput(
            f"The prompt has {len(ids):,} tokens with {tokenizer.vocabulary.special.cls}, and the model reads "
            f"{engine.max_tokens:,} at once, which leaves no room to go on. Give a shorter prompt."
        )
    return ids


def _generate_batches(
    engine: TorchEngine, prompts: Sequence[str], rows: Sequence[list[int]], settings: DecodeSettings
) -> Iterator[tuple[GeneratedText, ...]]:
    found = generate_texts(
        engine.writer(), [_to_prompt(ids, engine.max_tokens) for ids in rows], engine.tokenizer, settings
    )
    for prompt, texts in zip(prompts, found, strict=True):
        yield tuple(_to_generated_text(engine.tokenizer, prompt, text) for text in texts)


def _to_prompt(ids: list[int], limit: int) -> Prompt:
    row = Row(np.array(ids), np.array([len(ids) - 1]), prefix=len(ids))
    return Prompt(row, room=limit - len(ids), counted=tuple(ids))


def _to_generated_text(tokenizer: Tokenizer, prompt: str, written: GeneratedTokens) -> GeneratedText:
    text = detokenize(tokenizer.tokens(written.ids), before=prompt)
    return GeneratedText(text, written.ids, written.score, written.finished)


# P places, V vocabulary


ScoreKind = Literal["exact", "pseudo"]


@dataclass(frozen=True)
class ScoredToken:
    """A token of a text, and the logarithm of its probability; the end of a text has an empty span."""

    token: str
    start: int
    end: int
    log_probability: float


@dataclass(frozen=True)
class TextScore:
    """How probable a model finds a text."""

    text: str
    tokens: tuple[ScoredToken, ...]
    kind: ScoreKind
    """`exact` for causal models, `pseudo` for masked ones, whose sum is no probability."""

    @property
    def log_probability(self) -> float:
        """Sum over the tokens, natural logarithm."""
        return math.fsum(token.log_probability for token in self.tokens)

    @property
    def perplexity(self) -> float:
        """Exponential of the negative mean; with pseudo-log-likelihoods it is called pseudo-perplexity."""
        return math.exp(-self.log_probability / len(self.tokens))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        sums = {"log_probability": self.log_probability, "perplexity": self.perplexity}
        return {
            "text": self.text,
            "kind": self.kind,
            **sums,
            "tokens": [asdict(token) for token in self.tokens],
        }


def score_text(engine: TorchEngine, text: str) -> TextScore:
    """Compute how probable the model finds a text."""
    encoding = engine.tokenizer.encode(text)
    if len(encoding) <= 2:
        raise BadInput("The text has no tokens to score: it is empty or blank.")
    _check_length(engine, len(encoding))
    ids = np.array(encoding.ids, np.int64)
    is_causal = engine.attention != "bidirectional"
    places, logs = _score_causal(engine, ids) if is_causal else _score_masked(engine, ids)
    pieces = engine.tokenizer.tokens([int(each) for each in ids])
    tokens = tuple(
        ScoredToken(pieces[place], *_span(encoding.offsets[place], text, is_end=place == len(ids) - 1), log)
        for place, log in zip(places, logs, strict=True)
    )
    return TextScore(text, tokens, "exact" if is_causal else "pseudo")


def next_sentence_probability(engine: TorchEngine, first: str, second: str) -> float:
    """Return the probability that the second sentence follows the first, as the next-sentence head has it."""
    tokenizer = engine.tokenizer
    sides = [tokenizer.encode(side, add_special_tokens=False).ids for side in (first, second)]
    if not all(sides):
        raise BadInput("A sentence is empty. Give two sentences.")
    ids = [tokenizer.cls_id, *sides[0], tokenizer.sep_id, *sides[1], tokenizer.sep_id]
    _check_length(engine, len(ids))
    segments = np.array([0] * (len(sides[0]) + 2) + [1] * (len(sides[1]) + 1), np.int64)
    row = Row(np.array(ids, np.int64), np.zeros(1, np.int64), segments=segments)
    ((_, logits_P2),) = engine.head_outputs("next_sentence", [row])
    is_next, is_random = logits_P2[0].astype(np.float64)
    return float(1 / (1 + np.exp(is_random - is_next)))


def _score_causal(engine: TorchEngine, ids: npt.NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Score each token after the first from what stands before it."""
    row = Row(ids, np.arange(len(ids) - 1), prefix=1)
    ((_, logits_PV),) = engine.head_outputs("masked_lm", [row])
    return list(range(1, len(ids))), _log_probabilities(logits_PV, ids[1:])


def _score_masked(engine: TorchEngine, ids: npt.NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Score each token but the special ones at the ends, masked, from all others."""
    places = list(range(1, len(ids) - 1))
    rows = []
    for place in places:
        masked = ids.copy()
        masked[place] = engine.tokenizer.mask_id
        rows.append(Row(masked, np.array([place])))
    logs = [0.0] * len(rows)
    for number, logits_PV in engine.head_outputs("masked_lm", rows):
        logs[number] = _log_probabilities(logits_PV, ids[places[number] : places[number] + 1])[0]
    return places, logs


def _log_probabilities(logits_PV: npt.NDArray[np.float32], ids_P: npt.NDArray[np.int64]) -> list[float]:
    logits = logits_PV.astype(np.float64)
    highest = logits.max(-1)
    sums = highest + np.log(np.exp(logits - highest[:, None]).sum(-1))
    logs: list[float] = (logits[np.arange(len(ids_P)), ids_P] - sums).tolist()
    return logs


def _span(offsets: tuple[int, int], text: str, *, is_end: bool) -> tuple[int, int]:
    return (len(text), len(text)) if is_end else offsets


def _check_length(engine: TorchEngine, length: int) -> None:
    if length > engine.max_tokens:
        raise BadInput(
            f"The text has {length:,} tokens, and the model reads {engine.max_tokens:,} at once. Give a shorter text."
        )
