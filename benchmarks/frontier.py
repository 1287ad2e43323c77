"""Strict F1 of taggers against their words a second, on the same data in one run: ours, spaCy and a transformers pipeline.

    python benchmarks/frontier.py [--quick] [--data FOLDER] [--model NAME_OR_FOLDER ...] [--spacy FOLDER]
        [--pipeline FOLDER | --minilm FOLDER] [--types Disease,Chemical] [--work FOLDER] [--plot docs/frontier]

All sides read the sentences of the test file as plain strings, words joined by single spaces, and give entities with
character offsets: tokenising and decoding are included. An entity counts if both borders and the type are those of the
file; types that are not in `--types` are left out on both sides. spaCy splits words in its own way, so it is also scored on
the words of the file, as `spacy evaluate` does, and the better of its two scores counts. F1 has the 95 % interval of a
bootstrap over sentences.

Speed is words of the file a second, on one core and on two. A side is a process of its own, which may use so many CPUs
(affinity) and threads (OMP_NUM_THREADS) before any library is loaded. Each side is first tried in all the ways that its
documentation recommends for many texts (`frontier_sides.py`), and the fastest is used in the rounds. CPU time a word stands
beside it, since a busy machine changes it less.

`--data` has train.tsv, devel.tsv and test.tsv (token, tab, tag). Without `--spacy`, spaCy is trained on train.tsv and
devel.tsv with its efficiency configuration; without `--pipeline`, MiniLM is fine-tuned on them by `alembert finetune`.
Both are kept in `--work`. With `--quick` the pipeline may have an untrained head: then its speed counts, and it is left out
of the plot. A quick run scores and times a part of the sentences.

Ratios, above 1 if ours is faster, on one core: `spacy` (the fastest of ours with a better F1 than spaCy, else our fastest)
and `pipeline` (ours with the best F1). `of` says which of ours that is; `ratios_cpu_time` are the same of CPU time a word.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from frontier_material import (
    Sentence,
    folder_megabytes,
    is_untrained,
    pipeline_folder,
    read_sentences,
    spacy_pipeline,
)
from frontier_sides import Answers, serve
from harness import SHARED, Comparison, compare, missing_peers, parser, process, report, told
from rounds import Rounds, Side, take_rounds

ROUND_WORDS, QUICK_WORDS = 25_000, 5_000
"""Words that a side reads in a round."""
TRIED_SENTENCES = 64
"""Sentences on which the ways of a side are tried, at least."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Ask = Callable[[object], Any]


@dataclass
class Tagger:
    """A side, what was measured of it, and how to ask it by the number of cores."""

    name: str
    kind: str
    asked: dict[int, Ask] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    way: dict[int, str] = field(default_factory=dict)
    speeds: dict[int, list[float]] = field(default_factory=dict)
    cpu_us: dict[int, list[float]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    scored_on: str = "raw text"
    is_trained: bool = True

    @property
    def is_ours(self) -> bool:
        return self.kind == "ours"

    @property
    def f1(self) -> float:
        return self.scores["f1"]

    def speed(self, cores: int = 1) -> float:
        return median(self.speeds[cores])

    def cpu(self) -> float:
        """Microseconds of CPU time a word on one core."""
        return median(self.cpu_us[1])

    def note(self, cores: int, words: int, seconds: float, cpu_seconds: float) -> None:
        """Add what a round took."""
        self.speeds.setdefault(cores, []).append(words / seconds)
        self.cpu_us.setdefault(cores, []).append(1e6 * cpu_seconds / words)
        told(f"{self.name:24} {cores} core(s) {words / seconds:9,.0f} words/s")


# -- measuring


@contextmanager
def limited(cores: int) -> Iterator[None]:
    """Let processes that are started inside use so many CPUs and threads; they inherit both before they load anything."""
    cpus, before = os.sched_getaffinity(0), {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.sched_setaffinity(0, set(sorted(cpus)[-cores:]))
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(cores)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})


def opened(
    stack: ExitStack, sides: Mapping[str, tuple[str, str]], cores: Sequence[int]
) -> tuple[list[Tagger], dict[str, str]]:
    """Start the processes of all sides; say why some cannot be opened."""
    taggers, missing = [], {}
    for name, (kind, model) in sides.items():
        tagger = Tagger(name, kind, is_trained=not is_untrained(Path(model)))
        for count in cores:
            told(f"opening {name} on {count} core(s)")
            with limited(count):
                # Daemons may have no processes of their own, and spaCy wants some.
                ask = stack.enter_context(process(serve, kind, model, count, daemon=False))
            answer = ask("open")
            if isinstance(answer, str):
                missing[name] = answer
                told(f"{name} is left out: {answer}")
                break
            tagger.asked[count], tagger.facts[str(count)] = ask, answer
        else:
            taggers.append(tagger)
    return taggers, missing


def part_of(sentences: Sequence[Sentence], words: int) -> list[Sentence]:
    """Take sentences from the whole file, evenly, until they have about so many words."""
    step = max(1, round(count_words(sentences) / words))
    return list(sentences[::step])


def count_words(sentences: Sequence[Sentence]) -> int:
    return sum(len(sentence.words) for sentence in sentences)


def choose_way(tagger: Tagger, cores: int, sentences: Sequence[Sentence]) -> None:
    """Try all ways in turn on sentences for about a second, and keep the fastest."""
    texts, ways = [sentence.text for sentence in sentences], tagger.facts[str(cores)]["ways"]
    ask, tagger.way[cores] = tagger.asked[cores], ways[0]
    ask((texts[:8], ways[0]))
    if len(ways) > 1:
        seconds = ask((texts[:TRIED_SENTENCES], ways[0]))[0]
        texts = texts[: max(TRIED_SENTENCES, int(TRIED_SENTENCES / seconds))]
        took = {way: min(ask((texts, way))[0] for _ in range(2)) for way in ways}
        told(f"{tagger.name}, {cores} core(s): " + ", ".join(f"{way}: {s:.2f} s" for way, s in took.items()))
        tagger.way[cores] = min(took, key=took.__getitem__)


def measured(taggers: Sequence[Tagger], cores: Sequence[int], sentences: Sequence[Sentence], seconds: float) -> Rounds:
    """Let all sides read the sentences in turn; each has been tried on some before."""
    texts, words = [sentence.text for sentence in sentences], count_words(sentences)

    def side(tagger: Tagger, count: int) -> Side:
        def cost() -> float:
            took, cpu, _ = tagger.asked[count]((texts, tagger.way[count]))
            tagger.note(count, words, took, cpu)
            return took

        return cost

    sides = {turn(tagger, count): side(tagger, count) for count in cores for tagger in taggers}
    return take_rounds(sides, seconds=seconds, warm=False)


def turn(tagger: Tagger, cores: int = 1) -> str:
    return f"{tagger.name}, {cores}"


# -- scores


def score(tagger: Tagger, sentences: Sequence[Sentence], types: Sequence[str]) -> None:
    """Score a side on all sentences; spaCy by the better of raw text and the words of the file."""
    kinds: dict[str, list[Any]] = {"raw text": [sentence.text for sentence in sentences]}
    if tagger.kind == "spacy":
        kinds["words of the file"] = [sentence.words for sentence in sentences]
    cores = min(tagger.asked)
    found = {
        kind: scores_of(sentences, tagger.asked[cores]((given, tagger.way[cores]))[2], types)
        for kind, given in kinds.items()
    }
    if len(found) > 1:
        print(f"{tagger.name}:", ", ".join(f"F1 {100 * each['f1']:.2f} on {kind}" for kind, each in found.items()))
    tagger.scored_on = max(found, key=lambda kind: found[kind]["f1"])
    tagger.scores = found[tagger.scored_on]


def scores_of(sentences: Sequence[Sentence], answers: Answers, types: Sequence[str]) -> dict[str, float]:
    from alembert.tasks.metrics import bootstrap_interval
    from alembert.tasks.metrics.spans import f1_measure, span_counts, span_scores

    gold = [sentence.entities(types) for sentence in sentences]
    guess = [[entity for entity in one if entity[2] in types] for one in answers]
    strict = span_scores(gold, guess).strict
    interval = bootstrap_interval(f1_measure(span_counts(gold, guess)), len(gold))
    return {
        "f1": strict.f1,
        "low": interval.low,
        "high": interval.high,
        "precision": strict.precision,
        "recall": strict.recall,
    }


# -- what is said


def table(taggers: Sequence[Tagger], cores: Sequence[int]) -> Iterator[str]:
    heads = "".join(f" {f'words/s, {count} core(s)':>32}" for count in cores)
    yield f"{'':24} {'F1':>6} {'95 % interval':>15} {'P':>6} {'R':>6}{heads} {'us CPU':>7} {'MB':>7}"
    for tagger in taggers:
        line = f"{tagger.name:24}"
        if tagger.is_trained:
            low, high = 100 * tagger.scores["low"], 100 * tagger.scores["high"]
            line += f" {100 * tagger.f1:6.2f} {f'{low:.2f} to {high:.2f}':>15}"
            line += f" {100 * tagger.scores['precision']:6.2f} {100 * tagger.scores['recall']:6.2f}"
        else:
            line += f" {'untrained head':>36}"
        for count in cores:
            rounds = f"({min(tagger.speeds[count]):,.0f}-{max(tagger.speeds[count]):,.0f})"
            line += f" {f'{tagger.speed(count):,.0f} {rounds}':>32}"
        yield f"{line} {tagger.cpu():7.1f} {folder_megabytes(folder_of(tagger)):7.1f}"


def folder_of(tagger: Tagger) -> Path:
    return Path(next(iter(tagger.facts.values()))["folder"])


def pairs(taggers: Sequence[Tagger]) -> dict[str, tuple[Tagger, Tagger]]:
    """Name the ratios: which of ours is compared with which peer."""
    own = [tagger for tagger in taggers if tagger.is_ours]
    chosen: dict[str, tuple[Tagger, Tagger]] = {}
    for peer in taggers:
        if peer.kind == "spacy":
            better = [tagger for tagger in own if tagger.f1 > peer.f1]
            chosen["spacy"] = (max(better or own, key=Tagger.speed), peer)
        elif peer.kind == "pipeline":
            chosen["pipeline"] = (max(own, key=lambda tagger: tagger.f1), peer)
    return chosen


def print_ways(taggers: Sequence[Tagger], cores: Sequence[int]) -> None:
    for tagger in taggers:
        ways = ", ".join(f"{count} core(s): {way}" for count, way in tagger.way.items())
        version = tagger.facts[str(min(cores))]["version"]
        print(f"{tagger.name}: version {version}; {ways}; scored on {tagger.scored_on}")


def comparisons(taggers: Sequence[Tagger], rounds: Rounds, words: int) -> dict[str, Comparison]:
    """Compare words a second, and CPU time a word, on one core."""
    cpu = Rounds({turn(tagger): tagger.cpu_us[1] for tagger in taggers}, rounds.other_load)
    found: dict[str, Comparison] = {}
    for name, (one, peer) in pairs(taggers).items():
        found[name] = compare(rounds, turn(one), turn(peer), unit="words/s", work=words)
        found[f"{name}_cpu_time"] = compare(cpu, turn(one), turn(peer), unit="us of CPU a word")
        for key in (name, f"{name}_cpu_time"):
            found[key] = replace(found[key], against=peer.name)
    return found


def facts_of(taggers: Sequence[Tagger], cores: Sequence[int]) -> dict[str, Any]:
    trained = [tagger for tagger in taggers if tagger.is_trained]
    return {
        "of": {name: one.name for name, (one, _) in pairs(taggers).items()},
        "f1": {tagger.name: round(100 * tagger.f1, 2) for tagger in trained},
        "f1_interval": {t.name: [round(100 * t.scores[end], 2) for end in ("low", "high")] for t in trained},
        "words_per_second": {t.name: {str(count): round(t.speed(count)) for count in cores} for t in taggers},
        "cpu_us_a_word": {t.name: round(t.cpu(), 2) for t in taggers},
        "megabytes": {t.name: round(folder_megabytes(folder_of(t)), 1) for t in taggers},
    }


def plot(taggers: Sequence[Tagger], what: str, target: Path) -> None:
    from frontier_plot import PlotPoint, write_plot

    points = [
        PlotPoint(t.name, 100 * t.f1, 100 * t.scores["low"], 100 * t.scores["high"], t.speed(), t.is_ours)
        for t in taggers
        if t.is_trained
    ]
    told(f"wrote {', '.join(map(str, write_plot(points, what, target)))}")


def main() -> None:
    arguments = _arguments()
    types = arguments.types.split(",")
    sentences = read_sentences(arguments.data / "test.tsv")
    timed = part_of(sentences, QUICK_WORDS if arguments.quick else ROUND_WORDS)
    judged = timed if arguments.quick else sentences
    arguments.work.mkdir(parents=True, exist_ok=True)
    sides, missing = sides_of(arguments)
    cores = [1, 2] if len(os.sched_getaffinity(0)) > 1 else [1]
    with ExitStack() as stack:
        taggers, closed = opened(stack, sides, cores)
        if not any(tagger.is_ours for tagger in taggers):
            raise SystemExit("error: none of our own models can be opened")
        for tagger in taggers:
            for count in cores:
                choose_way(tagger, count, sentences)
        rounds = measured(taggers, cores, timed, 40 if arguments.quick else 400)
        for tagger in taggers:
            if tagger.is_trained:
                score(tagger, judged, types)
        what = f"{arguments.data.name}, {len(judged):,} sentences, {count_words(judged):,} words"
        print(f"\n{what}; {', '.join(types)}; rounds of {count_words(timed):,} words")
        print(*table(taggers, cores), sep="\n")
        print_ways(taggers, cores)
        facts = facts_of(taggers, cores)
        report(comparisons(taggers, rounds, count_words(timed)), [rounds], **facts, left_out=missing | closed)
    if arguments.plot:
        plot(taggers, what, arguments.plot)


def sides_of(arguments: argparse.Namespace) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Name the sides with what they open; peers are trained if they have to be."""
    sides = {Path(model).name: ("ours", model) for model in arguments.model or ("bio", "bio-fast")}
    missing = {}
    peers: dict[str, tuple[str, Callable[[], Path]]] = {
        "spaCy": ("spacy", lambda: spacy_pipeline(arguments.spacy, arguments.data, arguments.work)),
        "transformers pipeline": ("transformers", lambda: _pipeline(arguments)),
    }
    for name, (package, prepare) in peers.items():
        try:
            if problem := missing_peers(package):
                raise FileNotFoundError(problem)
            sides[name] = ("spacy" if package == "spacy" else "pipeline", str(prepare()))
        except FileNotFoundError as problem:
            missing[name] = str(problem)
            told(f"{name} is left out: {problem}")
    return sides, missing


def _pipeline(arguments: argparse.Namespace) -> Path:
    return pipeline_folder(arguments.pipeline, arguments.minilm, arguments.data, arguments.work, quick=arguments.quick)


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="fewer sentences, and an untrained head for the pipeline")
    options.add_argument("--data", type=Path, default=SHARED / "ner/BC5CDR", help="train.tsv, devel.tsv and test.tsv")
    options.add_argument("--model", action="append", help="ours: a name or folder; may be repeated (bio, bio-fast)")
    options.add_argument("--types", default="Disease,Chemical", help="types that are scored, separated by commas")
    options.add_argument("--spacy", type=Path, help="a trained spaCy pipeline; by default it is trained here")
    options.add_argument(
        "--pipeline", type=Path, help="a token classifier for transformers; by default made of --minilm"
    )
    options.add_argument("--minilm", type=Path, help="a MiniLM to fine-tune for the pipeline")
    options.add_argument("--work", type=Path, default=Path("work/frontier"), help="where trained peers are kept")
    options.add_argument("--plot", type=Path, help="where to draw F1 against speed, without the suffix: docs/frontier")
    return options.parse_args()


if __name__ == "__main__":
    main()
