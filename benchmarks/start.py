"""From the command line to the first entity in a new process, against transformers' pipeline.

    python benchmarks/start.py [--quick]

Both sides have an environment of their own with what they require and nothing else: alembert's wheel without extras, and
transformers with torch. The packages are links to those of the environment that runs the benchmark. The model is MiniLM
(6x384) with a tag head: alembert runs `alembert predict` on its int8 Export, transformers the pipeline
`token-classification` on the float32 checkpoint, from a local folder. Every run is a process that has loaded nothing, on
files that the system has read before. CPU seconds are shown beside, since other work on the machine changes them less.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from annotate_material import exported, new_tagger
from harness import compare, compare_once, need_peers, parser, report, told
from rounds import Rounds, Side, take_rounds

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from bare_environment import (
    build_wheel,
    install_wheel,
    make_environment,
    megabytes,
    required,
)

TEXT = "Familial adenomatous polyposis is caused by germline mutations of the APC gene in colorectal cancer."
RUNTIME = ("lxml", "numpy", "onnxruntime", "rich", "tokenizers", "typer")
PIPELINE = """
import sys
from transformers import pipeline
find = pipeline("token-classification", model=sys.argv[1], aggregation_strategy="simple", device="cpu")
for entity in find(sys.argv[2]):
    print(entity["start"], entity["end"], entity["entity_group"], entity["word"], flush=True)
"""


@dataclass(frozen=True)
class Start:
    """One run of a command."""

    seconds: float
    """From the start of the process to its first entity."""
    cpu_seconds: float
    peak_megabytes: float


@dataclass(frozen=True)
class Contender:
    """A command that prints entities, and the megabytes of the packages that it needs."""

    command: Sequence[str]
    installed: float

    def start(self) -> Start:
        """Run the command; lines of entities begin with their place in the text."""
        begun, first = time.perf_counter(), None
        with subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
        ) as process:
            for line in process.stdout:
                if first is None and line.strip()[:1].isdigit():
                    first = time.perf_counter()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if first is None:
            sys.exit(f"no entity was found, exit code {process.returncode}: {' '.join(self.command)}")
        return Start(first - begun, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)


def main() -> None:
    arguments = _arguments()
    need_peers("torch", "transformers")
    with tempfile.TemporaryDirectory() as folder:
        contenders = prepare(Path(folder), rows=50 if arguments.quick else 300)
        starts: dict[str, list[Start]] = {name: [] for name in contenders}

        def side(name: str) -> Side:
            def cost() -> float:
                starts[name].append(contenders[name].start())
                return starts[name][-1].seconds

            return cost

        # The first round reads files that the system has not read before; it is not counted.
        sides = {name: side(name) for name in contenders}
        rounds = take_rounds(sides, seconds=20 if arguments.quick else 120)
    compared = {
        ratio: compare(of_field(starts, key, rounds), "alembert", "transformers", unit=unit)
        for ratio, (key, unit) in FIELDS.items()
    }
    sizes = [round(contenders[name].installed) for name in ("alembert", "transformers")]
    compared["installed"] = compare_once(*sizes, unit="MB", against="transformers")
    report(compared, [rounds])


FIELDS = {
    "cold_start": ("seconds", "s"),
    "cold_start_cpu": ("cpu_seconds", "s of CPU"),
    "peak_memory": ("peak_megabytes", "MB"),
}
"""Ratio -> field of a start, and its unit."""


def of_field(starts: dict[str, list[Start]], field: str, rounds: Rounds) -> Rounds:
    """Take another field of the starts that count as the cost of rounds."""
    counted = {name: each[-rounds.count :] for name, each in starts.items()}
    return Rounds({name: [asdict(one)[field] for one in each] for name, each in counted.items()}, rounds.other_load)


def prepare(folder: Path, rows: int) -> dict[str, Contender]:
    """Make both environments, the model, and its Export."""
    told("making the environments and the model")
    checkpoint, export = folder / "checkpoint", folder / "export"
    # In a process of its own: what is started by a process that has loaded torch counts that memory as its own peak.
    maker = multiprocessing.get_context("spawn").Process(target=make_model, args=(checkpoint, export, rows))
    maker.start()
    maker.join()
    needed, theirs = required(RUNTIME), required(["torch", "transformers"])
    ours = make_environment(folder / "alembert", needed.values())
    wheel = build_wheel(folder)
    install_wheel(ours, wheel)
    own = sum(path.stat().st_size for path in ours.parents[1].glob("lib/*/site-packages/alembert*/**/*")) / 1e6
    peer = make_environment(folder / "transformers", theirs.values())
    command = [str(ours.with_name("alembert")), "predict", str(export), TEXT]
    pipeline = [str(peer), "-c", PIPELINE, str(checkpoint), TEXT]
    return {
        "alembert": Contender(command, megabytes(needed.values()) + own),
        "transformers": Contender(pipeline, megabytes(theirs.values())),
    }


def make_model(checkpoint: Path, export: Path, rows: int) -> None:
    """Write the tagger and its Export."""
    exported(new_tagger(checkpoint), export, rows, "onnx")


def _environment() -> dict[str, str]:
    """What both sides see: nothing of this repository, and no network."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _arguments() -> argparse.Namespace:
    return parser(__doc__, quick="fewer rounds").parse_args()


if __name__ == "__main__":
    main()
