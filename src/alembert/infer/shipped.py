"""How fast a shipped model is on this machine, on the embedded sample."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from alembert import sample
from alembert.infer.predictor import Predictor

_ROUNDS = 3
_COPIES = 4
"""Times that the passages of the sample are read in a round, so that batches are full."""


def measure_words_per_second(folder: Path) -> float:
    """Return how many words a second a model reads, from raw text to entities, on all cores that may be used."""
    texts = [passage.text for passage in sample.load_passages("en")] * _COPIES
    words = sum(len(text.split()) for text in texts)
    model = Predictor(folder)
    seconds = []
    for _ in range(_ROUNDS + 1):  # the first warms up
        start = time.perf_counter()
        for _ in model.pipe(texts):
            pass
        seconds.append(time.perf_counter() - start)
    return words / median(seconds[1:])
