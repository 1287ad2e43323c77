"""Fine-tuning a tagger against the transformers Trainer, in one run.

    python benchmarks/finetune.py [--quick] [--precision bfloat16] [--model FOLDER] [--text train.tsv]

Both sides fine-tune the same 6x384 checkpoint (dropout 0.1, float32 or both in bfloat16, AdamW, gradients clipped at 1.0) on the same
sentences of a CoNLL file, once over each; every round begins with the checkpoint. Ours is the verb `finetune`, whole. The
Trainer runs in a process of its own, as its example for token classification shows it: batches of 16, padded to the
longest sentence, nothing logged or saved. Our steps have as many tokens as its steps have on average, so that weights
change equally often; the report has the numbers. Real tokens are counted, padding is not. The time is that of the steps,
without reading, evaluation and saving. The share of the peak counts the matrix products of our steps. Needs
`transformers[torch]` and a 6x384 checkpoint.
"""

import argparse
import random
import re
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from harness import SHARED, compare, need_peers, parser, process, received, report, told, trainer_seconds
from peaks import products_limit
from rounds import take_rounds

BATCH, LONGEST, RATE = 16, 256, 2e-4
HELD_OUT = 8
"""Sentences to judge by, which our side wants; the time for it does not count."""


@dataclass(frozen=True)
class Pass:
    """One pass over the sentences."""

    tokens: int
    steps: int
    seconds: float

    def cost(self, side: str) -> float:
        """Seconds a token."""
        told(f"{side}: {self.seconds:.1f} s")
        return self.seconds / self.tokens


def main() -> None:
    arguments = _arguments()
    need_peers("transformers", "accelerate")
    blocks = sentences(arguments.text) if arguments.text.is_file() else sample_sentences()
    random.Random(1).shuffle(blocks)  # a file may begin with its short sentences
    blocks = blocks[: HELD_OUT + BATCH * (8 if arguments.quick else 40)]
    lengths = token_counts(arguments.model, blocks)
    passes: dict[str, Pass] = {}
    peaks: list[float] = []
    with (
        tempfile.TemporaryDirectory() as name,
        process(run_trainer, arguments.model, arguments.precision) as ask,
    ):
        folder, mean = write(Path(name), blocks), sum(lengths) / len(lengths)

        def ours() -> float:
            passes["alembert"] = finetuned(arguments.model, folder, mean, arguments.precision)
            return passes["alembert"].cost("alembert")

        def theirs() -> float:
            passes["Trainer"] = ask(folder)
            return passes["Trainer"].cost("Trainer")

        rounds = take_rounds(
            {"alembert": ours, "Trainer": theirs},
            seconds=75 if arguments.quick else 900,
            after=lambda _: peaks.append(peak_of(arguments.precision)),
        )
    limit = products_limit(
        operations_a_token(arguments.model, lengths), rounds.cost("alembert"), max(peaks), arguments.precision
    )
    sizes = {name: each.tokens / each.steps for name, each in passes.items()}
    print(f"{len(blocks) - HELD_OUT:,} sentences, {passes['Trainer'].tokens:,} tokens a pass")
    print(
        *(f"{name}: {each.steps} steps of {sizes[name]:.0f} tokens on average" for name, each in passes.items()),
        sep="\n",
    )
    found = compare(rounds, "alembert", "Trainer", unit="tokens/s", work=1, limit=limit)
    report({"trainer": found}, [rounds], precision=arguments.precision, tokens_per_step=sizes)


def peak_of(precision: str) -> float:
    from alembert import hardware

    return hardware.measure_matmul_peak(precision)


def operations_a_token(model: Path, lengths: list[int]) -> float:
    """Operations of products in a step, forward and backward; a tagger reads the state of every token."""
    import alembert
    from alembert.train.progress import count_training_flops

    config = alembert.open(model).blueprint.config
    return count_training_flops(config, lengths, predictions=0) / sum(lengths)


def finetuned(model: Path, folder: Path, mean: float, precision: str) -> Pass:
    """Fine-tune with the product; count what its log says of the steps."""
    from alembert.tasks.tag.data import TagSettings
    from alembert.train.finetune.data import DataFiles, TaskSpec
    from alembert.train.finetune.finetune import FinetuneJob, finetune
    from alembert.train.finetune.settings import FinetuneSettings
    from alembert.train.runlog import RunLog
    from alembert.train.settings import BatchSettings, ModelSettings, OptimiserSettings, SavingSettings

    # Two micro-batches a step; one that is filled up to a budget is half a sentence short of it.
    half = round((BATCH / 2 + 0.5) * mean)
    settings = FinetuneSettings(
        epochs=1,
        optimiser=OptimiserSettings(learning_rate=RATE),
        batch=BatchSettings(tokens=2 * half, micro_tokens=half),
        model=ModelSettings(precision=precision),
        saving=SavingSettings(log_every=1),
    )
    data = DataFiles(train=(folder / "train.tsv",), dev=(folder / "devel.tsv",))
    task = FinetuneJob(
        model=str(model), tasks={"tag": TaskSpec(task="tag", data=data, settings=TagSettings(max_length=LONGEST))}
    )
    with tempfile.TemporaryDirectory() as out:
        finetune(task, Path(out) / "tagger", settings)
        *_, last = RunLog(Path(out) / "tagger" / "run", tensorboard=False).rows("step")
    return Pass(last["tokens"], last["step"], last["seconds"])


def run_trainer(pipe, model: Path, precision: str) -> None:
    """Fine-tune with transformers on the folders that come through the pipe; send back the passes."""
    from transformers import (
        AutoModelForTokenClassification,
        AutoTokenizer,
        DataCollatorForTokenClassification,
    )
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(model)
    collator = DataCollatorForTokenClassification(tokenizer)
    settings = {"per_device_train_batch_size": BATCH, "learning_rate": RATE, "max_grad_norm": 1.0}
    settings["bf16"] = precision == "bfloat16"
    for folder in received(pipe):
        tagged = [columns(block) for block in sentences(folder / "train.tsv")]
        labels = sorted({tag for _, tags in tagged for tag in tags})
        rows = [labelled(tokenizer, words, tags, labels) for words, tags in tagged]
        learner = AutoModelForTokenClassification.from_pretrained(model, num_labels=len(labels))
        seconds = trainer_seconds(learner, rows, collator, **settings)
        tokens = sum(len(row["input_ids"]) for row in rows)
        pipe.send(Pass(tokens, -(-len(rows) // BATCH), seconds))


def labelled(tokenizer, words: list[str], tags: list[str], labels: list[str]) -> dict[str, list[int]]:
    """Encode a sentence with the tag of each word on its first piece."""
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LONGEST)
    of_words = encoded.word_ids()
    numbers = [
        -100 if word is None or word == before else labels.index(tags[word])
        for before, word in pairwise([None, *of_words])
    ]
    return {**encoded, "labels": numbers}


def token_counts(model: Path, blocks: list[str]) -> list[int]:
    import alembert

    texts = [" ".join(columns(block)[0]) for block in blocks]
    encodings = alembert.Tokenizer.open(model).encode_batch(texts, offsets=False)
    return [len(encoding.ids) for encoding in encodings]


def write(folder: Path, blocks: list[str]) -> Path:
    """Write both parts as CoNLL files."""
    for name, part in (("devel.tsv", blocks[:HELD_OUT]), ("train.tsv", blocks[HELD_OUT:])):
        (folder / name).write_text("\n\n".join(part) + "\n", encoding="utf8")
    return folder


def sentences(path: Path) -> list[str]:
    """The sentences of a CoNLL file, as they stand in it; one that is there twice counts once."""
    return list(dict.fromkeys(path.read_text(encoding="utf8").strip().split("\n\n")))


def sample_sentences() -> list[str]:
    """Passages of the embedded sample: for a machine without the real data."""
    from alembert import sample

    print("note: no CoNLL file; the embedded sample is used, and the ratio is not that of real data")
    return [
        "\n".join(f"{word.group()}\t{tag(word, passage.entities)}" for word in re.finditer(r"\S+", passage.text))
        for passage in sample.load_passages("en")
    ]


def tag(word: re.Match[str], entities) -> str:
    inside = [entity for entity in entities if entity.start < word.end() and word.start() < entity.end]
    if not inside:
        return "O"
    return f"{'B' if inside[0].start >= word.start() else 'I'}-{inside[0].label}"


def columns(block: str) -> tuple[list[str], list[str]]:
    """Words and tags of a sentence."""
    rows = [line.split("\t") for line in block.splitlines()]
    return [row[0] for row in rows], [row[-1] for row in rows]


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="128 sentences a round instead of 640", model="a 6x384 checkpoint")
    options.add_argument("--text", type=Path, default=SHARED / "ner/NCBI-disease/train.tsv", help="a CoNLL file")
    options.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of both sides")
    return options.parse_args()


if __name__ == "__main__":
    main()
