"""Documents through `Predictor.pipe`, against `annotate` on the same documents.

    python benchmarks/pipe.py [--quick]

The model is a 6x384 tagger as an int8 Export, the documents are abstracts, repeated under new ids. `annotate` reads them from
a file and writes a folder that survives a kill; `pipe` gets them from `alembert.read` and counts what it finds. Rounds
alternate, medians count. The ratio says how many times as fast as `annotate` the stream is.
"""

import json
import tempfile
import time
from pathlib import Path
from statistics import median

from annotate_material import TEST, exported, new_tagger, texts_of, told
from harness import parser

import alembert


def main() -> None:
    arguments = parser(__doc__, quick="300 documents and five rounds").parse_args()
    documents, rounds = (300, 5) if arguments.quick else (10_000, 3)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export = exported(new_tagger(folder / "tagger"), folder / "int8", rows=64)
        texts = texts_of(TEST)
        file = folder / "documents.jsonl"
        repeated = (alembert.Document(f"d{n}", texts[n % len(texts)]) for n in range(documents))
        alembert.write(repeated, file)
        model = alembert.load(export)
        seconds: dict[str, list[float]] = {"annotate": [], "pipe": []}
        found = {}
        for number in range(rounds):
            begun = time.perf_counter()
            result = alembert.annotate(export, file, out=folder / f"out-{number}", progress=False)
            seconds["annotate"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            ids, entities = [], 0
            for document in model.pipe(alembert.read(file)):
                ids.append(document.id)
                entities += len(document.entities)
            seconds["pipe"].append(time.perf_counter() - begun)
            assert ids == [f"d{n}" for n in range(documents)], "pipe keeps the order"
            found = {"annotate": result.counts["entities"], "pipe": entities}
            told(f"round {number + 1}: {', '.join(f'{name} {times[-1]:.1f} s' for name, times in seconds.items())}")
    medians = {name: median(times) for name, times in seconds.items()}
    print(
        json.dumps(
            {
                "ratios": {"annotate": round(medians["annotate"] / medians["pipe"], 3)},
                "documents": documents,
                "seconds": {name: [round(each, 2) for each in times] for name, times in seconds.items()},
                "entities": found,
            }
        )
    )


if __name__ == "__main__":
    main()
