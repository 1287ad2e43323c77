"""The lesson of fine-tuning: what its micro-batches ask of the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert import sample
from alembert.corpus.readers.contract import ReadOptions
from alembert.data.feed import Cursor
from alembert.nn.config import preset
from alembert.nn.model import new_model
from alembert.tasks.task import get_task_class
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.objective import EncodedExamples, TaskObjective
from alembert.train.finetune.settings import FinetuneSettings


def lesson(name: str, changes: dict[str, Any], path: Path, tokenizer: Tokenizer) -> TaskObjective:
    lines = [
        {
            "id": passage.id,
            "text": passage.text[:200],
            "label": passage.topic,
            "entities": [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
                if each.end <= 200
            ],
        }
        for passage in sample.load_passages("en")[:12]
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf8")
    kind = get_task_class(name)
    settings = kind.settings_class(**changes)
    examples = kind.read([path], settings, ReadOptions()).examples
    task = kind.learn(examples, settings)
    ready = EncodedExamples(examples, task.encode(examples, tokenizer, 128))
    return TaskObjective(task, ready, ready, FinetuneSettings())


@pytest.mark.parametrize(
    ("name", "changes", "reads_all"),
    [
        ("tag", {}, False),
        ("tag", {"head": "span"}, False),
        ("classify", {}, False),
        ("classify", {"pooling": "mean"}, True),
    ],
)
def test_the_last_block_is_asked_for_as_many_tokens_as_are_counted(
    name: str, changes: dict[str, Any], reads_all: bool, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    made = lesson(name, changes, tmp_path / "examples.jsonl", tokenizer)
    model = new_model(preset("tiny", vocab_size=tokenizer.vocab_size), {made.head: made.spec}).eval()
    portions, _ = made.sample(Cursor(), 1, 0.0)
    micro = made.collate(portions[0])
    seen: list[int] = []
    model.encoder.blocks[-1].inner.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    made.loss(model, micro, {name: 1.0}, None)
    assert seen == [micro.tokens if reads_all else micro.tokens_read]
    assert (micro.tokens_read is None) == reads_all


@pytest.mark.parametrize(("changes", "portions"), [({"batch_size": 4}, 1), ({"kind": "scores"}, 3)])
def test_examples_that_are_compared_with_each_other_make_a_step(
    changes: dict[str, Any], portions: int, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    path = tmp_path / "pairs.csv"
    score = ["score"] + [str(number) for number in (0, 1, 2, 3, 2, 1, 0, 3)]
    rows = ["sentence1,sentence2"] + [f"text {number},its partner" for number in range(8)]
    scored = [f"{row},{value}" for row, value in zip(rows, score, strict=True)]
    path.write_text("\n".join(scored if "kind" in changes else rows), encoding="utf8")
    kind = get_task_class("compare")
    settings = kind.settings_class(**changes)
    examples = kind.read([path], settings, ReadOptions()).examples
    task = kind.learn(examples, settings).for_training()
    ready = EncodedExamples(examples, task.encode(examples, tokenizer, 128))
    made = TaskObjective(task, ready, ready, FinetuneSettings())
    assert len(made.sample(Cursor(), 3, 0.0)[0]) == portions
