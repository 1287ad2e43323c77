"""Processes that train together, started by torchrun; one process is the same path.

`Processes.join` reads what torchrun says in the environment. The model knows nothing of it: gradients are summed here
once a step, and for models that do not fit into one process FSDP2 is applied from outside (`shard`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

PATIENCE: Final = timedelta(minutes=30)
"""How long a process waits for the others before it takes them for dead."""


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int = 0
    world: int = 1

    @classmethod
    @contextmanager
    def join(cls) -> Iterator[Processes]:
        """Meet the other processes if torchrun has started several, and part from them at the end."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            yield cls()
            return
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE
        )
        try:
            yield cls(dist.get_rank(), world)
        finally:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.world > 1:
            dist.barrier()

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Add up numbers by name over all processes, in the order of their ranks."""
        total: dict[str, float] = {}
        for each in self.gather(dict(numbers)):
            for name, value in each.items():
                total[name] = total.get(name, 0) + value
        return total

    def gather(self, value: Any) -> list[Any]:
        """Give the value that each process has, in the order of their ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: Any) -> Any:
        """Give what the first process has."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all processes, in place; what has none elsewhere counts as zero."""
        if self.world == 1:
            return
        trained = [p for p in parameters if p.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in trained if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
