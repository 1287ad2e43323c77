"""Sentences of plain text: which are drawn."""

import json
from pathlib import Path

import pytest

from alembert.errors import BadFile
from alembert.train.distill.distill import sample_sentences


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": str(n), "text": t}) + "\n" for n, t in enumerate(texts)))
    return path


def test_each_sentence_comes_once_and_numbers_alone_are_none(tmp_path: Path) -> None:
    texts = ["Aspirin helps. It is cheap.", "It is cheap. 12.5.", "Fever  fell."]
    found = sample_sentences([write(tmp_path / "texts.jsonl", texts)], 10, 1)
    assert found == ["Aspirin helps.", "It is cheap.", "Fever fell."]


def test_a_draw_is_even_and_the_same_again(tmp_path: Path) -> None:
    path = write(tmp_path / "texts.jsonl", [f"Patient number {n} was well." for n in range(1000)])
    drawn = sample_sentences([path], 100, 1)
    assert len(set(drawn)) == 100
    assert drawn == sample_sentences([path], 100, 1)
    assert drawn != sample_sentences([path], 100, 2)
    numbers = [int(sentence.split()[2]) for sentence in drawn]
    assert numbers == sorted(numbers)
    assert 35 <= sum(number >= 500 for number in numbers) <= 65


def test_files_without_a_sentence_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No sentence"):
        sample_sentences([write(tmp_path / "texts.jsonl", ["12 13", "7"])], 10, 1)
