"""Gradients of several micro-batches at once: one stream of work per core, summed in the order of the jobs.

On a CPU two micro-batches on one core each finish sooner than one after the other on two cores: no core waits for the
other inside an operation. A job is a function that runs a forward pass and returns a loss; it must not depend on
anything that other jobs change, so dropout comes from a `Noise` of its own. Each operation runs on one thread, and the
gradients are added in the order of the jobs, so the sum is the same bit for bit for any number of streams. A single job
has all cores to itself.

Jobs run in threads of a pool: settings that torch keeps per thread (autocast, gradient mode) are the job's own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import islice

import torch
from torch import Tensor, nn

from alembert.hardware.torch_settings import keep_freed_memory, limit_operation_threads

Job = Callable[[], Tensor]
_Result = tuple[Tensor, tuple[Tensor | None, ...]]


def accumulate(jobs: Sequence[Job], parameters: Sequence[nn.Parameter], streams: int) -> list[Tensor]:
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
        for loss, gradients in _in_order(jobs, trained, streams):
            losses.append(loss)
            if len(losses) < len(jobs):
                _add(trained, gradients)
    _add(trained, gradients)  # no job runs any more: all cores add the last ones
    return losses


def accumulate_in_turn(jobs: Sequence[Job]) -> list[Tensor]:
    """Do the same one job after the other, by the backward passes that sharded models need."""
    losses = []
    for job in jobs:
        loss = job()
        torch.autograd.backward(loss)
        losses.append(loss.detach())
    return losses


def _in_order(jobs: Sequence[Job], trained: list[nn.Parameter], streams: int) -> Iterator[_Result]:
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


def _differentiate(job: Job, trained: list[nn.Parameter]) -> _Result:
    loss = job()
    return loss.detach(), torch.autograd.grad(loss, trained, allow_unused=True)


def _add(trained: list[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    given: set[int] = set()
    for parameter, gradient in zip(trained, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is not None:
            parameter.grad += gradient
            continue
        # Taken without a copy, unless autograd has given two parameters the same memory, or one number many times.
        memory = gradient.untyped_storage().data_ptr()
        is_its_own = gradient.is_contiguous() and memory not in given
        parameter.grad = gradient if is_its_own else gradient.clone()
        given.add(memory)


@lru_cache(maxsize=1)
def _pool(streams: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(streams, thread_name_prefix="gradients", initializer=_flush_denormals)


def _flush_denormals() -> None:
    torch.set_flush_denormal(True)
