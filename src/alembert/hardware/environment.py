"""What is known and set before any library loads: the processor, the cache of measurements, environment variables.

All of it is read at `import alembert`, hence standard library only, no subprocess, and NamedTuple instead of dataclass
(whose import alone costs ten milliseconds). What the processor advertises is not yet believed (see `trials`); it is the
key under which measurements are remembered.

The cache is one small JSON file per machine and library version, and may be lost at any time: whatever cannot be read,
is damaged or belongs to another machine counts as absent, and a folder that cannot be written is no error. Files are
replaced atomically, so processes may race.

The environment variables are those that torch, OpenVINO and their dependencies read when they load; worker processes
inherit them. A variable that the user has set is never touched. Ours are listed in `ALEMBERT_ENVIRONMENT`, so that a
worker can tell an inherited value of ours, which it may decide anew (it may run on another machine), from the user's
own.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from alembert.errors import BadFile

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


FORMAT = 1
_LARGEST = 1 << 20

CacheKey = Mapping[str, str | int | None]


def get_cache_folder() -> Path:
    """Name the cache folder: `ALEMBERT_CACHE`, else the user's cache folder."""
    if own := os.environ.get("ALEMBERT_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "alembert"
    try:
        return Path.home() / ".cache" / "alembert"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(".cache") / "alembert"


def get_cache_file(key: CacheKey) -> Path:
    """Name the file that holds the answer for this key."""
    digest = zlib.crc32(json.dumps(key, sort_keys=True).encode())
    return get_cache_folder() / f"hardware-{digest:08x}.json"


def load(key: CacheKey) -> dict[str, Any] | None:
    """Return what was stored under this key, or None."""
    try:
        with get_cache_file(key).open("rb") as file:
            content = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("key") != key:
        return None
    return content


def store(key: CacheKey, answer: Mapping[str, Any]) -> bool:
    """Write the answer; return whether it could be written."""
    from alembert.artifact.disk import atomic_write

    target = get_cache_file(key)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, json.dumps({"format": FORMAT, "key": key, **answer}, indent=1).encode())
    except (OSError, BadFile):
        return False
    return True


ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_BF16"
WITHOUT_AVX512 = "AVX2"
OWN_VARIABLES = "ALEMBERT_ENVIRONMENT"
# Measured (docs/lab/doctor.md): the default of 300,000 loses most of its speed beside one other busy process, 0 loses
# a tenth on a quiet machine.
SPIN_COUNT = "1000"
# Batches without padding differ in shape, and oneDNN compiles a kernel for each shape; with room for its default of 1,024
# a bfloat16 fine-tuning spent a third of its time on compiling the same kernels again (docs/lab/doctor.md).
KERNEL_CACHE_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KERNEL_CACHE_SIZE = "16384"
USER_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")


class EnvironmentVariable(NamedTuple):
    """One variable that matters to us: its value (None: unset), who set it, and why."""

    name: str
    value: str | None
    origin: str
    reason: str


def prepare_environment() -> None:
    """Set what must be set before torch or OpenVINO load; the user's own variables win."""
    ours = []
    for variable in list_variables():
        if variable.origin != "alembert":
            continue
        if variable.value is None:
            os.environ.pop(variable.name, None)
        else:
            os.environ[variable.name] = variable.value
            ours.append(f"{variable.name}={variable.value}")
    os.environ[OWN_VARIABLES] = " ".join(ours)


def list_variables(cpu: Cpu | None = None) -> list[EnvironmentVariable]:
    """List the variables that matter, with the value each should have and whose it is."""
    cpu = cpu or read_cpu()
    limit, why = _isa_limit(cpu)
    return [
        _variable(ISA_VARIABLE, limit, why),
        _get_wait_policy(),
        _variable(KERNEL_CACHE_VARIABLE, KERNEL_CACHE_SIZE, "Kernels for batches of many shapes are compiled once."),
        _variable("HF_HUB_DISABLE_TELEMETRY", "1", "No dependency reports what is done here."),
        *(_variable(name, None, "") for name in USER_VARIABLES if get_user_value(name) is not None),
    ]


def get_user_value(name: str) -> str | None:
    """Return the user's own value of a variable, None if it is unset or ours."""
    value = os.environ.get(name)
    ours = os.environ.get(OWN_VARIABLES, "").split(" ")
    return None if f"{name}={value}" in ours else value


def make_cache_key(cpu: Cpu) -> CacheKey:
    """Name the machine, its libraries, and the user's own limit, under which other numbers would be measured."""
    return {**machine_key(cpu), ISA_VARIABLE: get_user_value(ISA_VARIABLE)}


def _variable(name: str, value: str | None, reason: str) -> EnvironmentVariable:
    user_value = get_user_value(name)
    if user_value is not None:
        return EnvironmentVariable(name, user_value, "user", "Set by you, therefore kept.")
    return EnvironmentVariable(name, value, "alembert", reason)


def _get_wait_policy() -> EnvironmentVariable:
    name = "GOMP_SPINCOUNT"
    if os.environ.get("OMP_WAIT_POLICY"):  # the spin count would override what the user asked for
        return _variable(name, None, "Left unset, because you have set OMP_WAIT_POLICY.")
    return _variable(
        name, SPIN_COUNT, "Threads that wait go to sleep early, so that other processes do not stall them."
    )


def _isa_limit(cpu: Cpu) -> tuple[str | None, str]:
    answer = load(make_cache_key(cpu))
    if has_limit(answer):
        return answer["isa_limit"], "As found by trying on this machine."
    if cpu.advertises_amx:
        return WITHOUT_AMX, "The CPU advertises AMX and nobody has tried it yet: run `alembert doctor`."
    return None, "The CPU advertises no AMX: no limit is needed."


def has_limit(answer: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether a remembered answer says which limit to set, in words that may be put into the environment."""
    return answer is not None and answer.get("isa_limit", "") in (None, WITHOUT_AMX, WITHOUT_AVX512)
