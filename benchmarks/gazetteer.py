"""Seconds until lexicons can be matched, first and afterwards, their memory, and characters matched a second.

    python benchmarks/gazetteer.py [--quick] [--lexicon LABEL=FILE]...

Each figure comes from a process of its own, with a cache folder that is empty at first. Seconds are from after the imports,
and include hashing the files. Memory is that of the process after opening, above that before, as the kernel counts it:
`private` is its own, `shared` is mapped from the cache file and is there once for all processes. Matching is measured in
CPU seconds on MEDLINE abstracts in batches of 64; the best round counts.
"""

import json
import os
import tempfile
import time
from pathlib import Path

from annotate_material import texts_of
from harness import SHARED, parser, process, received

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


def measure(cache: str, options: list[str], texts: list[str], rounds: int) -> dict[str, float]:
    with process(open_once, cache, options) as ask:
        answers = [ask(texts) for _ in range(rounds)]
    fastest = min(answer.pop("matching_cpu_seconds") for answer in answers)
    return {**answers[0], "million_characters_per_second": round(sum(map(len, texts)) / fastest / 1e6, 1)}


def main() -> None:
    arguments = parser(__doc__, quick="fewer texts and rounds")
    arguments.add_argument(
        "--lexicon", action="append", metavar="LABEL=FILE", help="by default those of the shared data"
    )
    chosen = arguments.parse_args()
    options = chosen.lexicon or [f"{path.name.split('.')[0]}={path}" for path in sorted(SHARED.glob("lexicon/*.gz"))]
    texts = texts_of(SHARED / "corpus/pubmed21n1298.xml.gz")[: 1000 if chosen.quick else 6000]
    with tempfile.TemporaryDirectory() as cache:
        found = {name: measure(cache, options, texts, 2 if chosen.quick else 5) for name in ("first", "afterwards")}
        size = sum(path.stat().st_size for path in Path(cache).rglob("*") if path.is_file())
    ratio = round(found["first"]["cpu_seconds"] / found["afterwards"]["cpu_seconds"], 1)
    print(json.dumps({"ratios": {"opening": ratio}, **found, "cache_megabytes": round(size / 1e6, 1)}))


if __name__ == "__main__":
    main()
