"""Errors that a user can correct, missing packages among them, and the exit codes of interruptions.

Every message is one or two sentences for a person: what is wrong, what was found, what was expected, what to do.
The command line prints ``error: <message>`` and exits with code 2; anything that is not a `UserError` is a bug.
A message never quotes the text of a user's document.

The runtime reads text and runs Exports. What needs more asks for it by `require` before it begins: `compress` and
`demo` when they are imported, everything else where the need first shows. Settings of training load without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final


class UserError(Exception):
    """Something outside the program is wrong, and the message says how to correct it."""


class BadSetting(UserError):
    """A configuration value is outside what can work."""


class BadFile(UserError):
    """A file or folder is missing, damaged, or of another kind than expected."""


class AlreadyDone(BadFile):
    """The very result that was asked for is there and complete; a command ends well without doing anything."""


class UnsupportedTokenizer(BadFile):
    """The tokenizer is sound, and of a kind that alembert does not have."""


class BadInput(UserError):
    """A text or record cannot be used as it is."""


class FolderBusy(UserError):
    """Another process is writing the same folder."""


class Interrupted(Exception):
    """A signal ended the work, and nothing is lost; `exit_code` is what a shell expects (130, 143)."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.exit_code = 128 + signal


class MissingExtra(UserError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str, otherwise: str = "") -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed. "
            f"Install it with: pip install 'alembert[{extra}]'{'. ' if otherwise else ''}{otherwise}"
        )


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
