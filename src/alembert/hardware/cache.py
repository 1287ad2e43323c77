"""The cache of what was measured: one small JSON file per machine and library version.

A cache may be lost at any time: whatever cannot be read, is damaged or belongs to another machine counts as absent,
and a folder that cannot be written is no error. Files are replaced atomically, so processes may race.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alembert.errors import BadFile

FORMAT = 1
_LARGEST = 1 << 20

CacheKey = Mapping[str, str | int | None]


def get_cache_folder() -> Path:
    """Name the cache folder: `ALEMBERT_CACHE`, else the user's cache folder."""
    if own := os.environ.get("ALEMBERT_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "alembert"
    try:
        return Path.home() / ".cache" / "alembert"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(".cache") / "alembert"


def get_cache_file(key: CacheKey) -> Path:
    """Name the file that holds the answer for this key."""
    digest = zlib.crc32(json.dumps(key, sort_keys=True).encode())
    return get_cache_folder() / f"hardware-{digest:08x}.json"


def load(key: CacheKey) -> dict[str, Any] | None:
    """Return what was stored under this key, or None."""
    try:
        with get_cache_file(key).open("rb") as file:
            content = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("key") != key:
        return None
    return content


def store(key: CacheKey, answer: Mapping[str, Any]) -> bool:
    """Write the answer; return whether it could be written."""
    from alembert.artifact.disk import atomic_write

    target = get_cache_file(key)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, json.dumps({"format": FORMAT, "key": key, **answer}, indent=1).encode())
    except (OSError, BadFile):
        return False
    return True
