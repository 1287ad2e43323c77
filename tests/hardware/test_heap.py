"""The heap of a training process: it keeps what is freed, in large pages where the system has them."""

import subprocess
import sys
from pathlib import Path

import pytest

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CHILD = """
import resource, torch
from pathlib import Path
from alembert.hardware.torch_settings import keep_freed_memory

def megabytes(field):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = megabytes("Rss")
keep_freed_memory()
reserved = megabytes("Rss") - before
tensor = torch.ones(64 << 18)
huge = megabytes("AnonHugePages")
del tensor
for _ in range(32):  # until the heap has a hole that fits: the eighth was seen, by where small objects happen to lie
    begun = faults()
    torch.ones(64 << 18)
print(reserved, huge, faults() - begun)
"""


def heap_of_child(setup: str = "") -> tuple[float, float, float]:
    """Megabytes that the reservation takes, megabytes in huge pages under 64 MB of numbers, page faults of a later 64."""
    done = subprocess.run([sys.executable, "-c", setup + CHILD], capture_output=True, text=True, check=True)
    reserved, huge, faults = map(float, done.stdout.split())
    return reserved, huge, faults


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reserved_addresses_take_no_memory_and_freed_memory_is_used_again() -> None:
    reserved, _, faults = heap_of_child()
    assert reserved < 16
    assert faults < 100  # 16,384 small pages would be new


@pytest.mark.skipif(not HUGE_PAGES.is_file() or "[never]" in HUGE_PAGES.read_text(), reason="no huge pages here")
def test_large_tensors_lie_in_huge_pages() -> None:
    assert heap_of_child()[1] >= 48


@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses")
def test_where_addresses_are_limited_nothing_is_reserved_and_freed_memory_is_kept_all_the_same() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))\n"
    assert heap_of_child(limit)[2] < 100
