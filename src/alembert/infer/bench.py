"""The verb `bench`: how fast a fine-tuned model is on this machine, beside peers with the same weights.

In: the folder of a model (an Export, or a Checkpoint) and files with texts. Out: texts and real tokens a second, how
long single texts take, how long it takes to the first answer, the size of the folder, and the same of peers
(`bench_peers`). Tokenising and decoding are part of every time. Texts are read before anything is measured, so they are
all in memory: `limit` says how many are taken from the beginning of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from alembert import sample
from alembert.corpus.document import Document
from alembert.corpus.inputs import InputFiles, list_input_files
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadSetting
from alembert.infer.bench_peers import Peer, SkippedPeer, fits_one_window, open_peers
from alembert.infer.engines import choose_device
from alembert.infer.predictor import Predictor
from alembert.infer.speed import (
    MEASURE_SECONDS,
    Clock,
    ExamplePredictor,
    Latency,
    ProgressCallback,
    Speed,
    describe_machine,
    measure_latencies,
    measure_speeds,
)
from alembert.infer.stream import StreamPosition, open_input_stream
from alembert.infer.task_model import TaskModel
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import ReadResult

MAX_TEXTS: Final = 2000
"""Maximum number of texts by default."""
PERCENTILES: Final = (50, 90, 99)
WARMUP_TEXTS: Final = 8
"""Texts that each answers before it is measured: what is compiled for many texts is not part of answering them."""
_COPIES: Final = 4
"""Times that `measure_words_per_second` reads the abstracts in a round, so that batches are full."""
LATENCY_SHARE: Final = 1 / 3
"""Share of the time in which texts are asked one at a time."""


@dataclass(frozen=True, kw_only=True)
class ModelTiming:
    """How fast a model or a peer was."""

    name: str
    speed: Speed
    latency: Latency

    def to_table(self) -> dict[str, Any]:
        """Return plain values: rates, and milliseconds of single texts."""
        ms = {f"p{share}": round(1000 * self.latency.percentile(share / 100), 3) for share in PERCENTILES}
        return {
            "name": self.name,
            "documents_per_second": round(self.speed.texts_per_second, 2),
            "tokens_per_second": round(self.speed.tokens_per_second, 1),
            "documents": self.speed.texts,
            "rounds": len(self.speed.seconds),
            "unrest": round(self.speed.relative_range, 3),
            "latency_ms": {**ms, "documents": len(self.latency.seconds)},
        }


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """All that was measured of a model."""

    model: str
    task: str
    engine: str
    machine: str
    files: tuple[str, ...]
    texts: int
    megabytes: float
    """Of all files in the folder, in millions of bytes."""
    start_seconds: float
    """From nothing to the first answer: libraries that were not loaded yet, opening, compiling, one text."""
    own: ModelTiming
    beside: ModelTiming | None
    """The model on the texts that peers can read, if these are not all."""
    too_long: int
    """Texts that peers did not get, because they do not read them at once."""
    peers: tuple[ModelTiming, ...]
    left_out: tuple[SkippedPeer, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def speed_up(self, peer: ModelTiming) -> float:
        """Return how many times as many texts a second the model answers as a peer, on the same texts."""
        return (self.beside or self.own).speed.texts_per_second / peer.speed.texts_per_second

    def to_table(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain = (
            "model",
            "task",
            "engine",
            "machine",
            "files",
            "texts",
            "megabytes",
            "start_seconds",
            "too_long",
        )
        return {
            **{name: getattr(self, name) for name in plain},
            **self.own.to_table(),
            "beside_peers": self.beside and self.beside.to_table(),
            "peers": [{**each.to_table(), "factor": round(self.speed_up(each), 3)} for each in self.peers],
            "left_out": [asdict(each) for each in self.left_out],
            "set_aside": len(self.set_aside),
        }


def bench(
    folder: str | Path,
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    task: str | None = None,
    device: str = "auto",
    limit: int = MAX_TEXTS,
    seconds: float = MEASURE_SECONDS,
    clock: Clock = perf_counter,
    on_progress: ProgressCallback = lambda _: None,
) -> Benchmark:
    """Measure a fine-tuned model and its peers, each for about `seconds`."""
    if limit < 1:
        raise BadSetting(f"There are to be {limit} texts; expected at least 1.")
    place, start = Path(folder), clock()
    where = choose_device([place], device)
    model = TaskModel.open(place, where, task)
    opened = clock() - start
    reading = read_texts(model, list(map(Path, files)), options or ReadOptions(), limit)
    start = clock()
    model.predict(reading.examples[:1])
    first = clock() - start
    field = _open_peer_set(model, reading.examples, where)
    own, beside, peers = _measure_all(model, reading.examples, field, _Timer(seconds, clock, on_progress))
    return Benchmark(
        model=str(folder),
        task=model.task.name,
        engine=model.engine.name,
        machine=describe_machine(where),
        files=tuple(map(str, files)),
        texts=len(reading.examples),
        megabytes=round(folder_megabytes(place), 3),
        start_seconds=round(opened + first, 3),
        own=own,
        beside=beside,
        too_long=len(reading.examples) - len(field.examples),
        peers=peers,
        left_out=field.left_out,
        set_aside=reading.set_aside,
        remarks=reading.remarks,
    )


def folder_megabytes(folder: Path) -> float:
    """Add up the files of a folder, in millions of bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


# -- texts


def read_texts(
    model: TaskModel, files: Sequence[Path], options: ReadOptions, limit: int = MAX_TEXTS
) -> ReadResult[Any]:
    """Read texts from files of any known format; for tasks that ask about more than a text, files of the task."""
    listed = list_input_files(files)
    if _reads_documents(model):
        reading = _read_documents(model, listed, model.only.saved.apply_columns(options), limit)
    else:
        reading = model.read(listed.paths, options)
        reading = replace(reading, examples=reading.examples[:limit])
    reading = replace(reading, remarks=(*reading.remarks, *listed.remarks(files)))
    if not reading.examples:
        named = ", ".join(map(str, files))
        raise BadFile(
            f"{named} has no text that could be read ({len(reading.set_aside):,} set aside), so there is nothing to "
            "measure. Check the file, and the columns that are read from it (--text COLUMN)."
        )
    return reading


def _reads_documents(model: TaskModel) -> bool:
    task = model.task
    return task.name == "tag" or (isinstance(task, ClassifyTask) and not task.pairs)


def _read_documents(model: TaskModel, files: InputFiles, options: ReadOptions, limit: int) -> ReadResult[Any]:
    set_aside: list[SetAside] = []
    remarks: list[Remark] = []

    def texts() -> Iterator[str]:
        for taken in open_input_stream(files, options).read_from(StreamPosition()):
            if isinstance(taken.item, Document):
                yield taken.item.text
            elif isinstance(taken.item, SetAside):
                set_aside.append(taken.item)
            elif isinstance(taken.item, Remark):
                remarks.append(taken.item)

    found = list(islice(texts(), limit))
    return ReadResult(tuple(model.task.examples_from_texts(found)), tuple(set_aside), tuple(remarks))


# -- measuring


@dataclass(frozen=True)
class _PeerSet:
    """Peers, the texts that they can read, and who is left out."""

    peers: tuple[Peer, ...]
    examples: Sequence[Any]
    left_out: tuple[SkippedPeer, ...]


@dataclass(frozen=True)
class _Timer:
    """How long each is measured, by which clock, and who hears of it."""

    seconds: float
    clock: Clock
    on_progress: ProgressCallback

    def measure(self, named: Mapping[str, ExamplePredictor], examples: Sequence[Any]) -> list[ModelTiming]:
        """Measure some in turn: all texts at once, then one at a time."""
        sides = list(named.values())
        options: dict[str, Any] = {"clock": self.clock, "on_progress": self.on_progress}
        for side in sides:
            side.predict(examples[:WARMUP_TEXTS])
        fast = measure_speeds(sides, examples, seconds=self.seconds * (1 - LATENCY_SHARE), **options)
        single = measure_latencies(sides, examples, seconds=self.seconds * LATENCY_SHARE, **options)
        triples = zip(named, fast, single, strict=True)
        return [ModelTiming(name=name, speed=speed, latency=each) for name, speed, each in triples]


def _open_peer_set(model: TaskModel, examples: Sequence[Any], device: str) -> _PeerSet:
    found = list(open_peers(model, device))
    peers = tuple(each for each in found if isinstance(each, Peer))
    left_out = tuple(each for each in found if isinstance(each, SkippedPeer))
    if not any(peer.reads_whole_texts for peer in peers):
        return _PeerSet(peers, examples, left_out)
    short = [each for each, read in zip(examples, model.encode(examples), strict=True) if fits_one_window(read)]
    if short:
        return _PeerSet(peers, short, left_out)
    reason = "it reads a text at once, and all texts are too long for that"
    return _PeerSet((), examples, (*left_out, *(SkippedPeer(peer.name, reason) for peer in peers)))


def _measure_all(
    model: TaskModel, examples: Sequence[Any], field: _PeerSet, watch: _Timer
) -> tuple[ModelTiming, ModelTiming | None, tuple[ModelTiming, ...]]:
    """Measure the model on all texts, and beside its peers on those that they can read."""
    sides: dict[str, ExamplePredictor] = {model.engine.name: model, **{peer.name: peer for peer in field.peers}}
    own, *peers = watch.measure(sides, field.examples)
    if len(field.examples) == len(examples):
        return own, None, tuple(peers)
    return watch.measure({model.engine.name: model}, examples)[0], own, tuple(peers)


def measure_words_per_second(folder: Path, *, rounds: int = 3) -> float:
    """Return how many words of the sample's abstracts a model reads a second, from raw text to entities, on all cores."""
    texts = [abstract.text for abstract in sample.load_abstracts()] * _COPIES
    model, seconds = Predictor(folder), []
    for _ in range(rounds + 1):  # the first warms up
        start = perf_counter()
        for _ in model.pipe(texts):
            pass
        seconds.append(perf_counter() - start)
    return sum(len(text.split()) for text in texts) / median(seconds[1:])
