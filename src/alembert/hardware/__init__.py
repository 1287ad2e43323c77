"""What this machine can do: safe instruction sets, numeric types and threads, found by trying.

Some machines advertise instructions that kill the process (AMX in many virtual machines), and the fastest numeric type
differs between machines. So nothing is assumed: `detect_capabilities` tries every type in throw-away child processes,
measures it, and remembers the answer per machine and library version. `prepare_environment` runs at `import alembert`
and sets what must be set before torch or OpenVINO load; workers inherit it. The other names are loaded on first use,
because the import must cost a few milliseconds only. The trade-off: the first question costs about ten seconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alembert.hardware.environment import prepare_environment

if TYPE_CHECKING:
    from alembert.hardware.capabilities import Capabilities, check_dtype, detect_capabilities
    from alembert.hardware.torch_settings import configure_torch, measure_matmul_peak

_HOMES = {
    "Capabilities": "alembert.hardware.capabilities",
    "detect_capabilities": "alembert.hardware.capabilities",
    "check_dtype": "alembert.hardware.capabilities",
    "configure_torch": "alembert.hardware.torch_settings",
    "measure_matmul_peak": "alembert.hardware.torch_settings",
}
__all__ = [
    "Capabilities",
    "check_dtype",
    "configure_torch",
    "detect_capabilities",
    "measure_matmul_peak",
    "prepare_environment",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'alembert.hardware' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
