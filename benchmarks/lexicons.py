"""What lexicons and letter case cost a tagger: speed of annotation, and the time until a model is open.

    python benchmarks/lexicons.py [--quick] [--lexicon LABEL=FILE]...

The model is MiniLM (6x384) with a random tag head, exported to int8, once plain and once with the features of tokens. Both
annotate the same abstracts in alternating rounds, so that a noisy machine treats both alike; the best round counts. CPU
seconds are shown beside, since other work on the machine changes them less.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from annotate_material import TEST, exported, new_tagger, texts_of, told
from harness import SHARED, parser


def with_features(folder: Path, options: list[str], out: Path) -> Path:
    """Write a tagger again as one that reads lexicons and letter case, with features that are not zero."""
    import torch

    import alembert
    from alembert.files.surgery import with_token_features
    from alembert.tasks.files import read_task, write_tasks
    from alembert.tasks.tag.features import TagLexicons

    plain = read_task(folder).open()
    task = replace(plain, settings=replace(plain.settings, case=True), lexicons=TagLexicons.read(options))
    made = with_token_features(alembert.open(folder), task.token_features, {})
    table = made.model.get_parameter("encoder.embeddings.features.weight")
    torch.nn.init.normal_(table, std=0.02, generator=torch.Generator().manual_seed(1))
    made.save(out)
    write_tasks(out, {task.name: (task, {"examples": 0})})
    return out


def both_clocks(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds of a call."""
    start, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - cpu


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(folders: dict[str, Path], texts: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Open each model, then let them annotate in turn; times are those of the best round."""
    from alembert.infer.task_model import TaskModel

    models, found = {}, {}
    for name, folder in folders.items():
        clocks = both_clocks(lambda name=name, folder=folder: models.update({name: TaskModel.open(folder)}))
        first = both_clocks(lambda name=name: models[name].predict(["A first text."]))
        found[name] = {
            "open_cpu_seconds": round(clocks[1] + first[1], 2),
            "megabytes": round(folder_bytes(folder) / 1e6, 1),
        }
    best = {name: (float("inf"), float("inf")) for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            clocks = both_clocks(lambda model=model: model.predict(texts))
            best[name] = (min(best[name][0], clocks[0]), min(best[name][1], clocks[1]))
            told(f"{name}: {clocks[0]:.1f} s, {clocks[1]:.1f} s of CPU")
    for name, (seconds, cpu) in best.items():
        found[name] |= {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)}
    return found


def main() -> None:
    arguments = parser(__doc__, quick="fewer abstracts and rounds")
    arguments.add_argument(
        "--lexicon", action="append", metavar="LABEL=FILE", help="by default those of the shared data"
    )
    chosen = arguments.parse_args()
    options = chosen.lexicon or [f"{path.name.split('.')[0]}={path}" for path in sorted(SHARED.glob("lexicon/*.gz"))]
    if not options:
        sys.exit("error: there are no lexicons. Name them: --lexicon LABEL=FILE.")
    texts = texts_of(TEST)[: 60 if chosen.quick else 400]
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        plain = new_tagger(place / "plain")
        reading = with_features(plain, options, place / "lexicons")
        folders = {
            name: exported(folder, place / f"{name}-int8", rows=32 if chosen.quick else 300, form="openvino")
            for name, folder in (("plain", plain), ("lexicons", reading))
        }
        found = measure(folders, texts, rounds=2 if chosen.quick else 5)
    ratios = {name: round(found["lexicons"][name] / found["plain"][name], 3) for name in ("seconds", "cpu_seconds")}
    extra = round(found["lexicons"]["open_cpu_seconds"] - found["plain"]["open_cpu_seconds"], 2)
    print(json.dumps({**found, "ratios": ratios, "extra_open_cpu_seconds": extra}))


if __name__ == "__main__":
    main()
