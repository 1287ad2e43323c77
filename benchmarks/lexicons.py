"""What lexicons and letter case cost a tagger: speed of annotation, and the time until a model is open.

    python benchmarks/lexicons.py [--quick] [--lexicon LABEL=FILE]...

The model is MiniLM (6x384) with a random tag head, exported to int8, once plain and once with the features of tokens. Both
annotate the same abstracts. Ratios, below 1 since features cost something: `seconds` and `cpu_seconds` of the plain model over
those of the one with features; `opening` is the same of CPU seconds until a model has read its first text.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from annotate_material import TEST, exported, new_tagger, texts_of
from harness import SHARED, compare, compare_once, parser, report, rounded, told
from rounds import Rounds, Side, take_rounds


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


def opened(folders: dict[str, Path]) -> tuple[dict[str, object], dict[str, float]]:
    """Open each model and let it read a text; return the CPU seconds of that."""
    from alembert.infer.task_model import TaskModel

    models, took = {}, {}
    for name, folder in folders.items():
        clocks = both_clocks(lambda name=name, folder=folder: models.update({name: TaskModel.open(folder)}))
        first = both_clocks(lambda name=name: models[name].predict(["A first text."]))
        took[name] = round(clocks[1] + first[1], 2)
    return models, took


def annotated(models: dict[str, object], texts: list[str], seconds: float) -> tuple[Rounds, Rounds]:
    """Let the models annotate in turn; return rounds of seconds, and the same of CPU seconds."""
    cpu: dict[str, list[float]] = {name: [] for name in models}

    def side(name: str) -> Side:
        def cost() -> float:
            took, used = both_clocks(lambda: models[name].predict(texts))
            cpu[name].append(used)
            told(f"{name}: {took:.1f} s, {used:.1f} s of CPU")
            return took

        return cost

    rounds = take_rounds({name: side(name) for name in models}, seconds=seconds, warm=False)
    return rounds, Rounds(cpu, rounds.other_load)


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
        models, opening = opened(folders)
        rounds, cpu = annotated(models, texts, 40 if chosen.quick else 300)
        megabytes = {name: rounded(folder_bytes(folder) / 1e6) for name, folder in folders.items()}
    comparisons = {
        "seconds": compare(rounds, "lexicons", "plain", unit="s"),
        "cpu_seconds": compare(cpu, "lexicons", "plain", unit="s of CPU"),
        "opening": compare_once(opening["lexicons"], opening["plain"], unit="s of CPU", against="plain"),
    }
    report(comparisons, [rounds], megabytes=megabytes)


if __name__ == "__main__":
    main()
