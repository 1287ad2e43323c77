"""Put an Export into the package as a shipped model, with its model card.

    python recipes/ship_model.py bio work/tinybert-on-a-laptop [--chemprot FILE] [--into src/alembert/models]

In: the name of a model in `shipped.toml` and the folder of `recipes/tinybert-on-a-laptop`. Out: a folder of the package with
the Export's files, `card.json` and `README.md`: what the model is made of, strict F1 by corpus and type with intervals, the
share of entities that it finds in a corpus that it was not trained on (ChemProt, whose sentences mark some chemicals and
genes), its errors by kind, and the precision that thresholds reach. All figures are measured here, on test data.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import alembert
from alembert import artifact
from alembert.artifact import MANIFEST
from alembert.tasks.runtime.export_files import EXPORT_KIND, read_export_metadata

CORPORA = {"NCBI-disease": ("Disease",), "BC5CDR": ("Chemical", "Disease"), "BC2GM": ("Gene",)}
ERROR_KINDS = {
    "boundary": "wrong borders",
    "type": "wrong type",
    "both": "wrong borders and type",
    "missed": "missed",
    "spurious": "found where there is none",
}
_MARKS = re.compile(r"<< (.+?) >>|\[\[ (.+?) \]\]")


def main() -> None:
    """Ship the model that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("work", type=Path)
    parser.add_argument("--chemprot", type=Path, help="ChemProt's test.txt, with << >> and [[ ]] around entities")
    parser.add_argument("--into", type=Path, default=Path("src/alembert/models"))
    arguments = parser.parse_args()
    facts = tomllib.loads(Path(__file__).with_name("shipped.toml").read_text(encoding="utf8"))
    export = arguments.work / f"{arguments.name}-int8"
    card = {**facts["shared"], **facts[arguments.name], **describe_graph(export)}
    card["scores"] = [score(export, arguments.work / "data", corpus) for corpus in CORPORA]
    if arguments.chemprot:
        card["other_corpora"] = [score_chemprot(export, arguments.chemprot)]
    card["thresholds"] = [measure_threshold(export, arguments.work / "data", share) for share in (0.9, 0.95)]
    write(export, arguments.into / arguments.name, arguments.name, card)


def describe_graph(export: Path) -> dict[str, Any]:
    """Describe the network of an Export."""
    graph = read_export_metadata(export)
    return {
        "architecture": f"{graph.layers} layers of {graph.width}, {graph.parameters / 1e6:.1f} M parameters, {graph.precision}",
        "types": sorted({label[2:] for head in graph.heads.values() for label in head.labels if label != "O"}),
    }


def score(export: Path, data: Path, corpus: str) -> dict[str, Any]:
    """Score an Export on a test file: strict F1 with its interval, by type, and its errors by kind."""
    types = ",".join(CORPORA[corpus])
    test = data / corpus / "test.tsv"
    table = run("evaluate", export, test, "--set", f"read.types={types}")
    measures = table["scores"]["measures"]
    kinds = run("inspect", "errors", export, test, "--set", f"read.types={types}", "--top", 0)["tables"]["kinds"]
    return {
        "data": corpus,
        "part": "test",
        "types": list(CORPORA[corpus]),
        **{name: round(measures[name], 4) for name in ("f1", "precision", "recall")},
        "interval": [round(table["interval"][end], 4) for end in ("low", "high")],
        "by_type": {label: round(own["f1"], 4) for label, own in table["scores"]["by_label"].items()},
        "entities": table["scores"]["coverage"]["gold"],
        "errors": {row["kind"]: row["count"] for row in kinds if row["kind"] in ERROR_KINDS},
    }


def measure_threshold(export: Path, data: Path, share: float) -> dict[str, Any]:
    """Measure, on the test files together, what answers above the threshold of a precision on development data reach."""
    right = guessed = gold = 0
    for corpus, types in CORPORA.items():
        pairs = predict_file(export, data / corpus / "test.tsv", types, share)
        right += sum(len(true & guess) for true, guess in pairs)
        guessed += sum(len(guess) for _, guess in pairs)
        gold += sum(len(true) for true, _ in pairs)
    return {"min_precision": share, "precision": round(right / guessed, 4), "recall": round(right / gold, 4)}


Spans = set[tuple[int, int, str]]


def predict_file(export: Path, file: Path, types: tuple[str, ...], share: float) -> list[tuple[Spans, Spans]]:
    """Return right and guessed entities of each document of a file."""
    documents = list(alembert.read(file))
    texts = [document.text for document in documents]
    guesses = alembert.load(export).pipe(texts, min_precision=share)
    return [
        (
            {(e.start, e.end, e.label) for e in document.entities},
            {(e.start, e.end, e.label) for e in guess.entities if e.label in types},
        )
        for document, guess in zip(documents, guesses, strict=True)
    ]


def score_chemprot(export: Path, file: Path) -> dict[str, Any]:
    """Return the share of the entities that ChemProt marks for its relations that the model finds with equal borders."""
    marked: dict[str, Spans] = defaultdict(set)
    for line in file.read_text(encoding="utf8").splitlines():
        text, spans = strip_marks(json.loads(line)["text"])
        marked[text] |= spans
    guesses = alembert.load(export).pipe(list(marked))
    found = overlapping = 0
    for spans, guess in zip(marked.values(), guesses, strict=True):
        own = {(e.start, e.end) for e in guess.entities}
        found += sum(span[:2] in own for span in spans)
        overlapping += sum(any(start < span[1] and span[0] < end for start, end in own) for span in spans)
    count = sum(map(len, marked.values()))
    return {
        "data": "ChemProt",
        "part": "test",
        "entities": count,
        "recall": round(found / count, 4),
        "overlapping": round(overlapping / count, 4),
        "note": "chemicals and genes that take part in a relation; others are not marked, so there is no precision",
    }


def strip_marks(text: str) -> tuple[str, Spans]:
    """Remove ChemProt's marks and return where the entities are."""
    plain, spans, last = "", set(), 0
    for match in _MARKS.finditer(text):
        plain += text[last : match.start()]
        surface = match[1] or match[2]
        spans.add((len(plain), len(plain) + len(surface), ""))
        plain, last = plain + surface, match.end()
    return plain + text[last:], spans


def run(*words: object) -> dict[str, Any]:
    """Run a command of alembert and return its JSON."""
    command = [sys.executable, "-m", "alembert", *map(str, words), "--json"]
    table: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return table


def write(export: Path, target: Path, name: str, card: Mapping[str, Any]) -> None:
    """Write the folder: the files of the Export, and the card in place of the one that `export` wrote."""
    manifest = artifact.open_artifact(export, EXPORT_KIND)
    config = {key: value for key, value in manifest.config.items() if key in ("graph", "settings", "in_float")}
    with artifact.create(target, EXPORT_KIND, config=config, inputs=[], overwrite=True) as draft:
        for file in manifest.files:
            if file != "README.md":
                shutil.copy2(export / file, draft.path / file)
        (draft.path / "card.json").write_text(json.dumps(card, ensure_ascii=False, indent=2) + "\n", encoding="utf8")
        (draft.path / "README.md").write_text("\n".join(card_lines(name, card)) + "\n", encoding="utf8")
        draft.counts.update(manifest.counts)
    print(f"{target}: {sum(file.stat().st_size for file in target.iterdir()) / 1e6:.2f} MB, {MANIFEST} written")


def card_lines(name: str, card: Mapping[str, Any]) -> Iterator[str]:
    """Write the model card."""
    yield from ("---", f"license: {card['license'].lower()}", "language: en", "library_name: onnx", "---")
    yield from (f"# {name}", "", card["summary"], "", card["architecture"] + ".", "")
    yield from ("```python", "import alembert", "", f'model = alembert.load("{name}")')
    yield from (f'document = model.predict("{card["example"]}")', "```", "", "## Scores", "")
    yield from ("Strict F1 on the test files, both borders and the type right, of these very int8 weights.", "")
    yield "| data | types | F1 (95 % interval) | precision | recall | by type |"
    yield "|---|---|---|---|---|---|"
    yield from map(_score_row, card["scores"])
    for other in card.get("other_corpora", ()):
        yield from (
            "",
            f"Of {other['entities']:,} entities marked in the test file of {other['data']}, which it was not trained on,",
        )
        yield f"it finds {100 * other['recall']:.1f} % with equal borders and {100 * other['overlapping']:.1f} % with any overlap"
        yield f"({other['note']})."
    yield from ("", "## What it gets wrong", "")
    kinds = [kind for kind in ERROR_KINDS if any(kind in score["errors"] for score in card["scores"])]
    yield "| data | " + " | ".join(ERROR_KINDS[kind] for kind in kinds) + " |"
    yield "|---" * (len(kinds) + 1) + "|"
    for row in card["scores"]:
        yield f"| {row['data']} | " + " | ".join(str(row["errors"].get(kind, 0)) for kind in kinds) + " |"
    yield from ("", *card["limits"], "", "## Sure answers", "")
    yield "`--min-precision` withholds entities below a threshold chosen on development data. On the three test files together:"
    yield from ("", "| `--min-precision` | precision | recall |", "|---|---|---|")
    for row in card["thresholds"]:
        yield f"| {row['min_precision']} | {100 * row['precision']:.1f} | {100 * row['recall']:.1f} |"
    yield from ("", "## Made of", "", "| what | licence | use |", "|---|---|---|")
    yield from (f"| {part['name']} | {part['license']} | {part['use']} |" for part in card["sources"])
    yield from (
        "",
        card["notice"],
        "",
        f"Licence of the weights: {card['license']}. `{MANIFEST}` has the hash of every file.",
    )


def _score_row(score: Mapping[str, Any]) -> str:
    low, high = (100 * end for end in score["interval"])
    by_type = ", ".join(f"{label} {100 * value:.1f}" for label, value in score["by_type"].items())
    figures = f"{100 * score['f1']:.1f} ({low:.1f} to {high:.1f}) | {100 * score['precision']:.1f} | {100 * score['recall']:.1f}"
    return f"| {score['data']} | {', '.join(score['types'])} | {figures} | {by_type} |"


if __name__ == "__main__":
    main()
