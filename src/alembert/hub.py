"""Where a model is: a folder, a model that ships with the package, or one of the Hugging Face hub.

The hub is asked for `hub:organisation/name` alone: a mistyped path must not open a connection. Whatever opens a
model by its folder asks `model_folder` first, so that every command and function takes all three.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from alembert.errors import BadFile, BadInput, require
from alembert.models import find_shipped_model

PREFIX: Final = "hub:"
PICKLE_PATTERN: Final = "pytorch_model*.bin"
_COPIES: Final = "models--"
"""How the folders begin in which the cache of the hub keeps models."""
_NAME: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_FILE_PATTERNS: Final = ("*.json", "*.safetensors", "vocab.txt")


def is_hub_id(where: str | Path) -> bool:
    return str(where).startswith(PREFIX)


def model_folder(where: str | Path, *, pickles: bool = False) -> Path:
    """Return the local folder of a model; one of the hub is fetched first, with `pickles` its old weights as well."""
    if is_hub_id(where):
        return fetch_from_hub(Path(where).as_posix(), pickles=pickles)
    return find_shipped_model(where) or Path(where)


def find_folder(where: str | Path) -> Path:
    """Return the folder of a model, or say how one of the hub is written."""
    if not isinstance(where, str | Path):
        raise BadInput(f"The model is a {type(where).__name__}; expected a folder, or {PREFIX}organisation/name.")
    folder = find_shipped_model(where) or Path(where)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise BadFile(f"{folder} is a file, and a checkpoint folder was expected.")
    name = str(where) if _looks_like_hub_name(folder) else "organisation/name"
    raise BadFile(
        f"There is no folder {folder}. Check the path; a model of the Hugging Face hub is written {PREFIX}{name}."
    )


def _looks_like_hub_name(folder: Path) -> bool:
    is_below = folder.parent != Path() and folder.parent.is_dir()
    return bool(_NAME.fullmatch(folder.as_posix())) and not is_below


def get_hub_id(folder: Path) -> str | None:
    """Return the `hub:organisation/name` whose local copy a folder is; none: it is no copy.

    >>> get_hub_id(Path("hub/models--clinic--tagger/snapshots/0f3c"))
    'hub:clinic/tagger'
    """
    repository = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not repository.startswith(_COPIES):
        return None
    return PREFIX + repository.removeprefix(_COPIES).replace("--", "/", 1)


def fetch_from_hub(where: str, *, pickles: bool = False) -> Path:
    """Return a local folder with the configuration, tokenizer and weights of a hub model."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    require("Opening a model of the Hugging Face hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    name = where.removeprefix(PREFIX)
    patterns = [*_FILE_PATTERNS, PICKLE_PATTERN] if pickles else list(_FILE_PATTERNS)
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as problem:
        raise BadFile(
            f"The model {name!r} could not be fetched from the Hugging Face hub ({type(problem).__name__}). "
            "Check the name and the connection, or download the folder elsewhere and give its path."
        ) from problem
