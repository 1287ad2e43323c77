"""The task `compare`: one vector a text, so that texts that mean the same lie in the same direction.

In: sentences alone (unsupervised SimCSE), pairs or triples (supervised SimCSE), or pairs with a score (cosine
regression); which of them is detected from the training data and reported. Out: vectors, and cosines between them.
Development data may be pairs with a score whatever is trained on, as SimCSE is chosen on STS-B. What a vector is
(`pooling`) is part of the task: it stands in `task.json`, in the head, and in the files that sentence-transformers
opens the folder by.
"""

# R rows, D width
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

import numpy as np

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadInput
from alembert.tasks.classify.rows import WindowSpec
from alembert.tasks.compare.columns import DEFAULT_POOLINGS, CompareKind, CompareSettings
from alembert.tasks.compare.data import (
    CompareExample,
    CompareRewriter,
    RowLabels,
    duplicate_rows,
    encode_texts,
    encode_training_texts,
    read_file,
)
from alembert.tasks.compare.pooling import Pooling, PoolingName, build_sentence_transformers_files, read_pooling
from alembert.tasks.compare.scores import ComparePrediction, build_sample_metric, compute_metrics, pool_vectors
from alembert.tasks.example import Coverage, EncodedExample, ReadResult, collect
from alembert.tasks.runtime import Outputs
from alembert.tasks.settings import MAX_MAGNITUDE, DistillLossSettings, LossSettings, load_number, load_settings
from alembert.tasks.task import LossUnit, SampleMetric, Task, TaskScores
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch

_DESCRIPTIONS: Final[dict[CompareKind, str]] = {
    "unsupervised": "Each text is compared with itself, read twice with other dropout, among {batch} (unsupervised SimCSE).",
    "pairs": "Each text is compared with its partner among {batch} (supervised SimCSE without negatives).",
    "triples": "Each text is compared with its partner among {batch} and their hard negatives (supervised SimCSE).",
    "scores": "The cosine of each pair is fitted to its score: {low:g} in the data is 0, {high:g} is 1.",
}


@dataclass(frozen=True, eq=False)
class CompareTask(Task[CompareExample, ComparePrediction]):
    """Compare texts by their vectors."""

    name: ClassVar[str] = "compare"
    settings_class: ClassVar[type[Any]] = CompareSettings
    answer_name: ClassVar[str] = "similarities"
    default_settings: ClassVar[Mapping[str, Any]] = {
        "epochs": 1.0,
        "optimiser": {"learning_rate": 3e-5},
    }  # unsupervised SimCSE

    settings: CompareSettings
    kind: CompareKind
    pooling: PoolingName
    normalise: bool = False
    window: int | None = None
    """Tokens that are read at once; none: as many as the model can."""
    dimension: int = 0
    """Numbers of a vector; 0: not known before there is a model."""
    low: float = 0.0
    high: float = 1.0
    """Least and greatest score of the training data."""
    from_folder: bool = False
    """Whether the folder of the model that learns has stated the pooling."""
    layer: Mapping[str, Any] | None = None
    """Weights of a layer that is part of the model; none: there is none, or no model yet."""
    is_training: bool = False

    # -- reading

    @classmethod
    def read(cls, files: Sequence[Path], settings: CompareSettings, options: ReadOptions) -> ReadResult[CompareExample]:
        return collect(files, lambda path: read_file(path, settings, options))

    @classmethod
    def learn(cls, examples: Sequence[CompareExample], settings: CompareSettings) -> CompareTask:
        kind = _detect_kind(examples, settings.kind)
        if len(examples) < 2 and kind in ("unsupervised", "pairs"):
            raise BadInput(
                "There is 1 example to train on, and each text is told apart from those of other examples; give 2 or "
                "more, better thousands."
            )
        pooling = DEFAULT_POOLINGS[kind] if settings.pooling == "auto" else settings.pooling
        task = cls(settings, kind, pooling, settings.normalise, settings.window)
        if kind != "scores":
            return task
        scores = [example.score for example in examples if example.score is not None]
        if min(scores) == max(scores):
            raise BadInput(f"All pairs have the score {scores[0]:g}, so there is nothing to learn.")
        return replace(task, low=min(scores), high=max(scores))

    def adopt_model_settings(self, folder: Path) -> CompareTask:
        """Take over how the folder of the model that learns says that vectors are made, unless a setting says it."""
        stated = read_pooling(folder) if self.settings.pooling == "auto" else None
        if stated is None:
            return self
        name = stated.name
        return replace(
            self,
            pooling="cls_train_layer" if name == "cls" and self.kind == "unsupervised" else name,
            normalise=self.normalise or stated.normalise,
            window=self.window or stated.length,
            from_folder=True,
        )

    @classmethod
    def example_from_text(cls, text: str, name: str) -> CompareExample:
        """Make an example to be read: a text for its vector; of texts with tabs between, the first is compared."""
        return CompareExample(id=name, texts=tuple(text.split("\t")))

    def describe(self) -> list[str]:
        facts = {"batch": self.settings.batch_size, "low": self.low, "high": self.high}
        length = self.settings.tokens_of(self.kind)
        chosen = "spearman" if self.kind == "scores" else "spearman if the development data have scores"
        otherwise = {"unsupervised": ", else by uniformity", "scores": ""}
        return [
            _DESCRIPTIONS[self.kind].format(**facts),
            self._vector_sentence(),
            f"Of a training text {length} tokens are learnt from at most, with special ones; the rest is cut.",
            f"Models are chosen by {chosen}{otherwise.get(self.kind, ', else by accuracy')}.",
        ]

    def _vector_sentence(self) -> str:
        what = {
            "cls": "the last state of the first token",
            "cls_layer": "the last state of the first token through a layer that is trained and kept",
            "cls_train_layer": "the last state of the first token, in training with a layer on it",
            "mean": "the mean of the last states of all tokens",
        }[self.pooling]
        why = ", as the model's folder states" if self.from_folder else ""
        scaled = ", scaled to length 1" if self.normalise else ""
        return f"A vector is {what}{scaled} ({self.pooling}{why})."

    def check(self, examples: Sequence[CompareExample]) -> None:
        kinds = {example.kind for example in examples} - {None}
        for example in examples:
            if example.kind not in (None, "scores", self.kind):
                raise BadInput(
                    f"{example.where} is of kind {example.kind}, and this task was trained on {self.kind}; to judge it "
                    "take data of that kind, or pairs with a score."
                )
            if not all(text.strip() for text in example.texts):
                raise BadInput(f"{example.where or example.id} has an empty text, which has no vector.")
        if len(kinds) > 1:
            raise BadInput("Some examples have a score and others have none. Give them in runs of their own.")

    def rewriter(self) -> CompareRewriter:
        return CompareRewriter()

    # -- encoding

    @property
    def loss_unit(self) -> LossUnit:
        return "examples"

    @property
    def loss_group_size(self) -> int:
        return 1 if self.kind == "scores" else self.settings.batch_size

    @property
    def vector(self) -> Pooling:
        """How vectors are made, as it is stated to others."""
        return Pooling.named(self.pooling, self.dimension, normalise=self.normalise, length=self.window)

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="embed", pooling=self.pooling, dropout=0.0)

    def for_training(self) -> CompareTask:
        """Return the task that cuts texts, and reads those without supervision twice."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[CompareExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        flat = tokenizer.encode_batch(
            [text for example in examples for text in example.texts], add_special_tokens=False, offsets=False
        )
        ids = iter([np.array(encoding.ids, np.int64) for encoding in flat])
        cutting = WindowSpec(tokenizer, min(self.window or longest, longest), overlap=0)
        limit = min(self.settings.tokens_of(self.kind), longest)
        encoded = []
        for example in examples:
            texts, own = example.texts, [next(ids) for _ in example.texts]
            labels = self._labels(example, len(texts))
            if self.is_training:
                rows = encode_training_texts(texts, own, tokenizer, limit, labels)
                encoded.append(duplicate_rows(rows) if self.kind == "unsupervised" else rows)
            else:
                encoded.append(encode_texts(texts, own, cutting, labels))
        return encoded

    def _labels(self, example: CompareExample, texts: int) -> RowLabels:
        """Label the first text of a pair with the score, or each text with what it is in its example."""
        if example.kind is None:
            return [None] * texts
        if example.score is None:
            return [np.array([role]) for role in range(texts)]
        score = (example.score - self.low) / (self.high - self.low)
        return [np.array([score], np.float32), *[None] * (texts - 1)]

    # -- loss

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.losses import contrastive_loss, score_loss

        vectors_RD = self._trained_half(outputs)
        if self.kind == "scores":
            return score_loss(vectors_RD, target.labels)
        return contrastive_loss(vectors_RD, target.labels, self.settings.temperature, settings)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import vector_divergence

        return vector_divergence(one, other)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.losses import vector_distillation_loss

        return vector_distillation_loss(self._used_half(outputs), self._used_half(taught))

    def _trained_half(self, outputs: Tensor) -> Tensor:
        return outputs[:, : outputs.shape[1] // 2] if self.pooling == "cls_train_layer" else outputs

    def _used_half(self, outputs: Tensor) -> Tensor:
        return outputs[:, outputs.shape[1] // 2 :] if self.pooling == "cls_train_layer" else outputs

    def for_student(self, *, lexicons: bool = False) -> CompareTask:
        return replace(self, dimension=0, layer=None)

    def with_head_weights(self, head: nn.Module) -> CompareTask:
        """Take along how wide vectors are and the layer that is part of the model; refuse a head with another pooling."""
        made: Any = head
        if made.pooling != self.pooling or self.dimension not in (0, made.width):
            raise BadFile(
                f"task.json says that a vector is made by {self.pooling} and has {self.dimension} numbers, and the model "
                f"makes it by {made.pooling}, with {made.width}. One of the files was changed; restore it, since the "
                "wrong pooling gives bad vectors."
            )
        layer = None
        if self.pooling == "cls_layer":
            layer = {name: weight.detach().cpu().numpy() for name, weight in made.layer.named_parameters()}
        return replace(self, dimension=made.width, layer=layer)

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> ComparePrediction:
        vectors = pool_vectors(outputs, encoded.layout, self.pooling, normalise=self.normalise)
        return ComparePrediction(vectors, encoded.coverage)

    # -- scores

    def score(self, examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]) -> TaskScores:
        measures = compute_metrics(examples, predictions)
        return TaskScores(
            main=next(iter(measures)),
            measures=measures,
            coverage=Coverage.total(prediction.coverage for prediction in predictions),
        )

    def sample_metric(
        self, examples: Sequence[CompareExample], predictions: Sequence[ComparePrediction]
    ) -> SampleMetric:
        return build_sample_metric(examples, predictions)

    def comparison_key(self) -> dict[str, Any]:
        return {"answers": "similarity of texts"}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "pooling": self.pooling,
            "normalise": self.normalise,
            "dimension": self.dimension,
            "window": self.window,
            "low": self.low,
            "high": self.high,
            "settings": asdict(self.settings),
        }

    def extra_files(self) -> Mapping[str, bytes]:
        return build_sentence_transformers_files(self.vector, self.layer)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> CompareTask:
        kind, pooling, window = table["kind"], table["pooling"], table["window"]
        low, high = (load_number(table, name, -MAX_MAGNITUDE, MAX_MAGNITUDE) for name in ("low", "high"))
        if kind not in get_args(CompareKind) or pooling not in get_args(PoolingName) or not low < high:
            raise ValueError("the kind of the task, its pooling and its scores do not fit")
        settings = load_settings(CompareSettings, table["settings"])
        return cls(
            settings,
            kind,
            pooling,
            bool(table["normalise"]),
            None if window is None else int(load_number(table, "window", 8, MAX_MAGNITUDE)),
            int(load_number(table, "dimension", 0, MAX_MAGNITUDE)),
            low,
            high,
        )


def _detect_kind(examples: Sequence[CompareExample], asked: str) -> CompareKind:
    """Detect what the training examples are, which must be all of one kind."""
    kinds = {example.kind: example.where for example in examples if example.kind is not None}
    if not kinds:
        raise BadInput("There are no examples to learn from. Check what was set aside, and why.")
    if len(kinds) > 1 or asked not in ("auto", *kinds):
        present = "; ".join(f"{kind} ({where})" for kind, where in kinds.items())
        expected = "examples of one kind" if asked == "auto" else f"examples of kind {asked}, as `kind` asks"
        raise BadInput(
            f"The training data are of kind {present}; expected {expected}. Name the columns, or part the files."
        )
    (kind,) = kinds
    return kind
