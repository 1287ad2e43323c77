"""Gradients of several micro-batches at once: one stream of work per core, summed in the order of the jobs.

On a CPU two micro-batches on one core each finish sooner than one after the other on two cores: no core waits for the
other inside an operation. A job is a function that runs a forward pass and returns a loss; it must not depend on
anything that other jobs change, so dropout comes from a `DropoutSeed` of its own. Each operation runs on one thread,
and the gradients are added in the order of the jobs, so the sum is the same bit for bit for any number of streams. A
single job has all cores to itself. Jobs run in threads of a pool: settings that torch keeps per thread (autocast,
gradient mode) are the job's own affair.

Also here are the weights that may be evaluated and written instead of the last ones: between these and the start of the
run, or their exponential moving average, which often scores better. The average costs one copy of the parameters. At
the beginning it forgets faster (a share of 1 - (1 + n) / (10 + n) after n updates), so that the weights that were drawn
at random do not stay in it for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor, nn

from alembert import hardware
from alembert.errors import BadFile, BadSetting
from alembert.files.surgery import interpolate
from alembert.hardware.torch_settings import keep_freed_memory, limit_operation_threads

LossJob = Callable[[], Tensor]
_Result = tuple[Tensor, tuple[Tensor | None, ...]]


def accumulate(jobs: Sequence[LossJob], parameters: Sequence[nn.Parameter], streams: int) -> list[Tensor]:
    """Add the gradients of all jobs to `parameter.grad`; return the losses, in the order of the jobs.

    Parameters that need no gradient are left out. An exception of a job is raised here, when no job runs any more.
    """
    if not jobs:
        return []
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    keep_freed_memory()
    if len(jobs) == 1:  # it has all cores to itself
        loss, gradients = _differentiate(jobs[0], trained)
        _add(trained, gradients)
        return [loss]
    losses: list[Tensor] = []
    with limit_operation_threads(1):
        for loss, gradients in _differentiate_in_order(jobs, trained, streams):
            losses.append(loss)
            if len(losses) < len(jobs):
                _add(trained, gradients)
    _add(trained, gradients)  # no job runs any more: all cores add the last ones
    return losses


def accumulate_sequentially(jobs: Sequence[LossJob]) -> list[Tensor]:
    """Do the same one job after the other, by the backward passes that sharded models need."""
    losses = []
    for job in jobs:
        loss = job()
        torch.autograd.backward(loss)
        losses.append(loss.detach())
    return losses


def _differentiate_in_order(jobs: Sequence[LossJob], trained: list[nn.Parameter], streams: int) -> Iterator[_Result]:
    pool, left = _pool(streams), iter(jobs)
    # One more than streams, so that no stream waits while gradients are added; each holds a copy of all gradients.
    waiting: deque[Future[_Result]] = deque(
        pool.submit(_differentiate, job, trained) for job in islice(left, streams + 1)
    )
    try:
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(_differentiate, job, trained) for job in islice(left, 1))
            yield result
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)


def _differentiate(job: LossJob, trained: list[nn.Parameter]) -> _Result:
    loss = job()
    return loss.detach(), torch.autograd.grad(loss, trained, allow_unused=True)


def _add(trained: list[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    seen: set[int] = set()
    for parameter, gradient in zip(trained, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is not None:
            parameter.grad += gradient
            continue
        # Taken without a copy, unless autograd has given two parameters the same memory, or one number many times.
        memory = gradient.untyped_storage().data_ptr()
        is_its_own = gradient.is_contiguous() and memory not in seen
        parameter.grad = gradient if is_its_own else gradient.clone()
        seen.add(memory)


@lru_cache(maxsize=1)
def _pool(streams: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(streams, thread_name_prefix="gradients", initializer=_flush_denormals)


def _flush_denormals() -> None:
    torch.set_flush_denormal(True)


def choose_half_precision(precision: str, device: str) -> str | None:
    """Name the narrow type for matrix products; none: float32 throughout."""
    if precision == "auto":
        precision = hardware.detect_capabilities().training_type if device == "cpu" else "bfloat16"
    elif device == "cpu":
        hardware.check_dtype(precision)
    return None if precision == "float32" else precision


def autocast(device: torch.device, half: str | None) -> AbstractContextManager[object]:
    """Compute matrix products in a narrow type inside the block; none: in float32."""
    if half is None:
        return nullcontext()
    # Its cache of rounded weights is one for all threads: what a stream finds there would depend on the others.
    return torch.autocast(device.type, dtype=getattr(torch, half), cache_enabled=False)


class StartMix:
    """Remembers the encoder of a model as it was, and moves it back there by a share; heads stay as they were trained."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self._share = share
        self._parameters = {n: p for n, p in model.named_parameters() if n.startswith("encoder.")} if share else {}
        self._start = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def install(self) -> None:
        """Replace the weights by those between the start and where they are."""
        for name, parameter in self._parameters.items():
            parameter.copy_(interpolate(self._start[name], parameter, 1 - self._share))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model hold the mixed weights inside the block, and exactly its own afterwards."""
        own = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self.install()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self._parameters.items():
                    parameter.copy_(own[name])


class ExponentialMovingAverage:
    """Follows the parameters of a model: `update` after each step, `applied` to use the average."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise BadSetting(f"The decay of the average is {decay}; expected a number from 0, below 1, such as 0.999.")
        self._decay = decay
        self._updates = 0
        self._parameters = dict(model.named_parameters())
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
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
        """Replace the weights of the model by their average."""
        assert not self._swapped, "the model holds the average already"
        for name, parameter in self._parameters.items():
            parameter.copy_(self._averages[name])

    def state(self) -> dict[str, Tensor]:
        """Return what `load` needs; the tensors are the average's own, not copies."""
        assert not self._swapped, "the model holds the average now"
        averages = {f"average/{name}": average for name, average in self._averages.items()}
        return {**averages, "updates": torch.tensor(self._updates)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        shapes = {name: tensor.shape for name, tensor in self.state().items()}
        if {name: tensor.shape for name, tensor in state.items()} != shapes:
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
