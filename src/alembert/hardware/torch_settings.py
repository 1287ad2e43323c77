"""Settings inside torch once it is loaded: threads, devices and the flushing of denormal numbers.

A process uses as many threads as there are physical cores that it may use. Affinity and container quotas belong to the
process, not to the machine, so this is worked out anew each time and never cached. Two hardware threads of one core
share its multipliers, so they count once.

Denormals slow a backward pass down tenfold. The flag that flushes them belongs to each thread, and torch sets it in the
calling thread alone; OpenMP workers take it over from the thread that starts them. So workers that were started before
(torch was used before alembert) are dismissed, and start again with the flag. If torch was imported first, the
instruction limit still holds: oneDNN reads its variable at its first use, not when it is loaded (checked with torch
2.13 by setting SSE41 between the import and the first convolution: it ran 2.4x slower, and at full speed when set after
the first).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembert.errors import BadSetting
from alembert.hardware.child import make_torch_forward, measure_peak
from alembert.hardware.environment import get_user_value

ROOT = Path("/")


@dataclass(frozen=True)
class ThreadCount:
    """A number of threads and the sentence that explains it."""

    count: int
    reason: str


def choose_threads(root: Path = ROOT) -> ThreadCount:
    """Count the physical cores this process may use, unless the user has set their number."""
    if asked := _get_user_threads():
        return ThreadCount(asked, f"You have set OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}.")
    allowed = allowed_cpus()
    cores = physical_cores(allowed, root)
    reason = f"{_with_count(len(allowed), 'CPU')} allowed, {_with_count(cores, 'physical core')}"
    quota = cpu_quota(root)
    if quota is not None and quota < cores:
        # More threads than the quota would be stopped together, in the middle of a matrix, by the scheduler.
        return ThreadCount(max(1, int(quota)), f"{reason}, and a container quota of {quota:g} CPUs.")
    return ThreadCount(cores, f"{reason}; no smaller container quota.")


def allowed_cpus() -> set[int]:
    """Return the CPUs the scheduler may give to this process."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: set[int], root: Path = ROOT) -> int:
    """Count the cores behind these CPUs; each CPU counts where the topology is unknown."""
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(root / topology.format(cpu)) or str(cpu) for cpu in cpus})


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the smallest CPU quota of the control groups around this process (versions 1 and 2), in CPUs."""
    quotas = [quota for folder in _group_folders(root) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _get_user_threads() -> int | None:
    first = (get_user_value("OMP_NUM_THREADS") or "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _group_folders(root: Path) -> list[Path]:
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        inner = Path(name.lstrip("/"))
        # Inside a container the name may be that of the host, where only the mount itself is visible.
        folders += [mount / part for part in (inner, *inner.parents) if ".." not in part.parts]
    return folders


def _quota_of(folder: Path) -> float | None:
    if (folder / "cpu.max").is_file():
        quota, period = (*_read(folder / "cpu.max").split(), "", "")[:2]
    else:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return None
    return int(quota) / int(period)


def _with_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


_GRAIN = 1 << 15  # elements below which torch gives elementwise work to one thread
_SMALLEST_DENORMALS = 71_362  # the bits of 1e-40 as float32
_PAUSE_HARD = 2  # omp_pause_hard in the OpenMP standard
# Options of glibc's mallopt: one heap for all threads, which grows by brk alone and never shrinks.
_KEEP_MEMORY = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1)}
_MADV_HUGEPAGE = 14
_HUGE_PAGE = 1 << 21
_RESERVED = 4 << 30  # addresses, not memory: what a step of a small model takes, with room
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")


def configure_torch() -> None:
    """Set threads (once per process) and flush denormals in this thread and in its workers."""
    import torch

    _set_threads()
    if torch.set_flush_denormal(True) and not denormals_are_flushed():
        _stop_workers()


def denormals_are_flushed() -> bool:
    """Find out by multiplying: whether this thread and all its workers flush denormals."""
    import torch

    # Written as bits: a float literal would already be flushed by the calling thread.
    bits = torch.full((2 * _GRAIN * torch.get_num_threads(),), _SMALLEST_DENORMALS, dtype=torch.int32)
    product = bits.view(torch.float32) * 1.0
    return not bool(product.view(torch.int32).any())


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed, for the rest of the process; call it before threads are started.

    By default large blocks go back to the system at once. A training step then pays for a hundred thousand page
    faults, a tenth of its time on a virtual machine. Libraries other than glibc are left as they are.
    """
    if sys.platform != "linux" or not hasattr(library := ctypes.CDLL(None), "mallopt"):
        return
    for option, value in _KEEP_MEMORY.values():
        library.mallopt(option, value)
    if _addresses_are_free():
        _ask_for_huge_pages(library)


def _addresses_are_free() -> bool:
    """Whether addresses cost nothing here; the heap would grow otherwise after a request that was refused."""
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    is_strict = _OVERCOMMIT.is_file() and _OVERCOMMIT.read_text().strip() == "2"
    return set(limits) == {resource.RLIM_INFINITY} and memory > 2 * _RESERVED and not is_strict


def _ask_for_huge_pages(library: ctypes.CDLL) -> None:
    """Let the heap grow by 4 GB of addresses, and ask the system to fill them with pages of 2 MB when they are first used.

    Such pages are found sooner by the processor, most of all inside a virtual machine: four to eight percent of a
    training step (docs/benchmarks.md). A system that has none goes on with small ones.
    """
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = library.malloc(_RESERVED)
    if block is None:
        return
    start = -(-block // _HUGE_PAGE) * _HUGE_PAGE
    whole = (block + _RESERVED - start) // _HUGE_PAGE * _HUGE_PAGE
    library.madvise(start, whole, _MADV_HUGEPAGE)
    library.free(block)  # the heap keeps it: it never shrinks


@contextmanager
def limit_operation_threads(threads: int) -> Iterator[None]:
    """Run each torch operation on so many threads, in the whole process, as long as the block lasts."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_matmul_peak(dtype: str = "float32") -> float:
    """Measure the GFLOP/s of a linear layer in this process, in about 0.3 s."""
    import torch

    configure_torch()
    with torch.inference_mode():
        return measure_peak(make_torch_forward(dtype))


@cache
def _set_threads() -> None:
    import torch

    torch.set_num_threads(choose_threads().count)


def _stop_workers() -> None:
    import torch

    home = Path(torch.__file__).parent
    for path in (*home.glob("lib/libgomp*"), *home.parent.glob("torch.libs/libgomp*")):
        try:
            ctypes.CDLL(str(path)).omp_pause_resource_all(_PAUSE_HARD)
        except (OSError, AttributeError):
            continue


def resolve_device(device: str) -> str:
    """Check that torch can use a device; auto is a GPU if there is one, otherwise the CPU."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadSetting(
            f"torch cannot use the device {device!r} here. Use cpu, or leave it out for the best one there is."
        ) from None
    return device
