"""Sentences of plain text for a teacher to label: what a student learns from beside the labelled examples.

In: a Corpus folder or raw files. Out: so many sentences of them, drawn evenly from all, always the same for a seed. A
student soon knows a few thousand examples by heart; text of the same kind costs nothing but the teacher's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.jobs import Progress
from alembert.data.order import make_rng
from alembert.errors import BadFile
from alembert.text.sentences import split_sentences


def sentences_of(
    inputs: Sequence[Path], most: int, seed: int, tell: Callable[[Progress], None] = lambda _: None
) -> list[str]:
    """Draw sentences with letters, each once, in the order in which they stand there."""
    rng = make_rng(seed, "texts")
    drawn: dict[int, tuple[int, str]] = {}
    seen: set[str] = set()
    for sample in replace(TextSampleReader.open(inputs), tell=tell):
        for start, end in split_sentences(sample.text):
            sentence = " ".join(sample.text[start:end].split())
            if sentence in seen or not any(map(str.isalpha, sentence)):
                continue
            place = len(seen) if len(seen) < most else int(rng.integers(len(seen) + 1))
            if place < most:
                drawn[place] = (len(seen), sentence)
            seen.add(sentence)
    if not drawn:
        raise BadFile(f"No sentence was found in {', '.join(map(str, inputs))}. Check the files.")
    return [sentence for _, sentence in sorted(drawn.values())]
