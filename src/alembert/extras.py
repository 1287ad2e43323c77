"""Packages that the runtime install leaves out, and the extra that installs each of them.

The runtime reads text and runs Exports. What needs more asks for it by `require` before it begins: `compress` and `demo`
when they are imported, everything else where the need first shows. Settings of training load without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from alembert.errors import MissingExtra

EXTRAS: Final[Mapping[str, str]] = {
    "httptools": "serve",
    "huggingface_hub": "hub",
    "matplotlib": "plot",
    "msgspec": "serve",
    "nncf": "openvino",
    "onnx": "train",
    "openvino": "openvino",
    "pyarrow": "parquet",
    "ray": "ray",
    "rjieba": "zh",
    "safetensors": "train",
    "spacy": "spacy",
    "starlette": "serve",
    "torch": "train",
    "uvicorn": "serve",
}
"""Package -> the smallest extra that has it (pyproject.toml)."""
TRAINING: Final = ("torch", "safetensors")
"""What reads and writes Checkpoints, and trains them."""
SERVING: Final = ("starlette", "uvicorn", "httptools", "msgspec")
"""What answers HTTP."""


def require_training() -> None:
    """Refuse to train without torch."""
    require("Training", *TRAINING)


def is_installed(package: str) -> bool:
    """Find out whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def require(purpose: str, *packages: str, otherwise: str = "") -> None:
    """Refuse what needs packages that are not installed; `otherwise` is a sentence on how to do without.

    >>> require("Counting", "json")
    """
    for package in packages:
        if not is_installed(package):
            raise MissingExtra(package, EXTRAS[package], purpose, otherwise)
