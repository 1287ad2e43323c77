"""A pre-training run survives kills at any moment, signals, damaged states, a second writer and a full disk, to the bit."""

import json
import multiprocessing
import random
import re
import shutil
import signal
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.corpus.build import build
from alembert.corpus.clean import BuildSettings, CleanSettings
from alembert.data.feed import Cursor, HeldOutSplit, SequenceSampler, SequenceSpec
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

AS_IT_IS = BuildSettings(clean=CleanSettings(near_duplicates=False, min_characters=0, min_words=0))
PATIENCE = 120
STEPS = 40
OF_THE_CLOCK = {"seconds", "tokens_per_second", "peak_share"}
SETTINGS = """
recipe = "from-scratch-small"
steps = {steps}
[batch]
tokens = 64
micro_tokens = 32
[sequences]
max_length = 16
[objectives]
masked_lm = 1.0
[model]
precision = "float32"
[optimiser]
update_every = [2, 1]
[evaluation]
share = 0.1
tokens = 64
times = 4
[saving]
steps = {saving}
log_every = 1
average = 0.9
"""
PROCESS = """
import os, sys
os.dup2(os.open({told!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
os.dup2(2, 1)
os.fsync = lambda _: None  # what a process has written outlives its kill
sys.modules["matplotlib"] = None  # its pictures take longer than the run
from alembert import hardware
hardware.measure_matmul_peak = lambda *_: 100.0
{first}
from alembert.cli import run
sys.exit(run({arguments}))
"""
# So that nothing depends on how soon this process sees the step of another one.
AT_STEP = """
import os, time
from pathlib import Path
from alembert.train.runlog import RunLog
plain_write = RunLog.write
def write(log, kind, **values):
    plain_write(log, kind, **values)
    if kind == "step" and values["step"] == {step}:
        {then}
RunLog.write = write
"""
FULL_DISK = """
from pathlib import Path
plain, states = Path.open, []
def redirected(path, mode="r", *rest, **more):
    if path.name == "optimiser.safetensors" and mode == "xb":
        states.append(path)
        if len(states) > 5:
            return plain(Path("/dev/full"), "wb")
    return plain(path, mode, *rest, **more)
Path.open = redirected
"""


class Home:
    """A corpus and a model so small that a step takes milliseconds, and runs in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = ["fever", "cough", "rash", "pain", "no", "with", "and", "mild", "after", "two", "days", "."]
        numbers = random.Random(2)
        texts = [" ".join(numbers.choices(words, k=numbers.randint(5, 40))) for _ in range(60)]
        lines = (json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts))
        (folder / "text.jsonl").write_text("\n".join(lines))
        build([folder / "text.jsonl"], folder / "corpus", settings=AS_IT_IS, workers=1)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer.from_vocabulary(Vocabulary.from_pieces(*special, *words), lowercase=True)
        sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2}
        config = EncoderConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=16, **sizes)
        Checkpoint.new(Blueprint(config=config), tokenizer, seed=4).save(folder / "model")

    def start(
        self, out: Path, *, steps: int = STEPS, saving: int = 1, first: str = "", told: str = "told"
    ) -> BaseProcess:
        """Start `alembert pretrain` in a process that has torch loaded."""
        config = out.parent / "settings.toml"
        config.write_text(SETTINGS.format(steps=steps, saving=saving))
        inputs = [str(self.folder / "corpus"), "--model", str(self.folder / "model"), "--set", "run.workers=1"]
        where = ["--config", str(config), "--out", str(out), "--set", f"run.cache={self.folder / 'cache'}"]
        code = PROCESS.format(told=str(out.parent / told), first=first, arguments=["pretrain", *inputs, *where])
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["__main__", "alembert.cli", "alembert.train.pretrain.pretrain"])
        process = server.Process(target=exec, args=(code, {}))
        process.start()
        return process

    def run(self, out: Path, **options: Any) -> int | None:
        return ended(self.start(out, **options))


def ended(process: BaseProcess) -> int | None:
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def whole(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a run that nothing has happened to."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert home.run(out) == 0, (out.parent / "told").read_text()
    return out


def rows(folder: Path) -> list[dict[str, Any]]:
    """Read whole rows of a log, without what depends on the clock."""
    log = folder / "run/log.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    plain = ({n: v for n, v in json.loads(line).items() if n not in OF_THE_CLOCK} for line in lines)
    return list(plain)


def steps(folder: Path) -> int:
    log = folder / "run/log.jsonl"
    return log.read_bytes().count(b'"kind": "step"') if log.exists() else 0


def check_equal(out: Path, whole: Path, *, events: int = 0) -> None:
    """Weights are equal to the bit, and the log has every row once."""
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    found = rows(out)
    assert [row for row in found if row["kind"] != "event"] == rows(whole)
    assert sum(row["kind"] == "event" for row in found) == events
    assert not (out / ".state").exists()
    assert not out.with_suffix(".partial").exists()


def wait_for(is_there: Callable[[], bool], process: BaseProcess) -> bool:
    """Wait until something has happened, or the process has ended."""
    while not is_there() and process.exitcode is None:
        process.join(0.001)
    return process.exitcode is None


def kill_at_random(home: Home, out: Path, numbers: random.Random, during_save: bool) -> bool:
    """Start the run and kill it in a save, or some time after its next step; say whether it lived so long."""
    partial_folder = out.with_suffix(".partial")
    process, before = home.start(out), steps(partial_folder)
    wait_for(lambda: steps(partial_folder) > before + 1, process)
    if during_save:
        wait_for((partial_folder / ".state/.saving").exists, process)
        process.join(numbers.uniform(0, 0.003))
    else:
        process.join(numbers.uniform(0, 0.2))
    process.kill()
    return ended(process) == -signal.SIGKILL


def kill_many_times(home: Home, root: Path, whole: Path, wanted: int) -> None:
    numbers, kills, runs = random.Random(wanted), 0, 0
    while kills < wanted:
        out = root / f"out{(runs := runs + 1)}"
        alive = True
        while alive and kills < wanted:
            alive = kill_at_random(home, out, numbers, during_save=kills % 3 == 0)
            kills += alive
        assert home.run(out) == 0, (root / "told").read_text()
        check_equal(out, whole)


def test_killed_a_few_times(home: Home, tmp_path: Path, whole: Path) -> None:
    kill_many_times(home, tmp_path, whole, 5)


@pytest.mark.slow
def test_killed_fifty_times(home: Home, tmp_path: Path, whole: Path) -> None:
    kill_many_times(home, tmp_path, whole, 50)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_its_state_saved(
    home: Home, tmp_path: Path, whole: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    itself = AT_STEP.format(step=6, then=f"os.kill(os.getpid(), {int(number)})")
    assert home.run(out, saving=1000, first=itself) == 128 + number
    assert f"Stopped by {number.name}: the state is saved" in (tmp_path / "told").read_text()
    state = json.loads((states(out)[-1] / "state.json").read_text())
    assert state["step"] == steps(out.with_suffix(".partial"))
    assert home.run(out, saving=1000) == 0
    check_equal(out, whole)


def states(out: Path) -> list[Path]:
    found = (out.with_suffix(".partial") / ".state").glob("step-*")
    return sorted(path for path in found if re.fullmatch(r"step-\d+", path.name))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def killed(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after some steps."""
    out = tmp_path_factory.mktemp("killed") / "out"
    itself = AT_STEP.format(step=11, then=f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    assert home.run(out, first=itself) == -signal.SIGKILL
    return out


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(killed.with_suffix(".partial"), tmp_path / "out.partial")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", flip),
        ("optimiser.safetensors", flip),
        ("average.safetensors", flip),
        ("state.json", flip),
        ("optimiser.safetensors", cut),
        ("state.json", Path.unlink),
    ],
)
def test_a_damaged_state_is_passed_over(
    home: Home, stopped: Path, whole: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(states(stopped)[-1] / name)
    assert home.run(stopped) == 0, (stopped.parent / "told").read_text()
    assert [row["what"] for row in rows(stopped) if row["kind"] == "event"] == ["damaged state"]
    check_equal(stopped, whole, events=1)


def test_no_sound_state_is_a_sentence(home: Home, stopped: Path) -> None:
    for state in states(stopped):
        flip(state / "model.safetensors")
    assert home.run(stopped) == 2
    assert "holds states and none can be used" in (stopped.parent / "told").read_text()


def test_two_processes_cannot_write_one_run(home: Home, tmp_path: Path, whole: Path) -> None:
    waits = f"while not Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
    process = home.start(tmp_path / "out", first=AT_STEP.format(step=1, then=waits))
    wait_for(lambda: steps(tmp_path / "out.partial") > 0, process)
    assert home.run(tmp_path / "out", told="second") == 2
    assert f"is being written by process {process.pid}" in (tmp_path / "second").read_text()
    (tmp_path / "go").touch()
    assert ended(process) == 0
    check_equal(tmp_path / "out", whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_last_state(home: Home, tmp_path: Path, whole: Path) -> None:
    assert home.run(tmp_path / "out", first=FULL_DISK) == 2
    words = (tmp_path / "told").read_text()
    assert re.search(r"error: .*No space left.* is intact", words)
    assert "Traceback" not in words
    assert home.run(tmp_path / "out") == 0
    check_equal(tmp_path / "out", whole)


def memory_of(process: BaseProcess) -> int:
    """Give the kilobytes of memory that a process has for itself."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1])  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory in /proc")
def test_memory_stays_flat_over_ten_thousand_steps(home: Home, tmp_path: Path) -> None:
    log, sizes = tmp_path / "out.partial/run/log.jsonl", []
    process = home.start(tmp_path / "out", steps=10_000, saving=500)
    for step in (1_000, 9_900):
        seen = partial(last_step_is, log, step)
        assert wait_for(seen, process), (tmp_path / "told").read_text()
        sizes.append(memory_of(process))
    assert ended(process) == 0
    assert sizes[1] < 1.1 * sizes[0], sizes


def last_step_is(log: Path, step: int) -> bool:
    """Look at the end of a log, which may be long."""
    if not log.exists():
        return False
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        found = re.findall(rb'"kind": "step", "step": (\d+)', file.read())
    return bool(found) and int(found[-1]) >= step


class Synthetic:
    """So many documents of a hundred tokens, in files that are mapped into memory."""

    def __init__(self, folder: Path, documents: int) -> None:
        self.hashes = np.memmap(folder / f"{documents}", np.uint64, "w+", shape=(documents,))
        for start in range(0, documents, 1000):
            block = np.arange(start, min(start + 1000, documents), dtype=np.uint64)
            self.hashes[block] = block * np.uint64(0x9E3779B97F4A7C15)

    def __len__(self) -> int:
        return len(self.hashes)

    def get_token_range(self, document: int) -> tuple[int, int]:
        return 100 * document, 100 * document + 100

    def get_sentence_borders(self, document: int) -> np.ndarray:
        return np.arange(100 * document, 100 * document + 101, 20)


def peak_of_feeding(folder: Path, documents: int) -> int:
    source = Synthetic(folder, documents)
    tracemalloc.start()
    try:
        feed = SequenceSampler(source, HeldOutSplit(source, 0.001), seed=1, micro_tokens=2048)
        cursor = Cursor()
        for _ in range(9):
            _, cursor = feed.take(cursor, 30, SequenceSpec(length=64))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_depend_on_the_size_of_the_corpus(tmp_path: Path) -> None:
    small, large = (peak_of_feeding(tmp_path, documents) for documents in (20_000, 200_000))
    assert large < 1.1 * small, (small, large)
