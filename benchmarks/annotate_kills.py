"""Annotate 100,000 documents, one in a hundred of them poisoned, with 30 kills on the way; nothing may be lost or doubled.

A tiny Export annotates passages of the shared corpora through the command, as a user would run it: once in peace, once
killed by SIGKILL at random moments and started again. Both results must have the same bytes and hold each document once,
annotated or set aside. Memory is compared with that of 5,000 documents: the ratio says how flat it is (1 is flat).
"""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, cycle, islice
from pathlib import Path

from annotate_material import exported, new_tagger, texts_of
from harness import SHARED, compare_once, parser, report, told

FEW = 5_000
PASSAGE = 300
"""Characters of a document, about."""
A_FILE = 5_000
"""Documents of an input file."""
SHAPE = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
POISON = (
    lambda name: _line(name, ""),
    lambda name: _line(name, "aspirin " * 655_360),  # 5 MB
    lambda name: _line(name, "aspirin\x00and\x00cancer"),
    lambda name: f'{{"id": "{name}", "text": "half \\ud83d of aspirin"}}\n'.encode(),
    lambda name: b'{"id": "%s", "text": "asp\xff\xfein"}\n' % name.encode(),
    lambda name: _line(name, "a" * 1_000_000),
)


def _line(name: str, text: str) -> bytes:
    return json.dumps({"id": name, "text": text}, ensure_ascii=False).encode() + b"\n"


# -- the input


def passages() -> Iterator[str]:
    """Cut the texts of a MEDLINE file into short documents, again and again."""
    texts = texts_of(SHARED / "corpus/pubmed21n1298.xml.gz")
    return cycle(chain.from_iterable(map(_cut, texts)))


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), PASSAGE):
        if part := text[start : start + PASSAGE].strip():
            yield part


def write_input(folder: Path, documents: int) -> None:
    """Write files of documents, every hundredth of them poisoned, and at the end a file that was cut off."""
    folder.mkdir()
    lines = _lines(documents)
    for number in range(0, documents, A_FILE):
        with gzip.open(folder / f"{number:06}.jsonl.gz", "wb", compresslevel=1) as file:
            file.writelines(islice(lines, A_FILE))
    whole = gzip.compress(b"".join(_line(f"cut{n:03}", f"Cut off {n}.") for n in range(200)))
    (folder / "cut.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])


def _lines(documents: int) -> Iterator[bytes]:
    poison = cycle(POISON)
    for number, text in zip(range(documents), passages(), strict=False):
        name = f"d{number:06}"
        yield next(poison)(name) if number % 100 == 99 else _line(name, text)


# -- the runs


def command(model: Path, inputs: Path, out: Path) -> subprocess.Popen[bytes]:
    arguments = ["annotate", str(model), str(inputs), "--out", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "alembert", *arguments], **quiet)


def in_peace(model: Path, inputs: Path, out: Path) -> tuple[float, int]:
    """Run to the end; give seconds and the most memory in kilobytes."""
    start, process = time.perf_counter(), command(model, inputs, out)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process.returncode == 3, f"the run ended with {process.returncode}, and 3 was expected")
    return time.perf_counter() - start, usage.ru_maxrss


def with_kills(model: Path, inputs: Path, out: Path, kills: int, seconds: float) -> int:
    """Kill runs at random moments of a time in which a whole run would come to its end; give how many were killed."""
    moments, killed = random.Random(kills), 0
    while not (out / "manifest.json").is_file():
        process = command(model, inputs, out)
        try:
            left = None if killed == kills else moments.uniform(0, 2.5 * seconds / kills)
            process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            told(f"killed {killed} of {kills}")
    return killed


# -- what must hold


def check(holds: bool, sentence: str) -> None:
    if not holds:
        sys.exit(f"annotate_kills: {sentence}")


def check_equal(one: Path, other: Path) -> None:
    """See that both folders have the same files with the same bytes; the manifests, the same counts."""
    files = [{path.name: path for path in folder.iterdir()} for folder in (one, other)]
    check(files[0].keys() == files[1].keys(), "the runs have written different files")
    for name in files[0].keys() - {"manifest.json"}:
        check(files[0][name].read_bytes() == files[1][name].read_bytes(), f"{name} differs")
    counts = [json.loads(each["manifest.json"].read_bytes())["counts"] for each in files]
    check(counts[0] == counts[1], "the counts differ")


def check_each_once(out: Path, documents: int) -> Counter[str]:
    """See that each document is in the output or set aside, once, with its entities where they say; count by kind."""
    found: Counter[str] = Counter()
    for part in sorted(out.glob("part-*")):
        with gzip.open(part, "rt", encoding="utf8", errors="surrogatepass") as lines:
            found.update(_checked(json.loads(line)) for line in lines)
    annotated = found.total()
    for line in (out / "set-aside.jsonl").read_bytes().splitlines():
        found[json.loads(line)["id"]] += 1
    wanted = {f"d{number:06}" for number in range(documents)}
    lost = wanted - found.keys()
    # A line with bytes that are no UTF-8 may have no name any more; it is set aside by its place.
    check(len(lost) <= found[None], f"{len(lost)} documents are lost, such as {sorted(lost)[:3]}")
    check(all(found[name] == 1 for name in wanted - lost), "a document is there twice")
    return Counter(annotated=annotated, set_aside=found.total() - annotated)


def _checked(record: dict) -> str:
    for entity in record.get("entities", ()):
        for start, end in entity["spans"]:
            check(0 <= start < end <= len(record["text"]), f"an entity of {record['id']} is out of its text")
    return record["id"]


def main() -> None:
    arguments = parser(__doc__, quick="10,000 documents and 6 kills").parse_args()
    documents, kills = (10_000, 6) if arguments.quick else (100_000, 30)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = exported(new_tagger(place / "model", SHAPE), place / "export", rows=20)
        for name, size in (("few", FEW), ("many", documents)):
            write_input(place / f"in-{name}", size)
        _, small = in_peace(model, place / "in-few", place / "few")
        seconds, large = in_peace(model, place / "in-many", place / "quiet")
        told(f"{documents:,} documents in {seconds:.0f} s, {large / 1024:.0f} MB; {FEW:,} in {small / 1024:.0f} MB")
        killed = with_kills(model, place / "in-many", place / "killed", kills, seconds)
        check_equal(place / "quiet", place / "killed")
        counts = check_each_once(place / "quiet", documents)
    flat = compare_once(large / 1024, small / 1024, unit="MB", against=f"{FEW:,} documents")
    report({"flat_memory": flat}, [], documents=documents, kills=killed, seconds=round(seconds, 1), **counts)


if __name__ == "__main__":
    main()
