"""Which tokens a model looks at when it reads a text, in every layer and head.

In: an opened model and an input. Out: the probabilities with which each token was mixed into each other one. The
fused kernels that compute attention do not return them, so they are computed once more from the queries and keys of the
same forward pass, for this input alone. The input is read as `predict` reads it: in the windows of the task, with its
segments and features, and as a prefix where the task generates.
"""

# L layers, H heads, T tokens
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Row
from alembert.errors import BadInput, BadSetting
from alembert.infer.predictor_io import PredictorInput, is_pair, to_document, to_example
from alembert.infer.task_model import TaskModel
from alembert.tasks.runtime.export_files import is_export
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine

WeightArray = npt.NDArray[np.float32]
TARGETS: Final = ("special", "itself", "previous", "next", "other")
"""What a token may look at: special tokens such as [SEP], itself, its neighbours, and all others."""
_DIGITS: Final = 6
_MAX_BYTES: Final = 2_000_000_000
_LINKS: Final = 10
"""Links of a head that are listed."""


@dataclass(frozen=True)
class AttentionLink:
    """A token that looks at another one, both by their number from 0, and how much of its attention goes there."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class HeadSummary:
    """Where the attention of a head goes, on average over the tokens that look."""

    layer: int
    """From 1."""
    head: int
    """From 1."""
    shares: dict[str, float]
    """The share of each of `TARGETS`; together 1."""
    spread: float
    """Over how many tokens attention is spread: the exponential of its entropy, averaged."""
    links: tuple[AttentionLink, ...]
    """The strongest links to `other` tokens, the strongest first."""

    @property
    def main_target(self) -> str:
        """What gets most of the attention."""
        return max(TARGETS, key=self.shares.__getitem__)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        shares = {name: round(share, _DIGITS) for name, share in self.shares.items()}
        links = [{**asdict(link), "weight": round(link.weight, _DIGITS)} for link in self.links]
        return {"layer": self.layer, "head": self.head, **shares, "spread": round(self.spread, 3), "links": links}


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention of every layer and head for one input, or for one window of a long one.

    `weights(layer, head)` is the matrix of a head (layers and heads count from 1), `summaries` says what each looks at.
    """

    tokens: tuple[str, ...]
    segments: tuple[int, ...]
    """0 for tokens of the first text, 1 for those of the second."""
    special: tuple[bool, ...]
    """Whether each token is a special one, such as [CLS] and [SEP]."""
    weights_LHTT: WeightArray
    """For each layer, head and token that looks, the share of each token that it looks at; rows sum to one."""
    window: int = 1
    """Which of the windows that the model reads the input in, from 1."""
    windows: int = 1

    @property
    def layers(self) -> int:
        return len(self.weights_LHTT)

    @property
    def heads(self) -> int:
        """Heads of each layer."""
        return int(self.weights_LHTT.shape[1])

    def weights(self, layer: int, head: int) -> WeightArray:
        """Return the attention (from, to) of a head; layers and heads are counted from 1."""
        self.check_numbers(layer, head)
        weights_TT: WeightArray = self.weights_LHTT[layer - 1, head - 1]
        return weights_TT

    def check_numbers(self, layer: int | None = None, head: int | None = None) -> None:
        """Refuse a layer or a head that the model does not have."""
        for name, number, most in (("layer", layer, self.layers), ("head", head, self.heads)):
            if number is not None and not 1 <= number <= most:
                raise BadSetting(f"The {name} is {number}; expected 1 to {most}, since the model has {most} {name}s.")

    @cached_property
    def summaries(self) -> tuple[HeadSummary, ...]:
        """What each head looks at, layer by layer."""
        masks = self._target_masks()
        numbers = product(range(1, self.layers + 1), range(1, self.heads + 1))
        return tuple(_summarise(layer, head, self.weights(layer, head), masks) for layer, head in numbers)

    def _target_masks(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Return for each kind of target which cells (from, to) are of it; each cell is of one kind."""
        special_TT = np.broadcast_to(np.array(self.special), (len(self.tokens),) * 2)
        distance_TT = np.subtract.outer(np.arange(len(self.tokens)), np.arange(len(self.tokens)))
        near = {name: (distance_TT == away) & ~special_TT for name, away in zip(TARGETS[1:4], (0, 1, -1), strict=True)}
        other_TT = ~special_TT & (abs(distance_TT) > 1)
        return {"special": special_TT, **near, "other": other_TT}

    def to_dict(self, layer: int | None = None, head: int | None = None) -> dict[str, Any]:
        """Return plain values for JSON: what each head looks at, and of chosen layers and heads all weights."""
        self.check_numbers(layer, head)
        listed = [each for each in self.summaries if layer in (None, each.layer) and head in (None, each.head)]
        records = [each.to_dict() for each in listed]
        if layer is not None and head is not None:
            records[0]["weights"] = np.round(self.weights(layer, head).astype(np.float64), _DIGITS).tolist()
        return {
            "tokens": list(self.tokens),
            "segments": list(self.segments),
            "layers": self.layers,
            "heads": self.heads,
            "window": self.window,
            "windows": self.windows,
            "attention": records,
        }


def _summarise(
    layer: int, head: int, weights_TT: WeightArray, masks: Mapping[str, npt.NDArray[np.bool_]]
) -> HeadSummary:
    shares = {name: float(np.vdot(weights_TT, mask_TT)) / len(weights_TT) for name, mask_TT in masks.items()}
    logs_TT = np.log(weights_TT, where=weights_TT > 0, out=np.zeros_like(weights_TT))
    spread = float(np.exp(-(weights_TT * logs_TT).sum(1)).mean())
    return HeadSummary(layer, head, shares, spread, tuple(_strongest_links(weights_TT, masks)))


def _strongest_links(weights_TT: WeightArray, masks: Mapping[str, npt.NDArray[np.bool_]]) -> Iterator[AttentionLink]:
    """Yield the strongest links of words to words that are not beside them."""
    counted_TT = masks["other"] & ~masks["special"].T
    candidates = np.where(counted_TT, weights_TT, -1.0).ravel()
    best = np.argpartition(-candidates, min(_LINKS, len(candidates) - 1))[:_LINKS]
    for cell in sorted(best.tolist(), key=lambda cell: (-candidates[cell], cell)):
        if candidates[cell] >= 0:
            source, target = divmod(cell, len(weights_TT))
            yield AttentionLink(source, target, float(candidates[cell]))


# -- reading an input


def read_attention(model: TaskModel | TorchEngine, item: PredictorInput, window: int = 1) -> AttentionMaps:
    """Read one input and return where its tokens looked; of an input in several windows, in one of them."""
    rows, pattern = _read_task_rows(model, item) if isinstance(model, TaskModel) else (_read_plain(model, item), None)
    if not 1 <= window <= len(rows):
        raise BadSetting(f"The window is {window}; the model reads this input in {len(rows)}, which count from 1.")
    engine: TorchEngine = cast(Any, model.engine if isinstance(model, TaskModel) else model)
    row = rows[window - 1]
    _check_memory(engine, row.length)
    ids = [int(each) for each in row.ids]
    return AttentionMaps(
        tokens=tuple(engine.tokenizer.tokens(ids)),
        segments=(0,) * len(ids) if row.segments is None else tuple(int(each) for each in row.segments),
        special=tuple(each in _special_ids(engine.tokenizer) for each in ids),
        weights_LHTT=engine.attention_weights(row, pattern),
        window=window,
        windows=len(rows),
    )


def _check_memory(engine: TorchEngine, tokens: int) -> None:
    config = engine.checkpoint.blueprint.config
    needed = 4 * config.num_hidden_layers * config.num_attention_heads * tokens**2
    if needed > _MAX_BYTES:
        raise BadInput(
            f"The attention of all heads for {tokens:,} tokens takes {needed / 1e9:.1f} GB; at most {_MAX_BYTES / 1e9:.0f} GB are "
            "computed. Give a shorter passage."
        )


def _special_ids(tokenizer: Tokenizer) -> frozenset[int]:
    return frozenset((tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id))


def _read_task_rows(model: TaskModel, item: PredictorInput) -> tuple[Sequence[Row], str | None]:
    """Return the rows of an input as its task has them, and how they attend; none: as the model does."""
    if is_export(model.folder):
        raise BadSetting(
            f"{model.folder} is an Export, whose graph returns answers and no attention. Use the Checkpoint that it was made of."
        )
    part = model.only
    if part.task.name == "classify" and not is_pair(item):
        example = part.task.examples_from_texts([to_document(item, 1).text])[0]
        part.task.check([example])
    else:
        example = to_example(part.task, item, 1)
    (encoded,) = model.encode([example])
    return encoded.rows, getattr(part.runner, "attention", None)


def _read_plain(engine: TorchEngine, item: PredictorInput) -> tuple[Row, ...]:
    """Read a text, or a pair of texts, as a model before fine-tuning does."""
    first, second = item if isinstance(item, tuple) and len(item) == 2 else (to_document(item, 1).text, None)
    encoding = engine.tokenizer.encode(first, second)
    if len(encoding) > engine.max_tokens:
        raise BadInput(
            f"The text has {len(encoding):,} tokens, and the model reads {engine.max_tokens:,} at once. Give a shorter passage."
        )
    segments = np.array(encoding.type_ids, np.int64)
    return (Row(np.array(encoding.ids, np.int64), np.zeros(1, np.int64), segments=segments),)
