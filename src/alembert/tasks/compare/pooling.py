"""How a model makes one vector of a text, as its folder states it; and the files that state it to sentence-transformers.

A vector is the last state of the first token (`cls`) or the mean of the last states of all tokens (`mean`), with or
without a trained layer on it (a linear map and tanh), scaled to length 1 or not. The weights do not tell which: a
SimCSE model that is read with the wrong one loses twenty points and says nothing. So a folder states it: in
`task.json`, if the model was fine-tuned for the task `compare`, and in the files of sentence-transformers
(`modules.json`, `1_Pooling/config.json`), which many published folders have. Where both are there they must agree.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from alembert.artifact.disk import parse_json
from alembert.errors import BadFile
from alembert.tasks.files import TASK_FILE, read_tasks

PoolingMode = Literal["cls", "mean"]
PoolingName = Literal["cls", "cls_layer", "cls_train_layer", "mean"]
"""What the head of a model is called that makes such vectors: `Pooling.mode`, and what becomes of a trained layer."""
MODULES_FILE: Final = "modules.json"
_POOLING: Final = "1_Pooling"
_DENSE: Final = "2_Dense"
_LENGTH: Final = "sentence_bert_config.json"
_LARGEST: Final = 1_000_000
"""Bytes of a configuration file, at most."""
_KEYS: Final[dict[PoolingMode, str]] = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
"""Mode -> the key of sentence-transformers that is true for it."""
_OTHER_KEYS: Final = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
    "pooling_mode_lasttoken",
)


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How the states of a text's tokens become its vector."""

    mode: PoolingMode
    """The first token, or the mean of all."""
    dimension: int
    """Numbers of a vector."""
    normalise: bool = False
    """Whether vectors are scaled to length 1."""
    layer: bool = False
    """Whether a trained layer is part of the model: only with `cls`, and only in models that were trained here."""
    length: int | None = None
    """Tokens that are read at once, with special ones; none: as many as the model can."""

    @classmethod
    def named(cls, name: PoolingName, dimension: int, *, normalise: bool = False, length: int | None = None) -> Pooling:
        """Return the pooling of a head: a layer that is for training alone is no part of it."""
        return cls(
            mode="mean" if name == "mean" else "cls",
            dimension=dimension,
            normalise=normalise,
            layer=name == "cls_layer",
            length=length,
        )

    @property
    def name(self) -> PoolingName:
        """The head that makes such vectors, without one that is for training alone."""
        return "cls_layer" if self.layer else self.mode

    def in_words(self) -> str:
        """Describe it.

        >>> Pooling(mode="cls", dimension=384, layer=True).in_words()
        'the first token through a trained layer, 384 numbers'
        """
        source = "the first token" if self.mode == "cls" else "the mean of all tokens"
        layer = " through a trained layer" if self.layer else ""
        scaled = ", scaled to length 1" if self.normalise else ""
        length = f", texts read by {self.length} tokens" if self.length else ""
        return f"{source}{layer}, {self.dimension} numbers{scaled}{length}"


def read_pooling(folder: str | Path) -> Pooling | None:
    """Read how a model's folder says that vectors are made; none: it does not say it."""
    place = Path(folder)
    own = _read_task_pooling(place) if (place / TASK_FILE).is_file() else None
    published = _read_modules_pooling(place) if (place / MODULES_FILE).is_file() else None
    if own and published and own != published:
        raise BadFile(
            f"{place / TASK_FILE} says that a vector is {own.in_words()}, and {MODULES_FILE} beside it that it is "
            f"{published.in_words()}. One of them was changed; restore it, since the wrong one gives bad vectors."
        )
    if published and published.layer and not own:
        raise BadFile(
            f"{place / MODULES_FILE} has a trained layer (Dense), whose weights alembert reads from models alone that were "
            "fine-tuned with it. Fine-tune one: alembert finetune --task compare."
        )
    return own or published


def find_missing_head(folder: Path | None, heads: Collection[str]) -> PoolingName | None:
    """Name the head that a model of sentence-transformers is to have: its files state it, and its weights have none."""
    stated = None if heads or folder is None else read_pooling(folder)
    return None if stated is None else stated.name


# -- what task.json states


def _read_task_pooling(folder: Path) -> Pooling | None:
    """Read what tasks that compare state: one of several, too, if no other makes vectors in another way."""
    stated = {
        name: _pooling_from_table(task.table, folder)
        for name, task in read_tasks(folder).items()
        if task.kind == "compare"
    }
    if not stated:
        return None
    first = next(iter(stated.values()))
    # Tasks with equal poolings have the same vectors, since they share the encoder, but not with a layer each.
    if len(stated) > 1 and (first.layer or any(other != first for other in stated.values())):
        each = "; ".join(f"{name}: {pooling.in_words()}" for name, pooling in stated.items())
        raise BadFile(
            f"{folder / TASK_FILE} has {len(stated)} tasks that compare, and their vectors differ ({each}), so the folder "
            "does not say what a vector is. Fine-tune a model for one of them: alembert finetune --task compare."
        )
    return first


def _pooling_from_table(table: Mapping[str, Any], folder: Path) -> Pooling:
    name: Any = table.get("pooling")
    if name not in get_args(PoolingName):
        raise BadFile(
            f"{folder / TASK_FILE} has the `pooling` {name!r}; expected one of {', '.join(get_args(PoolingName))}."
        )
    stated = Pooling.named(
        name, table.get("dimension", 0), normalise=table.get("normalise", False), length=table.get("window")
    )
    return _checked(stated, folder / TASK_FILE)


# -- what the files of sentence-transformers state


def build_sentence_transformers_files(pooling: Pooling, layer: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """Return the files by which sentence-transformers opens a folder: path -> content.

    `layer` has the `weight` (D, D) and the `bias` (D) of a layer that is part of the model, as numpy arrays.
    """
    files = {
        MODULES_FILE: _json(_modules(pooling)),
        f"{_POOLING}/config.json": _json(_pooling_table(pooling)),
        _LENGTH: _json({"max_seq_length": pooling.length, "do_lower_case": False}),
        "config_sentence_transformers.json": _json({"prompts": {}, "similarity_fn_name": "cosine"}),
    }
    if layer is None:
        return files
    from safetensors.numpy import save

    table = {"in_features": pooling.dimension, "out_features": pooling.dimension, "bias": True}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    files[f"{_DENSE}/config.json"] = _json(table | activation)
    files[f"{_DENSE}/model.safetensors"] = save({f"linear.{name}": each for name, each in layer.items()})
    return files


def _modules(pooling: Pooling) -> list[dict[str, Any]]:
    parts = [("Transformer", ""), ("Pooling", _POOLING)]
    parts += [("Dense", _DENSE)] if pooling.layer else []
    parts += [("Normalize", f"{len(parts)}_Normalize")] if pooling.normalise else []
    return [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(parts)
    ]


def _pooling_table(pooling: Pooling) -> dict[str, Any]:
    modes = {key: mode == pooling.mode for mode, key in _KEYS.items()}
    others = dict.fromkeys(_OTHER_KEYS, False)
    return {"word_embedding_dimension": pooling.dimension, **modes, **others, "include_prompt": True}


def _read_modules_pooling(folder: Path) -> Pooling:
    path = folder / MODULES_FILE
    parts = _parts(path)
    strange = sorted(parts.keys() - {"Transformer", "Pooling", "Dense", "Normalize"})
    if strange or "Pooling" not in parts:
        found = f"a module {strange[0]}" if strange else "no pooling"
        raise BadFile(f"{path} has {found}; alembert reads a transformer, its pooling, a layer and a scaling.")
    if parts.get("Transformer"):
        raise BadFile(f"{path} has its transformer in a folder of its own; expected it beside {MODULES_FILE}.")
    where = folder / parts["Pooling"] / "config.json"
    table = _object(where)
    pooling = Pooling(
        mode=_mode(table, where),
        dimension=table.get("word_embedding_dimension", table.get("embedding_dimension", 0)),
        normalise="Normalize" in parts,
        layer="Dense" in parts,
        length=_object(folder / _LENGTH).get("max_seq_length") if (folder / _LENGTH).is_file() else None,
    )
    return _checked(pooling, where)


def _parts(path: Path) -> dict[str, str]:
    """List the modules: kind -> its folder."""
    try:
        return {str(each["type"]).rpartition(".")[2]: str(each["path"]) for each in _read(path)}
    except (TypeError, KeyError):
        raise BadFile(f"{path} is damaged: it is no list of modules with a type and a path.") from None


def _mode(table: Mapping[str, Any], where: Path) -> PoolingMode:
    """Read the mode, which newer files give by its name."""
    true = [key for key in (*_KEYS.values(), *_OTHER_KEYS) if table.get(key) is True]
    named = table.get("pooling_mode")
    found: list[PoolingMode] = [mode for mode in get_args(PoolingMode) if true == [_KEYS[mode]] or named == mode]
    if len(found) != 1:
        raise BadFile(
            f"{where} asks for {', '.join(true) or named or 'no pooling'}; alembert has one of "
            f"{' and '.join(_KEYS.values())}."
        )
    return found[0]


# -- reading


def _checked(pooling: Pooling, where: Path) -> Pooling:
    numbers = [pooling.dimension, *([] if pooling.length is None else [pooling.length])]
    are_numbers = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers)
    if not are_numbers or not isinstance(pooling.normalise, bool) or (pooling.layer and pooling.mode == "mean"):
        raise BadFile(f"{where} is damaged: it states no pooling that alembert has.")
    return pooling


def _object(path: Path) -> Mapping[str, Any]:
    table = _read(path)
    if not isinstance(table, Mapping):
        raise BadFile(f"{path} is damaged: it is no JSON object.")
    return table


def _read(path: Path) -> Any:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        raise BadFile(f"{path} is missing or too large, and {MODULES_FILE} calls for it. Restore the file.")
    try:
        return parse_json(path.read_bytes())
    except ValueError:
        raise BadFile(f"{path} is damaged: it is no JSON.") from None


def _json(table: Any) -> bytes:
    return (json.dumps(table, indent=2) + "\n").encode()
