"""Fine-tuned checkpoint folders with random weights, small enough to be made for each test."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from alembert.corpus.readers.contract import ReadOptions
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.files import get_run_folder, write_tasks, write_train_keys
from alembert.tasks.task import AnyTask, get_task_class
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from task_cases import CASES, LONGEST, TOKENIZER

SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": LONGEST,
}


def examples_of(name: str, file: Path) -> tuple[AnyTask, tuple[Any, ...]]:
    """Write the examples of a case to a file; give the task that learnt from them, and the examples."""
    case = CASES[name]
    file.write_text("\n".join(map(json.dumps, case.lines())) + "\n", encoding="utf8")
    kind = get_task_class(case.task)
    settings = kind.settings_class(**case.settings)
    examples = kind.read([file], settings, ReadOptions()).examples
    return kind.learn(examples, settings), examples


def fine_tuned(name: str, folder: Path, file: Path, **config: Any) -> tuple[Any, ...]:
    """Write a checkpoint for the task of a case, and its examples to a file; give the examples."""
    task, examples = examples_of(name, file)
    tokenizer = TOKENIZER.with_markers(task.special_tokens)
    spec = task.head()
    labels = {spec.kind: task.labels} if spec.is_labelled and task.labels else {}
    blueprint = Blueprint(
        config=EncoderConfig(
            vocab_size=tokenizer.vocab_size, **{**SHAPE, "token_features": count_features(task), **config}
        ),
        heads={spec.kind: spec},
        labels=labels,
    )
    made = Checkpoint.new(blueprint, tokenizer)
    opinionated(made.model)
    made.save(folder)
    write_tasks(folder, {task.name: (task.with_head_weights(made.model.head(spec.kind)), {"examples": len(examples)})})
    write_train_keys(folder / "run", (example.key for example in examples[:3]))
    return examples


def fine_tuned_together(cases: Mapping[str, str], folder: Path, place: Path) -> dict[str, tuple[Any, ...]]:
    """Write a checkpoint for several tasks, name -> case; give the examples of each, whose files go to `place`."""
    read = {name: examples_of(case, place / f"{name}.jsonl") for name, case in cases.items()}
    tokenizer = TOKENIZER.with_markers(dict.fromkeys(each for task, _ in read.values() for each in task.special_tokens))
    heads = {name: task.head() for name, (task, _) in read.items()}
    labels = {name: task.labels for name, (task, _) in read.items() if heads[name].is_labelled and task.labels}
    features = max((count_features(task) or 0 for task, _ in read.values()), default=0) or None
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, token_features=features, **SHAPE)
    made = Checkpoint.new(Blueprint(config=config, heads=heads, labels=labels), tokenizer)
    opinionated(made.model)
    made.save(folder)
    bound = {name: task.with_head_weights(made.model.head(name)) for name, (task, _) in read.items()}
    tasks = {name: (task, {"examples": len(read[name][1])}) for name, task in bound.items()}
    write_tasks(folder, tasks, {name: name for name in tasks})
    for name, (_, examples) in read.items():
        write_train_keys(get_run_folder(folder, name, read), (example.key for example in examples[:3]))
    return {name: examples for name, (_, examples) in read.items()}


def count_features(task: AnyTask) -> int | None:
    """Count the rows of the features that a task reads beside its pieces."""
    return sum(task.token_features.values()) or None


def opinionated(model: torch.nn.Module, std: float = 0.3) -> None:
    """Draw weights that say different things of different texts; those of a new model hardly do, and biases hide."""
    generator = torch.Generator().manual_seed(5)
    for name, parameter in model.named_parameters():
        if not name.endswith("norm.weight"):
            torch.nn.init.normal_(parameter, std=std, generator=generator)
        if name == "encoder.embeddings.features.weight":
            parameter.data[0] = 0


def small_model(heads: Mapping[str, HeadSpec], **changes: Any) -> Model:
    """Make a model of two narrow layers, with weights large enough to tell answers apart."""
    shape = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
    }
    model = new_model(EncoderConfig(**{**shape, **changes}), heads).eval()
    opinionated(model)
    return model


CHARACTERS = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"床前明月光"), lowercase=True
)


def language_model(folder: Path, attention: str, *, next_sentence: bool = False) -> str:
    """Write a language model of five characters that expects 光 everywhere; give its path."""
    heads = {"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)}
    if next_sentence:
        heads["next_sentence"] = HeadSpec(kind="next_sentence", dropout=0.0)
    config = EncoderConfig(
        vocab_size=CHARACTERS.vocab_size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=12,
        attention=attention,
    )
    made = Checkpoint.new(Blueprint(config=config, heads=heads), CHARACTERS)
    made.model.head("masked_lm").bias.data[9] = 10.0
    made.save(folder)
    return str(folder)
