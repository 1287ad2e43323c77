"""Projections from a student's states to its teacher's, begun as what fits best on the first rows of a run.

A projection that begins at random spends the first part of the run being learnt, and sends noise into the student
meanwhile. Least squares over a few thousand tokens gives it at once; training goes on from there.
"""

# N tokens, D the student's width, W the teacher's
from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from alembert.data.feed import Cursor
from alembert.nn.model import Model
from alembert.train.imitation_lesson import Imitation
from alembert.train.inside import Inside

TOKENS: Final = 8192
"""Tokens that are looked at, about."""
_RIDGE: Final = 1e-3
"""Share of the mean square of a state that is added against states that are nearly copies of each other."""


def fit_projections(model: Model, lesson: Imitation, inside: Inside) -> None:
    """Give the projections of a student the weights that fit the teacher's states best, on the first rows of the run."""
    if not inside.heads:
        return
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    cursor, seen = Cursor(), 0
    model.eval()
    while seen < TOKENS:
        (portion,), cursor = lesson.take(cursor, 1, 0.0)
        for name, ours_ND, theirs_NW in _states(model, lesson, inside, portion):
            product_DD, crossed_DW = ours_ND.mT @ ours_ND, ours_ND.mT @ theirs_NW
            before = sums.get(name)
            sums[name] = (
                (product_DD, crossed_DW) if before is None else (before[0] + product_DD, before[1] + crossed_DW)
            )
        seen += portion.tokens
    model.train()
    for name, (product_DD, crossed_DW) in sums.items():
        _put(model.head(name), _solved(product_DD, crossed_DW))


def _states(model: Model, lesson: Imitation, inside: Inside, portion: Any) -> list[tuple[str, Tensor, Tensor]]:
    """Give, for each projection, states of the student with a one beside them, and the teacher's."""
    batch, watch = lesson.micro(portion).batch, inside.watch()
    assert watch is not None
    with torch.no_grad():
        model(batch, [], trace=watch)
    said = lesson.teacher.says(batch, inside.wanted())
    return [
        (
            name,
            torch.nn.functional.pad(watch.hidden[ours], (0, 1), value=1.0).double(),
            said.state(theirs).double(),
        )
        for ours, theirs in inside.states.items()
        if (name := inside.projection(ours))
    ]


def _solved(product_DD: Tensor, crossed_DW: Tensor) -> Tensor:
    size = len(product_DD)
    ridge = _RIDGE * product_DD.diagonal().mean() * torch.eye(size, dtype=product_DD.dtype)
    solved_DW: Tensor = torch.linalg.solve(product_DD + ridge, crossed_DW)
    return solved_DW


def _put(head: Any, solved_DW: Tensor) -> None:
    with torch.no_grad():
        head.linear.weight.copy_(solved_DW[:-1].mT)
        head.linear.bias.copy_(solved_DW[-1])
