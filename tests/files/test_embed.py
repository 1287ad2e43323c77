"""Models that give vectors: saved, opened again, and opened by others with the same vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import alembert
from alembert.errors import BadFile, UserError
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HEAD_KINDS, HeadSpec
from alembert.tasks.compare.columns import CompareSettings
from alembert.tasks.compare.pooling import PoolingName
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.files import write_tasks
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

WORDS = ("a", "man", "is", "dancing", "statin", "pain")
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), lowercase=True
)
TEXTS = ["a man is dancing", "statin pain", "a man a man is pain is dancing a"]
SIZES = {
    "vocab_size": TOKENIZER.vocab_size,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
SHAPES = {
    "bert": EncoderConfig(**SIZES),
    "albert": EncoderConfig(**SIZES, embedding_size=8, num_hidden_groups=1),
}
POOLINGS = HEAD_KINDS["embed"].poolings


def checkpoint(pooling: str, shape: str = "bert") -> Checkpoint:
    spec = HeadSpec(kind="embed", pooling=pooling, dropout=0.0)
    made = Checkpoint.new(Blueprint(config=SHAPES[shape], heads={"embed": spec}), TOKENIZER, seed=2)
    for parameter in made.model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made


def vectors(made: Checkpoint) -> torch.Tensor:
    batch = Batch.packed([TOKENIZER.encode(text).ids for text in TEXTS])
    with torch.inference_mode():
        found: torch.Tensor = made.model.eval()(batch, ["embed"], only=True)["embed"]
    return found


@pytest.fixture(params=POOLINGS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as `finetune --task compare` writes it."""
    pooling: PoolingName = request.param
    made = checkpoint(pooling)
    made.save(tmp_path / "model")
    task = CompareTask(CompareSettings(), "unsupervised", pooling, normalise=pooling == "mean")
    bound = task.with_head_weights(made.model.head("embed"))
    write_tasks(tmp_path / "model", {bound.name: (bound, {})})
    for path, content in bound.extra_files().items():
        (tmp_path / "model" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "model" / path).write_bytes(content)
    return tmp_path / "model"


def ours(folder: Path) -> np.ndarray:
    model = TaskModel.open(folder)
    return np.stack([found.vectors[0] for found in model.predict(model.task.examples_from_texts(TEXTS))])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_saved_head_comes_back_in_a_published_family(pooling: str, shape: str, tmp_path: Path) -> None:
    made = checkpoint(pooling, shape)
    assert made.family == shape
    made.save(tmp_path / "model")
    again = alembert.open(tmp_path / "model")
    assert again.blueprint == made.blueprint
    torch.testing.assert_close(vectors(again), vectors(made), rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_finds_the_states_that_vectors_are_made_of(shape: str, tmp_path: Path) -> None:
    made = checkpoint("cls_train_layer", shape)
    made.save(tmp_path / "model")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "model")
    rows = [torch.tensor([TOKENIZER.encode(text).ids]) for text in TEXTS]
    with torch.inference_mode():
        first = torch.cat([theirs(row).last_hidden_state[:, 0] for row in rows])
    torch.testing.assert_close(vectors(made)[:, 16:], first, atol=1e-5, rtol=1e-5)


def test_an_unknown_pooling_in_the_configuration_is_refused(tmp_path: Path) -> None:
    checkpoint("mean").save(tmp_path / "model")
    path = tmp_path / "model/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "embed_pooling": "max"}))
    with pytest.raises(UserError, match="expected one of cls, cls_layer"):
        alembert.open(tmp_path / "model")


def test_a_task_that_was_changed_by_hand_is_refused(saved: Path) -> None:
    whole: dict[str, Any] = json.loads((saved / "task.json").read_text())
    (table,) = whole["tasks"].values()
    table["pooling"] = "mean" if table["pooling"] != "mean" else "cls"
    (saved / "task.json").write_text(json.dumps(whole))
    with pytest.raises(BadFile, match="wrong pooling gives bad vectors"):
        TaskModel.open(saved)


def test_sentence_transformers_gives_equal_vectors(saved: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    theirs = package.SentenceTransformer(str(saved), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ours(saved), theirs, atol=1e-5)
