"""The environment variables that torch, OpenVINO and their dependencies read when they load.

Called at `import alembert`, from any entry point; worker processes inherit the result. A variable that the user has set
is never touched. Ours are listed in `ALEMBERT_ENVIRONMENT`, so that a worker can tell an inherited value of ours, which
it may decide anew (it may run on another machine), from the user's own.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeGuard

from alembert.hardware import cache
from alembert.hardware.cpu import Cpu, machine_key, read_cpu

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


def make_cache_key(cpu: Cpu) -> cache.CacheKey:
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
    answer = cache.load(make_cache_key(cpu))
    if has_limit(answer):
        return answer["isa_limit"], "As found by trying on this machine."
    if cpu.advertises_amx:
        return WITHOUT_AMX, "The CPU advertises AMX and nobody has tried it yet: run `alembert doctor`."
    return None, "The CPU advertises no AMX: no limit is needed."


def has_limit(answer: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether a remembered answer says which limit to set, in words that may be put into the environment."""
    return answer is not None and answer.get("isa_limit", "") in (None, WITHOUT_AMX, WITHOUT_AVX512)
