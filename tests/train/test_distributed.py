"""Several gloo processes train as one does, sharded or not, and end together when one of them is refused, stopped or killed."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from alembert import artifact
from alembert.train import distributed
from alembert.train.distributed import Processes
from alembert.train.settings import OptimiserSettings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

PATIENCE = 120
STEPS = 6
SETTINGS = """
recipe = "from-scratch-small"
steps = {steps}
[batch]
tokens = 384
micro_tokens = 128
[sequences]
max_length = 32
[objectives]
masked_lm = 1.0
boundaries = 0.5
causal = 0.5
[model]
precision = "float32"
first = ["heads", "embeddings"]
first_share = 0.3
[evaluation]
share = 0.1
tokens = 400
times = 2
[saving]
steps = 2
log_every = 1
ema_decay = 0.9
"""
PROCESS = """
import os, sys
os.environ.update({environment})
os.dup2(os.open({told!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
os.dup2(2, 1)
sys.modules["matplotlib"] = None  # its pictures take longer than the run
from alembert import hardware
hardware.matmul_peak = lambda _: 100.0
from alembert.cli import run
sys.exit(run({arguments}))
"""


@pytest.fixture(scope="module")
def ready(home: Path) -> Callable[..., list[str]]:
    """Give a function that writes the settings of a run and returns its command."""

    def command(out: Path, *more: str, steps: int = STEPS) -> list[str]:
        config = out.with_suffix(".toml")
        config.write_text(SETTINGS.format(steps=steps))
        names = ["--tokenizer", str(home / "vocab"), "--size", "tiny", "--set", f"run.cache={home / 'cache'}"]
        return ["pretrain", str(home / "corpus"), *names, "--config", str(config), "--out", str(out), *more]

    return command


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(arguments: list[str], world: int, told: Path) -> list[BaseProcess]:
    """Start processes as torchrun does, from a server that has torch loaded."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["__main__", "alembert.cli", "alembert.train.pretrain.pretrain"])
    shared = {
        "WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "OMP_NUM_THREADS": 1,
    }
    processes = []
    for rank in range(world):
        environment = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        file = str(told.with_suffix(f".{rank}"))
        code = PROCESS.format(environment=environment, told=file, arguments=arguments)
        processes.append(server.Process(target=exec, args=(code, {})))
        processes[-1].start()
    return processes


def ended(processes: list[BaseProcess]) -> list[int | None]:
    """Wait for all to end and give their exit codes."""
    for process in processes:
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
    return [process.exitcode for process in processes]


def words(told: Path, rank: int) -> str:
    return told.with_suffix(f".{rank}").read_text()


def run(arguments: list[str], world: int, told: Path) -> None:
    assert ended(start(arguments, world, told)) == [0] * world, words(told, 0)


def rows(out: Path, kind: str = "step") -> list[dict[str, Any]]:
    log = out / "run/log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def check_alike(out: Path, other: Path) -> None:
    """Both runs saw the same tokens, and losses, scores and weights are the same within float noise."""
    for one, two in zip(rows(out), rows(other), strict=True):
        assert (one["step"], one["tokens"]) == (two["step"], two["tokens"])
        assert one["losses"] == pytest.approx(two["losses"], rel=1e-4)
        assert one["norm"] == pytest.approx(two["norm"], rel=1e-3)
    for one, two in zip(rows(out, "held_out"), rows(other, "held_out"), strict=True):
        assert one["step"] == two["step"]
        assert one["scores"]["masked_lm"]["loss"] == pytest.approx(two["scores"]["masked_lm"]["loss"], rel=1e-4)
    ours, theirs = load_file(out / "model.safetensors"), load_file(other / "model.safetensors")
    # Adam divides by the size of a gradient: noise in one near zero moves a weight by up to the rate, here 1e-4.
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-4)


@pytest.fixture(scope="module")
def alone(ready: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process gives."""
    out = tmp_path_factory.mktemp("alone") / "out"
    run(ready(out), 1, out.with_name("told"))
    return out


@pytest.mark.parametrize(
    ("world", "how"),
    [
        (2, []),
        (4, []),
        (2, ["--set", "run.shard=true"]),
        pytest.param(4, ["--set", "run.shard=true"], marks=pytest.mark.slow),
    ],
)
def test_any_number_of_processes_gives_the_same(
    ready: Callable[..., list[str]], tmp_path: Path, alone: Path, world: int, how: list[str]
) -> None:
    run(ready(tmp_path / "out", *how), world, tmp_path / "told")
    check_alike(tmp_path / "out", alone)
    artifact.verify(tmp_path / "out")


def test_only_the_first_speaks(ready: Callable[..., list[str]], tmp_path: Path) -> None:
    run(ready(tmp_path / "out", steps=1), 2, tmp_path / "told")
    assert "1 steps" in words(tmp_path / "told", 0)
    assert words(tmp_path / "told", 1) == ""


def stop_after(out: Path, step: int, processes: list[BaseProcess], number: int, rank: int) -> None:
    """Send a signal to one process when the log has come to a step."""
    while len(rows(out.with_suffix(".partial"))) < step and processes[rank].exitcode is None:
        processes[rank].join(0.005)
    os.kill(processes[rank].pid or 0, number)


@pytest.mark.parametrize(
    "worlds",
    [
        pytest.param([(2, []), (1, [])], id="two, one"),
        pytest.param([(1, []), (4, []), (3, [])], id="one, four, three", marks=pytest.mark.slow),
        pytest.param(
            [(2, ["--set", "run.shard=true"]), (1, []), (3, ["--set", "run.shard=true"])],
            id="sharded",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_stopped_run_goes_on_with_another_number_of_processes(
    ready: Callable[..., list[str]], tmp_path: Path, worlds: list[tuple[int, list[str]]]
) -> None:
    out, steps = tmp_path / "out", 20
    run(ready(tmp_path / "alone", steps=steps), 1, tmp_path / "told")
    for until, (world, how) in enumerate(worlds[:-1], 1):
        processes = start(ready(out, *how, steps=steps), world, tmp_path / "told")
        stop_after(out, until * 6, processes, signal.SIGTERM, rank=world - 1)
        assert ended(processes) == [143] * world, words(tmp_path / "told", 0)
    world, how = worlds[-1]
    run(ready(out, *how, steps=steps), world, tmp_path / "told")
    assert [row["tokens"] for row in rows(out)] == [row["tokens"] for row in rows(tmp_path / "alone")]
    losses = [[row["loss"] for row in rows(each)] for each in (out, tmp_path / "alone")]
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)


class TestEnds:
    def test_what_the_first_refuses_ends_all(self, ready: Callable[..., list[str]], tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/letter.txt").touch()
        assert ended(start(ready(tmp_path / "out"), 2, tmp_path / "told")) == [2, 2]
        assert "holds files but no manifest.json" in words(tmp_path / "told", 0)
        assert words(tmp_path / "told", 1) == ""

    def test_a_folder_that_is_being_written_ends_all(self, ready: Callable[..., list[str]], tmp_path: Path) -> None:
        with artifact.create(tmp_path / "out", "Checkpoint", config={}):
            assert ended(start(ready(tmp_path / "out"), 2, tmp_path / "told")) == [2, 2]
        assert "is being written by process" in words(tmp_path / "told", 0)
        assert words(tmp_path / "told", 1) == ""

    def test_a_finished_run_has_nothing_to_do(self, ready: Callable[..., list[str]], tmp_path: Path) -> None:
        for _ in range(2):
            run(ready(tmp_path / "out", steps=1), 2, tmp_path / "told")
        assert "complete already" in words(tmp_path / "told", 0)
        assert words(tmp_path / "told", 1) == ""

    def test_sharding_refuses_what_it_cannot_do(self, ready: Callable[..., list[str]], tmp_path: Path) -> None:
        command = ready(tmp_path / "out", "--set", "run.shard=true")
        (tmp_path / "out.toml").write_text(SETTINGS.format(steps=1) + '[optimiser]\nname = "lamb"\n')
        assert ended(start(command, 2, tmp_path / "told")) == [2, 2]
        assert "do without run.shard" in words(tmp_path / "told", 0)
        assert words(tmp_path / "told", 1) == ""

    def test_a_killed_process_ends_the_others_with_a_sentence(
        self, ready: Callable[..., list[str]], tmp_path: Path
    ) -> None:
        processes = start(ready(tmp_path / "out", steps=1000), 2, tmp_path / "told")
        stop_after(tmp_path / "out", 3, processes, signal.SIGKILL, rank=1)
        assert ended(processes) == [2, -signal.SIGKILL]
        assert "Another process of the run has ended" in words(tmp_path / "told", 0)
        assert "Traceback" not in words(tmp_path / "told", 0)


def children_of(pid: int) -> dict[str, int]:
    """Find the processes that torchrun has started, by rank."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            pairs = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [pair[5:].decode() for pair in pairs if pair.startswith(b"RANK=")]
        found.update({rank: int(child) for rank in ranks})
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes of torchrun in /proc")
def test_torchrun_starts_a_killed_process_again(ready: Callable[..., list[str]], tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    for name in ("whole", "killed"):
        command = [
            *launch,
            "--master-port",
            str(free_port()),
            "-m",
            "alembert",
            *ready(tmp_path / name, steps=100),
        ]
        with (
            (tmp_path / "told").open("w") as told,
            subprocess.Popen(command, stderr=told, stdout=told) as process,
        ):
            if name == "killed":
                while len(rows(tmp_path / "killed.partial")) < 20:
                    assert process.poll() is None, (tmp_path / "told").read_text()
                os.kill(children_of(process.pid)["1"], signal.SIGKILL)
            assert process.wait(PATIENCE) == 0, (tmp_path / "told").read_text()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
    assert [row["step"] for row in rows(tmp_path / "killed")] == list(range(1, 101))


class TestAlone:
    """One process is the same path as many."""

    def test_talking_to_oneself(self) -> None:
        alone = Processes()
        assert alone.gather(3) == [3]
        assert alone.broadcast(3) == 3
        assert alone.total({"a": 1.0}) == {"a": 1.0}
        assert alone.in_turn(lambda: 3) == 3

    def test_gradients_stay(self) -> None:
        parameter = nn.Parameter(torch.ones(2))
        Processes().sum_gradients([parameter])
        assert parameter.grad is None

    def test_without_torchrun_there_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        with Processes.join() as processes:
            assert processes == Processes()
        assert distributed.is_first_process()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    torch.set_flush_denormal(False)  # other tests draw denormal numbers


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("asked", "expected"), [(None, 2), ("3", 8)])
def test_processes_of_one_machine_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, expected: int
) -> None:
    distributed.hardware.configure_torch()  # sets threads, once
    torch.set_num_threads(8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(distributed, "get_user_value", lambda _: asked)
    distributed._share_threads()
    assert torch.get_num_threads() == expected


def test_only_the_others_of_a_gpu_machine_get_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert Processes(11, 16).device("cuda") == torch.device("cuda", 3)
    assert Processes(11, 16).device("cpu") == torch.device("cpu")
    assert Processes().device("cuda") == torch.device("cuda")
    assert chosen == [torch.device("cuda", 3)]


def test_sharding_refuses_before_it_begins() -> None:
    from alembert.errors import BadSetting

    with pytest.raises(BadSetting, match="half_heads"):
        distributed.shard_model(nn.Module(), torch.device("cpu"), 2, OptimiserSettings(half_heads=True))  # type: ignore[arg-type]
