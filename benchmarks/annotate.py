"""Tagging texts with an int8 Export against ONNX Runtime, CTranslate2, OpenVINO and a transformers pipeline, in one run.

    python benchmarks/annotate.py [--quick] [--model FOLDER] [--text FILE]

All sides have the same weights (a 6x384 tagger), the same texts of natural length and the same threads, and go from texts
to entities with offsets: tokenising and decoding are included. Ours is the product's own path on an Export that it
quantised itself; `annotate_peers.py` has the others. Engines are fed batches of 32, as the texts come and sorted by
length; the pipeline is called on the list. Ratios, above 1 if ours is faster: `best_engine` (against the best engine as
texts come), `best_engine_sorted`, `pipeline`, and `latency` (one text of 128 tokens, against the best engine). They are
those of sentences; those of whole abstracts are beside them. Sides take turns, in one order and then in the other; the
middle of the rounds counts. A peer that is not installed is named and left out. Without `--model` the tagger is MiniLM-L6
if it is installed, else a new 6x384 model, with a head that knows nothing: the speed is the same, and how far
sides agree means little.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from annotate_material import TEST, Texts, exported, fitting, new_tagger, sentences, stretch, texts_of, told
from annotate_peers import ENGINES, NEEDS, SIDES, Answers, Weights, serve
from harness import parser, process

COUNTS = {
    True: {"sentences": 224},
    False: {"sentences": 600, "abstracts": 60},
}
"""Texts of a quick run, and of a whole one."""
LATENCY_TOKENS, LATENCY_CALLS = 128, 20
Ask = Callable[[object], Any]


@dataclass(frozen=True)
class Way:
    """A side, and the order in which it is given the texts."""

    side: str
    by_length: bool = False

    def __str__(self) -> str:
        return f"{self.side}, sorted" if self.by_length else self.side


OURS, PIPELINE = Way("alembert"), Way("pipeline")


@dataclass(frozen=True)
class Times:
    """What ways took for the same texts, round by round, and what they found in them."""

    texts: Texts
    seconds: dict[Way, list[float]]
    found: dict[Way, Answers] = field(default_factory=dict)

    def speed(self, way: Way) -> float:
        return self.texts.tokens / median(self.seconds[way])

    def rivals(self) -> dict[str, Way]:
        """Name the ways that ours is measured by."""
        named = {"pipeline": PIPELINE} if PIPELINE in self.seconds else {}
        for name, by_length in (("best_engine_sorted", True), ("best_engine", False)):
            ways = [way for way in self.seconds if way.side in ENGINES and way.by_length == by_length]
            named = {name: max(ways, key=self.speed), **named} if ways else named
        return named

    def ratios(self) -> dict[str, float]:
        return {name: round(self.speed(OURS) / self.speed(way), 3) for name, way in self.rivals().items()}

    def agreement(self, way: Way) -> float:
        """Share of words with the same label as ours, among those to which either side gives one."""
        ours, theirs = (labels_of(self.texts.texts, self.found[each]) for each in (OURS, way))
        pairs = [pair for pair in zip(ours, theirs, strict=True) if any(pair)]
        return sum(one == other for one, other in pairs) / len(pairs) if pairs else 1.0


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        weights, sets = prepared(arguments, Path(name))
        asked, missing = opened(stack, weights, arguments.quick)
        peaks = peaks_of(weights.threads)
        times = {kind: measured(asked, texts, arguments.quick) for kind, texts in sets.items()}
        text = stretch(weights.checkpoint, sets["sentences"].texts, LATENCY_TOKENS)
        latency = latencies(asked, text, 3 if arguments.quick else 5)
        shares = {kind: shares_of(weights, each, peaks) for kind, each in times.items()}
        parts = parts_of(weights, sets["sentences"])
    report(times, latency, shares, peaks, parts, missing)


def prepared(arguments: argparse.Namespace, work: Path) -> tuple[Weights, dict[str, Texts]]:
    """Make the tagger, its Export, and sets of texts."""
    from alembert.hardware.torch_settings import choose_threads

    checkpoint = arguments.model or new_tagger(work / "tagger")
    told("exporting to int8")
    rows = 60 if arguments.quick else 300
    export = exported(checkpoint, work / "export", rows)
    openvino = exported(checkpoint, work / "openvino", rows, "openvino")
    abstracts = texts_of(arguments.text)
    kinds = {"sentences": sentences(abstracts), "abstracts": abstracts}
    counts = COUNTS[arguments.quick]
    sets = {kind: fitting(checkpoint, kinds[kind][:count]) for kind, count in counts.items()}
    return Weights(checkpoint, export, openvino, work, choose_threads().count), sets


# -- measuring


def opened(stack: ExitStack, weights: Weights, quick: bool) -> tuple[dict[str, Ask], dict[str, str]]:
    """Start a process for each side that can be opened; say why the others cannot."""
    asked: dict[str, Ask] = {}
    missing: dict[str, str] = {}
    for side in SIDES:
        told(f"opening {side}")
        ask, problem = None, unavailable(side, quick)
        if problem is None:
            ask = stack.enter_context(process(serve, side, weights))
            problem = ask("open")
        if problem is None:
            asked[side] = ask
        else:
            missing[side] = problem
            told(f"{side} is left out: {problem}")
    if OURS.side in missing:
        raise SystemExit(f"error: our own side cannot be opened: {missing[OURS.side]}")
    return asked, missing


def unavailable(side: str, quick: bool) -> str | None:
    if quick and side == "onnxruntime_fused":
        return "not in a quick run"
    lacking = [package for package in NEEDS[side] if find_spec(package) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else None


def measured(asked: Mapping[str, Ask], texts: Texts, quick: bool) -> Times:
    """Let all ways read the texts in turn; each has read some of them before, to be warm."""
    ways = [Way(side, order) for side in asked for order in (False, True) if side in ENGINES or not order]
    times = Times(texts, {way: [] for way in ways})
    for way in ways:
        asked[way.side]((texts.texts[:64], way.by_length, 1))
    for number in range(2 if quick else 3):
        for way in ways if number % 2 == 0 else reversed(ways):
            if quick and way == PIPELINE and number:
                continue  # it takes longer than all others together
            seconds, times.found[way] = asked[way.side]((texts.texts, way.by_length, 1))
            times.seconds[way].append(seconds)
            told(f"round {number + 1}: {way!s:26} {texts.tokens / seconds:9,.0f} tokens/s")
    return times


def latencies(asked: Mapping[str, Ask], text: str, rounds: int) -> dict[str, float]:
    """Milliseconds for one text, the middle of rounds in turn."""
    took: dict[str, list[float]] = {side: [] for side in asked}
    for _ in range(rounds):
        for side, ask in asked.items():
            took[side].append(1000 * ask(([text], False, LATENCY_CALLS))[0])
    return {side: median(each) for side, each in took.items()}


def peaks_of(threads: int) -> dict[str, float]:
    """Products of large matrices in the faster library on all threads, in thousand millions of operations a second."""
    from alembert.hardware.child import try_onnxruntime, try_openvino

    return {
        kind: max(attempt(kind, threads)["all_threads"] for attempt in (try_openvino, try_onnxruntime))
        for kind in ("int8", "float32")
    }


def shares_of(weights: Weights, times: Times, peaks: Mapping[str, float]) -> dict[str, float]:
    """What ours would take at the peak as a share of what it took: the products for real tokens are counted."""
    import alembert
    from alembert.nn.config import count_multiplications

    config = alembert.open(weights.checkpoint).blueprint.config
    reached = 2 * count_multiplications(config, times.texts.lengths) / median(times.seconds[OURS]) / 1e9
    return {name: round(reached / peak, 3) for name, peak in peaks.items()}


def parts_of(weights: Weights, texts: Texts) -> dict[str, float]:
    """Say where our time goes: microseconds of CPU time a token for what stands around the graph, and for the graph."""
    from alembert.infer.task_model import TaskModel

    model, took = TaskModel.open(weights.export), {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        done = work()
        took[name] = round(1e6 * (time.process_time() - start) / texts.tokens, 2)
        return done

    examples = model.task.examples_from_texts(texts.texts)
    model.predict(examples[:64])
    encoded = part("encode", lambda: model.encode(examples))
    outputs = part("engine", lambda: model.task.run(model.runner, encoded))
    part("decode", lambda: [model.task.decode(*pair) for pair in zip(encoded, outputs, strict=True)])
    return took


# -- what was found


def labels_of(texts: list[str], answers: Answers) -> list[str]:
    """Give the label at the first character of each word, empty where there is none."""
    found: list[str] = []
    for text, entities in zip(texts, answers, strict=True):
        at = {place: label for start, end, label in entities for place in range(start, end)}
        found += [at.get(place, "") for place in range(len(text)) if starts_word(text, place)]
    return found


def starts_word(text: str, place: int) -> bool:
    return not text[place].isspace() and (place == 0 or text[place - 1].isspace())


def report(
    times: Mapping[str, Times],
    latency: Mapping[str, float],
    shares: Mapping[str, Mapping[str, float]],
    peaks: Mapping[str, float],
    parts: Mapping[str, float],
    missing: Mapping[str, str],
) -> None:
    for kind, each in times.items():
        print(f"\n{kind}: {len(each.texts.texts):,} texts, {each.texts.tokens:,} tokens")
        print(*table(each), sep="\n")
        reached = ", ".join(f"{share:.0%} of {peaks[name]:.0f} ({name})" for name, share in shares[kind].items())
        print(f"share of the matmul peak in G operations/s that alembert reaches: {reached}")
    print("\nCPU time of alembert a token:", *(f"{name} {each:.1f} us" for name, each in parts.items()))
    print(f"one text of {LATENCY_TOKENS} tokens:", *(f"{side} {ms:.1f} ms" for side, ms in latency.items()))
    engines = [latency[side] for side in ENGINES if side in latency]
    one = {"latency": round(min(engines) / latency[OURS.side], 3)} if engines else {}
    told_of = {
        "ratios": times["sentences"].ratios() | one,
        "ratios_abstracts": times["abstracts"].ratios() if "abstracts" in times else None,
        "against": {kind: {n: str(way) for n, way in each.rivals().items()} for kind, each in times.items()},
        "tokens_per_second": {k: {str(w): round(each.speed(w)) for w in each.seconds} for k, each in times.items()},
        "latency_ms": {side: round(ms, 2) for side, ms in latency.items()},
        "peak_share": shares,
        "cpu_us_a_token": parts,
        "agreement": {
            k: {str(w): round(each.agreement(w), 4) for w in each.found if w != OURS} for k, each in times.items()
        },
        "left_out": missing,
    }
    print(json.dumps(told_of))


def table(times: Times) -> Iterator[str]:
    yield f"{'':26} {'tokens/s':>9} {'rounds':>15} {'alembert is':>12} {'same labels':>12}"
    for way, seconds in times.seconds.items():
        speeds = [times.texts.tokens / each for each in seconds]
        line = f"{way!s:26} {times.speed(way):9,.0f} {f'{min(speeds):,.0f}-{max(speeds):,.0f}':>15}"
        if way != OURS:
            line += f" {times.speed(OURS) / times.speed(way):11.2f}x {times.agreement(way):12.1%}"
        yield line


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="fewer sentences, no abstracts, two rounds")
    options.add_argument("--model", type=Path, help="a fine-tuned tagger (softmax head, one label a word)")
    options.add_argument("--text", type=Path, default=TEST, help="texts of any known format")
    return options.parse_args()


if __name__ == "__main__":
    main()
