"""A pass of distillation with what the teacher said on the disk, against one in which the teacher reads again.

    python benchmarks/distill.py [--quick] [--model FOLDER] [--student SIZE] [--text train.tsv]

Both sides are the product's verb `distill` with the same settings (states of all layers, then answers) and the same
sentences, once with `[cache]` and once without. Twice over the sentences in the first stage; the time of the second pass is
counted, when the teacher has been heard, without looks at held-out sentences, which cost both sides the same. The last
losses of both sides must agree within a hundredth. Two pairs are measured: the published one, a teacher of BERT's base size and a 4x312 student
(ratio `published`), and the checkpoint of `--model` with a student of `--student`, a third of its layers if none is named
(`cached_pass`). Of a teacher its layers count, not what it knows: that of the first pair has fresh weights.
"""

import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from finetune import columns, sample_sentences, sentences, write
from harness import SHARED, compare, parser, report, told
from rounds import Rounds, Side, take_rounds

COUNTS = {True: 64, False: 400}
"""Sentences of a quick run, and of a whole one."""
AGREEMENT = 0.01
CACHED, READING = "cache", "teacher reads again"


def main() -> None:
    import alembert

    made = parser(__doc__, quick="fewer sentences", model="checkpoint of the second teacher")
    made.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="CoNLL file")
    made.add_argument("--student", default="third", help="its size, as for alembert distill")
    arguments = made.parse_args()
    blocks = sentences(arguments.text) if arguments.text.is_file() else sample_sentences()
    random.Random(1).shuffle(blocks)
    blocks = [block for block in blocks if columns(block)[0]][: COUNTS[arguments.quick]]
    found: dict[str, Rounds] = {}
    start = alembert.open(arguments.model)
    pairs = {"published": (of_base_size(start), "4x312"), "cached_pass": (start, arguments.student)}
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name), blocks)
        for pair, (model, student) in pairs.items():
            told(f"{pair}: {len(blocks):,} sentences")
            seconds = 20 if arguments.quick else 600
            found[pair] = compared(teacher_of(model, folder, pair), student, folder, seconds)
    ratios = {pair: compare(rounds, CACHED, READING, unit="s") for pair, rounds in found.items()}
    report(ratios, list(found.values()), sentences=len(blocks))


def compared(teacher: Path, student: str, folder: Path, seconds: float) -> Rounds:
    """Measure the second pass with the cache and without it, and compare the last losses of both."""
    losses: dict[str, float] = {}

    def side(name: str, cache: str) -> Side:
        def cost() -> float:
            took, losses[name] = second_pass(teacher, student, folder, cache)
            told(f"{name}: {took:.1f} s")
            return took

        return cost

    sides = {CACHED: side(CACHED, "auto"), READING: side(READING, "never")}
    rounds = take_rounds(sides, seconds=seconds, warm=False)
    if abs(losses[CACHED] / losses[READING] - 1) > AGREEMENT:
        sys.exit(f"The losses differ with the cache and without it, so that the times cannot be compared: {losses}")
    return rounds


def teacher_of(start, folder: Path, name: str) -> Path:
    """Write a tagger for the sentences, with a random head: what it knows does not change its speed."""
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.files.surgery import with_heads
    from alembert.tasks.files import write_tasks
    from alembert.tasks.tag.data import TagSettings
    from alembert.tasks.tag.task import TagTask

    settings = TagSettings()
    task = TagTask.learn(TagTask.read([folder / "train.tsv"], settings, ReadOptions()).examples, settings)
    made = with_heads(start, {"tag": task.head()}, pooler=False)
    made = replace(made, blueprint=replace(made.blueprint, labels={"tag": task.labels}))
    made.save(folder / name)
    write_tasks(folder / name, {task.name: (task, {"examples": 0})})
    return folder / name


def of_base_size(like):
    """Make a model of BERT's base size with fresh weights, which reads the words of another."""
    from alembert.files.checkpoint import Checkpoint
    from alembert.files.family import Blueprint
    from alembert.nn.config import preset

    tokenizer = like.tokenizer
    return Checkpoint.new(Blueprint(config=preset("base", vocab_size=tokenizer.vocab_size)), tokenizer)


def second_pass(teacher: Path, student: str, folder: Path, cache: str) -> tuple[float, float]:
    """Distil with two passes in the first stage and a step in the other; give the seconds of the second pass, and its last loss."""
    from alembert.train.distill.distill import distill
    from alembert.train.distill.settings import TeacherCacheSettings, fast
    from alembert.train.distill.stages import INTERMEDIATE_FOLDER, DistillJob
    from alembert.train.finetune.data import DataFiles
    from alembert.train.run import RunContext
    from alembert.train.runlog import RunLog
    from alembert.train.settings import EvaluationSettings, SavingSettings

    usual = fast()
    settings = replace(
        usual,
        student=replace(usual.student, start="scratch"),
        intermediate=replace(
            usual.intermediate,
            epochs=2,
            saving=SavingSettings(keep="last", log_every=1),
            evaluation=EvaluationSettings(times=0, at_start=False),
        ),
        prediction=replace(usual.prediction, steps=1),
        cache=TeacherCacheSettings(use=cache),
    )
    data = DataFiles(train=(folder / "train.tsv",), dev=(folder / "devel.tsv",))
    with tempfile.TemporaryDirectory() as out:
        job = DistillJob(teacher=str(teacher), student=student, data=data)
        context = RunContext(cache=Path(out) / "cache")
        distill(job, Path(out) / "student", settings, context=context)
        rows = list(RunLog(Path(out) / "student" / INTERMEDIATE_FOLDER, tensorboard=False).rows("step"))
    half = next(row for row in rows if row["tokens"] >= rows[-1]["tokens"] / 2)
    return rows[-1]["seconds"] - half["seconds"], rows[-1]["loss"]


if __name__ == "__main__":
    main()
