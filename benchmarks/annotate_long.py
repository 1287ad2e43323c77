"""Annotate 200,000 abstracts in one run of the command: speed and memory over time, and each document exactly once.

    python benchmarks/annotate_long.py [--model bio] [--documents 200000] [--quick]

The input are the abstracts of a MEDLINE file, again and again under new ids. While the command runs, the documents that are
done and the memory of its processes are read every few seconds. The ratios compare the last quarter of the run with the second one
(1 is flat; the first quarter has the start in it).
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from annotate_material import told
from harness import SHARED, parser

MEDLINE = SHARED / "corpus/pubmed21n1298.xml.gz"
DOCUMENTS, QUICK = 200_000, 6_000
A_FILE = 20_000
"""Documents of an input file."""
PUBMED = 37_000_000
"""Abstracts of PubMed, for the estimate."""
EVERY = 2.0
"""Seconds between two looks at the run."""


@dataclass(frozen=True)
class Sample:
    """The state of the run at one moment."""

    seconds: float
    documents: int
    megabytes: float


# -- the input


def write_input(folder: Path, documents: int) -> int:
    """Write the abstracts under new ids, in files as PubMed has them; return the number of words."""
    import alembert

    abstracts = [document.text for document in alembert.read(MEDLINE)]
    words = 0
    numbered = zip(range(documents), cycle(abstracts), strict=False)
    for number in range(0, documents, A_FILE):
        with gzip.open(folder / f"{number:07}.jsonl.gz", "wt", encoding="utf8", compresslevel=1) as file:
            for index, text in islice(numbered, A_FILE):
                words += len(text.split())
                file.write(json.dumps({"id": f"d{index:07}", "text": text}, ensure_ascii=False) + "\n")
    return words


# -- the run


def annotate(model: str, inputs: Path, out: Path) -> list[Sample]:
    """Run the command to its end, and look at it every few seconds."""
    arguments = [sys.executable, "-m", "alembert", "annotate", model, str(inputs), "--out", str(out)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    start, samples = time.perf_counter(), []
    while process.poll() is None:
        time.sleep(EVERY)
        samples.append(Sample(time.perf_counter() - start, documents_done(out), resident_megabytes(process.pid)))
    if process.returncode not in (0, 3):
        sys.exit(f"annotate_long: the command ended with {process.returncode}")
    return samples[:-1]  # the last look may meet a process that has ended


def documents_done(out: Path) -> int:
    """Count the documents of the parts that are recorded, in the folder or in the draft of it."""
    ledgers = [*out.parent.glob(f"{out.name}*/parts.jsonl"), *out.parent.glob(f".{out.name}*/parts.jsonl")]
    lines = ledgers[0].read_text(encoding="utf8").splitlines() if ledgers else []
    return sum(record["documents"] for line in lines if "documents" in (record := _parsed(line)))


def _parsed(line: str) -> dict:
    try:
        return json.loads(line)
    except json.JSONDecodeError:  # a line that is being written
        return {}


def resident_megabytes(pid: int) -> float:
    """Sum what a process and its children hold in memory."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(resident_megabytes(int(child)) for child in children)


# -- what must hold, and what came out


def check_ids(out: Path, documents: int) -> int:
    """Check that each id is in the result exactly once, annotated or set aside; return how many are set aside."""
    annotated, aside = list(written_ids(out)), list(ids_set_aside(out))
    if sorted([*annotated, *aside]) != [f"d{index:07}" for index in range(documents)]:
        sys.exit("annotate_long: not every document is in the result exactly once")
    return len(aside)


def written_ids(out: Path) -> Iterator[str]:
    for part in sorted(out.glob("**/*.jsonl.gz")):
        with gzip.open(part, "rt", encoding="utf8") as lines:
            yield from (json.loads(line)["id"] for line in lines)


def ids_set_aside(out: Path) -> Iterator[str]:
    path = out / "set-aside.jsonl"
    if path.is_file():
        yield from (json.loads(line)["id"] for line in path.read_text(encoding="utf8").splitlines())


def quarter(samples: list[Sample], number: int) -> list[Sample]:
    """Return the samples of a quarter of the time, the first is 0."""
    count = len(samples)
    return samples[number * count // 4 : (number + 1) * count // 4]


def speed(samples: list[Sample]) -> float:
    """Documents a second between the first and the last of the samples."""
    first, last = samples[0], samples[-1]
    return (last.documents - first.documents) / (last.seconds - first.seconds)


def main() -> None:
    arguments = parser(__doc__, quick=f"{QUICK:,} documents")
    arguments.add_argument("--model", default="bio")
    arguments.add_argument("--documents", type=int, default=DOCUMENTS)
    chosen = arguments.parse_args()
    documents = QUICK if chosen.quick else chosen.documents
    if not MEDLINE.is_file():
        sys.exit(f"annotate_long: there is no {MEDLINE.name} in the shared data")
    with tempfile.TemporaryDirectory() as folder:
        inputs, out = Path(folder, "inputs"), Path(folder, "annotated")
        inputs.mkdir()
        words = write_input(inputs, documents)
        told(f"{documents:,} abstracts, {words:,} words")
        start = time.perf_counter()
        samples = annotate(chosen.model, inputs, out)
        seconds = time.perf_counter() - start
        aside = check_ids(out, documents)
    quarters = [quarter(samples, number) for number in range(4)]
    for number, part in enumerate(quarters, 1):
        told(
            f"quarter {number}: {speed(part):,.1f} documents/s, memory {median(each.megabytes for each in part):,.0f} MB, "
            f"at most {max(each.megabytes for each in part):,.0f} MB"
        )
    a_second = documents / seconds
    facts = {
        "ratios": {
            "speed_flat": round(speed(quarters[3]) / speed(quarters[1]), 3),
            "memory_flat": round(
                median(each.megabytes for each in quarters[1]) / median(each.megabytes for each in quarters[3]), 3
            ),
        },
        "model": chosen.model,
        "documents": documents,
        "set_aside": aside,
        "documents_per_second": round(a_second, 1),
        "words_per_second": round(words / seconds),
        "most_megabytes": round(max(each.megabytes for each in samples)),
        "days_for_pubmed": round(PUBMED / a_second / 86_400, 2),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
