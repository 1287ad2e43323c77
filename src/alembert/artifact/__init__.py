"""Artefacts: folders that are either complete or not there.

Every verb writes its result through `create` and reads its inputs through `open_artifact`. In go a kind, the resolved
configuration, the inputs and a seed; out comes a folder whose `manifest.json` records them, with library versions,
counts and the hash of every file.

    disk        single files and folders: durable writes, hashes, errors of the file system in words
    json_files  JSON that anyone may have written
    lock        one writer at a time
    manifest    what `manifest.json` says
    opening     where an artefact is, and what may be wrong with it
    writing     draft, commit, recovery
"""

from alembert.artifact.disk import atomic_write, hash_file, hash_text
from alembert.artifact.manifest import Digest, Input, Manifest, hash_config
from alembert.artifact.opening import (
    DRAFT,
    MANIFEST,
    Named,
    check_listed,
    few,
    hash_input,
    is_result,
    open_artifact,
    place_of,
    verify,
    why_missing,
)
from alembert.artifact.writing import Draft, check, create, finished

__all__ = [
    "DRAFT",
    "MANIFEST",
    "Digest",
    "Draft",
    "Input",
    "Manifest",
    "Named",
    "atomic_write",
    "check",
    "check_listed",
    "create",
    "few",
    "finished",
    "hash_config",
    "hash_file",
    "hash_input",
    "hash_text",
    "is_result",
    "open_artifact",
    "place_of",
    "verify",
    "why_missing",
]
