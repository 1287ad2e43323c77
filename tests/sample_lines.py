"""Passages of the embedded sample as labelled JSON lines, for every test that learns from them."""

import json
from pathlib import Path
from typing import Any

from alembert import sample


def labelled(split: str, count: int, longest: int | None = None) -> list[dict[str, Any]]:
    """Give English passages with their topic and entities; of longer texts the beginning."""
    return [
        {
            "id": passage.id,
            "text": passage.text[:longest],
            "topic": passage.topic,
            "entities": [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
                if longest is None or each.end <= longest
            ],
        }
        for passage in sample.load_passages("en", split)[:count]
    ]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Write JSON lines; give where."""
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf8")
    return path
