"""Compare sentence splitting with pysbd: F1 of borders on the NCBI-disease abstracts, and speed on full text.

The gold borders come from two forms of one corpus: the CoNLL files know the sentences but neither offsets nor
documents, the PubTator files know the documents but no sentences. Without white space the two are equal character by
character, so a border is a number of characters that are not white space. The end of a document is no border: nobody
can miss it.

    python benchmarks/sentences.py [--quick] [--data FOLDER]
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from alembert.text.sentences import split_sentences

PARTS = {"train": "train", "devel": "develop", "test": "test"}
Split = Callable[[str], Iterable[tuple[int, int]]]


@dataclass(frozen=True)
class Gold:
    """Documents with their borders, and what could not be aligned."""

    documents: list[tuple[str, set[int]]]
    aligned: int
    unaligned: int
    documents_left_out: int


@dataclass(frozen=True)
class Score:
    """Borders found and right, found and wrong, and missed."""

    right: int
    wrong: int
    missed: int

    @property
    def f1(self) -> float:
        return 2 * self.right / (2 * self.right + self.wrong + self.missed)


def squeeze(text: str) -> str:
    return "".join(text.split())


def read_sentences(path: Path) -> list[str]:
    """Read CoNLL sentences as their characters without white space."""
    blocks = re.split(r"\n\s*\n", path.read_text(encoding="utf8"))
    sentences = ("".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks)
    return [squeeze(sentence) for sentence in sentences if sentence.strip()]


def read_documents(path: Path) -> dict[str, str]:
    """Read PubTator texts by their characters without white space; a repeated document counts once."""
    lines = path.read_text(encoding="utf8").splitlines()
    fields = [match.groups() for line in lines if (match := re.match(r"(\d+)\|([ta])\|(.*)", line))]
    titles = {key: text for key, kind, text in fields if kind == "t"}
    texts = [f"{titles.get(key, '')} {text}" for key, kind, text in fields if kind == "a"]
    return {squeeze(text): text for text in texts}


def align(sentences: list[str], documents: dict[str, str]) -> Gold:
    """Lay the sentences over the documents in which they stand; a document not wholly covered is left out."""
    ends: dict[str, list[int]] = {}
    current, position, unaligned = "", 0, 0
    for sentence in sentences:
        if not current.startswith(sentence, position) or position == len(current):
            current = next((text for text in documents if text.startswith(sentence) and text not in ends), "")
            position = 0
        if not current:
            unaligned += 1
            continue
        position += len(sentence)
        ends.setdefault(current, []).append(position)
    whole = {text: found for text, found in ends.items() if found[-1] == len(text)}
    return Gold(
        documents=[(documents[text], set(found[:-1])) for text, found in whole.items()],
        aligned=sum(map(len, whole.values())),
        unaligned=unaligned + sum(map(len, ends.values())) - sum(map(len, whole.values())),
        documents_left_out=len(documents) - len(whole),
    )


def read_gold(data: Path, part: str) -> Gold:
    sentences = read_sentences(data / "ner" / "NCBI-disease" / f"{part}.tsv")
    name = f"NCBI{PARTS[part]}set_corpus.txt"
    return align(sentences, read_documents(data / "ner" / "NCBI-disease-pubtator" / name))


def borders(text: str, ends: Iterable[int]) -> set[int]:
    """Turn offsets into numbers of characters that are not white space, without the end of the document."""
    counts = [0, *accumulate(not character.isspace() for character in text)]
    return {counts[end] for end in ends} - {counts[-1]}


def spaced_numbers(text: str) -> set[int]:
    """Return the places inside numbers that the corpus has torn apart ("0. 05"), where its sentences often end."""
    return borders(text, (match.end() for match in re.finditer(r"[\d=<>-]\.(?= \d)", text)))


def score(gold: Gold, splitter: Split, without_torn_numbers: bool = False) -> Score:
    right = wrong = missed = 0
    for text, expected in gold.documents:
        ignored = spaced_numbers(text) if without_torn_numbers else set()
        found = borders(text, (end for _, end in splitter(text))) - ignored
        right += len(found & expected)
        wrong += len(found - expected)
        missed += len(expected - ignored - found)
    return Score(right, wrong, missed)


def full_text(data: Path, characters: int) -> list[str]:
    """Return paragraphs of full-text articles, about so many characters of them."""
    paragraphs: list[str] = []
    size = 0
    with gzip.open(data / "corpus" / "elife-00.jsonl.gz", "rt", encoding="utf8") as lines:
        for line in lines:
            for section in json.loads(line)["sections"]:
                paragraphs += section["paragraphs"]
                size += sum(map(len, section["paragraphs"]))
            if size >= characters:
                break
    return paragraphs


def pysbd_splitter() -> Split | None:
    try:
        import pysbd
    except ImportError:
        return None
    segmenter = pysbd.Segmenter(language="en", clean=False, char_span=True)
    return lambda text: [(span.start, span.end) for span in segmenter.segment(text)]


def border_scores(data: Path, splitters: dict[str, Split]) -> dict[str, dict[str, float]]:
    """Return the F1 of each splitter on each part, with and without the numbers that the corpus has torn apart."""
    f1: dict[str, dict[str, float]] = {name: {} for name in splitters}
    for part in PARTS:
        gold = read_gold(data, part)
        print(
            f"{part}: {gold.aligned} sentences aligned in {len(gold.documents)} documents, "
            f"{gold.unaligned} sentences and {gold.documents_left_out} documents left out"
        )
        for name, splitter in splitters.items():
            result, without = score(gold, splitter), score(gold, splitter, True)
            f1[name] |= {part: round(result.f1, 4), f"{part}_without_torn_numbers": round(without.f1, 4)}
            print(f"  {name:9} F1 {result.f1:.4f}  {result}, without torn numbers {without.f1:.4f}")
    return f1


def run(data: Path, quick: bool) -> None:
    from harness import Comparison, compare, compare_once, missing_peers, report, timed
    from rounds import Rounds, take_rounds

    peer = pysbd_splitter()
    splitters: dict[str, Split] = {"alembert": split_sentences} | ({"pysbd": peer} if peer else {})
    f1 = border_scores(data, splitters)
    comparisons: dict[str, Comparison] = {}
    measured: list[Rounds] = []
    if peer:
        ours, theirs = f1["alembert"]["test"], f1["pysbd"]["test"]
        comparisons["pysbd_f1"] = compare_once(ours, theirs, unit="F1", against="pysbd", less_is_better=False)
        texts = full_text(data, 200_000 if quick else 2_000_000)

        def reader(splitter: Split) -> Callable[[], Any]:
            return lambda: [splitter(text) for text in texts]

        sides = {name: timed(reader(splitter)) for name, splitter in splitters.items()}
        measured = [take_rounds(sides, seconds=30 if quick else 200)]
        characters = sum(map(len, texts)) / 1e6
        comparisons["pysbd_speed"] = compare(measured[0], "alembert", "pysbd", unit="M characters/s", work=characters)
    else:
        print(f"there is nothing to compare with: {missing_peers('pysbd')}")
    report(comparisons, measured, f1=f1)


def main() -> None:
    from harness import SHARED, parser

    options = parser(__doc__, quick="time on a tenth of the text")
    options.add_argument("--data", type=Path, default=SHARED, help="folder with ner/ and corpus/")
    chosen = options.parse_args()
    if not chosen.data.is_dir():
        raise SystemExit(f"error: there is no folder {chosen.data}. Name the folder of the data sets with --data.")
    run(chosen.data, chosen.quick)


if __name__ == "__main__":
    main()
