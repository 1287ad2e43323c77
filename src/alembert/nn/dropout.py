"""Dropout with reproducible masks, and attention with dropout on its probabilities.

torch draws dropout masks from one generator of the process. Then the result depends on which thread comes first, a
continued run needs the generator's state, and drawing is slow (8 to 12 ns an element on a CPU). A `DropoutSeed` has no
state: each part of the model makes its own generator (SFC64, seeded by `SeedSequence` as numpy advises for independent
streams), so that one seed and one part always give the same mask, and cuts its words into 16-bit numbers, about 1 ns an
element with the multiplication. The price: a rate is rounded to a multiple of 1/65,536. Kept elements are scaled by the
rounded rate, so expectations are exact.

Fused CPU kernels have no fast path for attention with dropout, and without it their backward pass in bfloat16 makes a
small product for each head and block, which takes more than half of a step. So training has one autograd function for
all documents of a batch: the probabilities of the forward pass are kept, dropped ones are made again from the mask, and
the gradient of queries, keys and values is written into one tensor. Left to autograd, each group of documents would
make a gradient of the whole batch.

On a CPU, documents of similar lengths attend together: a packed batch has a group for each length, which is a dozen
small products where one would do, and oneDNN compiles and keeps a kernel for every shape it meets. So lengths are
rounded up to a multiple of 16, the padding is hidden by a mask, and its results are never read. The matrices are
computed in pieces that stay in the cache from the scores to the result: each number is read and written some fifteen
times, and memory is slower than arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from alembert.nn.batch import DocumentGroup

EMBEDDINGS, BLOCKS, HEADS = range(3)
"""Parts of a model; layers and heads are numbered inside theirs."""
_LEVELS: Final = 1 << 16
_WORDS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class DropoutSeed:
    """Where the masks of one forward pass come from."""

    seed: int
    """Not negative."""
    path: tuple[int, ...] = ()
    """Where in the model: part, layer, and so on inwards."""

    def derive(self, *part: int) -> DropoutSeed:
        """Return the seed of a part inside this one; different parts are independent."""
        return DropoutSeed(self.seed, (*self.path, *part))

    def draw_keep_mask(self, rate: float, count: int, device: torch.device) -> Tensor:
        """Draw `count` times: False with probability `effective_rate(rate)`, else True."""
        seed = np.random.SeedSequence(self.seed, spawn_key=self.path)
        if device.type == "cpu":
            bits = _draw_words(seed, -(-count // 4)).view(np.uint16)
            return torch.from_numpy(bits[:count] >= _threshold(rate))
        generator = torch.Generator(device).manual_seed(int(seed.generate_state(1)[0]))
        return torch.rand(count, generator=generator, device=device) >= effective_rate(rate)


def _draw_words(seed: np.random.SeedSequence, count: int) -> npt.NDArray[np.uint64]:
    """Draw the raw words of a generator; unlike `random_raw` this lets other threads of Python run meanwhile."""
    return np.random.Generator(np.random.SFC64(seed)).integers(_WORDS, size=count, dtype=np.uint64)


def _threshold(rate: float) -> int:
    return round(rate * _LEVELS)


def effective_rate(rate: float) -> float:
    """Return the share of elements that `DropoutSeed` really drops.

    >>> effective_rate(0.1)
    0.100006103515625
    """
    return _threshold(rate) / _LEVELS


class Dropout(nn.Module):
    """Sets a share of the elements to zero in training and scales up the rest."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, states: Tensor, noise: DropoutSeed | None = None) -> Tensor:
        """Draw the mask from `noise`, or without it from torch's global generator."""
        if not self.training or not self.rate:
            return states
        if noise is None:
            return functional.dropout(states, self.rate)
        keep = noise.draw_keep_mask(self.rate, states.numel(), states.device).view(states.shape)
        return _DropoutFunction.apply(states, keep, 1 / (1 - effective_rate(self.rate)))  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class _DropoutFunction(torch.autograd.Function):
    """Multiplies by a mask and a number; torch's own product would keep the mask as floats."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return apply_mask(states, keep).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return apply_mask(gradient, keep).mul_(ctx.scale), None, None


def apply_mask(values: Tensor, keep: Tensor | None) -> Tensor:
    """Return `values * keep`, with zeros where `keep` is False; without a mask the values themselves."""
    if keep is None:
        return values
    if values.device.type != "cpu":
        return values * keep
    # numpy casts the mask block by block inside the cache; torch is five times slower on mixed types.
    result = torch.empty_like(values, memory_format=torch.contiguous_format)
    np.multiply(_to_numpy(values.detach()), keep.numpy(), out=_to_numpy(result))
    return result


def _to_numpy(values: Tensor) -> npt.NDArray[Any]:
    """View floats in numpy, those of 16 bits as integers: times one they stay, times zero they are zero."""
    return (values.view(torch.int16) if values.element_size() == 2 else values).numpy()


# N tokens, P of a rectangle, B documents of a rectangle, T cells of a document, W of them that look, H heads, K head size, R = B x H


_ROUNDING: Final = 16
"""What lengths are rounded up to a multiple of: the rows of a matrix tile (AMX)."""
_CACHE_ELEMENTS: Final = 1 << 18
"""Probabilities of a piece, at most: a megabyte. One to three were equally fast, six slower, twelve much slower."""


@dataclass(frozen=True, slots=True)
class AttentionRectangle:
    """Documents that attend together: a stretch of the flat row as B x T cells."""

    start: int
    stop: int
    rows: int
    length: int
    allowed: Tensor | None = None
    """True where a token may look (B or 1, 1, T or 1, T); none: everywhere."""
    cells_P: Tensor | None = None
    """In which cells the tokens are; none: there is no padding."""


def build_rectangles(
    groups: Sequence[DocumentGroup], allowed: Sequence[Tensor | None], device: torch.device
) -> tuple[AttentionRectangle, ...]:
    """Lay out groups for attention; on a CPU, those that see everything are joined by their rounded lengths.

    `groups` are in the order of the flat row, and `allowed` has the mask of each, or none.
    """
    rectangles: list[AttentionRectangle] = []
    pairs = zip(groups, allowed, strict=True)
    for (masked, length), members in groupby(pairs, key=lambda pair: (pair[1] is not None, _round_up(pair[0].length))):
        if masked or device.type != "cpu":
            rectangles += [AttentionRectangle(g.start, g.stop, g.rows, g.length, mask) for g, mask in members]
        else:
            rectangles.append(_join([group for group, _ in members], length))
    return tuple(rectangles)


def _round_up(length: int) -> int:
    return -(-length // _ROUNDING) * _ROUNDING


def _join(groups: Sequence[DocumentGroup], length: int) -> AttentionRectangle:
    """Put groups into one rectangle, padded to a length."""
    start, stop = groups[0].start, groups[-1].stop
    lengths_B = torch.tensor([group.length for group in groups for _ in range(group.rows)])
    real_BT = torch.arange(length) < lengths_B[:, None]
    if bool(real_BT.all()):
        return AttentionRectangle(start, stop, len(lengths_B), length)
    cells_P = real_BT.flatten().nonzero().flatten()
    return AttentionRectangle(start, stop, len(lengths_B), length, real_BT[:, None, None], cells_P)


def attention_with_dropout(
    qkv_N3HK: Tensor, rectangles: Sequence[AttentionRectangle], rate: float, noise: DropoutSeed
) -> Tensor:
    """Attend inside each document and return (N, H x K); rows after the last rectangle have no result."""
    heads = qkv_N3HK.shape[2]
    shapes = [(each.rows * heads, each.length, each.length) for each in rectangles]
    parts = list(zip(rectangles, _draw_keep_masks(shapes, rate, noise, qkv_N3HK.device), strict=True))
    return _DroppedAttention.apply(qkv_N3HK, parts, 1 / (1 - effective_rate(rate)))  # type: ignore[no-untyped-call]


def query_attention_with_dropout(
    q_BHWK: Tensor, kv: Sequence[Tensor], allowed: Tensor | None, rate: float, noise: DropoutSeed
) -> Tensor:
    """Let W queries of each document see its keys and values (B, H, T, K) and return (B, H, W, K).

    `allowed` is (B or 1, 1, W or 1, T), True where a query may look, or none.
    """
    rows, heads, queries, _ = q_BHWK.shape
    (keep,) = _draw_keep_masks([(rows * heads, queries, kv[0].shape[2])], rate, noise, q_BHWK.device)
    matrices = [tensor.flatten(0, 1).contiguous() for tensor in (q_BHWK, *kv)]
    how = (allowed, keep, 1 / (1 - effective_rate(rate)), rows)
    mixed_RWK: Tensor = _DroppedMatrices.apply(*matrices, how)  # type: ignore[no-untyped-call]
    return mixed_RWK.view(q_BHWK.shape)


def _draw_keep_masks(
    shapes: Sequence[tuple[int, int, int]], rate: float, noise: DropoutSeed, device: torch.device
) -> Sequence[Tensor | None]:
    """Draw the masks of probabilities of these shapes, all from one generator; none without dropout."""
    if not _threshold(rate):
        return [None] * len(shapes)
    counts = [math.prod(shape) for shape in shapes]
    masks = torch.split(noise.draw_keep_mask(rate, sum(counts), device), counts)
    return [mask.view(shape) for mask, shape in zip(masks, shapes, strict=True)]


class _DroppedMatrices(torch.autograd.Function):
    """Attention of one group, whose queries may be those of some tokens."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, how: tuple[Tensor | None, Tensor | None, float, int]
    ) -> Tensor:
        allowed, keep, *ctx.rest = how
        mixed_RWK, p_RWT = _attend((q, k, v), allowed, keep, *ctx.rest)
        ctx.save_for_backward(q, k, v, p_RWT, keep)
        return mixed_RWK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_mixed_RWK: Tensor) -> tuple[Tensor | None, ...]:
        return (*_gradients(d_mixed_RWK.contiguous(), ctx.saved_tensors, *ctx.rest), None)


class _DroppedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv_N3HK: Tensor, parts: Sequence[tuple[AttentionRectangle, Tensor | None]], scale: float
    ) -> Tensor:
        mixed_NHK = torch.empty_like(qkv_N3HK[:, 0], memory_format=torch.contiguous_format)
        mixed_NHK[parts[-1][0].stop :] = 0
        saved = []
        for rectangle, keep_RTT in parts:
            qkv = _by_head(qkv_N3HK, rectangle)
            mixed_RTK, p_RTT = _attend(qkv, rectangle.allowed, keep_RTT, scale, rectangle.rows)
            _scatter(mixed_NHK, rectangle, mixed_RTK)
            saved += [*qkv, p_RTT, keep_RTT]
        ctx.save_for_backward(*saved)
        ctx.rectangles, ctx.scale, ctx.shape = [rectangle for rectangle, _ in parts], scale, qkv_N3HK.shape
        return mixed_NHK.flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_mixed_ND: Tensor) -> tuple[Tensor, None, None]:
        d_qkv_N3HK = d_mixed_ND.new_empty(ctx.shape)
        d_qkv_N3HK[ctx.rectangles[-1].stop :] = 0
        d_mixed_N1HK = d_mixed_ND.reshape(-1, 1, *ctx.shape[2:])
        saved = iter(ctx.saved_tensors)
        for rectangle, *tensors in zip(ctx.rectangles, *[saved] * 5, strict=True):
            (d_mixed,) = _by_head(d_mixed_N1HK, rectangle)
            for index, gradient in enumerate(_gradients(d_mixed, tensors, ctx.scale, rectangle.rows)):
                _scatter(d_qkv_N3HK[:, index], rectangle, gradient)
        return d_qkv_N3HK, None, None


def _attend(
    qkv: Sequence[Tensor], allowed: Tensor | None, keep_RWT: Tensor | None, scale: float, rows: int
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a group's queries, and the probabilities before dropout."""
    q, k, v = qkv
    mixed_RWK, p_RWT = torch.empty_like(q), q.new_empty(len(q), q.shape[1], k.shape[1])
    for piece, documents in _pieces(p_RWT, rows):
        p = _probabilities(q[piece], k[piece], _slice_mask(allowed, documents), out=p_RWT[piece])
        _product(apply_mask(p, _piece_of(keep_RWT, piece)), v[piece], scale, out=mixed_RWK[piece])
    return mixed_RWK, p_RWT


def _piece_of(keep_RWT: Tensor | None, piece: slice) -> Tensor | None:
    return None if keep_RWT is None else keep_RWT[piece]


def _gradients(d_mixed: Tensor, saved: Sequence[Tensor | None], scale: float, rows: int) -> list[Tensor]:
    """Return the gradients of queries, keys and values of a group's documents."""
    *given, keep_RWT = saved
    parts = cast(list[Tensor], given)
    gradients = [torch.empty_like(tensor) for tensor in parts[:3]]
    for piece, _ in _pieces(parts[-1], rows):
        inputs, outputs = ([tensor[piece] for tensor in tensors] for tensors in (parts, gradients))
        _backward(d_mixed[piece], inputs, _piece_of(keep_RWT, piece), outputs, scale)
    return gradients


def _backward(
    d_mixed: Tensor, saved: Sequence[Tensor], keep_RTT: Tensor | None, d_parts: Sequence[Tensor], scale: float
) -> None:
    """Write the gradients of a piece's queries, keys and values into `d_parts`."""
    q, k, v, p_RTT = saved
    d_q, d_k, d_v = d_parts
    _product(apply_mask(p_RTT, keep_RTT).mT, d_mixed, scale, out=d_v)
    d_p_RTT = apply_mask(_product(d_mixed, v.mT, scale), keep_RTT)
    d_scores_RTT = torch._softmax_backward_data(d_p_RTT, p_RTT, -1, p_RTT.dtype)
    root = 1 / math.sqrt(q.shape[-1])
    _product(d_scores_RTT, k, root, out=d_q)
    _product(d_scores_RTT.mT, q, root, out=d_k)


def _pieces(p_RWT: Tensor, rows: int) -> Iterator[tuple[slice, slice]]:
    """Cut a group where its probabilities would not stay in the cache of a core; yield matrices, and whose they are.

    A piece has all heads of some documents, or some heads of one.
    """
    heads = len(p_RWT) // rows
    if p_RWT.device.type != "cpu":
        yield slice(0, len(p_RWT)), slice(0, rows)
        return
    fitting = max(1, _CACHE_ELEMENTS // math.prod(p_RWT.shape[1:]))
    step = fitting // heads * heads or fitting
    documents = max(1, step // heads)
    for document in range(0, rows, documents):
        end = min(document + documents, rows)
        for first in range(document * heads, end * heads, step):
            yield slice(first, min(first + step, end * heads)), slice(document, end)


def _slice_mask(allowed_B1TT: Tensor | None, documents: slice) -> Tensor | None:
    """Take the mask of some documents; one for all is that of each."""
    return allowed_B1TT if allowed_B1TT is None or len(allowed_B1TT) == 1 else allowed_B1TT[documents]


def _by_head(states_NxHK: Tensor, rectangle: AttentionRectangle) -> tuple[Tensor, ...]:
    """Copy tokens into one matrix (T, K) for each document and head, for each of x parts; padding is zero."""
    tokens = states_NxHK[rectangle.start : rectangle.stop]
    if rectangle.cells_P is not None:
        cells = tokens.new_zeros(rectangle.rows * rectangle.length, *tokens.shape[1:])
        tokens = cells.index_copy_(0, rectangle.cells_P, tokens)
    tokens_BTxHK = tokens.view(rectangle.rows, rectangle.length, *tokens.shape[1:])
    return tokens_BTxHK.permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous().unbind(0)


def _scatter(states_NHK: Tensor, rectangle: AttentionRectangle, part_RTK: Tensor) -> None:
    """Write matrices back to their tokens."""
    part_BTHK = part_RTK.view(rectangle.rows, -1, *part_RTK.shape[1:]).transpose(1, 2)
    tokens_NHK = states_NHK[rectangle.start : rectangle.stop]
    if rectangle.cells_P is None:
        tokens_NHK.view(part_BTHK.shape).copy_(part_BTHK)
    else:
        tokens_NHK.copy_(part_BTHK.flatten(0, 1).index_select(0, rectangle.cells_P))


def _probabilities(q_RTK: Tensor, k_RTK: Tensor, allowed_B1TT: Tensor | None, out: Tensor) -> Tensor:
    scores_RTT = _product(q_RTK, k_RTK.mT, 1 / math.sqrt(q_RTK.shape[-1]))
    if allowed_B1TT is not None:
        by_document = scores_RTT.view(len(allowed_B1TT), -1, *scores_RTT.shape[1:])
        by_document.masked_fill_(~allowed_B1TT, -math.inf)
    return torch.softmax(scores_RTT, -1, out=out)


def _product(left_RAB: Tensor, right_RBC: Tensor, factor: float, out: Tensor | None = None) -> Tensor:
    """Multiply matrices and a number in one pass."""
    nothing = left_RAB.new_empty(())
    return torch.baddbmm(nothing, left_RAB, right_RBC, beta=0, alpha=factor, out=out)
