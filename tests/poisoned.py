"""Documents as the world has them: a few good ones between everything that breaks programs."""

import gzip
import json
from pathlib import Path

from alembert.corpus.document import Document
from alembert.corpus.readers import read

MEGABYTE = 1 << 20


def write_poisoned(folder: Path, documents: int = 12) -> list[Path]:
    """Write files with poisoned documents, and give them in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line(f"good.{n}", text(n)) for n in range(documents)]
    poison = [
        line("empty", ""),
        line("blank", " \n\t "),
        line("huge", "aspirin " * (5 * MEGABYTE // 8)),
        line("nul", "aspirin\x00and\x00cancer"),
        b'{"id": "surrogate", "text": "half \\ud83d of aspirin"}\n',
        b'{"id": "bytes", "text": "asp\xff\xfein"}\n',
        line("word", "a" * 1_000_000),
        line("model", "poison"),
        b"not json\n",
        b'{"id": "cut", "text": "asp\n',
    ]
    mixed = [each for pair in zip(lines, poison, strict=False) for each in pair] + lines[len(poison) :]
    (folder / "a.jsonl").write_bytes(b"".join(mixed))
    whole = gzip.compress(b"".join(line(f"packed.{n}", text(n)) for n in range(200)), mtime=0)
    (folder / "b.jsonl.gz").write_bytes(whole[: len(whole) * 2 // 3])
    (folder / "c.jsonl").write_bytes(b"")
    (folder / "d.txt").write_bytes(b"A plain text with aspirin\r\nand cancer.\r\n")
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(line("last", text(3)), mtime=0))
    return sorted(folder.iterdir())


def line(name: str, content: str) -> bytes:
    return json.dumps({"id": name, "text": content}, ensure_ascii=False).encode() + b"\n"


def text(number: int) -> str:
    return f"Visit {number}: aspirin was given. " * (number % 4 + 1) + f"咳嗽 {number * 7919} 👩‍⚕️ and breast cancer."


def ids_in(part: Path) -> list[str]:
    """Name the documents of a part; Label Studio has no reader."""
    if part.suffix == ".json" and isinstance(tasks := json.loads(part.read_bytes()), list):
        return [task["data"]["id"] for task in tasks]
    return [item.id for item in read(part) if isinstance(item, Document)]
