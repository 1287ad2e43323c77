"""Checkpoints that lie are refused with a sentence, before memory is taken; honest ones come back whole."""

import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import alembert
from alembert import artifact, hardware
from alembert.errors import BadFile, BadSetting, UserError
from alembert.files.checkpoint import Checkpoint, convert
from alembert.files.family import Blueprint
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

CONFIG = EncoderConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, max_position_embeddings=10)  # fmt: skip
MASKED_LM = Blueprint(config=CONFIG, heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)})
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "aspirin", "##e", "inhibits")


def tokenizer() -> Tokenizer:
    return Tokenizer.from_vocabulary(Vocabulary.from_pieces(*VOCABULARY), lowercase=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Checkpoint.new(MASKED_LM, tokenizer()).save(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, **changes: Any) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, **changes}))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def rename_header(folder: Path, old: bytes, new: bytes) -> None:
    assert len(old) == len(new)
    path = folder / "model.safetensors"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_a_checkpoint_comes_back_whole(folder: Path) -> None:
    again = alembert.open(folder)
    assert again.blueprint == MASKED_LM
    assert again.tokenizer is not None
    assert again.tokenizer.vocabulary == tokenizer().vocabulary
    fresh = Checkpoint.new(MASKED_LM)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), fresh.model.parameters(), strict=True))
    assert not again.model.training


def test_the_folder_is_a_verified_artefact(folder: Path) -> None:
    assert artifact.verify(folder).kind == "Checkpoint"


def test_sharded_weights_are_the_same_weights(folder: Path, tmp_path: Path) -> None:
    checkpoint = alembert.open(folder)
    checkpoint.save(tmp_path / "sharded", shard_bytes=2000)
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    again = alembert.open(tmp_path / "sharded")
    for (name, a), b in zip(checkpoint.model.state_dict().items(), again.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "change",
    [
        {"position_embedding_type": "rotary"},
        {"position_embedding_type": "sinusoidal"},
        {"layer_norm_position": "pre"},
        {"attention": "prefix"},
        {"num_hidden_groups": 1},
    ],
    ids=str,
)
def test_what_no_family_holds_is_saved_in_our_own_form(change: dict[str, Any], tmp_path: Path) -> None:
    config = EncoderConfig(**{**CONFIG.__dict__, **change})
    heads = {
        "diseases": HeadSpec(kind="tag", outputs=3),
        "sections": HeadSpec(kind="classify", outputs=2),
        "lm": HeadSpec(kind="masked_lm"),
    }
    labels = {"diseases": ("O", "B", "I"), "sections": ("aim", "result")}
    blueprint = Blueprint(config=config, heads=heads, pooler=True, labels=labels)
    checkpoint = Checkpoint.new(blueprint)
    assert checkpoint.family == "alembert"
    checkpoint.save(tmp_path / "one")
    again = alembert.open(tmp_path / "one")
    assert again.blueprint == blueprint
    batch = Batch.packed([[1, 2, 3], [4, 5]], prefixes=[1, 1])
    with torch.no_grad():
        for name, tensor in checkpoint.model.eval()(batch).items():
            assert torch.equal(tensor, again.model(batch)[name])
    again.save(tmp_path / "two")
    assert (tmp_path / "one/manifest.json").read_bytes() == (tmp_path / "two/manifest.json").read_bytes()


def test_keys_of_others_are_kept(folder: Path, tmp_path: Path) -> None:
    edit_config(folder, pad_token_id=0, finetuning_task="sst2", _name_or_path="/secret/path")
    alembert.open(folder).save(tmp_path / "again")
    raw = json.loads((tmp_path / "again/config.json").read_text())
    assert raw["finetuning_task"] == "sst2"
    assert "_name_or_path" not in raw


def test_unexpected_weights_are_named(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({"stray.weight": torch.zeros(2)}))
    with pytest.warns(UserWarning, match=r"stray\.weight left out"):
        assert alembert.open(folder).unexpected == ("stray.weight",)


LIES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "There is no folder"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "missing|no model.safetensors"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "no JSON object"),
    "config is cut off": (lambda f: (f / "config.json").write_text('{"a": '), "not readable as JSON"),
    "config is deep": (lambda f: (f / "config.json").write_text("[" * 10**5), "not readable as JSON"),
    "config is binary": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "not readable as JSON"),
    "other family": (lambda f: edit_config(f, model_type="gpt2"), "'gpt2'.*bert, albert"),
    "no family": (lambda f: edit_config(f, model_type=None), "no `model_type`"),
    "other architecture": (lambda f: edit_config(f, architectures=["BertForAnything"]), "BertForAnything"),
    "own code": (lambda f: edit_config(f, auto_map={"AutoModel": "evil.Evil"}), "auto_map"),
    "huge vocabulary": (
        lambda f: edit_config(f, vocab_size=9_999_999),
        r"\[20, 8\] instead of \[9999999, 8\]",
    ),
    "absurd vocabulary": (lambda f: edit_config(f, vocab_size=10**15), "vocab_size"),
    "huge width": (lambda f: edit_config(f, hidden_size=65_536), "another shape"),
    "many layers": (
        lambda f: edit_config(f, num_hidden_layers=1000),
        "lacks .*layer.999.*calls for 1000 layers",
    ),
    "absurd layers": (lambda f: edit_config(f, num_hidden_layers=10**9), "num_hidden_layers"),
    "huge inner width": (lambda f: edit_config(f, intermediate_size=10**6), "another shape"),
    "text for a number": (lambda f: edit_config(f, hidden_size="8"), "hidden_size"),
    "relative positions": (lambda f: edit_config(f, position_embedding_type="relative_key"), "relative_key"),
    "fewer layers": (lambda f: edit_config(f, num_hidden_layers=1), "has .*layer.1.*calls for 1 layers"),
    "quantised": (lambda f: edit_config(f, quantization_config={"bits": 8}), "quantised"),
    "whole numbers": (
        lambda f: edit_weights(f, lambda t: t.update({"cls.predictions.bias": torch.zeros(20, dtype=torch.int8)})),
        "whole numbers",
    ),
    "a list for an architecture": (lambda f: edit_config(f, architectures=[["x"]]), "architecture"),
    "a dropout of 1.5": (
        lambda f: edit_config(f, classifier_dropout=1.5, architectures=["BertForTokenClassification"]),
        "dropout",
    ),
    "damaged added tokens": (
        lambda f: [
            (f / "tokenizer.json").unlink(),
            (f / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"0": "x"}}'),
        ],
        "added tokens",
    ),
    "untied head": (lambda f: edit_config(f, tie_word_embeddings=False), "tie_word_embeddings"),
    "a missing weight": (
        lambda f: edit_weights(f, lambda t: t.pop("bert.embeddings.LayerNorm.bias")),
        "lacks embeddings.LayerNorm.bias",
    ),
    "a misshapen weight": (
        lambda f: edit_weights(f, lambda t: t.update({"cls.predictions.bias": torch.zeros(7)})),
        r"`cls.predictions.bias` \(\[7\] instead of \[20\]\)",
    ),
    "an untied decoder": (
        lambda f: edit_weights(f, lambda t: t.update({"cls.predictions.decoder.weight": torch.ones(20, 8)})),
        "not tied",
    ),
    "a weight twice": (
        lambda f: edit_weights(f, lambda t: t.update({"embeddings.LayerNorm.bias": torch.zeros(8)})),
        "stored twice",
    ),
    "weights cut off": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
        "cut off|takes",
    ),
    "weights cut in the header": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:50]),
        "header does not fit",
    ),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a safetensors file"),
    "a giant header": (
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}"),
        "header does not fit",
    ),
    "an overflowing shape": (
        lambda f: rename_header(f, b'"shape":[20,8]', b'"shape":[99,8]'),
        "does not fit",
    ),
    "a negative shape": (lambda f: rename_header(f, b'"shape":[20,8]', b'"shape":[-4,8]'), "does not fit"),
    "a tensor twice": (
        lambda f: rename_header(f, b"1.output.dense.bias", b"0.output.dense.bias"),
        "twice",
    ),
    "a list for an activation": (lambda f: edit_config(f, hidden_act=["gelu"]), "`hidden_act` is"),
    "an unknown type": (lambda f: rename_header(f, b'"F32"', b'"Q99"'), "unknown type"),
    "a vocabulary too large": (
        lambda f: Tokenizer.from_vocabulary(
            Vocabulary.from_pieces(*VOCABULARY, *(f"word{i}" for i in range(30))), lowercase=True
        ).save(f),
        "38 pieces, more than the 20 rows",
    ),
    "labels with a gap": (
        lambda f: edit_config(f, id2label={"0": "a", "7": "b"}, architectures=["BertForTokenClassification"]),
        "id2label",
    ),
    "labels twice": (
        lambda f: edit_config(f, id2label={"0": "a", "1": "a"}, architectures=["BertForTokenClassification"]),
        "occurs twice",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_that_lies_is_refused_without_taking_memory(lie: str, folder: Path) -> None:
    damage, sentence = LIES[lie]
    damage(folder)
    tracemalloc.start()
    with pytest.raises(UserError, match=sentence):
        alembert.open(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


def test_an_index_cannot_point_outside_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "../other/model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadFile, match="in the same folder"):
        alembert.open(folder)


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_that_are_a_link_out_of_the_folder_are_refused(sharded: bool, folder: Path, tmp_path: Path) -> None:
    alembert.open(folder).save(tmp_path / "own", shard_bytes=2000 if sharded else 10**9)
    weights = sorted((tmp_path / "own").glob("*.safetensors"))[-1]
    weights.rename(tmp_path / "elsewhere.safetensors")
    weights.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(BadFile, match="a link to a file outside of the folder"):
        alembert.open(tmp_path / "own")


def test_a_link_inside_the_folder_and_a_linked_folder_open(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    (folder / "model.safetensors").symlink_to("weights.safetensors")
    (tmp_path / "linked").symlink_to(folder, target_is_directory=True)
    alembert.open(tmp_path / "linked")


def test_a_snapshot_in_a_cache_of_the_hub_opens(folder: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--x--y" / "blobs", tmp_path / "models--x--y" / "snapshots" / "0f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copyfile(path, blobs / f"{number:x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:x}")
    alembert.open(snapshot)


def test_an_index_must_list_what_its_files_hold(folder: Path, tmp_path: Path) -> None:
    alembert.open(folder).save(tmp_path / "sharded", shard_bytes=2000)
    index = tmp_path / "sharded/model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"].pop("cls.predictions.bias")
    index.write_text(json.dumps(listed))
    with pytest.raises(BadFile, match="does not list"):
        alembert.open(tmp_path / "sharded")


def test_a_tokenizer_of_another_kind_is_left_out_aloud(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"] = {"type": "Unigram", "vocab": [["a", 0.0]]}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="Unigram.*without a tokenizer"):
        assert alembert.open(folder).tokenizer is None


@pytest.mark.parametrize(
    ("heads", "labels"),
    [
        ({"classify": HeadSpec(kind="classify", outputs=5)}, {}),
        ({"tag": HeadSpec(kind="tag", outputs=3)}, {"tag": ("O", "B", "I")}),
        ({"choice": HeadSpec(kind="choice")}, {}),
        ({"span": HeadSpec(kind="span", dropout=0.0)}, {}),
    ],
    ids=lambda value: next(iter(value), "no labels"),
)
@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
def test_a_model_made_here_is_saved_as_bert_and_comes_back(
    heads: dict[str, HeadSpec], labels: dict[str, tuple[str, ...]], attention: str, tmp_path: Path
) -> None:
    config = EncoderConfig(**{**CONFIG.__dict__, "attention": attention})
    checkpoint = Checkpoint.new(Blueprint(config=config, heads=heads, labels=labels))
    assert checkpoint.family == "bert"
    checkpoint.save(tmp_path / "model")
    assert alembert.open(tmp_path / "model").blueprint == checkpoint.blueprint


def test_keys_of_others_survive_our_own_form(folder: Path, tmp_path: Path) -> None:
    edit_config(folder, finetuning_task="mesh")
    opened = alembert.open(folder)
    heads = {"one": HeadSpec(kind="tag", outputs=2), "two": HeadSpec(kind="tag", outputs=3)}
    made = Checkpoint.new(Blueprint(config=CONFIG, heads=heads))
    replace(made, extra=opened.extra).save(tmp_path / "native")
    assert alembert.open(tmp_path / "native").extra == opened.extra == {"finetuning_task": "mesh"}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"kind": "nothing"}, "no head of kind"),
        ({"kind": "tag"}, "None outputs"),
        ({"kind": "tag", "outputs": 2.0}, "2.0 outputs"),
        ({"kind": "choice", "outputs": 2}, "has 1 outputs, not 2"),
        ({"kind": "tag", "outputs": 2, "dropout": "x"}, "dropout"),
    ],
    ids=str,
)
def test_heads_that_cannot_work_are_refused(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        HeadSpec(**spec)


@pytest.mark.parametrize("name", ["hidden", "pooled", "keys", "a.b", "", "9"])
def test_a_head_needs_a_usable_name(name: str) -> None:
    with pytest.raises(BadSetting, match="cannot be called"):
        Checkpoint.new(Blueprint(config=CONFIG, heads={name: HeadSpec(kind="masked_lm")}))


@pytest.mark.parametrize("labels", [{"tag": ("O",)}, {"tag": ("O", "O")}, {"other": ("O", "B")}], ids=str)
def test_labels_must_fit_their_head(labels: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(BadSetting, match="label"):
        Blueprint(config=CONFIG, heads={"tag": HeadSpec(kind="tag", outputs=2)}, labels=labels)


def test_a_pickle_is_not_opened_but_its_conversion_is_explained(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(BadFile, match=r"pickle.*alembert convert"):
        alembert.open(folder)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "old").mkdir()
    (tmp_path / "old/config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 20}))
    torch.save({"weight": Evil()}, tmp_path / "old/pytorch_model.bin")
    with pytest.raises(BadFile, match="cannot be opened as plain weights"):
        convert(tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "new").exists()


def test_old_names_of_layer_norms_are_understood(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for n, t in tensors.items()
    }
    (tmp_path / "old").mkdir()
    shutil.copy(folder / "config.json", tmp_path / "old")
    torch.save(old, tmp_path / "old/pytorch_model.bin")
    convert(tmp_path / "old", tmp_path / "new")
    assert load_file(tmp_path / "new/model.safetensors").keys() == tensors.keys()


def test_an_ambiguous_classifier_asks_what_it_is(tmp_path: Path) -> None:
    blueprint = Blueprint(config=CONFIG, heads={"tag": HeadSpec(kind="tag", outputs=2)}, labels={"tag": ("O", "B")})
    Checkpoint.new(blueprint).save(tmp_path / "model")
    edit_config(tmp_path / "model", architectures=None)
    with pytest.raises(BadFile, match="BertForTokenClassification"):
        alembert.open(tmp_path / "model")
    opened = alembert.open(tmp_path / "model", architecture="BertForTokenClassification")
    assert opened.blueprint.labels == {"tag": ("O", "B")}


def test_half_precision_weights_are_read_as_float32(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({n: t.half() for n, t in tensors.items()}))
    assert next(alembert.open(folder).model.parameters()).dtype == torch.float32


def test_bfloat16_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "check_dtype", lambda name: None)
    checkpoint = alembert.open(folder, dtype="bfloat16")
    assert checkpoint.model(Batch.packed([[1, 2, 3]]))["masked_lm"].dtype == torch.bfloat16


def test_a_type_that_kills_the_process_is_refused_before_anything_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise BadSetting(f"{name} does not work here")

    monkeypatch.setattr(hardware, "check_dtype", refuse)
    with pytest.raises(BadSetting, match="bfloat16 does not work here"):
        alembert.open(folder / "not even there", dtype="bfloat16")


def test_an_unknown_type_is_refused(folder: Path) -> None:
    with pytest.raises(BadSetting, match="float32, bfloat16, float16"):
        alembert.open(folder, dtype="int3")


def test_saving_over_a_checkpoint_needs_to_be_asked_for(folder: Path) -> None:
    checkpoint = alembert.open(folder)
    with pytest.raises(BadFile, match="already"):
        checkpoint.save(folder)
    checkpoint.save(folder, overwrite=True)
    assert alembert.open(folder).blueprint == MASKED_LM
