"""Files of every task read the same packed: JSON lines, tables, plain text and nested JSON, as `.gz` and `.zst`."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions
from alembert.tasks.task import get_task_class
from task_cases import CASES, Case

pa = pytest.importorskip("pyarrow")

TAGS = "-DOCSTART- (d1)\n\nBreast\tB-Disease\ncancer\tI-Disease\n\nAspirin\tB-Drug\nhelps\tO\n\n"
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Aspirin helps against pain.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "What helps?",
                            "answers": [{"text": "Aspirin", "answer_start": 0}],
                        }
                    ],
                }
            ],
        }
    ],
}
FILES = {
    "tag, conll.tsv": TAGS,
    "tag, conll.txt": TAGS,
    "classify, rows.tsv": "label\ttext\nyes\tit rains\nno\tit is dry\n",
    "classify, rows.csv": "label,text\nyes,it rains\nno,it is dry\n",
    "classify, sections.txt": "###1\nAIM\tTo see.\nEND\tWe saw.\n\n###2\nAIM\tTo go.\nEND\tWe went.\n\n",
    "relate, rows.tsv": "label\ttext\nhelps\t@A$ helps @B$ here\nnone\t@A$ and @B$\n",
    "compare, plain.txt": "One text.\nAnother text.\nA third one.\n",
    "compare, pairs.csv": "a,b,score\none,two,1.5\nthree,four,2.5\n",
    "choose, rows.jsonl": json.dumps({"question": "q", "choices": ["a", "b"], "answer": 1}) + "\n",
    "answer, squad.json": json.dumps(SQUAD),
    "generate, pairs.tsv": "source\ttarget\na long text\tshort\nanother text\tbrief\n",
}
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
}


def read(task: str, settings: dict[str, Any], path: Path) -> list[Any]:
    kind = get_task_class(task)
    reading = kind.read([path], kind.settings_class(**settings), ReadOptions())
    assert reading.set_aside == ()
    return [
        {name: value for name, value in vars(example).items() if name not in ("where", "source", "lines")}
        for example in reading.examples
    ]


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("name", FILES)
def test_a_packed_file_is_read_like_the_plain_one(
    name: str, packed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, _, file = name.partition(", ")
    plain = tmp_path / file
    plain.write_text(FILES[name])
    other = tmp_path / f"{file}{packed}"
    other.write_bytes(PACK[packed](plain.read_bytes()))
    assert read(task, {}, other) == read(task, {}, plain) != []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_packed_lines_are_read_like_plain_ones(case: Case, packed: str, tmp_path: Path) -> None:
    plain, other = tmp_path / "lines.jsonl", tmp_path / f"lines.jsonl{packed}"
    plain.write_text("".join(f"{json.dumps(line)}\n" for line in case.lines()))
    other.write_bytes(PACK[packed](plain.read_bytes()))
    assert read(case.task, case.settings, other) == read(case.task, case.settings, plain) != []
