"""The loop of writing: a model computes, searches decide, and many prompts share each pass.

In: a `IncrementalDecoder`, which has a model, prompts as rows of tokens, and settings. Out: what was written after
each prompt, the best first. A text ends with [SEP] or at a limit. The loop knows token ids alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from alembert.data.windows import Row
from alembert.tasks.generate.decoding import (
    BeamSearch,
    DecodeSettings,
    DecodingSearch,
    Hypothesis,
    IndependentSearch,
    Logits,
    LogitsProcessor,
    TokenSampler,
    pick_most_likely,
)
from alembert.text.tokenizer import Tokenizer

MAX_PARALLEL_HYPOTHESES: Final = 64
"""Lines that share a pass of the model; each holds a logit for every piece of the vocabulary."""


class IncrementalDecoder(Protocol):
    """A model that goes on from prompts, and remembers what it has read."""

    def prefill(self, prompts: Sequence[Row]) -> Logits:
        """Read prompts, forgetting others; give logits for the token after each. They are its first lines."""

    def step(self, parents: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Write a token after lines, which are named by their numbers in the call before; give logits for the next."""


@dataclass(frozen=True)
class Prompt:
    """What is written after."""

    row: Row
    """What the model reads; all of it is the prefix of prefix attention."""
    room: int
    """Tokens that the model can add, at least 1."""
    counted: tuple[int, ...] = ()
    """Tokens before the first new one that count when repetitions are looked for."""


@dataclass(frozen=True)
class GeneratedTokens:
    """What was written after a prompt."""

    ids: tuple[int, ...]
    """The new tokens, without the [SEP] at the end."""
    score: float
    """Sum of the log probabilities that the model gives the new tokens, [SEP] included."""
    finished: bool
    """The model ended the text; otherwise it reached a limit."""


def generate_texts(
    writer: IncrementalDecoder, prompts: Sequence[Prompt], tokenizer: Tokenizer, settings: DecodeSettings
) -> Iterator[tuple[GeneratedTokens, ...]]:
    """Write after prompts, several at a time, in their order; for each, at most `settings.count` texts."""
    share = max(1, MAX_PARALLEL_HYPOTHESES // settings.lines)
    rules = _build_processor(tokenizer, settings)
    for start in range(0, len(prompts), share):
        some = prompts[start : start + share]
        searches = [_start_search(prompt, rules, settings) for prompt in some]
        _run_searches(writer, [prompt.row for prompt in some], searches, tokenizer.vocab_size)
        for prompt, search in zip(some, searches, strict=True):
            yield tuple(_to_generated(line, prompt) for line in search.best(settings.count))


def _run_searches(
    writer: IncrementalDecoder, rows: Sequence[Row], searches: Sequence[DecodingSearch], pieces: int
) -> None:
    """Take all searches to their ends; a model may have rows of logits beyond the pieces of its tokenizer."""
    logits = writer.prefill(rows)[:, :pieces]
    live: list[tuple[DecodingSearch, Sequence[int]]] = []
    for number, search in enumerate(searches):
        same = [number] * len(search.active)
        search.step(logits[same])
        live.append((search, same))
    while live := [(search, places) for search, places in live if search.active]:
        parents = [places[line.parent] for search, places in live for line in search.active]
        tokens = [line.ids[-1] for search, _ in live for line in search.active]
        logits = writer.step(parents, tokens)[:, :pieces]
        live = list(_step_searches([search for search, _ in live], logits))


def _step_searches(
    searches: Sequence[DecodingSearch], logits: Logits
) -> Iterator[tuple[DecodingSearch, Sequence[int]]]:
    """Hand each search its logits; yield it with the numbers that its lines had in them."""
    start = 0
    for search in searches:
        rows = range(start, start + len(search.active))
        search.step(logits[rows.start : rows.stop])
        yield search, rows
        start = rows.stop


def _build_processor(tokenizer: Tokenizer, settings: DecodeSettings) -> LogitsProcessor:
    never = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id, tokenizer.unk_id)
    return LogitsProcessor(
        eos_id=tokenizer.sep_id,
        banned_ids=np.array(never),
        repetition_penalty=settings.repetition_penalty,
        no_repeat=settings.no_repeat_ngram,
        shortest=settings.min_new_tokens,
    )


def _start_search(prompt: Prompt, rules: LogitsProcessor, settings: DecodeSettings) -> DecodingSearch:
    longest = min(settings.max_new_tokens, prompt.room)
    if settings.method == "beam":
        penalty = settings.length_penalty
        return BeamSearch(prompt.counted, rules, longest=longest, beams=settings.beams, length_penalty=penalty)
    if settings.method == "greedy":
        return IndependentSearch(prompt.counted, rules, [pick_most_likely], longest=longest)
    samplers = [_build_sampler(prompt.row, number, settings) for number in range(settings.count)]
    return IndependentSearch(prompt.counted, rules, samplers, longest=longest)


def _build_sampler(row: Row, number: int, settings: DecodeSettings) -> TokenSampler:
    return TokenSampler(
        rng=np.random.default_rng([settings.seed, number, *row.ids.tolist()]),
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
    )


def _to_generated(line: Hypothesis, prompt: Prompt) -> GeneratedTokens:
    ids = line.ids[len(prompt.counted) : len(line.ids) - line.finished]
    return GeneratedTokens(ids, line.score, line.finished)
