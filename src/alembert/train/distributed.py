"""Processes that train together, started by torchrun; one process is the same path.

`Processes.join` reads what torchrun says in the environment. The model knows nothing of it: gradients are summed
here once a step, and `shard_model` spreads a model that does not fit over the processes by FSDP2. A sharded model is
saved whole, so a run goes on with any number of processes, sharded or not. The price is that the first process holds it
all, one copy in ordinary memory, while it writes.

Only the first process writes and speaks. What may be refused is done inside `agree`, so that one sentence is printed
and no process waits for another that has gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor

from alembert import hardware
from alembert.errors import AlreadyDone, BadFile, BadSetting, UserError
from alembert.hardware.environment import get_user_value
from alembert.nn.model import Model
from alembert.train.settings import OptimiserSettings

TIMEOUT: Final = timedelta(hours=12)
"""How long a process waits for the others. Long, since the first may prepare a large corpus meanwhile; a process that
dies is noticed at once, and a machine that is lost is noticed by torchrun."""
ResultT = TypeVar("ResultT")


class LostProcessError(UserError):
    """Another process of the run has gone."""


class SilentExit(SystemExit):
    """Another process has reported why the run ends; this one ends with the same exit code and is silent."""


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    rank: int = 0
    world: int = 1

    @classmethod
    @contextmanager
    def join(cls) -> Iterator[Processes]:
        """Meet the other processes if torchrun has started several, and part from them at the end."""
        world = _read_environment("WORLD_SIZE", 1)
        if world == 1:
            yield cls()
            return
        _share_threads()
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        rank = _read_environment("RANK", 0)
        dist.init_process_group(backend, store=_store(), rank=rank, world_size=world, timeout=TIMEOUT)
        try:
            yield cls(rank, world)
        finally:
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def device(self, kind: str) -> torch.device:
        """Assign each process of a machine a GPU of its own."""
        if kind != "cuda" or self.world == 1:
            return torch.device(kind)
        own = torch.device("cuda", _read_environment("LOCAL_RANK", 0))
        torch.cuda.set_device(own)
        return own

    # -- talking

    def gather(self, value: Any) -> list[Any]:
        """Return the value that each process has, in the order of their ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with self._report_lost():
            dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Any) -> Any:
        """Return what the first process has."""
        if self.world == 1:
            return value
        values = [value]
        with self._report_lost():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Add up numbers by name over all processes, in the order of their ranks."""
        total: dict[str, float] = {}
        for of_process in self.gather(dict(numbers)):
            for name, value in of_process.items():
                total[name] = total.get(name, 0) + value
        return total

    def agree(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something in every process. If it is refused in one, all end there: that one says why, the others nothing."""
        problem = None
        try:
            result = work()
        except UserError as error:
            problem = error
        codes = self.gather(_exit_code(problem))
        refused = next((rank for rank, code in enumerate(codes) if code is not None), None)
        if refused is None:
            return result
        if problem is not None and refused == self.rank:
            raise problem
        # torchrun ends all when the first one goes, and that must be the one that speaks.
        with suppress(LostProcessError, SilentExit):
            self.gather(None)
        raise SilentExit(codes[refused])

    def in_turn(self, work: Callable[[], ResultT]) -> ResultT:
        """Let the first process do something, then the others, who find it done."""
        if self.is_first:
            result = self.agree(work)
            self.agree(_do_nothing)
            return result
        self.agree(_do_nothing)
        return self.agree(work)

    def on_first(self, work: Callable[[], object]) -> None:
        """Let the first process do something while the others wait."""
        self.agree(work if self.is_first else _do_nothing)

    def check_same(self, step: int | None) -> None:
        """Refuse to go on from different states: a machine does not see the folder of the others."""
        of_first = self.broadcast(step)
        if step != of_first:
            raise BadFile(
                f"A process found the state of step {step}, and the first one that of step {of_first}. The result's "
                "folder must lie on a file system that all machines share."
            )

    @contextmanager
    def _report_lost(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not self.is_first:
                raise SilentExit(2) from error
            raise LostProcessError(
                f"Another process of the run has ended, or cannot be reached ({str(error).split('. ')[0]}). What it "
                "said stands above, if it could. The same command goes on from the last saved state."
            ) from error

    # -- gradients

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all processes, in place. What no process has used keeps no gradient."""
        if self.world == 1:
            return
        trained = [p for p in parameters if p.requires_grad]
        with self._report_lost():
            for parameter, used in zip(trained, _used_anywhere(trained), strict=True):
                if not used:
                    parameter.grad = None
                elif parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            # Those of sharded parameters were summed in the backward pass.
            _sum([p.grad for p in trained if p.grad is not None and not isinstance(p, DTensor)])

    # -- sharded models

    def gather_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put sharded tensors together, one at a time; the result is in the first process, and empty in the others."""
        gathered = {}
        for name, tensor in tensors.items():
            full = tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor
            if self.is_first:
                gathered[name] = full
        return gathered

    def whole_model(self, model: Model) -> Model:
        """Return the model as one process has it: the same one, or in the first process a whole copy of a sharded one."""
        if not is_sharded(model):
            return model
        state = self.gather_tensors(model.state_dict())
        plain = Model.skeleton(model.config, model.specs, pooler=model.pooler is not None)
        if self.is_first:
            plain.load_state_dict(state, assign=True)
        return plain


def shard_model(model: Model, device: torch.device, world: int, settings: OptimiserSettings) -> None:
    """Spread the parameters, gradients and moments of a model over all processes, each block by itself (FSDP2).

    Gradients come from `loss.backward()`, in whose hooks they are summed: `torch.autograd.grad` runs past these.
    All processes must run the same number of forward and backward passes.
    """
    if settings.name == "lamb" or settings.half_heads:
        raise BadSetting(
            "A sharded model is trained with adamw or bert_adam, and all heads of a layer at once: lamb and half_heads "
            "look at whole matrices. Change the optimiser, or do without run.shard."
        )
    mesh = init_device_mesh(device.type, (world,))
    for part in (*model.encoder.blocks, model):
        # The outermost part too: evaluation has no backward pass that would free it.
        sharded = fully_shard(part, mesh=mesh, reshard_after_forward=True)
        sharded.set_gradient_divide_factor(1.0)
        # Without it, a factor needs an operation that gloo does not have.
        sharded.set_force_sum_reduction_for_comms(True)
        # Processes may run different heads in the same pass.
        sharded.set_reduce_scatter_unused_params(True, recurse=False)
        # Buffers are made when they are first filled. In an evaluation they would be unfit for gradients ever after.
        sharded.unshard()
        sharded.reshard()


def is_sharded(model: nn.Module) -> bool:
    """Return whether the model is spread over processes."""
    return isinstance(model, FSDPModule)


def shard_tensors(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return this process's part of full tensors that belong to parameters of the model; each may have a `kind/` before it."""
    parameters = dict(model.named_parameters())
    return {key: _shard_like(tensor, parameters.get(key.rpartition("/")[2])) for key, tensor in tensors.items()}


def _shard_like(tensor: Tensor, parameter: Tensor | None) -> Tensor:
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    # Every process has read the same file: no values need to be sent.
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)


def is_first_process() -> bool:
    """Return whether this process is the one that people hear: the first, or the only one."""
    return _read_environment("RANK", 0) == 0


def _read_environment(name: str, otherwise: int) -> int:
    return int(os.environ.get(name, otherwise))


def _store() -> Store:
    """Find the place where processes leave their addresses.

    On one machine torchrun keeps one store over its restarts, in which the addresses of dead processes stay. On
    several, where restarts are not counted alike, its rendezvous (c10d) makes a new one each time.
    """
    store, _, world = next(rendezvous("env://", timeout=TIMEOUT))
    alone = _read_environment("LOCAL_WORLD_SIZE", 0) == world
    restarts = _read_environment("TORCHELASTIC_RESTART_COUNT", 0) if alone else 0
    return PrefixStore(f"restart {restarts}", store)


def _share_threads() -> None:
    """Divide the cores among the processes of this machine, unless OMP_NUM_THREADS says how (torchrun sets it to 1)."""
    hardware.configure_torch()
    if get_user_value("OMP_NUM_THREADS") is None:
        beside = _read_environment("LOCAL_WORLD_SIZE", 1)
        torch.set_num_threads(max(1, torch.get_num_threads() // beside))


def _exit_code(problem: UserError | None) -> int | None:
    if problem is None:
        return None
    return 0 if isinstance(problem, AlreadyDone) else 2


def _do_nothing() -> Any:
    return None


def _used_anywhere(parameters: list[nn.Parameter]) -> list[bool]:
    """Find which parameters have a gradient in some process; FSDP gives zeros to those that were not used."""
    used = torch.tensor([_is_used(parameter.grad) for parameter in parameters], dtype=torch.uint8)
    dist.all_reduce(used, dist.ReduceOp.MAX)
    return [bool(count) for count in used]


def _is_used(gradient: Tensor | None) -> bool:
    if isinstance(gradient, DTensor):
        return bool(gradient.to_local().any())
    return gradient is not None


def _sum(gradients: list[Tensor]) -> None:
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
