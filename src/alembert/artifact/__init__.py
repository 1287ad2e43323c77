"""Artefacts: folders that are either complete or not there.

Every verb writes its result through `create` and reads its inputs through `open_artifact`. In go a kind, the resolved
configuration, the inputs and a seed; out comes a folder whose `manifest.json` records them, with library versions,
counts and the hash of every file.

    disk        single files and folders: durable writes, hashes, locks, JSON, errors of the file system in words
    opening     where an artefact is, what `manifest.json` says, and what may be wrong with it
    writing     draft, commit, recovery
"""

from alembert.artifact.disk import atomic_write, hash_file, hash_text
from alembert.artifact.opening import (
    DRAFT,
    MANIFEST,
    FileDigest,
    Manifest,
    ManifestInput,
    NamedInput,
    check_listed,
    explain_missing,
    hash_config,
    hash_input,
    is_artifact,
    locate_artifact,
    open_artifact,
    shortlist,
    verify,
)
from alembert.artifact.writing import Draft, check_can_create, create, find_finished

__all__ = [
    "DRAFT",
    "MANIFEST",
    "Draft",
    "FileDigest",
    "Manifest",
    "ManifestInput",
    "NamedInput",
    "atomic_write",
    "check_can_create",
    "check_listed",
    "create",
    "explain_missing",
    "find_finished",
    "hash_config",
    "hash_file",
    "hash_input",
    "hash_text",
    "is_artifact",
    "locate_artifact",
    "open_artifact",
    "shortlist",
    "verify",
]
