"""The task `generate`: write a text for a text, such as a title, a summary or an answer.

In: pairs of source and target. Out: texts, with how probable the model finds them. The encoder writes by itself,
with the prefix attention of UniLM (Dong et al. 2019) and the masked-LM head. A row is `[CLS] source [SEP] target`:
tokens of the source see each other both ways, and a token of the target sees the source and the target up to itself.
The head is asked from the last [SEP] of the source on, each token of the target is predicted from those before it, and
the last answer is the [SEP] that ends the target, which therefore need not be read. What is longer than its room is
cut, and counted.

UniLM hides tokens of the target and finds them again; here the next token is predicted, which is what writing does, and
what the pre-training objective `prefix` learns. With `copy` the head also points at tokens of the source (See et al.
2017), and its outputs are log probabilities of the mixture, which the loss and the search take as logits. The kind
`extract` chooses sentences of the source instead (module `extract`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.data.order import stable_hash
from alembert.data.windows import IntArray, Row
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.generate.data import (
    MAIN_METRIC,
    BaseGenerateTask,
    GenerateExample,
    GenerateSettings,
    TextPrediction,
    check_learnable,
)
from alembert.tasks.generate.writing import GeneratedTokens, Prompt, generate_texts
from alembert.tasks.runtime import Runner
from alembert.tasks.settings import LossSettings
from alembert.text.tokenizer import Encoding, Tokenizer, detokenize

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


@dataclass(frozen=True, eq=False)
class GenerateLayout:
    """What is needed to write and to read what was written."""

    tokenizer: Tokenizer
    max_new_tokens: int
    """Tokens that the model can write."""
    is_asked: bool = True
    """Whether a text is to be written; only some of the development examples are, to save time."""


@dataclass(frozen=True)
class TokenBudget:
    """Tokens for source and target, without special ones."""

    source: int
    target: int
    limit: int
    """Tokens of a row at most."""

    @classmethod
    def of(cls, source: int | None, target: int, longest: int) -> TokenBudget:
        """Share out what the model can read; a target never takes more than half of it."""
        for_target = min(target, longest // 2)
        left = longest - 2 - for_target
        return cls(left if source is None else min(source, left), for_target, longest)


def encode_examples(
    examples: Sequence[GenerateExample], tokenizer: Tokenizer, room: TokenBudget, asked: Sequence[bool]
) -> list[EncodedExample]:
    """Turn examples into one row each; those that are asked are to be written for."""
    sources = tokenizer.encode_batch([example.source for example in examples], add_special_tokens=False)
    written = [example.target for example in examples if example.target is not None]
    targets = iter(tokenizer.encode_batch(written, add_special_tokens=False))
    encoded = []
    for example, source, is_asked in zip(examples, sources, asked, strict=True):
        target = None if example.target is None else next(targets)
        prefix = np.array([tokenizer.cls_id, *source.ids[: room.source], tokenizer.sep_id], np.int64)
        answer = None if target is None else target.ids[: room.target]
        row = _source_row(prefix) if answer is None else _training_row(prefix, answer, tokenizer.sep_id)
        cut = _count_cut_characters(source, room.source) + (
            0 if target is None else _count_cut_characters(target, room.target)
        )
        layout = GenerateLayout(tokenizer, room.limit - len(prefix), is_asked)
        encoded.append(EncodedExample((row,), _coverage(example, row, tokenizer, cut), layout))
    return encoded


def _source_row(prefix: IntArray) -> Row:
    return Row(prefix, np.array([len(prefix) - 1]), segments=np.zeros_like(prefix), prefix=len(prefix))


def _training_row(prefix: IntArray, target: Sequence[int], end: int) -> Row:
    answers = np.array([*target, end], np.int64)
    return Row(
        ids=np.concatenate([prefix, answers[:-1]]),
        positions=len(prefix) - 1 + np.arange(len(answers)),
        labels=answers,
        segments=np.repeat([0, 1], [len(prefix), len(target)]),
        prefix=len(prefix),
    )


def _coverage(example: GenerateExample, row: Row, tokenizer: Tokenizer, cut: int) -> Coverage:
    return Coverage(
        examples=1,
        characters=len(example.source),
        tokens=row.length,
        windows=1,
        unknown=int(np.count_nonzero(row.ids == tokenizer.unk_id)),
        gold=int(example.target is not None),
        cut_characters=cut,
    )


def _count_cut_characters(encoding: Encoding, room: int) -> int:
    """Count the characters from the first token that has no room."""
    return encoding.offsets[-1][1] - encoding.offsets[room][0] if len(encoding) > room else 0


def drop_target(row: Row) -> Row:
    """Keep the source of a row alone: what a text is written after."""
    return row if row.length == row.prefix else _source_row(row.ids[: row.prefix])


_TARGET_SEGMENT = 1


class GenerateCandidates(NamedTuple):
    """Texts that were written for one source, the best first; no lines: none was asked for."""

    # C texts, L tokens of the longest
    ids_CL: IntArray
    """Tokens, -1 after the last."""
    scores_C: npt.NDArray[np.float64]
    finished_C: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Sequence[GeneratedTokens]) -> GenerateCandidates:
        ids_CL = np.full((len(texts), max((len(text.ids) for text in texts), default=0)), -1, np.int64)
        for row, text in zip(ids_CL, texts, strict=True):
            row[: len(text.ids)] = text.ids
        scores = np.array([text.score for text in texts], np.float64)
        return cls(ids_CL, scores, np.array([text.finished for text in texts], np.bool_))


@dataclass(frozen=True)
class ScoredText:
    """One text that was written."""

    text: str
    score: float
    """Sum of the log probabilities of its tokens, its end included."""
    finished: bool
    """The model ended it; otherwise it reached the limit of tokens."""


@dataclass(frozen=True)
class GeneratePrediction(TextPrediction):
    """What was written for a source."""

    texts: tuple[ScoredText, ...]
    """The best first; empty: nothing was asked for."""

    @property
    def text(self) -> str | None:
        return self.texts[0].text if self.texts else None

    def to_record(self, example: GenerateExample) -> dict[str, Any]:
        best, *others = [asdict(text) for text in self.texts] or [{"text": None}]
        brief = {name: getattr(self.coverage, name) for name in ("characters", "tokens", "cut_characters")}
        return {"id": example.id, **best, **({"others": others} if others else {}), "coverage": brief}

    def to_lines(self, example: GenerateExample) -> list[str]:
        return [text.text for text in self.texts]


@dataclass(frozen=True, eq=False)
class GenerateTask(BaseGenerateTask):
    """Write texts for texts."""

    settings: GenerateSettings
    is_learning: bool = False
    """Whether only some examples are written for, since the model is judged many times while it learns."""

    # -- reading

    @classmethod
    def learn(cls, examples: Sequence[GenerateExample], settings: GenerateSettings) -> BaseGenerateTask:
        check_learnable(examples)
        if settings.kind == "extract":
            from alembert.tasks.generate.extract import ExtractTask

            return ExtractTask.learn(examples, settings)
        return cls(settings, is_learning=True)

    def describe(self) -> list[str]:
        settings, how = self.settings, self.settings.decoding
        search = f"beam search with {how.beams} beams" if how.method == "beam" else f"the method {how.method}"
        read = (
            "what the model has room for is"
            if settings.max_source_length is None
            else f"{settings.max_source_length} tokens are"
        )
        judged = "all" if settings.eval_examples is None else f"at most {settings.eval_examples}"
        return [
            f"A text is written for each source, by {search}, of up to {how.max_new_tokens} tokens"
            f"{'; words of the source can be copied' if settings.copy else ''}.",
            f"Of a source {read} read, of a target {settings.max_target_length} tokens are learnt; the rest is cut.",
            f"Models are chosen by {MAIN_METRIC} of what they write for {judged} of the development examples.",
        ]

    # -- encoding

    @property
    def attention_pattern(self) -> str | None:
        return "prefix"

    @property
    def needs_full_vocabulary(self) -> bool:
        return True

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="copy_lm" if self.settings.copy else "masked_lm", dropout=0.0)

    def encode(self, examples: Sequence[GenerateExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        room = TokenBudget.of(self.settings.max_source_length, self.settings.max_target_length, longest)
        return encode_examples(examples, tokenizer, room, self._choose_examples_to_write(examples))

    def _choose_examples_to_write(self, examples: Sequence[GenerateExample]) -> list[bool]:
        """Choose the examples that are written for: if only some, always the same, whatever their order."""
        most = self.settings.eval_examples if self.is_learning else None
        if most is None or len(examples) <= most:
            return [True] * len(examples)
        ranks = [stable_hash("judged", example.key, example.id) for example in examples]
        last = sorted(ranks)[most - 1]
        return [rank <= last for rank in ranks]

    # -- loss

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.nn.losses import cross_entropy

        return cross_entropy(outputs, target.labels, smoothing=settings.label_smoothing, focal=settings.focal)

    # -- decoding

    def run(self, runner: Runner, encoded: Sequence[EncodedExample]) -> list[GenerateCandidates]:
        """Write for all that are asked for, those of similar length together."""
        candidates = [GenerateCandidates.of(())] * len(encoded)
        asked = [number for number, example in enumerate(encoded) if example.layout.is_asked]
        asked.sort(key=lambda number: encoded[number].rows[0].prefix or 0)
        if not asked:
            return candidates
        prompts = [Prompt(drop_target(encoded[n].rows[0]), encoded[n].layout.max_new_tokens) for n in asked]
        tokenizer = encoded[asked[0]].layout.tokenizer
        texts = generate_texts(runner.decoder(_TARGET_SEGMENT), prompts, tokenizer, self.settings.decoding)
        for number, written in zip(asked, texts, strict=True):
            candidates[number] = GenerateCandidates.of(written)
        return candidates

    def decode(self, encoded: EncodedExample, outputs: GenerateCandidates) -> GeneratePrediction:
        tokenizer = encoded.layout.tokenizer
        texts = tuple(
            ScoredText(detokenize(tokenizer.tokens(ids[ids >= 0].tolist())), score, finished)
            for ids, score, finished in zip(
                outputs.ids_CL, outputs.scores_C.tolist(), outputs.finished_C.tolist(), strict=True
            )
        )
        return GeneratePrediction(encoded.coverage, texts)

    def comparison_key(self) -> dict[str, Any]:
        return {"kind": "write", **super().comparison_key()}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings)}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> BaseGenerateTask:
        settings = GenerateSettings.of(table["settings"])
        if settings.kind == "extract":
            from alembert.tasks.generate.extract import ExtractTask

            return ExtractTask.from_table(table)
        return cls(settings)
