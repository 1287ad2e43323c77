"""A batch of documents as one flat row of tokens, padded or packed.

The encoder sees N tokens in a row and a list of groups. A group is a dense rectangle of that row: `rows` documents of
`length` tokens side by side. A padded batch is one group with a mask over its padding. A packed batch puts documents of
equal length next to each other and has one group for each distinct length, so that attention runs on dense rectangles
without padding, without a mask and without a copy, and never crosses documents. Everything else in the encoder works
on single tokens and does not know the difference.

Document numbers are always the caller's: packing sorts documents by length inside, and hides it.
"""

# N tokens of the batch, B documents, T tokens of a document, D width, F features of a token
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.errors import BadInput

TokenRows = Sequence[Sequence[int]] | Sequence[npt.NDArray[np.integer[Any]]]
"""Whole numbers, a row for each document."""


@dataclass(frozen=True, slots=True)
class DocumentGroup:
    """Documents of one length that lie side by side in the flat row."""

    start: int
    rows: int
    length: int
    documents: tuple[int, ...]
    """The caller's number of each row."""
    mask_BT: Tensor | None = None
    """True at real tokens; none: there is no padding."""

    @property
    def stop(self) -> int:
        return self.start + self.rows * self.length


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token ids, segments and positions of all documents in one row, and where each document lies."""

    ids_N: Tensor
    segments_N: Tensor
    positions_N: Tensor
    starts_B: Tensor
    """Where each document begins in the row, in the caller's order."""
    lengths: tuple[int, ...]
    """Real tokens of each document, in the caller's order."""
    groups: tuple[DocumentGroup, ...]
    prefixes: tuple[int, ...] | None = None
    """For prefix attention: how many tokens of each document see each other both ways."""
    features_NF: Tensor | None = None
    """Rows of the embedding of features that belong to each token; none: the pieces are all that is read."""

    @classmethod
    def padded(
        cls,
        ids_BT: Tensor,
        mask_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        *,
        features_BTF: Tensor | None = None,
        prefixes: Sequence[int] | None = None,
    ) -> Batch:
        """Take the usual rectangle of ids, with a mask that is 1 at real tokens and 0 at the padding after them."""
        if ids_BT.dim() != 2 or not ids_BT.numel():
            raise BadInput("A padded batch needs a rectangle of ids: at least one document with at least one token.")
        for other in (mask_BT, segments_BT):
            if other is not None and other.shape != ids_BT.shape:
                raise BadInput(f"Ids have the shape {list(ids_BT.shape)}, mask or segments {list(other.shape)}.")
        if features_BTF is not None and (features_BTF.dim() != 3 or features_BTF.shape[:2] != ids_BT.shape):
            raise BadInput(f"Ids have the shape {list(ids_BT.shape)}, features {list(features_BTF.shape)}.")
        rows, length = ids_BT.shape
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT.bool()
        lengths = _lengths_of(real_BT)
        positions_BT = torch.arange(length, device=ids_BT.device).expand(rows, length)
        segments_BT = torch.zeros_like(ids_BT) if segments_BT is None else segments_BT
        group = DocumentGroup(0, rows, length, tuple(range(rows)), None if min(lengths) == length else real_BT)
        return cls(
            ids_N=_whole_numbers(ids_BT.reshape(-1)),
            segments_N=_whole_numbers(segments_BT.reshape(-1)),
            positions_N=positions_BT.reshape(-1),
            starts_B=torch.arange(rows, device=ids_BT.device) * length,
            lengths=lengths,
            groups=(group,),
            prefixes=_check_prefixes(prefixes, lengths),
            features_NF=None if features_BTF is None else features_BTF.flatten(0, 1),
        )

    @classmethod
    def packed(
        cls,
        ids: TokenRows,
        segments: TokenRows | None = None,
        *,
        features: Sequence[npt.NDArray[np.integer[Any]]] | None = None,
        prefixes: Sequence[int] | None = None,
    ) -> Batch:
        """Lay documents end to end without padding, those of equal length side by side.

        >>> batch = Batch.packed([[5, 6, 7], [8], [9, 10, 11]])
        >>> batch.ids_N.tolist(), batch.starts_B.tolist()
        ([8, 5, 6, 7, 9, 10, 11], [1, 0, 4])
        >>> [(group.rows, group.length) for group in batch.groups]
        [(1, 1), (2, 3)]
        """
        lengths = tuple(len(document) for document in ids)
        if not lengths or not min(lengths):
            raise BadInput("A batch needs at least one document, each with at least one token.")
        if segments is not None and lengths != tuple(len(row) for row in segments):
            raise BadInput("Segments need one number a token: the same documents, each of the same length as its ids.")
        if features is not None and lengths != tuple(len(row) for row in features):
            raise BadInput("Features need one line a token: the same documents, each of the same length as its ids.")
        order = sorted(range(len(ids)), key=lengths.__getitem__)
        ids_N = _flat(ids, order)
        return cls(
            ids_N=ids_N,
            segments_N=torch.zeros_like(ids_N) if segments is None else _flat(segments, order),
            positions_N=torch.from_numpy(np.concatenate([np.arange(lengths[document]) for document in order])),
            starts_B=_starts_in_callers_order(lengths, order),
            lengths=lengths,
            groups=_groups_of_equal_length(lengths, order),
            prefixes=_check_prefixes(prefixes, lengths),
            features_NF=None if features is None else _stack(features, order),
        )

    @classmethod
    def single_tokens(cls, ids_B: Tensor, positions_B: Tensor, segment: int = 0) -> Batch:
        """Take one token a document, at a position of its own: how documents grow from a `KVCache`."""
        count = len(ids_B)
        return cls(
            ids_N=_whole_numbers(ids_B),
            segments_N=torch.full_like(ids_B, segment),
            positions_N=positions_B,
            starts_B=torch.arange(count, device=ids_B.device),
            lengths=(1,) * count,
            groups=(DocumentGroup(0, count, 1, tuple(range(count))),),
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest row, padding included: what the position embedding must hold."""
        return max(group.length for group in self.groups)

    def split(self, states_ND: Tensor) -> list[Tensor]:
        """Return each document's states without padding, in the caller's order."""
        starts = self.starts_B.tolist()
        return [states_ND[start : start + n] for start, n in zip(starts, self.lengths, strict=True)]

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device."""
        return replace(
            self,
            ids_N=self.ids_N.to(device),
            segments_N=self.segments_N.to(device),
            positions_N=self.positions_N.to(device),
            starts_B=self.starts_B.to(device),
            features_NF=None if self.features_NF is None else self.features_NF.to(device),
            groups=tuple(
                replace(group, mask_BT=None if group.mask_BT is None else group.mask_BT.to(device))
                for group in self.groups
            ),
        )


def _flat(rows: TokenRows, order: list[int]) -> Tensor:
    flat = np.concatenate([np.asarray(rows[document]) for document in order])
    if flat.dtype.kind == "u":  # torch computes with few unsigned types
        flat = flat.astype(np.int64)
    return _whole_numbers(torch.from_numpy(flat))


def _stack(features: Sequence[npt.NDArray[np.integer[Any]]], order: list[int]) -> Tensor:
    lines = np.concatenate([features[document] for document in order])
    if lines.ndim != 2 or lines.dtype.kind not in "iu":
        raise BadInput("Features are whole numbers, the same number of them for each token.")
    return torch.from_numpy(lines.astype(np.int64))


def _whole_numbers(values: Tensor) -> Tensor:
    if values.is_floating_point() or values.is_complex() or values.dim() != 1:
        raise BadInput("Ids and segments are whole numbers, a row of them for each document.")
    return values


def _lengths_of(real_BT: Tensor) -> tuple[int, ...]:
    lengths_B = real_BT.sum(1)
    ends_B = (real_BT * torch.arange(1, real_BT.shape[1] + 1, device=real_BT.device)).amax(1)
    if not torch.equal(lengths_B, ends_B) or not lengths_B.all():
        raise BadInput(
            "The attention mask must be ones at each document's tokens, then zeros at the padding, with at least one "
            "token a document. Pad on the right."
        )
    return tuple(lengths_B.tolist())


def _check_prefixes(prefixes: Sequence[int] | None, lengths: tuple[int, ...]) -> tuple[int, ...] | None:
    if prefixes is None:
        return None
    if len(prefixes) != len(lengths) or any(not 0 <= p <= n for p, n in zip(prefixes, lengths, strict=True)):
        raise BadInput("Prefix attention needs one prefix length a document, from 0 to the document's length.")
    return tuple(prefixes)


def _starts_in_callers_order(lengths: tuple[int, ...], order: list[int]) -> Tensor:
    starts = [0] * len(lengths)
    position = 0
    for document in order:
        starts[document] = position
        position += lengths[document]
    return torch.tensor(starts)


def _groups_of_equal_length(lengths: tuple[int, ...], order: list[int]) -> tuple[DocumentGroup, ...]:
    groups = []
    start = 0
    for length, members in groupby(order, key=lengths.__getitem__):
        group = DocumentGroup(start, len(documents := tuple(members)), length, documents)
        groups.append(group)
        start = group.stop
    return tuple(groups)
