"""Positions without weights: sinusoids (Vaswani et al. 2017) and rotations (Su et al. 2021).

Both are computed from the positions of the batch at hand, so that no table has to be stored or sized in advance.
"""

# N tokens, D width, H heads, K head size
from copy import copy

import torch
from torch import Tensor


def sinusoids(positions_N: Tensor, width: int) -> Tensor:
    """Return (N, width): sines in the even columns, cosines in the odd ones."""
    angles = _angles(positions_N, width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


class Rotation:
    """Turns queries and keys by an angle that grows with the position; made once a forward pass."""

    def __init__(self, positions_N: Tensor, head_size: int) -> None:
        angles = _angles(positions_N, head_size)
        self.cos_N1K = torch.cat((angles, angles), dim=-1).cos()[:, None]
        self.sin_N1K = torch.cat((angles, angles), dim=-1).sin()[:, None]

    def at(self, tokens_P: Tensor) -> "Rotation":
        """Return the rotation of some of the tokens."""
        found = copy(self)
        found.cos_N1K, found.sin_N1K = self.cos_N1K[tokens_P], self.sin_N1K[tokens_P]
        return found

    def __call__(self, states_NHK: Tensor) -> Tensor:
        left, right = states_NHK.chunk(2, dim=-1)
        turned = torch.cat((-right, left), dim=-1)
        return (states_NHK * self.cos_N1K + turned * self.sin_N1K).to(states_NHK.dtype)


def _angles(positions_N: Tensor, width: int) -> Tensor:
    steps = torch.arange(0, width, 2, device=positions_N.device, dtype=torch.float32)
    return positions_N[:, None] * 10_000.0 ** (-steps / width)
