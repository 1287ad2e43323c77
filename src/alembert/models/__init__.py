"""Models that ship with the package: int8 Exports that open by name, as in `alembert.load("bio")`.

In: a name. Out: the folder of an Export, with its model card (`README.md`) and the same facts for programs
(`card.json`). A folder of the user's that has the name of a shipped model has precedence, as with every path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

CARD_FILE: Final = "card.json"
_HOME: Final = Path(__file__).parent


@dataclass(frozen=True)
class ShippedModel:
    """A model of the package."""

    name: str
    """What `alembert.load` and every command call it."""
    folder: Path

    @cached_property
    def card(self) -> Mapping[str, Any]:
        """Types, scores, training data and licences, as `card.json` has them."""
        table: Mapping[str, Any] = json.loads((self.folder / CARD_FILE).read_text(encoding="utf8"))
        return table

    @property
    def text(self) -> str:
        """The model card, in Markdown."""
        return (self.folder / "README.md").read_text(encoding="utf8")

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"name": self.name, "folder": str(self.folder), "size": self.size, **self.card}


def list_models() -> list[ShippedModel]:
    """Return the models that ship with the package, by name."""
    return [ShippedModel(path.parent.name, path.parent) for path in sorted(_HOME.glob(f"*/{CARD_FILE}"))]


def find_shipped_model(where: str | Path) -> Path | None:
    """Return the folder of a shipped model; none: the name is a folder of the user's, or not that of a model."""
    shipped = next((model for model in list_models() if model.name == str(where)), None)
    return None if shipped is None or Path(where).exists() else shipped.folder
