"""Simulated labelling on NCBI-disease: how many sentences must be read until a tagger is as good as with all of them.

    python benchmarks/labelling.py [--quick] [--seeds 3] [--rounds 0.05 0.1 0.2 0.3] [--work work/labelling]

A person who labels is simulated by the corpus: a round adds the sentences that are next in an order, with their labels, and
trains on from the last model, on all sentences so far. `queue` is the order of the page of `alembert serve`: an audited share
at random, and else the most useful first, by expected entities times uncertainty (`usefulness`). `random` draws all. Both
begin with the same random sentences. The score is strict F1 on the test set; the goal is 99 % of the F1 of a model that
learnt from all sentences, with the epochs and the rate of our record (docs/lab/results.md), and the share at which it is
reached is interpolated between rounds. The models are MiniLM (6x384). The development set fits the temperature of the scores,
which the queue sorts by; it chooses no weights, since the last ones are kept.

Models, scores and choices are kept in --work: a run that was stopped goes on with the same command, and one with other
settings needs another folder.

At the end 20 corrections, sentences that the last model gets wrong, become an int8 model: `alembert finetune` from the last
checkpoint, on the corrections and a few sentences that it knows, and `alembert export`, timed from command to command. A table
is printed, and then a line of JSON: `ratios` has how many times fewer sentences the queue needs, `holds` the claims.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from annotate_material import told
from harness import SHARED, parser

import alembert

GOAL = 0.99
MOST_SHARE, MOST_SECONDS = 0.3, 60.0
AUDIT = 0.1
"""Share of each round that is drawn at random."""
LEARNING_RATE, LEARNING_RATE_AFTER = 2e-4, 1e-4
"""Of a model that begins with its head, and of one that is trained on."""
CORRECTIONS, KNOWN, DEVELOPMENT = 20, 100, 50
"""Sentences of the last step: corrected, known before, and those that fit the temperature."""


@dataclass(frozen=True)
class Plan:
    """What is trained from, with which effort."""

    start: Path
    train: Sequence[alembert.Document]
    dev: Path
    test: Path
    shares: Sequence[float]
    epochs: float
    """Of the model that learns from all sentences, and of each round."""
    first_epochs: float
    work: Path


def usefulness(document: alembert.Document) -> float:
    """How much a review teaches: expected entities times their mean uncertainty, 0 for a sure score and 1 for one half."""
    scores = [entity.score for entity in document.entities]
    return sum(scores) * fmean(2 * min(score, 1 - score) for score in scores) if scores else 0.0


def choose(plan: Plan, model: Path, chosen: Sequence[int], count: int, rng: random.Random, order: str) -> list[int]:
    """Choose the next sentences: all at random, or the audited share at random and else the most useful."""
    known = set(chosen)
    left = [number for number in range(len(plan.train)) if number not in known]
    rng.shuffle(left)
    if order == "random":
        return left[:count]
    audited = left[: round(AUDIT * count)]
    others = left[len(audited) :]
    predicted = alembert.load(model).predict([plan.train[number].text for number in others])
    useful = dict(zip(others, map(usefulness, predicted), strict=True))
    return audited + sorted(others, key=useful.__getitem__, reverse=True)[: count - len(audited)]


def train(plan: Plan, start: Path, numbers: Sequence[int], epochs: float, seed: int, out: Path) -> Path:
    """Train on some sentences, once; the last weights are kept: development data choose nothing but the temperature."""
    if (out / "manifest.json").is_file():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    file = alembert.write([plan.train[number] for number in sorted(numbers)], out.with_suffix(".jsonl"))
    alembert.finetune(
        "tag",
        model=start,
        train=file,
        dev=plan.dev,
        out=out,
        epochs=epochs,
        learning_rate=LEARNING_RATE if start == plan.start else LEARNING_RATE_AFTER,
        seed=seed,
        settings={"evals_per_epoch": 1 / epochs, "saving": {"keep": "last"}},
        progress=False,
    )
    return out


def f1_of(model: Path, test: Path) -> float:
    """Score a model, once."""
    kept = model.with_suffix(".f1")
    if not kept.is_file():
        _keep(kept, str(alembert.evaluate(model, test, rounds=10, progress=False).scores.measures["f1"]))
    return float(kept.read_text())


def _keep(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(content)
    part.replace(path)


def simulate(plan: Plan, seed: int) -> dict[str, Any]:
    """Label in both orders; return the scores by share of the sentences."""
    folder, everything = plan.work / f"seed-{seed}", range(len(plan.train))
    whole = f1_of(train(plan, plan.start, everything, plan.epochs, seed, folder / "all"), plan.test)
    told(f"seed {seed}: all {len(everything)} sentences: f1 {whole:.4f}")
    found: dict[str, Any] = {"all": whole}
    for order in ("queue", "random"):
        rng = random.Random(seed)
        chosen = rng.sample(everything, round(plan.shares[0] * len(everything)))
        model = train(plan, plan.start, chosen, plan.first_epochs, seed, folder / f"first-{permille(plan.shares[0])}")
        scores = {plan.shares[0]: f1_of(model, plan.test)}
        for share in plan.shares[1:]:
            more = round(share * len(everything)) - len(chosen)
            chosen = [
                *chosen,
                *choose_once(plan, model, chosen, more, rng, order, folder / f"{order}-{permille(share)}.chosen"),
            ]
            model = train(plan, model, chosen, plan.epochs, seed, folder / f"{order}-{permille(share)}")
            scores[share] = f1_of(model, plan.test)
            told(f"seed {seed}: {order} {share:.0%}: f1 {scores[share]:.4f}{of_all(scores[share], whole)}")
        found[order] = scores
        found[f"{order}_share"] = share_for(GOAL * whole, scores)
    return found


def of_all(score: float, whole: float) -> str:
    return f", {score / whole:.1%} of all" if whole else ""


def choose_once(
    plan: Plan, model: Path, chosen: Sequence[int], count: int, rng: random.Random, order: str, kept: Path
) -> list[int]:
    """Choose, or read what was chosen before the run was stopped; the random numbers are the same either way."""
    rng = random.Random(rng.random())
    if not kept.is_file():
        _keep(kept, json.dumps(choose(plan, model, chosen, count, rng, order)))
    return json.loads(kept.read_text())


def permille(share: float) -> int:
    """Write a share in a name without a dot, after which a suffix would begin."""
    return round(1000 * share)


def share_for(goal: float, scores: dict[float, float]) -> float | None:
    """Return the share of sentences at which a score is reached, between rounds on a straight line; none: it is not.

    >>> share_for(0.8, {0.1: 0.6, 0.2: 0.7, 0.3: 0.9}), share_for(0.8, {0.1: 0.85}), share_for(0.8, {0.1: 0.6})
    (0.25, 0.1, None)
    """
    before: tuple[float, float] | None = None
    for share, score in scores.items():
        if score >= goal:
            if before is None:
                return share
            return round(before[0] + (share - before[0]) * (goal - before[1]) / (score - before[1]), 4)
        before = (share, score)
    return None


# -- corrections to a retrained model


def retrain(plan: Plan, model: Path, known: Sequence[int]) -> dict[str, Any]:
    """Time `finetune` and `export` on 20 corrections, with sentences that the model knows, and compare its score."""
    place = plan.work / "corrections"
    place.mkdir(exist_ok=True)
    rng, seen = random.Random(0), set(known)
    wrong = find_wrong(plan, model, [number for number in range(len(plan.train)) if number not in seen])
    corrected = rng.sample(wrong, min(CORRECTIONS, len(wrong)))
    # What is in the development file is left out of training, so the two are different sentences.
    drawn = rng.sample(sorted(seen), min(KNOWN + DEVELOPMENT, len(seen)))
    held, trained_on = drawn[: len(drawn) // 3], [*corrected, *drawn[len(drawn) // 3 :]]
    file = alembert.write([plan.train[number] for number in trained_on], place / "corrections.jsonl")
    few = alembert.write([plan.train[number] for number in held], place / "dev.jsonl")
    begun = time.perf_counter()
    _run(
        *("finetune", "--task", "tag", "--model", model, "--train", file, "--dev", few, "--out", place / "model"),
        *(
            "--epochs",
            4,
            "--learning-rate",
            LEARNING_RATE_AFTER,
            "--set",
            "evals_per_epoch=0.5",
            "--set",
            "saving.keep=last",
        ),
        "--overwrite",
    )
    trained = time.perf_counter()
    _run(
        *("export", place / "model", "--calibrate", file, "--format", "onnx", "--out", place / "int8", "--overwrite"),
        *("--set", "run.speed=false", "--set", "calibration_rows=60"),
    )
    done = time.perf_counter()
    scores = {
        name: alembert.evaluate(each, plan.test, rounds=10, progress=False).scores.measures["f1"]
        for name, each in (("before", model), ("after", place / "int8"))
    }
    still = len(find_wrong(plan, place / "int8", corrected))
    return {
        "corrections": len(corrected),
        "still_wrong": still,
        "finetune_seconds": round(trained - begun, 1),
        "export_seconds": round(done - trained, 1),
        "seconds": round(done - begun, 1),
        **{f"f1_{name}": round(score, 4) for name, score in scores.items()},
    }


def find_wrong(plan: Plan, model: Path, numbers: Sequence[int]) -> list[int]:
    """Return the sentences in which the model finds other entities than are right."""
    predicted = alembert.load(model).predict([plan.train[number].text for number in numbers])

    def spans(entities: Any) -> set[tuple[int, int, str]]:
        return {(entity.start, entity.end, entity.label) for entity in entities}

    pairs = zip(numbers, predicted, strict=True)
    return [number for number, found in pairs if spans(found.entities) != spans(plan.train[number].entities)]


def _run(*arguments: object) -> None:
    command = [sys.executable, "-m", "alembert", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"error: {' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")


# -- the run


def main() -> None:
    arguments = _arguments()
    work = arguments.work / ("quick" if arguments.quick else "full")
    work.mkdir(parents=True, exist_ok=True)
    documents = [*alembert.read(arguments.data / "train.tsv")]
    dev, test = (shorten(arguments, name, work) for name in ("devel.tsv", "test.tsv"))
    plan = Plan(
        start=arguments.model,
        train=documents[:300] if arguments.quick else documents,
        dev=dev,
        test=test,
        shares=arguments.rounds,
        epochs=arguments.epochs,
        first_epochs=3 * arguments.epochs,
        work=work,
    )
    refuse_other_settings(plan)
    found = {seed: simulate(plan, seed) for seed in range(1, arguments.seeds + 1)}
    last = plan.work / "seed-1" / f"queue-{permille(plan.shares[-1])}"
    known = [number for number, document in enumerate(plan.train) if document.text in texts_of(last)]
    report(found, retrain(plan, last, known))


def refuse_other_settings(plan: Plan) -> None:
    """Go on with the models of a folder only if they were trained as these would be."""
    settings = {"start": str(plan.start), "shares": list(plan.shares), "sentences": len(plan.train)}
    settings |= {"epochs": plan.epochs, "rates": [LEARNING_RATE, LEARNING_RATE_AFTER], "audit": AUDIT}
    kept = plan.work / "settings.json"
    if not kept.is_file():
        _keep(kept, json.dumps(settings))
    if json.loads(kept.read_text()) != settings:
        sys.exit(f"error: {plan.work} has models of other settings ({kept.name}). Choose another --work.")


def texts_of(model: Path) -> frozenset[str]:
    if model not in _TEXTS:
        _TEXTS[model] = frozenset(document.text for document in alembert.read(model.with_suffix(".jsonl")))
    return _TEXTS[model]


_TEXTS: dict[Path, frozenset[str]] = {}


def shorten(arguments: argparse.Namespace, name: str, work: Path) -> Path:
    """Take a file whole, or the first sentences of it for a quick run."""
    if not arguments.quick:
        return arguments.data / name
    return alembert.write([*alembert.read(arguments.data / name)][:100], work / f"{name}.jsonl")


def report(found: dict[int, dict[str, Any]], retrained: dict[str, Any]) -> None:
    shares = {order: [each[f"{order}_share"] for each in found.values()] for order in ("queue", "random")}
    reached = {order: fmean(each) if None not in each else None for order, each in shares.items()}
    for line in table_lines(found):
        print(line)
    queue, chance = reached["queue"], reached["random"]
    ratios = {"sentences": round(chance / queue, 2) if queue and chance else None}
    holds = {
        "goal_within_share": all(share is not None and share <= MOST_SHARE for share in shares["queue"]),
        "retrained_in_time": retrained["seconds"] <= MOST_SECONDS,
    }
    print(json.dumps({"ratios": ratios, "holds": holds, "shares": shares, "retrained": retrained, "seeds": found}))


def table_lines(found: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Yield the scores of both orders by share: means over the seeds, and their share of that of all sentences."""
    whole = fmean(each["all"] for each in found.values())
    yield f"{len(found)} seeds, f1 with all sentences {whole:.4f}"
    yield f"{'sentences':>9}  {'queue':>6}  {'of all':>7}  {'random':>6}  {'of all':>7}"
    for share in next(iter(found.values()))["queue"]:
        means = [fmean(each[order][share] for each in found.values()) for order in ("queue", "random")]
        cells = (f"{mean:6.4f}  {mean / whole if whole else 0:7.1%}" for mean in means)
        yield f"{share:9.0%}  {'  '.join(cells)}"


def _arguments() -> argparse.Namespace:
    made = parser(__doc__, quick="300 sentences: whether it runs, not what comes out", model="folder of MiniLM")
    made.add_argument(
        "--data", type=Path, default=SHARED / "ner/NCBI-disease", help="folder with train, devel and test.tsv"
    )
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--rounds", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.3], help="shares of the sentences")
    made.add_argument("--epochs", type=float, default=5.0, help="with all sentences, and in each round")
    made.add_argument("--work", type=Path, default=Path("work/labelling"), help="where the models are kept")
    return made.parse_args()


if __name__ == "__main__":
    main()
