"""What is found out about the machine, remembered, chosen and set; machines we do not have are played by children."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert import hardware
from alembert.errors import UserError
from alembert.hardware import capabilities, environment
from alembert.hardware import child as trial_program
from alembert.hardware.environment import (
    ISA_VARIABLE,
    KERNEL_CACHE_VARIABLE,
    OWN_VARIABLES,
    WITHOUT_AMX,
    Cpu,
    list_variables,
    make_cache_key,
    read_cpu,
)
from alembert.hardware.runtimes import import_onnxruntime
from alembert.hardware.torch_settings import choose_threads, cpu_quota, physical_cores
from alembert.hardware.trials import PROBED_TYPES, Prober, ProbeResult, probe_library

XEON = """processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) Processor
flags		: fpu sse2 avx2 avx512f avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8
"""
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\nCPU part\t: 0xd40\n"

ANSWER = 'print(json.dumps({"type": t, "one_thread": 50.0, "all_threads": 90.0, "training": 80.0}), flush=True)'
TOUCHES_AMX = f'if t in ("bfloat16", "int8") and "{ISA_VARIABLE}" not in os.environ:'
HEALTHY = ANSWER
AMX_KILLS = f"{TOUCHES_AMX} os.kill(os.getpid(), signal.SIGILL)\n    {ANSWER}"


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path) -> Iterator[None]:
    ours = {
        ISA_VARIABLE,
        OWN_VARIABLES,
        KERNEL_CACHE_VARIABLE,
        "GOMP_SPINCOUNT",
        "OMP_WAIT_POLICY",
        "OMP_NUM_THREADS",
        "HF_HUB_DISABLE_TELEMETRY",
    }
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    with mock.patch.dict(os.environ, {**clean, "ALEMBERT_CACHE": str(tmp_path / "cache")}, clear=True):
        yield


@pytest.fixture
def xeon(monkeypatch: pytest.MonkeyPatch) -> Cpu:
    """Pretend that this process runs on a machine that advertises AMX."""
    cpu = read_cpu(XEON)
    monkeypatch.setattr(environment, "read_cpu", lambda: cpu)
    monkeypatch.setattr(capabilities, "read_cpu", lambda: cpu)
    return cpu


@pytest.fixture
def child(tmp_path: Path):
    """Make a prober whose children do what the given lines say for each type `t`."""

    def make(lines: str, **times: float) -> Prober:
        script = tmp_path / "child.py"
        begin = 'print(json.dumps({"begin": t}), flush=True)'
        script.write_text(
            f"import json, os, signal, sys, threading\nfor t in sys.argv[3:]:\n    {begin}\n    {lines}\n"
        )
        return Prober(command=(sys.executable, "-S", str(script)), **times)

    return make


def outcomes(prober: Prober, limit: str | None = None) -> dict[str, tuple[str, str]]:
    trials = probe_library("torch", limit, 2, prober, prober.start_deadline())
    assert sorted(t.dtype for t in trials) == sorted(PROBED_TYPES["torch"])
    return {t.dtype: (t.outcome, t.detail) for t in trials}


def in_new_process(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# What the processor says


def test_flags_and_name_are_read() -> None:
    cpu = read_cpu(XEON)
    assert cpu.model == "Intel(R) Xeon(R) Processor"
    assert cpu.advertises_amx


def test_arm_is_read() -> None:
    assert read_cpu(GRAVITON) == Cpu("0xd40", frozenset({"fp", "asimd", "bf16", "i8mm"}))


@given(st.text())
def test_any_cpuinfo_gives_a_processor(text: str) -> None:
    assert read_cpu(text).model


# Children that die


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGABRT", "SIGKILL"])
def test_a_killed_child_is_an_answer(child, name: str) -> None:
    found = outcomes(child(f'if t == "bfloat16": os.kill(os.getpid(), signal.{name})\n    {ANSWER}'))
    assert found["bfloat16"] == ("killed", name)
    assert found["float32"][0] == found["float16"][0] == found["int8"][0] == "works"


@pytest.mark.parametrize("dtype", PROBED_TYPES["onnxruntime"])
def test_onnx_runtime_is_tried_without_the_package_onnx(dtype: str) -> None:
    """The graph that is tried is written by hand: it computes the product, and is one that onnx accepts."""
    values = np.random.default_rng(1).integers(-3, 4, (16, 16)).astype(np.float32)
    graph = trial_program._product_graph(dtype, values)
    session = import_onnxruntime().InferenceSession(graph, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": values})[0], values @ values, atol=1e-3)
    onnx = pytest.importorskip("onnx")
    onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)


def test_a_hanging_child_is_an_answer(child) -> None:
    found = outcomes(child("threading.Event().wait()", seconds=2, seconds_in_all=2))
    assert found["float32"][0] == "hangs"


@pytest.mark.parametrize(
    "lines",
    [
        "print('\\x00{rubbish')",
        "print('[1, 2]')",
        "print('{\"type\": [t]}')",
        'print(json.dumps({"type": t, "all_threads": "fast"}))',
        'print(json.dumps({"type": t, "all_threads": float("nan")}))',
        "sys.stdout.buffer.write(bytes(range(256)))",
    ],
)
def test_rubbish_is_an_answer(child, lines: str) -> None:
    assert {outcome for outcome, _ in outcomes(child(lines)).values()} == {"fails"}


def test_a_missing_library_is_an_answer(child) -> None:
    assert {outcome for outcome, _ in outcomes(child("import no_such_library")).values()} == {"fails"}


def test_a_command_that_cannot_start_is_an_answer() -> None:
    found = outcomes(Prober(command=("/no/such/python",)))
    assert found["float32"][0] == "fails"


def test_the_child_gets_the_limit(child) -> None:
    lines = f'print(json.dumps({{"type": t, "error": os.environ.get("{ISA_VARIABLE}", "no limit")}}))'
    assert outcomes(child(lines), "AVX2")["int8"][1] == "AVX2"
    os.environ[ISA_VARIABLE] = "SSE41"
    assert outcomes(child(lines), None)["int8"][1] == "no limit"


# A machine that advertises AMX and dies of it


def test_the_limit_is_chosen_where_amx_kills(xeon: Cpu, child) -> None:
    found = hardware.detect_capabilities(prober=child(AMX_KILLS))
    assert (found.isa_limit, found.amx) == (WITHOUT_AMX, "unusable")
    assert "bfloat16 in torch was killed by SIGILL" in found.reasons["isa_limit"]


def test_the_limit_found_is_set_at_import(xeon: Cpu, child) -> None:
    hardware.detect_capabilities(prober=child(AMX_KILLS))
    os.environ.pop(ISA_VARIABLE)
    hardware.prepare_environment()
    assert os.environ[ISA_VARIABLE] == WITHOUT_AMX


def test_amx_is_used_where_it_works(xeon: Cpu, child) -> None:
    hardware.prepare_environment()
    found = hardware.detect_capabilities(prober=child(HEALTHY))
    assert (found.isa_limit, found.amx) == (None, "usable")
    assert ISA_VARIABLE not in os.environ, "the precaution is lifted once AMX is seen to work"


def test_a_type_that_kills_is_refused(xeon: Cpu, child) -> None:
    hardware.detect_capabilities(prober=child(f'if t == "bfloat16": os.abort()\n    {ANSWER}'))
    with pytest.raises(UserError, match="bfloat16 cannot be used on this machine"):
        hardware.check_dtype("bfloat16")


def test_a_type_that_runs_under_the_limit_is_allowed(xeon: Cpu, child) -> None:
    hardware.detect_capabilities(prober=child(AMX_KILLS))
    hardware.check_dtype("bfloat16")


def test_float32_is_allowed_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "detect_capabilities", mock.Mock(side_effect=AssertionError))
    hardware.check_dtype("float32")


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UserError, match="'float8'"):
        hardware.check_dtype("float8")


# Choices


def speeds(library: str = "torch", **by_type: float) -> list[ProbeResult]:
    return [ProbeResult(library, dtype, None, "works", "", s, s, s) for dtype, s in by_type.items()]


@pytest.mark.parametrize(
    ("bfloat16", "chosen"), [(2.0, "float32"), (110.0, "float32"), (121.0, "bfloat16"), (900.0, "bfloat16")]
)
def test_training_type_is_the_clearly_fastest(bfloat16: float, chosen: str) -> None:
    assert capabilities.choose_training_type(speeds(float32=100, bfloat16=bfloat16, float16=5000)).value == chosen


def test_export_type_is_measured_in_the_libraries_that_run_exports() -> None:
    assert capabilities.choose_export_type(speeds("openvino", float32=100, int8=90)).value == "float32"
    assert capabilities.choose_export_type(speeds("openvino", float32=100, int8=390)).value == "int8"
    both = speeds("openvino", float32=100, int8=90) + speeds("onnxruntime", float32=90, int8=300)
    assert capabilities.choose_export_type(both).value == "int8"
    assert capabilities.choose_export_type(speeds("torch", float32=100, int8=900)).value == "int8"


def test_an_export_runs_in_the_library_that_is_fastest_for_its_numbers() -> None:
    both = speeds("openvino", float32=100, int8=90) + speeds("onnxruntime", float32=90, int8=300)
    assert capabilities.choose_export_library(both, "int8").value == "onnxruntime"
    assert capabilities.choose_export_library(both, "float32").value == "openvino"
    assert capabilities.choose_export_library(speeds("onnxruntime", float32=90), "float32").value == "onnxruntime"
    assert capabilities.choose_export_library(speeds("torch", float32=90), "float32").value is None


def test_reasons_carry_the_numbers() -> None:
    assert "float32 100, bfloat16 300" in capabilities.choose_inference_type(speeds(float32=100, bfloat16=300)).reason


def test_without_any_trial_the_choice_is_safe() -> None:
    assert capabilities.choose_isa_limit([], read_cpu(XEON), None).value == WITHOUT_AMX


# The cache


def test_the_second_answer_comes_from_the_cache(xeon: Cpu, child, tmp_path: Path) -> None:
    first = hardware.detect_capabilities(prober=child(AMX_KILLS))
    assert hardware.detect_capabilities(prober=Prober(command=("/no/such/python",))) == first


def test_refresh_tries_again(xeon: Cpu, child) -> None:
    hardware.detect_capabilities(prober=child(AMX_KILLS))
    assert hardware.detect_capabilities(refresh=True, prober=child(HEALTHY)).amx == "usable"


def test_an_answer_for_another_machine_is_not_used(child) -> None:
    hardware.detect_capabilities(cpu=read_cpu(XEON), prober=child(AMX_KILLS))
    assert capabilities.load_cached_capabilities(Cpu("another", frozenset())) is None


@pytest.mark.parametrize(
    "change",
    [
        {"trials": None},
        {"trials": [{"library": "torch"}]},
        {"trials": [7]},
        {"trials": [{"library": "torch", "dtype": "int8", "limit": None, "outcome": "sings"}]},
        {"isa_limit": "/bin/sh"},
        {"isa_limit": []},
        {"isa_limit": "AVX2048"},
        {"format": 99},
        {"key": {}},
    ],
)
def test_a_cache_that_makes_no_sense_is_rewritten(xeon: Cpu, child, change: dict[str, object]) -> None:
    found = hardware.detect_capabilities(prober=child(AMX_KILLS))
    file = environment.get_cache_file(make_cache_key(xeon))
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    hardware.prepare_environment()
    assert os.environ[ISA_VARIABLE] == WITHOUT_AMX
    assert hardware.detect_capabilities(prober=child(AMX_KILLS)) == found
    assert capabilities.load_cached_capabilities() == found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(), st.just(b"[" * 100_000), st.just(b'{"format": 1}')))
def test_a_damaged_cache_is_survived(xeon: Cpu, content: bytes) -> None:
    file = environment.get_cache_file(make_cache_key(xeon))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    hardware.prepare_environment()
    assert os.environ[ISA_VARIABLE] == WITHOUT_AMX
    assert capabilities.load_cached_capabilities() is None


def test_an_answer_without_a_limit_is_not_taken_for_no_limit(xeon: Cpu) -> None:
    environment.store(make_cache_key(xeon), {"trials": []})
    hardware.prepare_environment()
    assert os.environ[ISA_VARIABLE] == WITHOUT_AMX


def test_a_folder_that_cannot_be_written_is_no_error(xeon: Cpu, child, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.environ["ALEMBERT_CACHE"] = str(tmp_path / "file" / "cache")
    assert hardware.detect_capabilities(prober=child(AMX_KILLS)).amx == "unusable"


def test_writers_may_race(xeon: Cpu) -> None:
    key = make_cache_key(xeon)
    environment.store(key, {"isa_limit": None})

    def write_and_read(_: int) -> bool:
        return environment.store(key, {"isa_limit": None}) and environment.load(key) is not None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write_and_read, range(64)))
    assert [f.name for f in environment.get_cache_folder().iterdir()] == [environment.get_cache_file(key).name]


def test_cache_folder_follows_the_variables(tmp_path: Path) -> None:
    assert environment.get_cache_folder() == tmp_path / "cache"
    os.environ.pop("ALEMBERT_CACHE")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path)
    assert environment.get_cache_folder() == tmp_path / "alembert"


# The environment


def test_amx_is_not_trusted_before_it_was_tried(xeon: Cpu) -> None:
    hardware.prepare_environment()
    assert os.environ[ISA_VARIABLE] == WITHOUT_AMX


def test_no_limit_without_amx() -> None:
    assert list_variables(Cpu("old", frozenset({"avx2"})))[0].value is None


def test_the_users_variables_win(xeon: Cpu) -> None:
    own = {ISA_VARIABLE: "AVX2", "GOMP_SPINCOUNT": "7", KERNEL_CACHE_VARIABLE: "9", "HF_HUB_DISABLE_TELEMETRY": "0"}
    os.environ.update(own)
    hardware.prepare_environment()
    assert {name: os.environ[name] for name in own} == own
    assert {v.origin for v in list_variables(xeon)} == {"user"}


def test_the_users_wait_policy_is_not_overridden() -> None:
    os.environ["OMP_WAIT_POLICY"] = "ACTIVE"
    hardware.prepare_environment()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_only_the_users_limit_is_tried(xeon: Cpu, child) -> None:
    os.environ[ISA_VARIABLE] = "AVX2"
    found = hardware.detect_capabilities(prober=child(AMX_KILLS))
    assert {t.limit for t in found.trials} == {"AVX2"}


def test_preparing_twice_changes_nothing(xeon: Cpu) -> None:
    hardware.prepare_environment()
    once = dict(os.environ)
    hardware.prepare_environment()
    assert dict(os.environ) == once


def test_a_worker_inherits(xeon: Cpu) -> None:
    hardware.prepare_environment()
    assert in_new_process(f"import os; print(os.environ['{ISA_VARIABLE}'])") == WITHOUT_AMX


def test_a_worker_that_imports_alembert_knows_whose_values_it_inherited() -> None:
    hardware.prepare_environment()
    code = "import alembert; from alembert.hardware.environment import get_user_value; print(get_user_value('GOMP_SPINCOUNT'))"
    assert in_new_process(code) == "None"
    assert in_new_process(code, GOMP_SPINCOUNT="5") == "5"


def test_importing_starts_no_process_and_loads_little() -> None:
    code = "import alembert, sys; print({'subprocess', 'dataclasses', 'torch', 'numpy'} & set(sys.modules))"
    assert in_new_process(code) == "set()"


# Threads


def fake_root(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_hyperthreads_count_once(tmp_path: Path) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = fake_root(tmp_path, {topology.format(cpu): text for cpu, text in siblings.items()})
    assert physical_cores({0, 1, 2, 3}, root) == 2
    assert physical_cores({0, 2}, root) == 1


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/x",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        ({"proc/self/cgroup": "rubbish\n::\n0::/../.."}, None),
        ({}, None),
    ],
)
def test_quota_of_control_groups(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(fake_root(tmp_path, files)) == quota


def test_a_quota_limits_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alembert.hardware.torch_settings.allowed_cpus", lambda: {0, 1, 2, 3})
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"}
    assert choose_threads(fake_root(tmp_path, files)).count == 2


@pytest.mark.parametrize(("asked", "count"), [("3", 3), ("5,2", 5), ("0", 2), ("many", 2)])
def test_the_user_may_choose_threads(monkeypatch: pytest.MonkeyPatch, asked: str, count: int, tmp_path: Path) -> None:
    monkeypatch.setattr("alembert.hardware.torch_settings.allowed_cpus", lambda: {0, 1})
    os.environ["OMP_NUM_THREADS"] = asked
    assert choose_threads(tmp_path).count == count


# Inside torch

USED_TORCH_FIRST = """
import torch
torch.set_num_threads(4)
torch.ones(1 << 20).mul(2)
torch.set_flush_denormal(True)
from alembert.hardware.torch_settings import configure_torch, denormals_are_flushed
print(denormals_are_flushed())
configure_torch()
print(denormals_are_flushed(), torch.get_num_threads())
"""


def test_denormals_are_flushed_in_workers_started_earlier() -> None:
    assert in_new_process(USED_TORCH_FIRST, OMP_NUM_THREADS="4").split() == ["False", "True", "4"]


def test_configuring_again_leaves_the_users_threads_alone() -> None:
    code = "import torch; from alembert.hardware import configure_torch as c; c(); torch.set_num_threads(3); c(); print(torch.get_num_threads())"
    assert in_new_process(code) == "3"


def test_matmul_peak_is_a_speed() -> None:
    assert float(in_new_process("from alembert.hardware import measure_matmul_peak; print(measure_matmul_peak())")) > 0


@pytest.mark.slow
def test_this_machine_is_understood() -> None:
    found = capabilities.detect_capabilities()  # not that of the other tests, for which all machines train in float32
    assert found.trial("torch", "float32").outcome == "works"
    assert found.training_type in {"float32", "bfloat16"}
    assert capabilities.load_cached_capabilities() == found
