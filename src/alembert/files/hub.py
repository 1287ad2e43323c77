"""Models of the Hugging Face hub, fetched only when asked for by `hub:organisation/name`.

A bare name is never looked up: a mistyped path must not open a connection.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from alembert.errors import BadFile
from alembert.extras import require

PREFIX: Final = "hub:"
_NAME: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_WANTED: Final = ("*.json", "*.safetensors", "vocab.txt")


def is_hub_id(where: str | Path) -> bool:
    """Tell whether a hub model is meant."""
    return isinstance(where, str) and where.startswith(PREFIX)


def existing_folder(where: str | Path) -> Path:
    """Return the folder of a model, or say how one of the hub is written."""
    folder = Path(where)
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


def fetch_from_hub(where: str) -> Path:
    """Return a local folder with the configuration, tokenizer and safetensors weights of a hub model."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    require("Opening a model of the Hugging Face hub", "huggingface_hub")
    from huggingface_hub import snapshot_download

    name = where.removeprefix(PREFIX)
    try:
        return Path(snapshot_download(name, allow_patterns=list(_WANTED)))
    except Exception as problem:
        raise BadFile(
            f"The model {name!r} could not be fetched from the Hugging Face hub ({type(problem).__name__}). "
            "Check the name and the connection, or download the folder elsewhere and give its path."
        ) from problem
