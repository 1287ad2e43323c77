"""A pass of distillation with what the teacher said on the disk, against one in which the teacher reads again.

    python benchmarks/distill.py [--quick] [--model FOLDER] [--student SIZE] [--text train.tsv]

Both sides are the product's verb `distill` with the same settings (states of all layers, then answers; a student
with a third of the layers, if no other is named) and the same sentences, once with `[cache]` and once without. Twice over the sentences in either
stage; the time of the second pass is counted, when the teacher has been heard, without looks at held-out sentences, which cost
both sides the same. The scores of both students must agree.
Needs a checkpoint for the teacher (its layers count, not what it knows).
"""

import json
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from finetune import columns, sample_sentences, sentences, write
from harness import SHARED, best, parser

COUNTS = {True: 160, False: 1000}
"""Sentences of a quick run, and of a whole one."""


def main() -> None:
    made = parser(__doc__, quick="fewer sentences, one round", model="checkpoint that is fine-tuned first")
    made.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="CoNLL file")
    made.add_argument("--student", default="third", help="its size, as for alembert distill")
    arguments = made.parse_args()
    blocks = sentences(arguments.text) if arguments.text.is_file() else sample_sentences()
    random.Random(1).shuffle(blocks)
    blocks = [block for block in blocks if columns(block)[0]][: COUNTS[arguments.quick]]
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name), blocks)
        teacher = taught(arguments.model, folder)
        scores: dict[str, float] = {}

        def side(cache: str):
            def seconds() -> float:
                found, scores[cache] = second_pass(teacher, arguments.student, folder, cache)
                print(f"cache {cache}: {found:.1f} s", file=sys.stderr, flush=True)
                return found

            return seconds

        found = best({use: side(use) for use in ("auto", "never")}, 1 if arguments.quick else 3)
    ratio = found["never"] / found["auto"]
    print(
        f"{len(blocks):,} sentences; second pass {found['auto']:.1f} s with the cache, {found['never']:.1f} s without"
    )
    print(f"scores on the held-out sentences: {scores}")
    print(json.dumps({"ratios": {"cached_pass": round(ratio, 3)}, "seconds": found, "scores": scores}))


def taught(model: Path, folder: Path) -> Path:
    """Fine-tune the teacher for a moment: what it knows does not change its speed."""
    from alembert.train.finetune import Assignment, finetune
    from alembert.train.finetune_settings import FinetuneSettings
    from alembert.train.task_data import Data

    data = Data(train=(folder / "train.tsv",), dev=(folder / "devel.tsv",))
    job = Assignment(task="tag", data=data, model=str(model))
    finetune(job, folder / "teacher", FinetuneSettings(steps=20))
    return folder / "teacher"


def second_pass(teacher: Path, student: str, folder: Path, cache: str) -> tuple[float, float]:
    """Distil with two passes in the first stage; give the seconds of its second pass, and the score."""
    from alembert.train.distill import distill
    from alembert.train.distill_recipes import fast
    from alembert.train.distill_settings import CacheSettings
    from alembert.train.lecture_hall import Distillation
    from alembert.train.pupil import INSIDE
    from alembert.train.runlog import RunLog
    from alembert.train.settings import EvaluationSettings, SavingSettings
    from alembert.train.surroundings import Surroundings
    from alembert.train.task_data import Data

    usual = fast()
    settings = replace(
        usual,
        intermediate=replace(
            usual.intermediate,
            epochs=2,
            saving=SavingSettings(keep="last", log_every=1),
            evaluation=EvaluationSettings(times=0, at_start=False),
        ),
        prediction=replace(usual.prediction, epochs=1),
        cache=CacheSettings(use=cache),
    )
    data = Data(train=(folder / "train.tsv",), dev=(folder / "devel.tsv",))
    with tempfile.TemporaryDirectory() as out:
        job = Distillation(teacher=str(teacher), student=student, data=data)
        around = Surroundings(cache=Path(out) / "cache")
        done = distill(job, Path(out) / "student", settings, around=around)
        rows = list(RunLog(Path(out) / "student" / INSIDE, tensorboard=False).rows("step"))
    half = next(row for row in rows if row["tokens"] >= rows[-1]["tokens"] / 2)
    return rows[-1]["seconds"] - half["seconds"], done.measures[done.main]


if __name__ == "__main__":
    main()
