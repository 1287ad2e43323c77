"""Documents through `Predictor.pipe`, against `annotate` on the same documents.

    python benchmarks/pipe.py [--quick]

The model is a 6x384 tagger as an int8 Export, the documents are abstracts, repeated under new ids. `annotate` reads them from
a file and writes a folder that survives a kill; `pipe` gets them from `alembert.read` and counts what it finds. The ratio
says how many times as fast as `annotate` the stream is.
"""

import tempfile
from pathlib import Path

from annotate_material import TEST, exported, new_tagger, texts_of
from harness import compare, parser, report, timed
from rounds import take_rounds

import alembert


def main() -> None:
    arguments = parser(__doc__, quick="300 documents instead of 3,000").parse_args()
    documents = 300 if arguments.quick else 3_000
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export = exported(new_tagger(folder / "tagger"), folder / "int8", rows=64)
        texts = texts_of(TEST)
        file = folder / "documents.jsonl"
        repeated = (alembert.Document(f"d{n}", texts[n % len(texts)]) for n in range(documents))
        alembert.write(repeated, file)
        model = alembert.load(export)
        found = {}

        def annotate() -> None:
            result = alembert.annotate(export, file, out=folder / "out", overwrite=True, progress=False)
            found["annotate"] = result.counts["entities"]

        def pipe() -> None:
            ids, found["pipe"] = [], 0
            for document in model.pipe(alembert.read(file)):
                ids.append(document.id)
                found["pipe"] += len(document.entities)
            assert ids == [f"d{n}" for n in range(documents)], "pipe keeps the order"

        sides = {"pipe": timed(pipe), "annotate": timed(annotate)}
        rounds = take_rounds(sides, seconds=60 if arguments.quick else 600)
    compared = compare(rounds, "pipe", "annotate", unit="documents/s", work=documents)
    report({"annotate": compared}, [rounds], documents=documents, entities=found)


if __name__ == "__main__":
    main()
