"""Masked-LM training against the transformers Trainer, in one run.

    python benchmarks/pretrain.py [--quick] [--precision bfloat16] [--model FOLDER] [--text FILE.jsonl.gz]

Both sides train a fresh 6x384 model (12 heads, vocabulary 30,522, dropout 0.1) in float32, or with `--precision bfloat16`
both with products in bfloat16 (the product takes that by itself where it is faster), on the same rows of tokens, 32 rows a
step, with AdamW and gradients clipped at 1.0: once on full rows of 128 tokens, once on abstracts of natural
length, cut at 512. Ours is the product's own loop. The Trainer runs in a process of its own, as its documentation shows
it: DataCollatorForLanguageModeling, padding to the longest row of a batch, nothing logged or saved. Real tokens are
counted, padding is not. The share of the peak counts matrix products only, the prediction head and the end of the last
block at predicted positions only. A quick run has 8 rows of natural length a step, since the Trainer takes half a minute for 32
of them; with fewer rows it pads less, so that the ratio is lower. Needs `transformers[torch]` and a folder with a BERT tokenizer.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from harness import (
    SHARED,
    Comparison,
    chunks,
    compare,
    need_peers,
    parser,
    process,
    received,
    report,
    share_of_limit,
    told,
    trainer_seconds,
)
from peaks import Limit, products_limit
from rounds import Rounds, take_rounds

import alembert
from alembert import hardware

SIZE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
FULL, LONGEST, RATE = 128, 512, 1e-4
SHAPES = {
    True: {"full_rows": (1, 32), "natural_lengths": (1, 8)},
    False: {"full_rows": (3, 32), "natural_lengths": (1, 32)},
}
"""Steps of a round, and rows of a step, in a quick run and in a whole one."""
MICRO_TOKENS = 2048
Rows = list[list[int]]


@dataclass(frozen=True)
class Case:
    """Rows to train on, each once, so many a step."""

    rows: Rows
    batch: int

    @property
    def tokens(self) -> int:
        return sum(map(len, self.rows))


Train = Callable[[Case], float]
"""Trains on the rows of a case and returns the seconds."""


def main() -> None:
    arguments = _arguments()
    need_peers("transformers", "accelerate")
    tokenizer = alembert.Tokenizer.open(arguments.model)
    texts = abstracts(arguments.text) if arguments.text.is_file() else sample_texts()
    cases = cut(tokenizer, texts, SHAPES[arguments.quick])
    with process(run_trainer, arguments.model, arguments.precision) as theirs:
        trainers = {"alembert": ours(tokenizer, arguments.precision), "Trainer": theirs}
        seconds = 30 if arguments.quick else 600
        measured = {name: measure(trainers, name, case, seconds, arguments.precision) for name, case in cases.items()}
    comparisons: dict[str, Comparison] = {}
    for name, (rounds, peak) in measured.items():
        limit = limit_of(tokenizer.vocab_size, cases[name], rounds, peak, arguments.precision)
        if name == "full_rows":
            comparisons["peak_share"] = share_of_limit(rounds, "alembert", limit)
        comparisons[name] = compare(
            rounds, "alembert", "Trainer", unit="tokens/s", work=cases[name].tokens, limit=limit
        )
        print(f"{name}: {len(cases[name].rows)} rows, {cases[name].tokens:,} tokens a round")
    report(comparisons, [rounds for rounds, _ in measured.values()], precision=arguments.precision)


def measure(trainers: dict[str, Train], name: str, case: Case, seconds: float, precision: str) -> tuple[Rounds, float]:
    """Let both train in turn, with a look at the matmul peak after each round; the best of them counts."""
    peaks: list[float] = []

    def side(who: str, train: Train) -> Callable[[], float]:
        def cost() -> float:
            took = train(case)
            told(f"{name}, {who}: {took:.1f} s")
            return took

        return cost

    rounds = take_rounds(
        {who: side(who, train) for who, train in trainers.items()},
        seconds=seconds,
        after=lambda _: peaks.append(hardware.measure_matmul_peak(precision)),
    )
    return rounds, max(peaks)


def limit_of(vocab_size: int, case: Case, rounds: Rounds, peak: float, precision: str) -> Limit:
    from alembert.nn.config import EncoderConfig
    from alembert.train.progress import count_training_flops

    config, predicted = EncoderConfig(vocab_size=vocab_size, **SIZE), round(0.15 * case.tokens)
    work = count_training_flops(config, [len(row) for row in case.rows], predicted, tokens_read=predicted)
    return products_limit(work, rounds.cost("alembert"), peak, precision)


def ours(tokenizer, precision: str) -> Train:
    from alembert.nn.config import EncoderConfig
    from alembert.nn.heads import HeadSpec
    from alembert.nn.model import new_model
    from alembert.train.loop import TrainingLoop
    from alembert.train.runlog import RunLog
    from alembert.train.settings import (
        EvaluationSettings,
        ModelSettings,
        OptimiserSettings,
        RunSettings,
        SavingSettings,
    )
    from alembert.train.state import RunStates

    config = EncoderConfig(vocab_size=tokenizer.vocab_size, **SIZE)
    model = new_model(config, {"masked_lm": HeadSpec(kind="masked_lm")})

    def train(case: Case) -> float:
        settings = RunSettings(
            steps=len(case.rows) // case.batch,
            optimiser=OptimiserSettings(learning_rate=RATE),
            model=ModelSettings(precision=precision),
            evaluation=EvaluationSettings(times=0),
            saving=SavingSettings(log_every=1_000_000),
        )
        with tempfile.TemporaryDirectory() as folder:
            log = RunLog(Path(folder), tensorboard=False)
            loop = TrainingLoop(model, Lesson(case, tokenizer), settings, states=RunStates(Path(folder)), log=log)
            loop.run()
            return loop.position.sums["seconds"]  # of all steps, from planning to the changed weights

    return train


@dataclass(frozen=True)
class Portion:
    rows: Rows

    @property
    def tokens(self) -> int:
        return sum(map(len, self.rows))


class Lesson:
    """Masked LM on given rows, in their order; nothing is held out."""

    def __init__(self, case: Case, tokenizer) -> None:
        self.steps = chunks(case.rows, case.batch)
        self.tokenizer = tokenizer
        self.rng = np.random.default_rng(0)

    def sample(self, cursor, count: int, progress: float):
        """Cut the rows of the next step into micro-batches of equal size, as many for each core."""
        rows = sorted(next(self.steps), key=len)
        cores, tokens = hardware_threads(), sum(map(len, rows))
        portions = cores * -(-tokens // (cores * MICRO_TOKENS))
        ends = np.searchsorted(np.cumsum([len(row) for row in rows]), np.arange(1, portions) * tokens / portions)
        borders = [0, *(int(end) + 1 for end in ends), len(rows)]
        pairs = pairwise(borders)
        return [Portion(rows[start:end]) for start, end in pairs if end > start], cursor

    def collate(self, portion: Portion):
        import torch

        from alembert.data.masking import MaskSettings, choose_positions, corrupt
        from alembert.data.sequences import Instance
        from alembert.nn.batch import Batch
        from alembert.train.objective import LMTarget, MicroBatch

        settings, numbers = (
            MaskSettings(),
            {"mask_id": self.tokenizer.mask_id, "vocab_size": self.tokenizer.vocab_size},
        )
        ids, places, labels = [], [], []
        for row in portion.rows:
            tokens = np.array(row, dtype=np.int32)
            special = np.isin(tokens, (self.tokenizer.cls_id, self.tokenizer.sep_id))
            zeros = np.zeros(len(row), dtype=np.uint8)
            chosen = choose_positions(Instance(tokens, zeros, zeros, special), settings, self.rng)
            ids.append(corrupt(tokens, chosen, settings, self.rng, **numbers))
            places.append(chosen.positions)
            labels.append(tokens[chosen.positions])
        batch = Batch.packed(ids)
        flat = np.concatenate([start + own for start, own in zip(batch.starts_B.tolist(), places, strict=True)])
        target = LMTarget(torch.from_numpy(flat), torch.from_numpy(np.concatenate(labels).astype(np.int64)))
        return MicroBatch(batch, "bidirectional", {"masked_lm": target}, tokens_read=len(flat))

    def loss(self, model, micro, totals, noise):
        from alembert.nn.vocabulary_output import vocabulary_loss

        target = micro.targets["masked_lm"]
        logits = model(micro.batch, predicted_P=target.places, only=True, noise=noise)["masked_lm"]
        loss = vocabulary_loss(logits, target.labels)
        return loss / totals["masked_lm"], {"masked_lm": float(loss.detach())}

    def evaluate(self, model, part: int = 0, parts: int = 1):
        return {}

    def summarise(self, tallies):
        from alembert.train.objective import EvalResult

        return EvalResult({}, float("nan"))


def hardware_threads() -> int:
    import torch

    return torch.get_num_threads()


def run_trainer(pipe, folder: Path, precision: str) -> None:
    """Train with transformers on what comes through the pipe; send back the seconds."""
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling
    from transformers.utils import logging

    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZE))
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    special = set(tokenizer.all_special_ids)
    settings = {
        "learning_rate": RATE,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "remove_unused_columns": False,
        "bf16": precision == "bfloat16",
    }
    for case in received(pipe):
        # The collator would look for special tokens itself, more slowly.
        data = [{"input_ids": row, "special_tokens_mask": [int(n in special) for n in row]} for row in case.rows]
        pipe.send(trainer_seconds(model, data, collator, per_device_train_batch_size=case.batch, **settings))


def cut(tokenizer, texts: list[str], shapes: dict[str, tuple[int, int]]) -> dict[str, Case]:
    """Make full rows out of all texts end to end, and natural rows out of one text each."""
    inner = [list(e.ids) for e in tokenizer.encode_batch(texts, offsets=False, add_special_tokens=False)]
    flat = [token for ids in inner for token in ids]
    full = [wrapped(tokenizer, part) for part in chunks(flat, FULL - 2) if len(part) == FULL - 2]
    natural = [wrapped(tokenizer, ids[: LONGEST - 2]) for ids in inner if ids]
    found = {}
    for name, rows in {"full_rows": full, "natural_lengths": natural}.items():
        steps, batch = shapes[name]
        found[name] = Case((rows * -(-steps * batch // len(rows)))[: steps * batch], batch)
    return found


def wrapped(tokenizer, ids: list[int]) -> list[int]:
    return [tokenizer.cls_id, *ids, tokenizer.sep_id]


def abstracts(path: Path) -> list[str]:
    """The abstracts of a file of articles."""
    with gzip.open(path, "rt", encoding="utf8") as lines:
        texts = [" ".join(json.loads(line).get("abstract") or []) for line in lines]
    return [text for text in texts if text]


def sample_texts() -> list[str]:
    """Texts of the embedded sample: for a machine without the real data."""
    from alembert import sample

    print("note: no file of articles; the embedded sample is used, and the ratios are not those of real data")
    return [passage.text for passage in sample.load_passages("en")]


def _arguments() -> argparse.Namespace:
    options = parser(
        __doc__, quick="one step a round, fewer rows of natural length", model="a folder with a BERT tokenizer"
    )
    options.add_argument(
        "--text", type=Path, default=SHARED / "corpus/elife-00.jsonl.gz", help="articles with an `abstract`"
    )
    options.add_argument("--precision", choices=["float32", "bfloat16"], default="float32", help="of both sides")
    return options.parse_args()


if __name__ == "__main__":
    main()
