"""How many threads this process should use: the physical cores that it may use.

Affinity and container quotas belong to the process, not to the machine, so this is worked out anew each time and never
cached. Two hardware threads of one core share its multipliers, so they count once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from alembert.hardware.environment import get_user_value

ROOT = Path("/")


@dataclass(frozen=True)
class ThreadCount:
    """A number of threads and the sentence that explains it."""

    count: int
    reason: str


def choose_threads(root: Path = ROOT) -> ThreadCount:
    """Count the physical cores this process may use, unless the user has said how many."""
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
