"""Vectors of sentences against a loop with transformers, and exact search against numpy and scikit-learn, in one run.

    python benchmarks/embed.py [--quick] [--model FOLDER] [--text train.tsv]

encode: both sides make the vectors of the same sentences with the same weights in float32 on the same threads, from text to
numbers. Ours is the verb, whole: it reads a file, and writes an artefact with everything in it brought to the disk. The
peer is what sentence-transformers does: sentences sorted by length, batches of 32, padded to the longest, mean, length 1.
search: the ten nearest of random vectors, for one query at a time and for 64 at once. Ours reads the matrix mapped from
the disk; `numpy` multiplies the whole matrix in memory and partitions the scores, `sklearn` is NearestNeighbors (brute,
cosine). What is found is checked to be equal first. Rounds alternate so that a noisy machine treats all alike; the best
round counts. Needs `transformers`, `scikit-learn` and a 6x384 checkpoint that states its pooling.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import SHARED, best, chunks, parser, timed

from alembert.infer.embed import EncodeSettings, encode
from alembert.infer.embedder import EmbeddedTexts, Embedder, ModelOrigin
from alembert.infer.index import VectorIndex, find_nearest
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.example import Coverage

BATCH, NEAREST, TOGETHER, WIDTH = 32, 10, 64, 384


def main() -> None:
    arguments = _arguments()
    rounds = 2 if arguments.quick else 4
    with tempfile.TemporaryDirectory() as name:
        texts = sentences(arguments.text)[: 400 if arguments.quick else 2500]
        encoding = encode_seconds(arguments.model, texts, Path(name), rounds)
        index = random_index(Path(name), 40_000 if arguments.quick else 400_000)
        searching = search_seconds(index, rounds)
        report(len(texts), encoding, len(index), searching)


# -- encode


def encode_seconds(model: Path, texts: list[str], folder: Path, rounds: int) -> dict[str, float]:
    embedder, peer = Embedder.open(model), Peer(model)
    found, expected = embedder.embed(texts[:BATCH]).vectors_ND, peer.vectors(texts[:BATCH])
    np.testing.assert_allclose(found, expected, atol=1e-5)  # speed means nothing if the numbers differ
    source = written(folder / "texts.jsonl", texts)
    contenders = {
        "alembert": lambda: encode(embedder, [source], folder / "vectors", overwrite=True),
        "transformers": lambda: peer.vectors(texts),
    }

    def ours() -> float:
        source.write_text(source.read_text() + "\n")  # other content, so that there is something to do
        return timed(contenders["alembert"])()

    return best({"alembert": ours, "transformers": timed(contenders["transformers"])}, rounds)


class Peer:
    """What sentence-transformers computes, without its packaging."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModel.from_pretrained(model).eval()

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        import torch

        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        found = np.empty((len(texts), WIDTH), np.float32)
        with torch.inference_mode():
            for numbers in chunks(order, BATCH):
                part = [texts[number] for number in numbers]
                tokens = self._tokenizer(part, padding=True, truncation=True, max_length=256, return_tensors="pt")
                states, mask = self._model(**tokens).last_hidden_state, tokens["attention_mask"][:, :, None]
                means = (states * mask).sum(1) / mask.sum(1)
                found[numbers] = torch.nn.functional.normalize(means).numpy()
        return found


# -- search


@dataclass(frozen=True)
class Drawn:
    """Gives random vectors of length 1 in place of a model's."""

    drawn: np.random.Generator
    origin: ModelOrigin
    pooling: Pooling
    length: int = 16

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        counts = {"examples": len(texts), "characters": sum(map(len, texts)), "windows": len(texts)}
        return EmbeddedTexts(unit_vectors(self.drawn, len(texts)), Coverage(**counts))


def unit_vectors(drawn: np.random.Generator, rows: int) -> np.ndarray:
    vectors = drawn.standard_normal((rows, WIDTH), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random_index(folder: Path, rows: int) -> VectorIndex:
    source = written(folder / "numbers.jsonl", [f"text {number}" for number in range(rows)])
    pooling = Pooling(mode="mean", dimension=WIDTH, normalise=True)
    embedder = Drawn(np.random.default_rng(0), ModelOrigin("nowhere", "0" * 64), pooling)
    encode(embedder, [source], folder / "drawn", EncodeSettings(int8_copy=True))
    return VectorIndex.open(folder / "drawn")


def search_seconds(index: VectorIndex, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds a query: for one at a time, and for many at once."""
    from sklearn.neighbors import NearestNeighbors

    matrix = np.array(index.matrix)
    peer = NearestNeighbors(n_neighbors=NEAREST, algorithm="brute", metric="cosine").fit(matrix)
    queries = unit_vectors(np.random.default_rng(1), TOGETHER)
    check_equal(index, matrix, queries[:8])
    ways: dict[str, Callable[[np.ndarray], object]] = {
        "alembert": lambda some: find_nearest(index, some, NEAREST),
        "alembert_int8": lambda some: find_nearest(index, some, NEAREST, copy=True),
        "numpy": lambda some: by_numpy(matrix, some),
        "sklearn": peer.kneighbors,
    }
    one = {name: timed(lambda way=way: [way(queries[n : n + 1]) for n in range(8)]) for name, way in ways.items()}
    many = {name: timed(lambda way=way: way(queries)) for name, way in ways.items()}
    return {
        "one": {name: seconds / 8 for name, seconds in best(one, rounds).items()},
        "many": {name: seconds / TOGETHER for name, seconds in best(many, rounds).items()},
    }


def by_numpy(matrix: np.ndarray, queries: np.ndarray) -> np.ndarray:
    scores = queries @ matrix.T
    found = np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]
    order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1)
    return np.take_along_axis(found, order, axis=1)


def check_equal(index: VectorIndex, matrix: np.ndarray, queries: np.ndarray) -> None:
    expected = by_numpy(matrix, queries).tolist()
    for copy in (False, True):
        found = find_nearest(index, queries, NEAREST, copy=copy)
        assert [[hit.row for hit in hits] for hits in found] == expected


# -- both


def report(count: int, encoding: dict[str, float], rows: int, searching: dict[str, dict[str, float]]) -> None:
    speeds = {name: count / seconds for name, seconds in encoding.items()}
    print(f"{count:,} sentences")
    for name, speed in speeds.items():
        print(f"{name:15} {speed:9,.1f} vectors/s")
    ratios = {"encode": speeds["alembert"] / speeds["transformers"]}
    print(f"{rows:,} vectors of {WIDTH}, the {NEAREST} nearest")
    for form, seconds in searching.items():
        for name, each in seconds.items():
            print(f"{name:15} {1 / each:9,.1f} queries/s, {form} at a time")
        for peer in ("numpy", "sklearn"):
            ratios[f"search_{form}_{peer}"] = seconds[peer] / seconds["alembert"]
        ratios[f"search_{form}_int8"] = seconds["alembert"] / seconds["alembert_int8"]
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    print(json.dumps({"ratios": rounded, "vectors_per_second": speeds, "seconds_a_query": searching}))


def written(path: Path, texts: list[str]) -> Path:
    lines = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def sentences(path: Path) -> list[str]:
    """The sentences of a CoNLL file; without one, those of the embedded sample."""
    if path.is_file():
        blocks = path.read_text(encoding="utf8").strip().split("\n\n")
        return [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks]
    from alembert import sample

    print("note: no CoNLL file; the embedded sample is used, and its ratio is another", file=sys.stderr)
    return [part for passage in sample.load_passages("en") for part in passage.text.split(". ") if part]


def _arguments() -> argparse.Namespace:
    options = parser(
        __doc__,
        quick="400 sentences, 40,000 vectors, two rounds",
        model="a 6x384 checkpoint, mean and length 1",
    )
    options.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="a CoNLL file")
    return options.parse_args()


if __name__ == "__main__":
    main()
