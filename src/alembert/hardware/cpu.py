"""What the processor says about itself, and the key under which answers about it are remembered.

Read at `import alembert`, hence standard library only, no subprocess, and NamedTuple instead of dataclass (whose
import alone costs ten milliseconds). What is advertised here is not yet believed: see `trials`.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

AMX = frozenset({"amx_tile", "amx_bf16", "amx_int8", "amx_fp16"})
NOTABLE_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", *sorted(AMX))
_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve", "sme")


class Cpu(NamedTuple):
    """Name and advertised instruction sets of the processor."""

    model: str
    flags: frozenset[str]

    @property
    def advertises_amx(self) -> bool:
        """Whether the processor claims to have tile instructions."""
        return bool(self.flags & AMX)

    @property
    def notable_flags(self) -> list[str]:
        """The advertised instruction sets that matter for matrix multiplication."""
        return [flag for flag in (*NOTABLE_FLAGS, *_ARM) if flag in self.flags]


def read_cpu(cpuinfo: str | None = None) -> Cpu:
    """Describe the processor from the text of `/proc/cpuinfo`, or from the platform where there is none."""
    text = _first_processor() if cpuinfo is None else cpuinfo
    flags = _field(text, "flags|Features").split()
    model = _field(text, "model name|CPU part|cpu model|cpu")
    return Cpu(model or _platform_name(), frozenset(flags))


def machine_key(cpu: Cpu) -> dict[str, str | int | None]:
    """Name everything that would make a remembered answer wrong if it changed."""
    from alembert import __version__

    return {
        "cpu": cpu.model,
        "flags": zlib.crc32(" ".join(sorted(cpu.flags)).encode()),
        "cores": os.cpu_count(),
        "kernel": os.uname().release if hasattr(os, "uname") else sys.platform,
        "torch": installed_version("torch"),
        "openvino": installed_version("openvino"),
        "onnxruntime": installed_version("onnxruntime"),
        "alembert": __version__,
    }


def installed_version(package: str) -> str | None:
    """Find a package's version by its folder name; `importlib.metadata` would cost 30 ms of every import."""
    pattern = re.compile(rf"{package}-([^-]+).*\.(dist|egg)-info")
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - a Path per entry would be slow here
        except OSError:
            continue
        for match in filter(None, map(pattern.fullmatch, names)):
            return match[1]
    return None


def _first_processor() -> str:
    try:
        # One page or two: with hundreds of cores the whole file takes the kernel tens of milliseconds.
        with Path("/proc/cpuinfo").open("rb", buffering=0) as file:
            return (file.read(8192) or b"").decode("utf8", "replace")
    except OSError:
        return ""


def _field(text: str, names: str) -> str:
    match = re.search(rf"^(?:{names})[ \t]*:[ \t]*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _platform_name() -> str:
    machine = os.uname().machine if hasattr(os, "uname") else ""
    return os.environ.get("PROCESSOR_IDENTIFIER") or machine or "unknown processor"
