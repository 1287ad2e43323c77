"""Every architecture of every family: ours equals transformers, both ways, and what is saved stays the same."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import alembert
from alembert.files.checkpoint import Checkpoint
from alembert.files.families import FAMILIES
from alembert.files.family import Blueprint, Family
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec

IDS = [[2, 7, 9, 3], [2, 5, 3], [2, 17, 3, 8, 9, 3], [2, 6, 6, 3]]
SEGMENTS = [[0, 0, 0, 0], [0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0]]
SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 16}  # fmt: skip
# What a family has beside those.
OWN_SIZES: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu_new"},
}
# Our name of each output -> attribute of transformers' result.
OUTPUTS = {
    "masked_lm": ("logits", "prediction_logits"),
    "next_sentence": ("logits", "seq_relationship_logits", "sop_logits"),
    "classify": ("logits",),
    "tag": ("logits",),
    "choice": ("logits",),
    "pooled": ("pooler_output",),
    "hidden": ("last_hidden_state",),
}


def architectures() -> Iterator[tuple[str, str]]:
    for family in FAMILIES.values():
        if isinstance(family, Family):
            yield from ((family.model_type, name) for name in family.architectures)


def foreign_config(family: str, architecture: str) -> transformers.PreTrainedConfig:
    labels = 5 if architecture.endswith(("SequenceClassification", "TokenClassification")) else 2
    make = getattr(transformers, f"{family.capitalize()}Config")
    attention = {"is_decoder": True} if architecture.endswith("LMHeadModel") else {}
    return make(**SIZES, **OWN_SIZES.get(family, {}), **attention, num_labels=labels)


@pytest.fixture(params=list(architectures()), ids=lambda pair: pair[1])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[transformers.PreTrainedModel, Path]:
    family, architecture = request.param
    torch.manual_seed(3)
    model = getattr(transformers, architecture)(foreign_config(family, architecture)).eval()
    for parameter in model.parameters():  # zero biases and unit norms would hide a mix-up
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "foreign")
    return model, tmp_path / "foreign"


def padded_inputs() -> dict[str, torch.Tensor]:
    longest = max(map(len, IDS))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in IDS])
    segments = torch.tensor([row + [0] * (longest - len(row)) for row in SEGMENTS])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "token_type_ids": segments}


def reference(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    inputs = padded_inputs()
    with torch.no_grad():
        if type(model).__name__.endswith("MultipleChoice"):
            inputs = {name: tensor[None] for name, tensor in inputs.items()}
            return {"choice": model(**inputs).logits[0, :, None]}
        return {name: value for name, value in model(**inputs).items() if isinstance(value, torch.Tensor)}


def ours(checkpoint: alembert.Checkpoint, batch: Batch) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return checkpoint.model(batch)


def assert_equal_outputs(model: transformers.PreTrainedModel, checkpoint: alembert.Checkpoint) -> None:
    inputs = padded_inputs()
    theirs = reference(model)
    packed = Batch.packed(IDS, SEGMENTS)
    padded = Batch.padded(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"])
    for batch in (packed, padded):
        outputs = ours(checkpoint, batch)
        if "span" in outputs:
            expected = {"span": torch.stack((theirs["start_logits"], theirs["end_logits"]), -1)}
        elif "choice" in outputs:
            expected = theirs
        else:
            expected = {n: theirs[a] for n in outputs for a in OUTPUTS[n] if a in theirs and fits(n, a, outputs)}
        assert expected, "nothing was compared"
        for name, tensor in expected.items():
            assert_close(outputs[name], tensor, batch, padded_rows=name in ("hidden", "masked_lm", "tag", "span"))


def fits(name: str, attribute: str, outputs: dict[str, torch.Tensor]) -> bool:
    # `logits` is whatever the one head gives; pre-training models name theirs.
    return attribute != "logits" or len(set(outputs) & {"masked_lm", "next_sentence", "classify", "tag"}) == 1


def assert_close(mine: torch.Tensor, theirs: torch.Tensor, batch: Batch, *, padded_rows: bool) -> None:
    if not padded_rows:
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
        return
    for row, length, states in zip(theirs, batch.lengths, batch.split(mine), strict=True):
        torch.testing.assert_close(states, row[:length], atol=1e-5, rtol=0)


def test_ours_equals_transformers(foreign: tuple[transformers.PreTrainedModel, Path]) -> None:
    model, folder = foreign
    checkpoint = alembert.open(folder)
    assert checkpoint.unexpected == ()
    assert_equal_outputs(model, checkpoint)


def test_transformers_opens_what_we_saved(foreign: tuple[transformers.PreTrainedModel, Path], tmp_path: Path) -> None:
    model, folder = foreign
    alembert.open(folder).save(tmp_path / "ours")
    again, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for before, after in zip(reference(model).values(), reference(again.eval()).values(), strict=True):
        torch.testing.assert_close(before, after, atol=0, rtol=0)


def test_save_open_save_gives_the_same_bytes(
    foreign: tuple[transformers.PreTrainedModel, Path], tmp_path: Path
) -> None:
    _, folder = foreign
    alembert.open(folder).save(tmp_path / "one")
    alembert.open(tmp_path / "one").save(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


LABELS = ("O", "B-x", "I-x", "B-y", "I-y")
SHAPES = {
    "bert": EncoderConfig(**SIZES),
    "albert": EncoderConfig(**SIZES, embedding_size=8, num_hidden_groups=2, inner_group_num=2),
}


@pytest.fixture(params=SHAPES)
def tagger(request: pytest.FixtureRequest) -> Checkpoint:
    """A model with a CRF, which no published class has."""
    heads = {"crf": HeadSpec(kind="crf", outputs=5, dropout=0.2)}
    blueprint = Blueprint(config=SHAPES[request.param], heads=heads, labels={"crf": LABELS})
    made = Checkpoint.new(blueprint, seed=1)
    for parameter in made.model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(len(parameter)))
    assert made.family == request.param
    return made


def test_a_crf_comes_back_whole(tagger: Checkpoint, tmp_path: Path) -> None:
    tagger.save(tmp_path / "one")
    again = alembert.open(tmp_path / "one")
    assert again.blueprint == tagger.blueprint
    assert again.unexpected == ()
    before, after = tagger.model.state_dict(), again.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    again.save(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_transformers_opens_a_crf_as_a_token_classifier_with_the_same_logits(
    tagger: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagger.save(tmp_path / "ours")
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    theirs, info = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert set(info["unexpected_keys"]) == {"crf.transitions", "crf.start", "crf.end"}
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    assert "crf.transitions" in caplog.text
    assert tuple(theirs.config.id2label.values()) == LABELS
    batch = Batch.packed(IDS, SEGMENTS)
    logits = ours(Checkpoint(model=tagger.model.eval(), blueprint=tagger.blueprint), batch)["crf"]
    assert_close(logits, reference(theirs.eval())["logits"], batch, padded_rows=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_head_that_copies_comes_back_whole_and_transformers_opens_a_masked_lm(shape: str, tmp_path: Path) -> None:
    heads = {"copy_lm": HeadSpec(kind="copy_lm", dropout=0.0)}
    made = Checkpoint.new(Blueprint(config=SHAPES[shape], heads=heads), seed=1)
    assert made.family == shape
    made.save(tmp_path / "one")
    again = alembert.open(tmp_path / "one")
    assert (again.blueprint, again.unexpected) == (made.blueprint, ())
    again.save(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "one", output_loading_info=True)
    weights = {"copy.bias", "copy.gate.weight"} | {
        f"copy.{a}.{b}" for a in ("query", "key") for b in ("weight", "bias")
    }
    assert (set(info["unexpected_keys"]), set(info["missing_keys"])) == (weights, set())
    theirs.save_pretrained(tmp_path / "theirs")
    assert set(alembert.open(tmp_path / "theirs").blueprint.heads) == {"masked_lm"}


def test_a_token_classifier_without_transitions_is_no_crf(tagger: Checkpoint, tmp_path: Path) -> None:
    tagger.save(tmp_path / "ours")
    transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert set(alembert.open(tmp_path / "theirs").blueprint.heads) == {"tag"}


@pytest.mark.parametrize(
    "heads",
    [
        {"pointer": HeadSpec(kind="pointer", outputs=2)},
        {"classify": HeadSpec(kind="classify", outputs=2, pooling="mean")},
        {"classify": HeadSpec(kind="classify", outputs=2, pooling="layers")},
        {"crf": HeadSpec(kind="crf", outputs=2), "tag": HeadSpec(kind="tag", outputs=2)},
        {"mine": HeadSpec(kind="crf", outputs=2)},
    ],
    ids=lambda heads: "-".join(f"{spec.kind}-{spec.pooling}" for spec in heads.values()),
)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_no_family_holds_comes_back_in_our_own_form(
    heads: dict[str, HeadSpec], shape: str, tmp_path: Path
) -> None:
    made = Checkpoint.new(Blueprint(config=SHAPES[shape], heads=heads))
    assert made.family == "alembert"
    made.save(tmp_path / "model")
    assert "transformers cannot read this form" in (tmp_path / "model" / "README.md").read_text()
    again = alembert.open(tmp_path / "model")
    assert again.blueprint == made.blueprint
    made.model.eval()
    batch = Batch.packed(IDS, SEGMENTS)
    for name, output in ours(made, batch).items():
        torch.testing.assert_close(ours(again, batch)[name], output, atol=0, rtol=0)
