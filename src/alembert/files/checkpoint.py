"""Checkpoints: a model with its tokenizer and labels in one folder that Hugging Face tools open.

`open` reads a folder (or, with `hub:`, a model of the Hugging Face hub) and checks it against its own configuration
before memory is taken; `Checkpoint.save` writes it so that `transformers.AutoModel...from_pretrained` opens it. Nothing
from a checkpoint is executed. A `.bin` file is a pickle: `convert` rewrites such weights as safetensors, once and
explicitly, and reads them with torch's weights-only loader and in no other way, so that nothing in them can run.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from alembert import artifact, hardware
from alembert.artifact import shortlist
from alembert.artifact.disk import read_json, refuse_malformed
from alembert.errors import BadFile, BadSetting, UnsupportedTokenizer
from alembert.files import weights as stored_weights
from alembert.files.card import build_model_card
from alembert.files.families import NativeFormat, choose_family, get_family
from alembert.files.family import EXTRA_KEY, Blueprint, CheckpointFormat
from alembert.files.weights import SHARD_BYTES, SafetensorsWeights, WeightSource, load_pickled
from alembert.hub import PICKLE_PATTERN, find_folder, get_hub_id, is_hub_id, model_folder
from alembert.nn.model import Model, new_model
from alembert.text.tokenizer import Tokenizer

CHECKPOINT_KIND: Final = "Checkpoint"
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Old files carry these constant buffers; they hold nothing that was learned.
_BUFFERS: Final = ("embeddings.position_ids", "embeddings.token_type_ids")
# Keys of a foreign config.json that say how it was made, not what it is.
_DROPPED_KEYS: Final = (
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "auto_map",
    "num_labels",
    "problem_type",
)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model, the tokenizer it was trained with, and the names of its labels."""

    model: Model
    blueprint: Blueprint
    tokenizer: Tokenizer | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `config.json` that mean nothing to alembert and are kept for others."""
    unexpected: tuple[str, ...] = ()
    """Weights that were in the file and belong to no part of the model."""
    folder: Path | None = None
    """Where it was opened, which may say more about the model; none: it was made here."""

    @classmethod
    def new(cls, blueprint: Blueprint, tokenizer: Tokenizer | None = None, *, seed: int = 0) -> Checkpoint:
        """Make a checkpoint with fresh weights."""
        _check_vocabulary(tokenizer, blueprint, "the tokenizer")
        model = new_model(blueprint.config, blueprint.heads, pooler=blueprint.pooler, seed=seed)
        return cls(model=model, blueprint=blueprint, tokenizer=tokenizer)

    @property
    def family(self) -> str:
        """The family that this model is saved as."""
        return choose_family(self.blueprint).model_type

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def max_tokens(self) -> int:
        """How many tokens the model reads at once."""
        return self.blueprint.config.max_position_embeddings

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, or refuse a model without one."""
        if self.tokenizer is None:
            where = "The model" if self.folder is None else f"The model {self.folder}"
            raise BadFile(
                f"{where} has no tokenizer: neither a tokenizer.json nor a vocab.txt of WordPiece is in its folder. "
                "Put the files of the tokenizer it was trained with there, or copy them from the model it began as."
            )
        return self.tokenizer

    @property
    def bytes(self) -> int:
        """What the weights take in memory and, but for a header, on the disk."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    def save(self, folder: str | Path, *, overwrite: bool = False, shard_bytes: int = SHARD_BYTES) -> None:
        """Write the folder whole or not at all."""
        with artifact.create(folder, CHECKPOINT_KIND, config=self.config(), overwrite=overwrite) as draft:
            self.write(draft, shard_bytes=shard_bytes)

    def config(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        family = choose_family(self.blueprint)
        # One type for all, as in every file that is opened; the first weight stands for the rest.
        dtype = str(next(iter(self.model.state_dict().values())).dtype).removeprefix("torch.")
        extra = {EXTRA_KEY: dict(self.extra)} if family.model_type == NativeFormat.model_type else self.extra
        return {**extra, **family.write_config(self.blueprint), "dtype": dtype}

    def write(
        self,
        draft: artifact.Draft,
        *,
        shard_bytes: int = SHARD_BYTES,
        training: Mapping[str, str] | None = None,
    ) -> None:
        """Write the files into an artefact that its caller has begun; `training` goes on the model card."""
        family = choose_family(self.blueprint)
        text = json.dumps(self.config(), indent=2, sort_keys=True) + "\n"
        (draft.path / "config.json").write_text(text, encoding="utf8")
        tensors = _to_foreign(self.model.state_dict(), family, self.blueprint)
        stored_weights.save_weights(tensors, draft.path, shard_bytes)
        if self.tokenizer is not None:
            self.tokenizer.save(draft.path)
        card = build_model_card(self.blueprint, family.model_type, training)
        (draft.path / "README.md").write_text(card, encoding="utf8")
        draft.counts["parameters"] = self.parameters


def open(  # noqa: A001  the verb users know; the builtin is not used here
    where: str | Path,
    *,
    family: str | None = None,
    architecture: str | None = None,
    dtype: str = "float32",
) -> Checkpoint:
    """Open a checkpoint folder, or `hub:organisation/name` from the Hugging Face hub.

    `family` and `architecture` are for folders whose `config.json` does not say what they are.
    """
    hardware.check_dtype(_check_dtype(dtype))
    folder = model_folder(where) if is_hub_id(where) else find_folder(where)
    weights = SafetensorsWeights.find(folder)
    if weights is None:
        raise BadFile(_why_no_weights(folder))
    return assemble(folder, weights, family=family, architecture=architecture, dtype=dtype)


def assemble(
    folder: Path, weights: WeightSource, *, family: str | None, architecture: str | None, dtype: str
) -> Checkpoint:
    """Build a checkpoint from a folder's configuration and tokenizer and from weights found anywhere."""
    hardware.configure_torch()
    raw = _read_config(folder)
    table = get_family(raw.get("model_type"), family)
    names = _canonical_names(weights.shapes, table)
    with refuse_malformed(f"{folder}/config.json is damaged: it does not describe a model. Restore the file."):
        blueprint = table.read_config(raw, names, architecture)
    tokenizer = _open_tokenizer(folder)
    _check_vocabulary(tokenizer, blueprint, str(folder))
    _check_depth(folder, table, blueprint, names)
    model = Model.skeleton(blueprint.config, blueprint.heads, pooler=blueprint.pooler)
    sources = {name: table.foreign_names(name, blueprint) for name in model.state_dict()}
    _check_weights(folder, model, sources, names, weights)
    state = {ours: _load(weights, [names[t] for t in theirs], dtype) for ours, theirs in sources.items()}
    copies = {stored: ours for stored, ours in table.tied.items() if stored in names and ours in state}
    for stored, ours in copies.items():
        if not torch.equal(_load(weights, [names[stored]], dtype), state[ours]):
            raise BadFile(f"{folder} has a `{stored}` that is not tied to the embedding; alembert has only tied ones.")
    model.load_state_dict(state, assign=True)
    used = {name for theirs in sources.values() for name in theirs} | copies.keys()
    unexpected = tuple(sorted(stored for name, stored in names.items() if name not in used))
    if unexpected:
        warnings.warn(f"{folder}: {shortlist(unexpected)} left out, no part of this model", stacklevel=3)
    own = table.write_config(blueprint)
    others = raw.get(EXTRA_KEY, {}) if table.model_type == NativeFormat.model_type else raw
    return Checkpoint(
        model=model.eval(),
        blueprint=blueprint,
        tokenizer=tokenizer,
        extra={k: v for k, v in others.items() if k not in own and k not in _DROPPED_KEYS},
        unexpected=unexpected,
        folder=folder,
    )


def _check_dtype(dtype: str) -> str:
    if dtype not in DTYPES:
        raise BadSetting(f"The numeric type is {dtype!r}; expected one of {', '.join(DTYPES)}.")
    return dtype


def _why_no_weights(folder: Path) -> str:
    if name := get_hub_id(folder):
        return (
            f"{name} has no model.safetensors. If its weights are in old .bin files, which are pickles, convert them once, "
            f"safely: alembert convert {name} --out NEW_FOLDER"
        )
    if any(folder.glob("*.bin")):
        return (
            f"{folder} has its weights in an old .bin file, which is a pickle. "
            f"Convert it once, safely: alembert convert {shlex.quote(str(folder))} --out NEW_FOLDER"
        )
    if (folder / artifact.MANIFEST).exists():
        artifact.open_artifact(folder, CHECKPOINT_KIND)
    return f"{folder} has no model.safetensors; expected a checkpoint folder with config.json and weights."


def _read_config(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        raise BadFile(f"{folder} has no config.json; expected a checkpoint folder with config.json and weights.")
    raw = read_json(folder / "config.json", largest=5_000_000)
    if raw.get("auto_map"):
        raise BadFile(
            f"{folder}/config.json wants to run code that comes with the checkpoint (`auto_map`). alembert executes "
            "nothing from a checkpoint. If the model is a plain one, remove that key."
        )
    if raw.get("quantization_config"):
        raise BadFile(
            f"{folder} holds quantised weights (`quantization_config`); open the original, unquantised model."
        )
    return raw


def _canonical_names(stored: Iterable[str], table: CheckpointFormat) -> dict[str, str]:
    """Map canonical names to stored ones, without the constant buffers of old files."""
    names: dict[str, str] = {}
    for name in stored:
        canonical = table.canonical(name)
        if canonical in names:
            raise BadFile(f"The weight `{canonical}` is stored twice, as `{names[canonical]}` and as `{name}`.")
        if canonical not in _BUFFERS:
            names[canonical] = name
    return names


def _open_tokenizer(folder: Path) -> Tokenizer | None:
    """Open the folder's tokenizer; one of another kind (published ALBERTs have them) is left out with a warning."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return None
    try:
        return Tokenizer.open(folder)
    except UnsupportedTokenizer as problem:
        warnings.warn(f"{problem} The model is opened without a tokenizer.", stacklevel=4)
        return None


def _check_vocabulary(tokenizer: Tokenizer | None, blueprint: Blueprint, where: str) -> None:
    rows = blueprint.config.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > rows:
        raise BadFile(
            f"The vocabulary of {where} has {tokenizer.vocab_size:,} pieces, more than the {rows:,} rows of the "
            "model's embedding (`vocab_size`). They do not belong together; use the tokenizer the model came with."
        )


def _check_depth(folder: Path, table: CheckpointFormat, blueprint: Blueprint, names: Mapping[str, str]) -> None:
    """Look for the last block, before a thousand of them are laid out in vain, and for one after it."""
    last = max(blueprint.config.layer_order)
    layers = blueprint.config.num_hidden_layers
    here, beyond = (table.foreign_names(f"encoder.blocks.{n}.inner.weight", blueprint)[0] for n in (last, last + 1))
    if here not in names:
        raise BadFile(f"{folder} lacks `{here}`, and config.json calls for {layers} layers. One of them is wrong.")
    if beyond in names:
        raise BadFile(f"{folder} has `{beyond}`, and config.json calls for {layers} layers. One of them is wrong.")


def _check_weights(
    folder: Path,
    model: Model,
    sources: Mapping[str, tuple[str, ...]],
    names: Mapping[str, str],
    weights: WeightSource,
) -> None:
    missing = [name for theirs in sources.values() for name in theirs if name not in names]
    if missing:
        raise BadFile(f"{folder} lacks {shortlist(missing)}, which its config.json calls for.")
    expected = model.state_dict()
    misshapen = []
    for ours, theirs in sources.items():
        rows, *rest = expected[ours].shape
        shape = (rows // len(theirs), *rest)
        misshapen += [
            f"`{name}` ({list(weights.shapes[names[name]])} instead of {list(shape)})"
            for name in theirs
            if weights.shapes[names[name]] != shape
        ]
    if misshapen:
        more = f" and {len(misshapen) - 3} more" if len(misshapen) > 3 else ""
        raise BadFile(f"{folder} has weights of another shape than config.json says: {', '.join(misshapen[:3])}{more}.")


def _load(weights: WeightSource, names: list[str], dtype: str) -> Tensor:
    tensors = [stored_weights.load_tensor(weights, name) for name in names]
    if not all(tensor.is_floating_point() for tensor in tensors):
        raise BadFile(f"The weight `{names[0]}` holds whole numbers; quantised weights cannot be opened.")
    tensors = [tensor.to(DTYPES[dtype]) for tensor in tensors]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _to_foreign(state: Mapping[str, Tensor], family: CheckpointFormat, blueprint: Blueprint) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for ours, tensor in state.items():
        theirs = family.foreign_names(ours, blueprint)
        for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            tensors[family.stored_name(name, blueprint)] = part
    return tensors


@dataclass(frozen=True)
class _InMemoryWeights:
    tensors: Mapping[str, Tensor]

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def load(self, name: str) -> Tensor:
        return self.tensors[name]


def convert(
    source: str | Path,
    out: str | Path,
    *,
    family: str | None = None,
    architecture: str | None = None,
    overwrite: bool = False,
) -> Checkpoint:
    """Read `config.json` and the weights of a folder or a hub model, and write a Checkpoint.

    Weights are `pytorch_model.bin` or its shards; without them safetensors, whose `config.json` says too little.
    """
    folder = model_folder(source, pickles=True)
    if not folder.is_dir():
        raise BadFile(f"There is no folder {folder}; expected one with config.json and pytorch_model.bin.")
    weights = _open_pickled(folder) or SafetensorsWeights.find(folder)
    if weights is None:
        raise BadFile(f"{folder} has no pytorch_model.bin; there is nothing to convert.")
    checkpoint = assemble(folder, weights, family=family, architecture=architecture, dtype="float32")
    checkpoint.save(out, overwrite=overwrite)
    return checkpoint


def _open_pickled(folder: Path) -> _InMemoryWeights | None:
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob(PICKLE_PATTERN)):
        tensors |= load_pickled(path)
    return _InMemoryWeights(tensors) if tensors else None
