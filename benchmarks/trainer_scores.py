"""Scores of the transformers Trainer, with the epochs and the rate of a row of docs/results.md: what ours is held against.

    python benchmarks/trainer_scores.py tag --model FOLDER --train train.tsv --test test.tsv --epochs 5 --rate 2e-4 [--seed 1]
    python benchmarks/trainer_scores.py classify --model FOLDER --train train.txt --test test.txt --epochs 1 --rate 1e-4
    python benchmarks/trainer_scores.py relate --model FOLDER --train train.txt --test test.txt --epochs 3 --rate 2e-4

Batches of 16 padded to their longest text, AdamW, the rate rises for 6 % of the run and falls to zero in a line, gradients are
clipped at 1.0; the weights after the last step are scored, once, on the test file. `tag` reads CoNLL files (the tag is the last
column, `B_x` counts as `B-x`) and gives strict F1 by seqeval; words beyond the 512 tokens that the model reads have no tag, and
their entities count as missed. `classify` reads a label and a text a line and gives the accuracy. `relate` reads JSON lines with
`text` and `label`, in which `<< >>` and `[[ ]]` stand around two entities; the marks become four added tokens, as in alembert, the
first token is classified, and the accuracy is micro-F1 over all labels. `--bf16` lets torch multiply
in bfloat16, as alembert does where that is faster; `--by-length` lets the Trainer put texts of similar length into a batch, which
takes half of the time. Ends with one JSON line.
"""

import argparse
import json
import re
import tempfile
import time
from itertools import pairwise
from pathlib import Path

BATCH, LONGEST = 16, 512
MARKERS = ("[E1]", "[/E1]", "[E2]", "[/E2]")
Sentence = tuple[list[str], list[str]]


def main() -> None:
    arguments = _arguments()
    run = {"tag": tagged, "classify": classified, "relate": classified}[arguments.task]
    print(json.dumps({"task": arguments.task, "seed": arguments.seed, **run(arguments)}))


def tagged(arguments: argparse.Namespace) -> dict[str, float]:
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.scheme import IOB2
    from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification

    train, test = sentences(arguments.train), sentences(arguments.test)
    labels = sorted({tag for _, tags in train for tag in tags})
    tokenizer = _tokenizer(arguments.model)
    rows = [labelled(tokenizer, sentence, labels) for sentence in train]
    trainer, seconds = _trained(
        arguments,
        rows,
        DataCollatorForTokenClassification(tokenizer),
        AutoModelForTokenClassification,
        labels,
    )
    asked = [labelled(tokenizer, (words, ["O"] * len(words)), labels) for words, _ in test]
    said = trainer.predict(asked).predictions.argmax(-1)
    guess = [_tags(row["labels"], one, labels) for row, one in zip(asked, said, strict=True)]
    guess = [tags + ["O"] * (len(words) - len(tags)) for tags, (words, _) in zip(guess, test, strict=True)]
    gold, strict = [tags for _, tags in test], {"mode": "strict", "scheme": IOB2}
    scores = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    found = {name: round(100 * float(score(gold, guess, **strict)), 2) for name, score in scores.items()}
    return {**found, **_speed(rows, arguments.epochs, seconds)}


def _tags(asked: list[int], said, labels: list[str]) -> list[str]:
    """Give the tags of the first pieces of words."""
    return [labels[tag] for wanted, tag in zip(asked, said[: len(asked)], strict=True) if wanted != -100]


def labelled(tokenizer, sentence: Sentence, labels: list[str]) -> dict[str, list[int]]:
    """Encode a sentence with the tag of each word on its first piece."""
    words, tags = sentence
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LONGEST)
    numbers = [
        -100 if word is None or word == before else labels.index(tags[word])
        for before, word in pairwise([None, *encoded.word_ids()])
    ]
    return {**encoded, "labels": numbers}


def sentences(path: Path) -> list[Sentence]:
    """Read the sentences of a CoNLL file; tags in the form `B-x`."""
    found = []
    for block in path.read_text(encoding="utf8").strip().split("\n\n"):
        rows = [line.split() for line in block.splitlines() if line.strip()]
        found.append(([row[0] for row in rows], [row[-1].replace("_", "-", 1) for row in rows]))
    return found


def classified(arguments: argparse.Namespace) -> dict[str, float]:
    from sklearn.metrics import accuracy_score
    from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

    read = marked_lines if arguments.task == "relate" else lines
    train, test = read(arguments.train), read(arguments.test)
    labels = sorted({label for label, _ in train})
    tokenizer = _tokenizer(arguments.model)
    if arguments.task == "relate":
        tokenizer.add_tokens(list(MARKERS), special_tokens=True)

    def encoded(pairs: list[list[str]]) -> list[dict]:
        texts = tokenizer([text for _, text in pairs], truncation=True, max_length=LONGEST)["input_ids"]
        return [{"input_ids": ids, "labels": labels.index(label)} for ids, (label, _) in zip(texts, pairs, strict=True)]

    rows = encoded(train)
    trainer, seconds = _trained(
        arguments, rows, DataCollatorWithPadding(tokenizer), AutoModelForSequenceClassification, labels
    )
    said = trainer.predict(encoded(test)).predictions.argmax(-1)
    accuracy = accuracy_score([labels.index(label) for label, _ in test], said)
    return {"accuracy": round(100 * float(accuracy), 2), **_speed(rows, arguments.epochs, seconds)}


def lines(path: Path) -> list[list[str]]:
    """Read labels and texts; lines that begin a document (`###`) and empty ones are passed over."""
    found = path.read_text(encoding="utf8").splitlines()
    return [line.split("\t", 1) for line in found if line.strip() and not line.startswith("###")]


def marked_lines(path: Path) -> list[list[str]]:
    """Read labels and texts, with the tokens of `MARKERS` in the place of the marks."""
    records = map(json.loads, path.read_text(encoding="utf8").splitlines())
    return [[record["label"], _with_markers(record["text"])] for record in records]


def _with_markers(text: str) -> str:
    text = re.sub(r"<< (.*?) >>", r"[E1] \1 [/E1]", text, count=1)
    return re.sub(r"\[\[ (.*?) \]\]", r"[E2] \1 [/E2]", text, count=1)


def _trained(arguments: argparse.Namespace, rows: list[dict], collator, kind, labels: list[str]):
    from transformers import Trainer, TrainingArguments, set_seed

    set_seed(arguments.seed)
    model = kind.from_pretrained(arguments.model, num_labels=len(labels))
    if len(tokenizer := collator.tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer))
    steps = arguments.epochs * -(-len(rows) // BATCH)
    settings = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=BATCH,
        learning_rate=arguments.rate,
        warmup_steps=round(0.06 * steps),
        weight_decay=0.01,
        seed=arguments.seed,
        bf16=arguments.bf16,
        train_sampling_strategy="group_by_length" if arguments.by_length else "random",
        logging_steps=200,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=rows, data_collator=collator)
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    # Otherwise it sorts what is to be predicted, too, and gives it back in that order.
    trainer.args.train_sampling_strategy = "random"
    return trainer, seconds


def _tokenizer(model: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def _speed(rows: list[dict], epochs: int, seconds: float) -> dict[str, float]:
    tokens = sum(len(row["input_ids"]) for row in rows)
    return {"seconds": round(seconds), "tokens_per_second": round(epochs * tokens / seconds)}


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("task", choices=["tag", "classify", "relate"])
    for name in ("model", "train", "test"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("--epochs", type=int, required=True)
    options.add_argument("--rate", type=float, required=True)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--bf16", action="store_true", help="multiply in bfloat16")
    options.add_argument("--by-length", action="store_true", help="batches of texts of similar length")
    return options.parse_args()


if __name__ == "__main__":
    main()
