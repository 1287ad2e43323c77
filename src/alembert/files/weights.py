"""Weights in safetensors files: one `model.safetensors`, or shards with an index.

The header of every file is read and checked (sizes, offsets, names) before torch allocates anything, so that a damaged
or lying file is named at once.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from alembert.artifact.disk import check_whole_number, parse_json, read_json, refuse_malformed
from alembert.errors import BadFile

WEIGHTS_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
SHARD_BYTES: Final = 5_000_000_000
_LARGEST_HEADER: Final = 100_000_000
_BITS: Final = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
}


class WeightSource(Protocol):
    """Named tensors on disk: shapes are known at once, values are loaded one by one."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name -> shape of every tensor."""

    def load(self, name: str) -> Tensor:
        """Read one tensor."""


@dataclass(frozen=True)
class SafetensorsWeights:
    """The safetensors files of one checkpoint."""

    shapes: Mapping[str, tuple[int, ...]]
    files: Mapping[str, Path]
    """Name of a tensor -> file that holds it."""

    @classmethod
    def find(cls, folder: Path) -> SafetensorsWeights | None:
        """Read the headers of a folder's weights; none: there is no safetensors file."""
        if (folder / WEIGHTS_FILE).is_file():
            paths = [_find_own_file(folder, WEIGHTS_FILE)]
            listed = None
        elif (folder / INDEX_FILE).is_file():
            listed = _read_index(folder / INDEX_FILE)
            paths = [_find_own_file(folder, name) for name in sorted(set(listed.values()))]
        else:
            return None
        headers = {path: read_header(path) for path in paths}
        shapes = {name: shape for header in headers.values() for name, shape in header.items()}
        files = {name: path for path, header in headers.items() for name in header}
        if listed is not None and {name: path.name for name, path in files.items()} != listed:
            raise BadFile(
                f"{folder / INDEX_FILE} does not list the tensors that its files hold; write the checkpoint again."
            )
        return cls(shapes, files)

    def load(self, name: str) -> Tensor:
        with safe_open(self.files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def _find_own_file(folder: Path, name: str) -> Path:
    """Find a file of the folder; refuse a link that leads out of it, unless into the cache of the Hugging Face hub.

    There a model is the folder `snapshots/<revision>`, whose files are links into the `blobs` beside `snapshots`.
    """
    home, target = Path(os.path.realpath(folder)), Path(os.path.realpath(folder / name))
    blobs = Path(os.path.realpath(home.parent.parent / "blobs"))
    is_cached = home.parent.name == "snapshots" and target.parent == blobs
    if not target.is_relative_to(home) and not is_cached:
        raise BadFile(f"{folder / name} is a link to a file outside of the folder. Put the file itself there.")
    return folder / name


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in a safetensors file after checking that the file can hold them."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
            if not 2 <= length <= min(size - 8, _LARGEST_HEADER):
                raise BadFile(f"{path} is not a safetensors file, or it is cut off: its header does not fit into it.")
            header = parse_json(file.read(length), unique=True)
    except ValueError as problem:
        raise BadFile(f"{path} is damaged: its header cannot be read ({problem}). Copy or download it again.") from None
    except OSError as problem:
        raise BadFile(f"{path} cannot be read: {problem.strerror}.") from None
    if not isinstance(header, dict):
        raise BadFile(f"{path} is damaged: its header is not a table of tensors.")
    header.pop("__metadata__", None)
    return dict(_check_entries(path, header, size - 8 - length))


def _check_entries(path: Path, header: dict[str, Any], space: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    end = 0
    for name, entry in header.items():
        with refuse_malformed(f"{path} is damaged: the entry of `{name}` cannot be read, or has an unknown type."):
            shape = tuple(check_whole_number(n, smallest=None) for n in entry["shape"])
            first, last = map(check_whole_number, entry["data_offsets"])
            fits = first <= last <= space and last - first == prod(shape) * _BITS[entry["dtype"]] // 8
        if not fits or any(n < 0 for n in shape):
            raise BadFile(f"{path} is damaged or cut off: `{name}` of shape {list(shape)} does not fit into the file.")
        end = max(end, last)
        yield name, shape
    if end != space:
        raise BadFile(f"{path} is damaged: its tensors take {end:,} bytes, and it has {space:,}.")


def _read_index(path: Path) -> dict[str, str]:
    index = read_json(path)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(n, str) for n in names.values()):
        raise BadFile(f"{path} has no `weight_map` from tensors to files; write the checkpoint again.")
    for name in sorted(set(names.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise BadFile(f"{path} names the file {name!r}; expected a .safetensors file in the same folder.")
    return names


def load_tensor(weights: WeightSource, name: str) -> Tensor:
    """Read one tensor, with a sentence if the file has changed or is damaged."""
    try:
        return weights.load(name)
    except (SafetensorError, OSError, RuntimeError) as problem:
        raise BadFile(f"The weight `{name}` cannot be read: {problem}.") from None


def save_weights(tensors: Mapping[str, Tensor], folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """Write tensors in one file, or in shards with an index when they exceed `shard_bytes`."""
    shards = list(_shards(tensors, shard_bytes))
    if len(shards) == 1:
        _write(shards[0], folder / WEIGHTS_FILE)
        return
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        _write(shard, folder / name)
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {key: name for name, shard in zip(names, shards, strict=True) for key in shard},
    }
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf8")


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a file that others may read as they may read those beside it; by itself, safetensors lets nobody."""
    path.touch()
    allowed = stat.S_IMODE(path.stat().st_mode)
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(allowed)


def _shards(tensors: Mapping[str, Tensor], shard_bytes: int) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    for name in sorted(tensors):
        if shard and sum(t.nbytes for t in shard.values()) + tensors[name].nbytes > shard_bytes:
            yield shard
            shard = {}
        shard[name] = tensors[name].contiguous()
    yield shard


def load_pickled(path: Path) -> dict[str, Tensor]:
    """Read an old `.bin` file with torch's weights-only loader, which executes nothing from it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as problem:
        kind = type(problem).__name__
        raise BadFile(
            f"{path} cannot be opened as plain weights ({kind}); it is damaged or holds other things."
        ) from None
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise BadFile(f"{path} does not hold a table of named weights.")
    return content


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
