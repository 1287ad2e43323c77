"""R-Drop and adversarial training: what a micro-batch's loss is when it takes more than one pass.

In: a function that runs the model under a noise and with something added to its token embeddings, the loss of its
outputs, and the packed batch. Out: the loss to differentiate and the plain one for the log. Changes of the embeddings
are measured document by document, so that what a document meets does not depend on its neighbours in the batch.
Everything random comes from the noise: a resumed run, or one with another number of streams, sees the same.

All passes whose loss is learnt from stay in the graph until it is differentiated: two micro-batches' activations with
R-Drop, fgm and pgd, `steps` of them with freelb. Where memory is short, give smaller micro-batches.
"""

# N tokens, E embedding width, B documents of a group
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from alembert.nn.batch import Batch
from alembert.nn.dropout import HEADS, DropoutSeed
from alembert.train.finetune.settings import AscentSteps, RegulariseSettings

ForwardPass = Callable[[DropoutSeed | None, Tensor | None], Tensor]
LossPair = tuple[Tensor, Tensor]
_SECOND_PASS, _START = HEADS + 1, HEADS + 2
"""Places of a noise beside those of the model."""
_MIN_NORM: Final = 1e-30
"""Stands for the length of what has none, against division by zero."""


def regularised_loss(
    run: ForwardPass,
    loss: Callable[[Tensor], Tensor],
    divergence: Callable[[Tensor, Tensor], Tensor],
    *,
    batch: Batch,
    width: int,
    noise: DropoutSeed | None,
    settings: RegulariseSettings,
) -> LossPair:
    """Return the loss of a micro-batch to differentiate, and the plain one, detached, for the log.

    `run` gives the head's outputs for a noise and for what is added to the token embeddings, whose width is `width`.
    `loss` and `divergence` are sums over the answers.
    """
    adversarial = settings.adversarial
    if settings.r_drop:
        return _r_drop_loss(run, loss, divergence, noise, settings.r_drop)
    if adversarial.method == "none":
        plain = loss(run(noise, None))
        return plain, plain.detach()
    climb = _GradientAscent(lambda added_NE: loss(run(noise, added_NE)), batch, adversarial.ascent)
    if adversarial.method == "freelb":
        return climb.at_every_step(_random_start(batch, width, adversarial.ascent.size, noise))
    return climb.at_the_top(torch.zeros(len(batch.ids_N), width, device=batch.ids_N.device), adversarial.weight)


def _r_drop_loss(
    run: ForwardPass,
    loss: Callable[[Tensor], Tensor],
    divergence: Callable[[Tensor, Tensor], Tensor],
    noise: DropoutSeed | None,
    weight: float,
) -> LossPair:
    one = run(noise, None)
    other = run(None if noise is None else noise.derive(_SECOND_PASS), None)
    plain = (loss(one) + loss(other)) / 2
    return plain + weight * divergence(one, other), plain.detach()


@dataclass(frozen=True)
class _GradientAscent:
    """Changes that make the loss of a batch grow, dropout being the same at each step."""

    loss_at: Callable[[Tensor], Tensor]
    batch: Batch
    ascent: AscentSteps

    def at_the_top(self, start_NE: Tensor, weight: float) -> LossPair:
        """Add the loss after the last step to the one at the start (fgm, pgd)."""
        added_NE = start_NE.requires_grad_()
        plain = top = self.loss_at(added_NE)
        for number in range(self.ascent.steps):
            added_NE = self._step(added_NE, top, keep_graph=number == 0)
            top = self.loss_at(added_NE)
        return plain + weight * top, plain.detach()

    def at_every_step(self, start_NE: Tensor) -> LossPair:
        """Average the losses before each step (freelb); the one at the random start counts as plain."""
        added_NE = start_NE.requires_grad_()
        losses = [self.loss_at(added_NE)]
        for _ in range(self.ascent.steps - 1):
            added_NE = self._step(added_NE, losses[-1], keep_graph=True)
            losses.append(self.loss_at(added_NE))
        return torch.stack(losses).mean(), losses[0].detach()

    def _step(self, added_NE: Tensor, loss: Tensor, *, keep_graph: bool) -> Tensor:
        (slope_NE,) = torch.autograd.grad(loss, added_NE, retain_graph=keep_graph)
        length = partial(_document_norms, batch=self.batch)
        moved_NE = added_NE.detach() + self.ascent.step_size * slope_NE / length(slope_NE)
        return (moved_NE * (self.ascent.size / length(moved_NE)).clamp(max=1)).requires_grad_()


def _document_norms(values_NE: Tensor, batch: Batch) -> Tensor:
    """Return at each token the length (norm) of its whole document's values."""
    norms = []
    for group in batch.groups:
        documents = values_NE[group.start : group.stop].reshape(group.rows, -1)
        norms.append(torch.linalg.vector_norm(documents, dim=1).repeat_interleave(group.length))
    return torch.cat(norms)[:, None].clamp_min(_MIN_NORM)


def _random_start(batch: Batch, width: int, size: float, noise: DropoutSeed | None) -> Tensor:
    """Draw changes whose expected length does not depend on the document's, none of them longer than `size`."""
    rng = np.random.default_rng(_seed(noise))
    drawn = rng.random((len(batch.ids_N), width), dtype=np.float32)
    uniform_NE = torch.from_numpy(2 * drawn - 1).to(batch.ids_N.device)
    return uniform_NE * size / _document_norms(torch.ones_like(uniform_NE), batch)


def _seed(noise: DropoutSeed | None) -> np.random.SeedSequence:
    """Look up the seed of a noise, or without it draw one from torch's global generator."""
    if noise is None:
        return np.random.SeedSequence(int(torch.randint(2**62, ())))
    return np.random.SeedSequence(noise.seed, spawn_key=(*noise.path, _START))
