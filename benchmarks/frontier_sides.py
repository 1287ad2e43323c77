"""The sides of `frontier.py`: texts in, entities with offsets out, each in a process of its own.

A side has one or several ways to run, as its documentation recommends them for many texts; the fastest counts.
"""

import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path

from frontier_material import Entity
from harness import received

Answers = list[list[Entity]]
SPACY_BATCHES = (64, 256, 1000)
PIPELINE_BATCHES = (1, 8, 32)


class Ours:
    """An Export or a Checkpoint through the public API."""

    def __init__(self, model: str, _: int) -> None:
        import alembert

        self._model = alembert.load(model)
        self.folder = self._model.folders[0]
        self.version = alembert.__version__
        self.ways = ("pipe",)

    def answers(self, texts: Sequence[str], _: str) -> Answers:
        return [[(each.start, each.end, each.label) for each in one.entities] for one in self._model.pipe(texts)]


class Spacy:
    """A trained pipeline: `nlp.pipe` with several batch sizes, on two cores in two processes as well."""

    def __init__(self, model: str, cores: int) -> None:
        import spacy

        # What starts its processes on Linux, unless it is started by a program that chose otherwise, as this one.
        multiprocessing.set_start_method("fork", force=True)
        self._nlp = spacy.load(model)
        self.folder, self.version = Path(model), spacy.__version__
        processes = (1, 2) if cores > 1 else (1,)
        self.ways = tuple(f"batch_size={size}, n_process={n}" for n in processes for size in SPACY_BATCHES)

    def answers(self, texts: Sequence[str] | Sequence[tuple[str, ...]], way: str) -> Answers:
        """Read texts; or words, which become tokens as they are."""
        from spacy.tokens import Doc

        settings = {name: int(value) for name, value in (part.split("=") for part in way.split(", "))}
        given = [each if isinstance(each, str) else Doc(self._nlp.vocab, words=list(each)) for each in texts]
        return [[(e.start_char, e.end_char, e.label_) for e in doc.ents] for doc in self._nlp.pipe(given, **settings)]


class Pipeline:
    """The token-classification pipeline of transformers; the tag of a word is that of its first piece."""

    def __init__(self, model: str, cores: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(cores)
        self._pipeline = transformers.pipeline("token-classification", model=model, aggregation_strategy="first")
        self.folder, self.version = Path(model), transformers.__version__
        self.ways = tuple(f"batch_size={size}{order}" for size in PIPELINE_BATCHES for order in ("", ", sorted"))

    def answers(self, texts: Sequence[str], way: str) -> Answers:
        numbers = list(range(len(texts)))
        if way.endswith("sorted"):
            numbers.sort(key=lambda number: len(texts[number]))
        size = int(way.split(",", maxsplit=1)[0].removeprefix("batch_size="))
        found: Answers = [[] for _ in texts]
        for number, one in zip(numbers, self._pipeline([texts[n] for n in numbers], batch_size=size), strict=True):
            found[number] = [(each["start"], each["end"], each["entity_group"]) for each in one]
        return found


SIDES: dict[str, type] = {"ours": Ours, "spacy": Spacy, "pipeline": Pipeline}


def serve(pipe, kind: str, model: str, cores: int) -> None:
    """Open a side, then answer: (texts, way) -> seconds, CPU seconds, entities."""
    import logging
    import warnings

    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    questions = received(pipe)
    next(questions)
    try:
        side = SIDES[kind](model, cores)
    except Exception as problem:  # whatever is raised is why it is left out
        pipe.send(f"{type(problem).__name__}: {problem}".splitlines()[0])
        return
    pipe.send({"folder": str(side.folder), "version": side.version, "ways": side.ways})
    for texts, way in questions:
        used, start = sum(os.times()[:4]), time.perf_counter()
        found = side.answers(texts, way)
        pipe.send((time.perf_counter() - start, sum(os.times()[:4]) - used, found))
