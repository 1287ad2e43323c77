"""Gradients and attention of a torch model: what explanations ask of it beside its outputs.

Integrated gradients (Sundararajan et al. 2017) go from a baseline to the row along a straight line in the space of the
embeddings. A piece and the features of its token are added up before anything else is done with them, so a single
gradient is that of all of them, and their shares are products with it. Points of the line are those of Gauss and
Legendre; several of them are computed at once.
"""

# N tokens of a batch, T tokens of a row, P places, S points of the line, E width of the embedding, F features
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.data.windows import Row
from alembert.nn.attention import ForwardTrace
from alembert.nn.model import Model
from alembert.tasks.runtime import OutputGradient
from alembert.tasks.runtime.torch import collate_rows, split_outputs

_BATCH_TOKENS: Final = 1024


@dataclass(frozen=True)
class ModelGradients:
    """A torch model in evaluation mode with the head of a task."""

    model: Model
    head: str
    attention_pattern: str | None = None

    def integrate(
        self, rows: Sequence[Row], baselines: Sequence[Row], gradient: OutputGradient, steps: int
    ) -> list[npt.NDArray[np.float64]]:
        """Return integrated gradients (T, 1 + F) of rows: of the piece of each token, and of each of its features."""
        points_S, weights_S = _line(steps)
        parts = [self._differences(row, baseline) for row, baseline in zip(rows, baselines, strict=True)]
        differences_NE = torch.cat([part.sum(1) for part in parts])
        sums_NE = torch.zeros(sum(row.length for row in rows), self.model.config.embedding_width, dtype=torch.float64)
        size = max(1, _BATCH_TOKENS // sum(row.length for row in rows))
        for begin in range(0, steps, size):
            chunk = slice(begin, begin + size)
            gradients_SNE = self._gradients(rows, differences_NE, points_S[chunk], gradient)
            weights_S11 = torch.from_numpy(weights_S[chunk])[:, None, None]
            sums_NE += (gradients_SNE.double().cpu() * weights_S11).sum(0)
        means = torch.split(sums_NE, [row.length for row in rows])
        return [
            (part.double().cpu() * mean_TE[:, None]).sum(-1).numpy() for part, mean_TE in zip(parts, means, strict=True)
        ]

    @torch.no_grad()
    def _differences(self, row: Row, baseline: Row) -> Tensor:
        """Return how far the embeddings of a row are from the baseline's (T, 1 + F, E): of pieces, and of each feature."""
        embeddings = self.model.encoder.embeddings
        device = embeddings.token.weight.device
        ids, base = (torch.from_numpy(each.ids).to(device) for each in (row, baseline))
        pieces_T1E: Tensor = (embeddings.token(ids) - embeddings.token(base))[:, None]
        if embeddings.features is None or row.features is None or baseline.features is None:
            return pieces_T1E
        table_VE = embeddings.features.weight
        own, other = (torch.from_numpy(each.rows_TF).to(device) for each in (row.features, baseline.features))
        return torch.cat((pieces_T1E, table_VE[own] - table_VE[other]), 1)

    def _gradients(
        self, rows: Sequence[Row], differences_NE: Tensor, points_S: npt.NDArray[np.float64], gradient: OutputGradient
    ) -> Tensor:
        """Return the gradients (S, N, E) of a number that is made of the outputs, at points between baseline and rows."""
        device = differences_NE.device
        copies = [*rows] * len(points_S)
        target = collate_rows(copies, range(len(copies))).to(device)
        starts = target.batch.starts_B.tolist()
        at_N = torch.cat([start + torch.arange(row.length) for start, row in zip(starts, copies, strict=True)])
        at_N = at_N.to(device)
        missing_S11 = torch.from_numpy(points_S - 1).to(differences_NE)[:, None, None]
        added_NE = differences_NE.new_zeros(len(target.batch.ids_N), differences_NE.shape[1])
        added_NE[at_N] = (missing_S11 * differences_NE).flatten(0, 1)
        added_NE.requires_grad_()
        with torch.enable_grad():
            asked = {"positions_P": target.positions, "attention": self.attention_pattern}
            outputs = self.model(target.batch, [self.head], **asked, only=True, added_ND=added_NE)[self.head]
        split = split_outputs(outputs.detach().float().cpu(), target, self.model.spec(self.head))
        found = [part.numpy() for part in split]
        chunks = [gradient(found[begin : begin + len(rows)]) for begin in range(0, len(found), len(rows))]
        weights = np.concatenate([part for chunk in chunks for part in chunk])
        (gradients_NE,) = torch.autograd.grad(outputs, added_NE, torch.from_numpy(weights).to(outputs))
        own: Tensor = gradients_NE[at_N]
        return own.view(len(points_S), -1, own.shape[1])

    @torch.inference_mode()
    def attention(self, rows: Sequence[Row]) -> list[npt.NDArray[np.float64]]:
        """Return for each row how much each place attends to each token (P, T), the mean of all layers and heads."""
        target = collate_rows(rows, range(len(rows))).to(next(self.model.parameters()).device)
        trace = ForwardTrace(documents=range(len(rows)))
        self.model.encoder(target.batch, attention=self.attention_pattern, trace=trace)
        layers = range(len(trace.scores))
        means = [
            torch.stack([trace.probabilities(layer, number).mean(0) for layer in layers]).mean(0)
            for number in range(len(rows))
        ]
        return [mean_TT.double().cpu().numpy()[row.positions] for mean_TT, row in zip(means, rows, strict=True)]


@lru_cache(maxsize=16)
def _line(steps: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return points between 0 and 1, and what each counts for."""
    points_S, weights_S = np.polynomial.legendre.leggauss(steps)
    return (points_S + 1) / 2, weights_S / 2
