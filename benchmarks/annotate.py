"""Tagging texts with an int8 Export against ONNX Runtime, CTranslate2, OpenVINO and a transformers pipeline, in one run.

    python benchmarks/annotate.py [--quick] [--model FOLDER] [--text FILE]

All sides have the same weights (a 6x384 tagger), the same texts of natural length and the same threads, and go from texts
to entities with offsets: tokenising and decoding are included. Ours is the product's own path on an Export that it
quantised itself; `annotate_peers.py` has the others. Engines are fed batches of 32, as the texts come and sorted by
length; the pipeline is called on the list. Ratios, above 1 if ours is faster: `best_engine` (against the best engine as
texts come), `best_engine_sorted`, `pipeline`, and `latency` (one text of 128 tokens, against the best engine). They are
those of sentences; those of whole abstracts are beside them. A peer that is not installed is named and left out. Without `--model` the tagger is MiniLM-L6
if it is installed, else a new 6x384 model, with a head that knows nothing: the speed is the same, and how far
sides agree means little.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate_material import TEST, Texts, exported, fitting, new_tagger, sentences, stretch, texts_of
from annotate_peers import ENGINES, NEEDS, SIDES, Answers, Weights, serve
from harness import Comparison, compare, missing_peers, parser, process, report, rounded, share_of_limit, told
from peaks import Limit, measure_runtime_peak, products_limit
from rounds import Rounds, Side, take_rounds

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
    rounds: Rounds
    found: Mapping[Way, Answers]

    def speed(self, way: Way) -> float:
        return self.texts.tokens / self.rounds.cost(str(way))

    def rivals(self) -> dict[str, Way]:
        """Name the ways that ours is measured by."""
        named = {"pipeline": PIPELINE} if PIPELINE in self.found else {}
        for name, by_length in (("best_engine_sorted", True), ("best_engine", False)):
            ways = [way for way in self.found if way.side in ENGINES and way.by_length == by_length]
            named = {name: max(ways, key=self.speed), **named} if ways else named
        return named

    def compare(self, way: Way, limit: Limit | None = None) -> Comparison:
        return compare(self.rounds, str(OURS), str(way), unit="tokens/s", work=self.texts.tokens, limit=limit)

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
        peaks = {dtype: measure_runtime_peak(dtype, weights.threads) for dtype in ("int8", "float32")}
        seconds = 60 if arguments.quick else 400
        times = {kind: measured(asked, texts, seconds) for kind, texts in sets.items()}
        text = stretch(weights.checkpoint, sets["sentences"].texts, LATENCY_TOKENS)
        latency = latencies(asked, text, 8 if arguments.quick else 60)
        limits = {kind: limits_of(weights, each, peaks) for kind, each in times.items()}
        parts = parts_of(weights, sets["sentences"])
    for kind, each in times.items():
        print(f"\n{kind}: {len(each.texts.texts):,} texts, {each.texts.tokens:,} tokens")
        print(*table(each), sep="\n")
        print("alembert reaches", ", ".join(map(str, limits[kind].values())))
    print("\nCPU time of alembert a token:", *(f"{name} {each:.1f} us" for name, each in parts.items()))
    print(f"one text of {LATENCY_TOKENS} tokens:", *(f"{s} {latency.cost(s):.1f} ms" for s in latency.costs), "\n")
    compared = {kind: comparisons(each, limits[kind]["int8"]) for kind, each in times.items()}
    others = {f"abstracts_{name}": each for name, each in compared.get("abstracts", {}).items()}
    peak_share = share_of_limit(times["sentences"].rounds, str(OURS), limits["sentences"]["int8"])
    report(
        compared["sentences"] | one_text(latency) | {"peak_share": peak_share} | others,
        [each.rounds for each in times.values()] + [latency],
        tokens_per_second={k: {str(w): round(each.speed(w)) for w in each.found} for k, each in times.items()},
        latency_ms={side: rounded(latency.cost(side)) for side in latency.costs},
        float32_share={kind: rounded(each["float32"].share) for kind, each in limits.items()},
        cpu_us_a_token=parts,
        agreement={
            k: {str(w): rounded(each.agreement(w)) for w in each.found if w != OURS} for k, each in times.items()
        },
        left_out=missing,
    )


def comparisons(times: Times, limit: Limit) -> dict[str, Comparison]:
    return {name: times.compare(way, limit) for name, way in times.rivals().items()}


def one_text(latency: Rounds) -> dict[str, Comparison]:
    """Compare one text with the engine that is the first to answer."""
    engines = [side for side in ENGINES if side in latency.costs]
    if not engines:
        return {}
    return {"latency": compare(latency, OURS.side, min(engines, key=latency.cost), unit="ms")}


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
    return missing_peers(*NEEDS[side])


def measured(asked: Mapping[str, Ask], texts: Texts, seconds: float) -> Times:
    """Let all ways read the texts in turn; each has read some of them before, to be warm."""
    ways = [Way(side, order) for side in asked for order in (False, True) if side in ENGINES or not order]
    found: dict[Way, Answers] = {}

    def side(way: Way) -> Side:
        def cost() -> float:
            took, found[way] = asked[way.side]((texts.texts, way.by_length, 1))
            told(f"{way!s:26} {texts.tokens / took:9,.0f} tokens/s")
            return took

        return cost

    for way in ways:
        asked[way.side]((texts.texts[:64], way.by_length, 1))
    rounds = take_rounds({str(way): side(way) for way in ways}, seconds=seconds, warm=False)
    return Times(texts, rounds, {way: found[way] for way in ways})


def latencies(asked: Mapping[str, Ask], text: str, seconds: float) -> Rounds:
    """Milliseconds for one text, in turns of some calls."""

    def side(ask: Ask) -> Side:
        return lambda: 1000 * ask(([text], False, LATENCY_CALLS))[0]

    sides = {name: side(ask) for name, ask in asked.items() if name != PIPELINE.side}
    return take_rounds(sides, seconds=seconds)


def limits_of(weights: Weights, times: Times, peaks: Mapping[str, float]) -> dict[str, Limit]:
    """Compare products for real tokens with what large ones reach in the faster library."""
    import alembert
    from alembert.nn.config import count_multiplications

    config = alembert.open(weights.checkpoint).blueprint.config
    work, seconds = 2 * count_multiplications(config, times.texts.lengths), times.rounds.cost(str(OURS))
    return {dtype: products_limit(work, seconds, peak, dtype) for dtype, peak in peaks.items()}


def parts_of(weights: Weights, texts: Texts) -> dict[str, float]:
    """Say where our time goes: microseconds of CPU time a token for what stands around the graph, and for the graph."""
    from alembert.infer.task_model import TaskModel

    model, took = TaskModel.open(weights.export), {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        done = work()
        took[name] = round(1e6 * (time.process_time() - start) / texts.tokens, 2)
        return done

    (tagger,) = model.tasks.values()
    task, tokenizer, longest = tagger.task, model.engine.tokenizer, model.engine.max_tokens
    examples = task.examples_from_texts(texts.texts)
    task.run(tagger.runner, task.encode(examples[:64], tokenizer, longest))
    encoded = part("encode", lambda: task.encode(examples, tokenizer, longest))
    outputs = part("engine", lambda: task.run(tagger.runner, encoded))
    part("decode", lambda: tagger.decode_batch(encoded, outputs))
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


def table(times: Times) -> Iterator[str]:
    yield f"{'':26} {'tokens/s':>9} {'rounds':>15} {'alembert is':>26} {'same labels':>12}"
    for way in times.found:
        speeds = [times.texts.tokens / each for each in times.rounds.costs[str(way)]]
        line = f"{way!s:26} {times.speed(way):9,.0f} {f'{min(speeds):,.0f}-{max(speeds):,.0f}':>15}"
        if way != OURS:
            line += f" {times.compare(way).ratio!s:>26} {times.agreement(way):12.1%}"
        yield line


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="fewer sentences, no abstracts, fewer rounds")
    options.add_argument("--model", type=Path, help="a fine-tuned tagger (softmax head, one label a word)")
    options.add_argument("--text", type=Path, default=TEST, help="texts of any known format")
    return options.parse_args()


if __name__ == "__main__":
    main()
