"""alembert: one toolkit for the whole life of a domain BERT.

Importing this package is cheap: it loads neither torch nor numpy. Public names are loaded on first use. The one thing
done at import is `hardware.prepare_environment()`, which sets the limits that must be in place before torch or
OpenVINO load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alembert import hardware

if TYPE_CHECKING:
    from alembert.errors import UserError
    from alembert.files.checkpoint import Checkpoint, open  # noqa: A004
    from alembert.text.tokenizer import Tokenizer

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "alembert.files.checkpoint",
    "Tokenizer": "alembert.text.tokenizer",
    "UserError": "alembert.errors",
    "open": "alembert.files.checkpoint",
}
__all__ = ["Checkpoint", "Tokenizer", "UserError", "__version__", "open"]

hardware.prepare_environment()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'alembert' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
