"""The task `generate`: write a text for a text, such as a title for an abstract, a summary, an answer.

In: pairs of source and target. Out: texts, with how probable the model finds them. The encoder writes by itself: under
the prefix attention of UniLM (Dong et al. 2019) the source is read both ways, and each token of the target is predicted
from the source and the target before it, by the masked-LM head. UniLM hides tokens of the target and finds them again;
here the next token is predicted, which is what writing does, and what the pre-training objective `prefix` learns. The
kind `extract` chooses sentences of the source instead (`generate_extract`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.data.order import stable_hash
from alembert.data.windows import IntArray
from alembert.tasks.decoding.writing import Prompt, Written, write_all
from alembert.tasks.example import Encoded
from alembert.tasks.generate_example import GenerateExample, check_learnable
from alembert.tasks.generate_rows import Room, encode_examples, source_of
from alembert.tasks.generate_scores import MAIN, SourceTask, TextPrediction
from alembert.tasks.generate_settings import GenerateSettings
from alembert.tasks.loss_settings import LossSettings
from alembert.tasks.runner import Runner
from alembert.text.tokenizer import Tokenizer, detokenize

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.targets import Target

_TARGET_SEGMENT = 1


class Candidates(NamedTuple):
    """Texts that were written for one source, the best first; no lines: none was asked for."""

    # C texts, L tokens of the longest
    ids_CL: IntArray
    """Tokens, -1 after the last."""
    scores_C: npt.NDArray[np.float64]
    finished_C: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Sequence[Written]) -> Candidates:
        ids_CL = np.full((len(texts), max((len(text.ids) for text in texts), default=0)), -1, np.int64)
        for row, text in zip(ids_CL, texts, strict=True):
            row[: len(text.ids)] = text.ids
        scores = np.array([text.score for text in texts], np.float64)
        return cls(ids_CL, scores, np.array([text.finished for text in texts], np.bool_))


@dataclass(frozen=True)
class Text:
    """One text that was written."""

    text: str
    score: float
    """Sum of the log probabilities of its tokens, its end included."""
    finished: bool
    """The model ended it; otherwise it reached the limit of tokens."""


@dataclass(frozen=True)
class GeneratePrediction(TextPrediction):
    """What was written for a source."""

    texts: tuple[Text, ...]
    """The best first; empty: nothing was asked for."""

    @property
    def text(self) -> str | None:
        return self.texts[0].text if self.texts else None


@dataclass(frozen=True, eq=False)
class GenerateTask(SourceTask):
    """Write texts for texts."""

    settings: GenerateSettings
    is_learning: bool = False
    """Whether only some examples are written for, since the model is judged many times while it learns."""

    # -- data

    @classmethod
    def learn(cls, examples: Sequence[GenerateExample], settings: GenerateSettings) -> SourceTask:
        check_learnable(examples)
        if settings.kind == "extract":
            from alembert.tasks.generate_extract import ExtractTask

            return ExtractTask.learn(examples, settings)
        return cls(settings, is_learning=True)

    def decisions(self) -> list[str]:
        settings, how = self.settings, self.settings.decoding
        search = f"beam search with {how.beams} beams" if how.method == "beam" else f"the method {how.method}"
        read = "what the model has room for is" if settings.source is None else f"{settings.source} tokens are"
        judged = "all" if settings.judged is None else f"at most {settings.judged}"
        return [
            f"A text is written for each source, by {search}, of up to {how.longest} tokens.",
            f"Of a source {read} read, of a target {settings.target} tokens are learnt; the rest is cut.",
            f"Models are chosen by {MAIN} of what they write for {judged} of the development examples.",
        ]

    # -- the model

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def attention(self) -> str | None:
        return "prefix"

    @property
    def whole_vocabulary(self) -> bool:
        return True

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="masked_lm", dropout=0.0)

    def encode(self, examples: Sequence[GenerateExample], tokenizer: Tokenizer, longest: int) -> list[Encoded]:
        room = Room.of(self.settings.source, self.settings.target, longest)
        return encode_examples(examples, tokenizer, room, self._asked(examples))

    def _asked(self, examples: Sequence[GenerateExample]) -> list[bool]:
        """Say which examples are written for: if only some, always the same, whatever their order."""
        most = self.settings.judged if self.is_learning else None
        if most is None or len(examples) <= most:
            return [True] * len(examples)
        turns = [stable_hash("judged", example.key, example.id) for example in examples]
        last = sorted(turns)[most - 1]
        return [turn <= last for turn in turns]

    def loss(self, head: nn.Module, outputs: Tensor, target: Target, settings: LossSettings) -> Tensor:
        from alembert.nn.losses import cross_entropy

        return cross_entropy(outputs, target.labels, smoothing=settings.label_smoothing, focal=settings.focal)

    # -- answers

    def run(self, runner: Runner, encoded: Sequence[Encoded]) -> list[Candidates]:
        """Write for all that are asked for, those of similar length together."""
        found = [Candidates.of(())] * len(encoded)
        asked = [place for place, each in enumerate(encoded) if each.layout.is_asked]
        asked.sort(key=lambda place: encoded[place].rows[0].prefix or 0)
        if not asked:
            return found
        prompts = [Prompt(source_of(encoded[n].rows[0]), encoded[n].layout.room) for n in asked]
        tokenizer = encoded[asked[0]].layout.tokenizer
        texts = write_all(runner.writer(_TARGET_SEGMENT), prompts, tokenizer, self.settings.decoding)
        for place, each in zip(asked, texts, strict=True):
            found[place] = Candidates.of(each)
        return found

    def decode(self, encoded: Encoded, outputs: Candidates) -> GeneratePrediction:
        tokenizer = encoded.layout.tokenizer
        texts = tuple(
            Text(detokenize(tokenizer.tokens(ids[ids >= 0].tolist())), score, finished)
            for ids, score, finished in zip(
                outputs.ids_CL, outputs.scores_C.tolist(), outputs.finished_C.tolist(), strict=True
            )
        )
        return GeneratePrediction(encoded.coverage, texts)

    def question(self) -> dict[str, Any]:
        return {"kind": "write", **super().question()}

    def record(self, example: GenerateExample, prediction: TextPrediction) -> dict[str, Any]:
        assert isinstance(prediction, GeneratePrediction)
        best, *others = [asdict(text) for text in prediction.texts] or [{"text": None}]
        coverage = prediction.coverage
        brief = {
            "characters": coverage.characters,
            "tokens": coverage.tokens,
            "cut_characters": coverage.cut_characters,
        }
        return {"id": example.id, **best, **({"others": others} if others else {}), "coverage": brief}

    def show(self, example: GenerateExample, prediction: TextPrediction) -> list[str]:
        assert isinstance(prediction, GeneratePrediction)
        return [text.text for text in prediction.texts]

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings)}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> SourceTask:
        settings = GenerateSettings.of(table["settings"])
        if settings.kind == "extract":
            from alembert.tasks.generate_extract import ExtractTask

            return ExtractTask.from_table(table)
        return cls(settings)
