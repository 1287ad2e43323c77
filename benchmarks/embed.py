"""Vectors of sentences against sentence-transformers, and exact search against the flat index of faiss, in one run.

    python -m pip install -r benchmarks/requirements.txt
    python benchmarks/embed.py [--quick] [--model FOLDER] [--text train.tsv]

`encode`: both sides make vectors of the same sentences with the same weights in float32, from text to numbers. Ours is the
verb, whole: it reads a file, and writes an artefact with everything in it brought to the disk. The peer is
`SentenceTransformer.encode` with the fastest of three batch sizes. Vectors are checked to be equal first. `encode_int8` is
the same with our Export at int8 on the peer's float32; the least cosine between both is in the report.

`search_one`, `search_many`: the ten nearest of random vectors, for one query at a time and for 64 at once. Ours reads the
matrix mapped from the disk; the peer is `IndexFlatIP` with the matrix in memory. Scores are checked to be equal first. Our
int8 copy and a plain product in numpy are measured beside. One query reads the whole matrix and uses each number once,
so that memory is its limit.

Peers run in processes of their own. Needs sentence-transformers, faiss-cpu and a 6x384 checkpoint that states its pooling.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from annotate_material import exported
from encode import sample_sentences, sentences
from harness import (
    SHARED,
    Comparison,
    compare,
    need_peers,
    parser,
    process,
    received,
    report,
    rounded,
    timed,
    told,
)
from peaks import Limit, measure_memory_peak, memory_limit, products_limit
from rounds import Rounds, Side, take_rounds

from alembert import hardware
from alembert.hardware.torch_settings import choose_threads
from alembert.infer.embed import EncodeSettings, encode
from alembert.infer.embedder import EmbeddedTexts, Embedder, ModelOrigin
from alembert.infer.index import VECTORS_FILE, VectorIndex
from alembert.infer.search import find_nearest
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.example import Coverage

NEAREST, TOGETHER, WIDTH = 10, 64, 384
BATCHES = (8, 32, 128)
"""Batch sizes of sentence-transformers that are tried; 32 is its default."""


def main() -> None:
    arguments = _arguments()
    need_peers("sentence_transformers", "faiss")
    seconds = 25 if arguments.quick else 200
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = sentences(arguments.text) if arguments.text.is_file() else sample_sentences()
        texts = texts[: 400 if arguments.quick else 2500]
        encoding, cosine = encode_rounds(arguments.model, texts, folder, seconds)
        index = random_index(folder, 40_000 if arguments.quick else 400_000)
        searching = search_rounds(index, seconds)
    peaks = {"float32": hardware.measure_matmul_peak(), "memory": measure_memory_peak(choose_threads().count)}
    for what, rounds in {f"{len(texts):,} sentences": encoding, f"{len(index):,} vectors": searching["one"]}.items():
        print(what, ", ".join(f"{side} {rounds.cost(side):.4f} s" for side in rounds.costs))
    report(
        compare_encoding(arguments.model, texts, encoding, peaks["float32"]) | compare_search(searching, index, peaks),
        [encoding, *searching.values()],
        seconds_a_query={f: {s: rounded(r.cost(s)) for s in r.costs} for f, r in searching.items()},
        least_cosine_int8=rounded(cosine),
    )


# -- encode


def encode_rounds(model: Path, texts: list[str], folder: Path, seconds: float) -> tuple[Rounds, float]:
    """Measure both forms of ours and the peer; return also the least cosine of the int8 form with the peer."""
    exact, int8 = Embedder.open(model), Embedder.open(exported(with_head(model, folder / "head"), folder / "int8", 100))
    with process(serve_sentence_transformers, model) as ask:
        batch = min(BATCHES, key=lambda size: (ask((texts[:64], size)), ask((texts, size))[0])[1])
        told(f"sentence-transformers is fastest with batches of {batch}")
        expected = ask((texts[:64], batch))[1]
        np.testing.assert_allclose(exact.embed(texts[:64]).vectors_ND, expected, atol=1e-5)  # else speed means nothing
        cosine = float((int8.embed(texts[:64]).vectors_ND * expected).sum(1).min())
        sides: dict[str, Side] = {
            "alembert": verb(exact, texts, folder / "exact"),
            "alembert int8": verb(int8, texts, folder / "quantised"),
            "sentence-transformers": lambda: ask((texts, batch))[0],
        }
        return take_rounds(sides, seconds=seconds), cosine


def verb(embedder: Embedder, texts: list[str], folder: Path) -> Side:
    folder.mkdir()
    source = written(folder / "texts.jsonl", texts)
    work = timed(lambda: encode(embedder, [source], folder / "vectors", overwrite=True))

    def seconds() -> float:
        source.write_text(source.read_text() + "\n")  # other content, so that there is something to do
        return work()

    return seconds


def with_head(model: Path, out: Path) -> Path:
    """Write the model as one for the task `compare`, with the pooling that it states, so that it can be exported."""
    import alembert
    from alembert.files.surgery import with_heads
    from alembert.tasks.compare.columns import CompareSettings
    from alembert.tasks.compare.task import CompareTask
    from alembert.tasks.files import write_tasks

    start = alembert.open(model)
    task = CompareTask(CompareSettings(), "scores", "mean").adopt_model_settings(model)
    task = replace(task, dimension=start.blueprint.config.hidden_size)
    with_heads(start, {"embed": task.head()}, pooler=False).save(out)
    write_tasks(out, {task.name: (task, {"examples": 0})})
    return out


def serve_sentence_transformers(pipe, model: Path) -> None:
    """Answer texts and a batch size with the seconds and the vectors."""
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(model), device="cpu")
    for texts, size in received(pipe):
        start = time.perf_counter()
        vectors = peer.encode(texts, batch_size=size, show_progress_bar=False)
        pipe.send((time.perf_counter() - start, vectors))


def compare_encoding(model: Path, texts: list[str], rounds: Rounds, peak: float) -> dict[str, Comparison]:
    import alembert
    from alembert.nn.config import count_multiplications

    checkpoint = alembert.open(model)
    lengths = [len(each.ids) for each in checkpoint.tokenizer.encode_batch(texts, offsets=False)]
    work = 2 * count_multiplications(checkpoint.blueprint.config, lengths)
    limit = products_limit(work, rounds.cost("alembert"), peak, "float32")
    peer, known = "sentence-transformers", {"unit": "vectors/s", "work": len(texts)}
    return {
        "encode": compare(rounds, "alembert", peer, limit=limit, **known),
        "encode_int8": compare(rounds, "alembert int8", peer, **known),
    }


# -- search


@dataclass(frozen=True)
class RandomEmbedder:
    """Gives random vectors of length 1 in place of a model's."""

    generator: np.random.Generator
    origin: ModelOrigin
    pooling: Pooling
    length: int = 16

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        counts = {"examples": len(texts), "characters": sum(map(len, texts)), "windows": len(texts)}
        return EmbeddedTexts(unit_vectors(self.generator, len(texts)), Coverage(**counts))


def unit_vectors(generator: np.random.Generator, rows: int) -> np.ndarray:
    vectors = generator.standard_normal((rows, WIDTH), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random_index(folder: Path, rows: int) -> VectorIndex:
    source = written(folder / "numbers.jsonl", [f"text {number}" for number in range(rows)])
    pooling = Pooling(mode="mean", dimension=WIDTH, normalise=True)
    embedder = RandomEmbedder(np.random.default_rng(0), ModelOrigin("nowhere", "0" * 64), pooling)
    encode(embedder, [source], folder / "drawn", EncodeSettings(int8_copy=True))
    return VectorIndex.open(folder / "drawn")


def search_rounds(index: VectorIndex, seconds: float) -> dict[str, Rounds]:
    """Measure seconds a query: for one at a time, and for many at once."""
    matrix, queries = np.array(index.matrix), unit_vectors(np.random.default_rng(1), TOGETHER)
    with process(serve_faiss, index.folder / VECTORS_FILE) as ask:
        check_equal(index, queries[:8], ask((queries[:8], 8))[1])
        ways: dict[str, Callable[[np.ndarray], object]] = {
            "alembert": lambda some: find_nearest(index, some, NEAREST),
            "alembert int8 copy": lambda some: find_nearest(index, some, NEAREST, copy=True),
            "numpy": lambda some: by_numpy(matrix, some),
        }
        found = {}
        for form, step in {"one": 1, "many": TOGETHER}.items():
            asked = queries[:8] if form == "one" else queries
            sides = {name: by_steps(way, asked, step) for name, way in ways.items()}
            sides["faiss"] = lambda asked=asked, step=step: ask((asked, step))[0] / len(asked)
            found[form] = take_rounds(sides, seconds=seconds / 2)
    return found


def by_steps(way: Callable[[np.ndarray], object], queries: np.ndarray, step: int) -> Side:
    """Ask so many queries at once; return seconds a query."""
    work = timed(lambda: [way(queries[start : start + step]) for start in range(0, len(queries), step)])
    return lambda: work() / len(queries)


def serve_faiss(pipe, vectors: Path) -> None:
    """Answer queries, so many at once, with the seconds and the scores of the nearest."""
    import faiss

    index = faiss.IndexFlatIP(WIDTH)
    index.add(np.load(vectors))
    for queries, step in received(pipe):
        start = time.perf_counter()
        scores = [index.search(queries[first : first + step], NEAREST)[0] for first in range(0, len(queries), step)]
        pipe.send((time.perf_counter() - start, np.concatenate(scores)))


def by_numpy(matrix: np.ndarray, queries: np.ndarray) -> np.ndarray:
    scores = queries @ matrix.T
    found = np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]
    order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1)
    return np.take_along_axis(found, order, axis=1)


def check_equal(index: VectorIndex, queries: np.ndarray, expected: np.ndarray) -> None:
    for copy in (False, True):
        found = find_nearest(index, queries, NEAREST, copy=copy)
        np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], expected, atol=1e-5)


def compare_search(searching: dict[str, Rounds], index: VectorIndex, peaks: dict[str, float]) -> dict[str, Comparison]:
    seconds = {form: rounds.cost("alembert") for form, rounds in searching.items()}
    limits: dict[str, Limit] = {
        "one": memory_limit(index.matrix.nbytes, seconds["one"], peaks["memory"]),
        "many": products_limit(2 * index.matrix.size, seconds["many"], peaks["float32"], "float32"),
    }
    found = {}
    for form, rounds in searching.items():
        for suffix, side, limit in (("", "alembert", limits[form]), ("_int8", "alembert int8 copy", None)):
            found[f"search_{form}{suffix}"] = compare(rounds, side, "faiss", unit="queries/s", work=1, limit=limit)
    return found


# -- both


def written(path: Path, texts: list[str]) -> Path:
    lines = (json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _arguments() -> argparse.Namespace:
    quick, model = "400 sentences, 40,000 vectors, fewer rounds", "a 6x384 checkpoint that states its pooling"
    options = parser(__doc__, quick=quick, model=model)
    options.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="a CoNLL file")
    return options.parse_args()


if __name__ == "__main__":
    main()
