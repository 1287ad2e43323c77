"""The CRF of the task `tag` over the rows of a micro-batch: its loss, and what a student learns from a teacher's.

Moves that the tags forbid stay forbidden, for teachers and students alike.
"""

# P places, C tags, T places of a row
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from alembert.nn.crf import Crf
from alembert.nn.losses import soft_cross_entropy
from alembert.tasks.imitation_settings import ImitationSettings
from alembert.tasks.targets import Target
from alembert.tasks.viterbi import Legal, viterbi

LEAST: Final = -30.0
"""Least logarithm of a probability that is taught: next to nothing, and half precision holds it well."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The rows that paths of tags lead through."""

    crf: Crf
    lengths: Sequence[int]
    legal: Legal

    @classmethod
    def of(cls, head: nn.Module, target: Target, legal: Legal) -> Chain:
        """Take the CRF of a head to the rows of a target.

        A row may begin or end inside an entity, where one window hands over to the next, so any tag may stand there.
        """
        crf: Any = head.crf
        open_ended = replace(legal, start=np.ones_like(legal.start), end=np.ones_like(legal.end))
        return cls(crf, target.row_places, open_ended)

    def loss(self, outputs_PC: Tensor, labels: Tensor) -> Tensor:
        """Add up the negative log-likelihood of the right path through each row, or of all paths that are allowed."""
        return -self.crf.log_likelihood(outputs_PC, labels, self.lengths, self.legal).sum()

    def taught(self, outputs_PC: Tensor, settings: ImitationSettings) -> Tensor:
        """Give logarithms of how likely each tag of each word is, over all paths through its row or on the best of them."""
        if settings.crf == "path":
            best_P1 = self._best_path(outputs_PC)[:, None]
            return torch.full_like(outputs_PC, LEAST).scatter(1, best_P1, 0.0)
        return self._log_marginals(outputs_PC, settings.temperature).clamp_min(LEAST)

    def imitation(self, outputs_PC: Tensor, taught_PC: Tensor, settings: ImitationSettings) -> Tensor:
        """Add up how far the CRF of a student is from what its teacher's has taught.

        Of marginals it is KL(teacher || student) at each word. Of paths it is the negative log-likelihood of the teacher's
        best one, as if that were right: never zero, not even for a student that equals its teacher.
        """
        if settings.crf == "path":
            return self.loss(outputs_PC, taught_PC.argmax(-1))
        return soft_cross_entropy(self._log_marginals(outputs_PC, settings.temperature), taught_PC)

    def _log_marginals(self, outputs_PC: Tensor, temperature: float) -> Tensor:
        return self.crf.log_marginals(outputs_PC, self.lengths, self.legal, temperature)

    def _best_path(self, outputs_PC: Tensor) -> Tensor:
        transitions_CC, start_C, end_C, emissions_PC = (
            each.detach().float().cpu().numpy()
            for each in (self.crf.transitions, self.crf.start, self.crf.end, outputs_PC)
        )
        paths = [
            viterbi(row_TC, transitions_CC, start_C, end_C, self.legal)
            for row_TC in np.split(emissions_PC, np.cumsum(self.lengths)[:-1])
        ]
        return torch.from_numpy(np.concatenate(paths)).to(outputs_PC.device)
