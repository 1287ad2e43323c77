"""How often entities were seen in training, by hashes in place of their text.

The hashes have no secret in them, so that another machine can compute them: whoever has them can test a list of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from alembert.data.order import stable_hash


def surface_key(surface: str, label: str) -> str:
    """Turn an entity into 64 bits, the same whatever its case and spaces.

    >>> surface_key("Breast  cancer", "Disease") == surface_key("breast cancer", "Disease")
    True
    """
    return f"{stable_hash('surface', label, ' '.join(surface.split()).casefold()):016x}"


def count_surfaces(entities: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Count entities, given as surface and label, by their keys."""
    return dict(sorted(Counter(surface_key(surface, label) for surface, label in entities).items()))
