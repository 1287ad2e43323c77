"""Seconds until lexicons can be matched, first and afterwards, their memory, and characters matched a second.

    python benchmarks/gazetteer.py [--quick] [--lexicon LABEL=FILE]...

Each figure comes from a process of its own, with a cache folder that is empty at first and filled afterwards; both are
started in turn. Seconds are from after the imports, and include hashing the files. Memory is that of the process after opening, above that before, as the kernel counts it:
`private` is its own, `shared` is mapped from the cache file and is there once for all processes. Matching is measured in
CPU seconds on MEDLINE abstracts in batches of 64. `opening` compares CPU seconds of the first opening with those of a later one.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from annotate_material import texts_of
from harness import SHARED, compare, parser, process, received, report, rounded
from rounds import Side, take_rounds

BATCH = 64
FIELDS = {"private": "Pss_Anon:", "shared": "Pss_File:"}


def memory() -> dict[str, float]:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return {name: sizes[field] for name, field in FIELDS.items()}


def open_once(pipe, cache: str, options: list[str]) -> None:
    """Open lexicons; then match texts, as often as asked."""
    os.environ["ALEMBERT_CACHE"] = cache
    from alembert.text.lexicon import parse_lexicon_option
    from alembert.text.lexicon_cache import LexiconFile, open_lexicons

    before, start, cpu = memory(), time.perf_counter(), time.process_time()
    gazetteer = open_lexicons([LexiconFile(*parse_lexicon_option(option)) for option in options]).gazetteer
    seconds = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    grown = {f"{name}_megabytes": after - before[name] for name, after in memory().items()}
    facts = {name: round(value, 3) for name, value in {**seconds, **grown}.items()}
    for texts in received(pipe):
        start = time.process_time()
        for begin in range(0, len(texts), BATCH):
            gazetteer.find_all(texts[begin : begin + BATCH])
        facts["matching_cpu_seconds"] = time.process_time() - start
        pipe.send(facts)


Facts = dict[str, list[dict[str, float]]]


def side(facts: list[dict[str, float]], cache: str | None, options: list[str], texts: list[str]) -> Side:
    """Open lexicons in a new process, with an empty cache if none is given; the CPU seconds count."""

    def cost() -> float:
        with tempfile.TemporaryDirectory() as empty, process(open_once, cache or empty, options) as ask:
            facts.append(ask(texts))
        return facts[-1]["cpu_seconds"]

    return cost


def main() -> None:
    arguments = parser(__doc__, quick="fewer texts and rounds")
    arguments.add_argument(
        "--lexicon", action="append", metavar="LABEL=FILE", help="by default those of the shared data"
    )
    chosen = arguments.parse_args()
    options = chosen.lexicon or [f"{path.name.split('.')[0]}={path}" for path in sorted(SHARED.glob("lexicon/*.gz"))]
    texts = texts_of(SHARED / "corpus/pubmed21n1298.xml.gz")[: 500 if chosen.quick else 6000]
    facts: Facts = {"afterwards": [], "first": []}
    with tempfile.TemporaryDirectory() as cache:
        caches = {"afterwards": cache, "first": None}
        sides = {name: side(each, caches[name], options, texts) for name, each in facts.items()}
        rounds = take_rounds(sides, seconds=40 if chosen.quick else 200)
        size = sum(path.stat().st_size for path in Path(cache).rglob("*") if path.is_file())
    found = {name: {key: rounded(median(e[key] for e in each)) for key in each[0]} for name, each in facts.items()}
    fastest = min(each["matching_cpu_seconds"] for each in facts["afterwards"])
    speed = round(sum(map(len, texts)) / fastest / 1e6, 1)
    opening = {"opening": compare(rounds, "afterwards", "first", unit="s of CPU")}
    report(opening, [rounds], **found, cache_megabytes=round(size / 1e6, 1), million_characters_per_second=speed)


if __name__ == "__main__":
    main()
