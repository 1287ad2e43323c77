"""An exponential moving average of a model's parameters, which often scores better than the last weights.

It costs one copy of the parameters. At the beginning it forgets faster (a share of 1 - (1 + n) / (10 + n) after n
updates), so that the weights that were drawn at random do not stay in it for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from alembert.errors import BadFile, BadSetting


class Average:
    """Follows the parameters of a model: `update` after each step, `applied` to use the average."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise BadSetting(f"The decay of the average is {decay}; expected a number from 0, below 1, such as 0.999.")
        self._decay = decay
        self._updates = 0
        self._parameters = dict(model.named_parameters())
        self._averages = {name: each.detach().clone() for name, each in self._parameters.items()}
        self._swapped = False

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the present parameters."""
        assert not self._swapped, "the model holds the average now"
        kept = min(self._decay, (1 + self._updates) / (10 + self._updates))
        torch._foreach_lerp_(list(self._averages.values()), list(self._parameters.values()), 1 - kept)
        self._updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model hold the average inside the block, and exactly its own parameters afterwards."""
        assert not self._swapped, "the model holds the average already"
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def install(self) -> None:
        """Give the model the average for good."""
        assert not self._swapped, "the model holds the average already"
        for name, parameter in self._parameters.items():
            parameter.copy_(self._averages[name])

    def state(self) -> dict[str, Tensor]:
        """Give what `load` needs; the tensors are the average's own, not copies."""
        assert not self._swapped, "the model holds the average now"
        averages = {f"average/{name}": average for name, average in self._averages.items()}
        return {**averages, "updates": torch.tensor(self._updates)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        shapes = {name: each.shape for name, each in self.state().items()}
        if {name: each.shape for name, each in state.items()} != shapes:
            raise BadFile(
                "The saved average has other parameters than the model. Continue with the model it was saved with."
            )
        for name, average in self._averages.items():
            average.copy_(state[f"average/{name}"])
        self._updates = int(state["updates"])

    @torch.no_grad()
    def _swap(self) -> None:
        # Values change places, not tensors: whoever holds the parameters goes on seeing them.
        for name, parameter in self._parameters.items():
            own = parameter.clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(own)
        self._swapped = not self._swapped
