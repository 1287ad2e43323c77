"""What the machine can do at most: products of large matrices, and bytes read from memory; measured beside a benchmark.

A share of such a limit says how much could still be won. Where each number is used once (a search over vectors, one token
after the other), memory is the limit and not products.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

BYTES = 512 << 20
"""Of the array that is read: far beyond any cache."""


@dataclass(frozen=True)
class Limit:
    """How much of what the machine can do was reached."""

    name: str
    share: float
    peak: float
    unit: str

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.peak:,.0f} {self.unit} ({self.name})"


def products_limit(operations: float, seconds: float, peak: float, dtype: str) -> Limit:
    """Compare operations of matrix products with the measured peak, in thousand millions a second."""
    return Limit(f"{dtype} products", operations / seconds / 1e9 / peak, peak, "G operations/s")


def memory_limit(bytes_read: float, seconds: float, peak: float) -> Limit:
    """Compare bytes that must be read with the measured peak, in GB/s."""
    return Limit("memory", bytes_read / seconds / 1e9 / peak, peak, "GB/s")


def measure_memory_peak(threads: int, size: int = BYTES) -> float:
    """Measure the GB/s at which so many threads read an array, the fastest of some times, in about a second."""
    import numpy as np

    parts = np.array_split(np.ones(size // 4, np.float32), threads)
    with ThreadPoolExecutor(threads) as pool:
        return size / fastest(lambda: list(pool.map(np.max, parts))) / 1e9


def fastest(work: Callable[[], object], times: int = 6) -> float:
    """Seconds of the fastest call: a peak is what others can only make slower."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


def measure_runtime_peak(dtype: str, threads: int) -> float:
    """Measure large products in the faster of the installed OpenVINO and ONNX Runtime, in G operations a second."""
    from importlib.util import find_spec

    from alembert.hardware.child import try_onnxruntime, try_openvino

    tried: Sequence[tuple[str, Callable[[str, int], dict[str, float]]]] = (
        ("openvino", try_openvino),
        ("onnxruntime", try_onnxruntime),
    )
    return max(attempt(dtype, threads)["all_threads"] for package, attempt in tried if find_spec(package))
