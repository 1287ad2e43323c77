"""The Shards artefact: a tokenized corpus, ready for training.

    ids.bin        uint16, or uint32 for more than 65,536 pieces   pieces of all documents, without special tokens
    flags.bin      uint8    for each token: WORD_START, IN_ENTITY, ENTITY_START, ENTITY_END
    types.bin      uint8, or uint16 for more than 255 types        for each token: 0, or 1 + the number of its entity's type
    sentences.bin  int64    token at which each sentence begins, and the number of tokens
    documents.bin  int64    sentence at which each document begins, and the number of sentences
    hashes.bin     uint64   first eight bytes of the SHA-256 of each document's text

In: a folder that `shard_build` has written. Out: memory-mapped arrays, so that a corpus of any size opens at once and
all processes of a machine share one copy. The trade-off: plain little-endian arrays are not compressed (four bytes a
token), but give direct access to every token. Types are numbered in the order of their names, which the counts have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alembert import artifact
from alembert.errors import BadFile

KIND = "Shards"
FORMAT = 2
TYPE_COUNT = "entities: "
"""Before the name of a type in the counts."""

WORD_START = 1
"""A word begins here."""
IN_ENTITY = 2
"""A piece of an entity."""
ENTITY_START = 4
"""The first piece of an entity."""
ENTITY_END = 8
"""The last piece of an entity; a single piece is first and last."""

_UINT16_IDS = 1 << 16
_UINT8_TYPES = (1 << 8) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenArrays:
    """Tokenized documents, with the arrays of the files above."""

    ids: NDArray[Any]
    flags: NDArray[np.uint8]
    types: NDArray[Any]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.hashes)

    def get_token_range(self, document: int) -> tuple[int, int]:
        """Return the first token of a document, and the one after its last."""
        first, end = self.documents[document], self.documents[document + 1]
        return int(self.sentences[first]), int(self.sentences[end])

    def get_sentence_borders(self, document: int) -> NDArray[np.int64]:
        """Return the first token of each sentence of a document, and the one after its last."""
        first, end = self.documents[document], self.documents[document + 1]
        return self.sentences[first : end + 1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shards(TokenArrays):
    """Complete shards on disk; the arrays are read-only views of the files."""

    folder: Path
    manifest: artifact.Manifest

    @classmethod
    def open(cls, folder: str | Path) -> Shards:
        """Open shards; the sizes of the files must fit each other and the manifest."""
        manifest, folder = artifact.open_artifact(folder, KIND), Path(folder)
        try:
            arrays = {name: _map(folder / f"{name}.bin", kind) for name, kind in _dtypes(manifest).items()}
            sound = _is_sound(arrays, manifest.counts)
        except (KeyError, ValueError, OSError):
            sound = False
        if not sound:
            raise BadFile(
                f"{folder} holds no sound shards: its files do not fit each other, or a newer alembert wrote them. "
                "Delete the folder; it will be built anew."
            )
        return cls(folder=folder, manifest=manifest, **arrays)

    @property
    def counts(self) -> dict[str, int]:
        return self.manifest.counts

    @property
    def type_names(self) -> tuple[str, ...]:
        """The types of entities, in the order of their numbers."""
        return list_types(self.counts)


def list_types(counts: Iterable[str]) -> tuple[str, ...]:
    """Return the types that counts are about, in the order of their numbers.

    >>> list_types({"tokens": 9, "entities": 2, "entities: drug": 1, "entities: disease": 1})
    ('disease', 'drug')
    """
    return tuple(sorted(name.removeprefix(TYPE_COUNT) for name in counts if name.startswith(TYPE_COUNT)))


def id_dtype(vocab_size: int) -> str:
    """Return the smallest type that holds every id.

    >>> id_dtype(30_522), id_dtype(119_547)
    ('<u2', '<u4')
    """
    return "<u2" if vocab_size <= _UINT16_IDS else "<u4"


def type_dtype(types: int) -> str:
    """Return the smallest numeric type that holds the numbers of so many types of entities."""
    return "|u1" if types <= _UINT8_TYPES else "<u2"


def array_dtypes(vocab_size: int, types: int) -> dict[str, str]:
    """Return the numeric type of each array for so many pieces and types of entities, in the order of the files above."""
    per_token = {"ids": id_dtype(vocab_size), "flags": "|u1", "types": type_dtype(types)}
    return {**per_token, "sentences": "<i8", "documents": "<i8", "hashes": "<u8"}


def _dtypes(manifest: artifact.Manifest) -> dict[str, str]:
    if manifest.config["format"] != FORMAT:
        raise ValueError("another format")
    return array_dtypes(manifest.config["vocab_size"], len(list_types(manifest.counts)))


def _map(path: Path, kind: str) -> NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, kind)
    return np.memmap(path, kind, mode="r")


def _is_sound(arrays: dict[str, NDArray[Any]], counts: dict[str, int]) -> bool:
    """Compare lengths and the last borders: reading every border would take as long as the corpus is large."""
    tokens, sentences, documents = (counts[name] for name in ("tokens", "sentences", "documents"))
    lengths = {"ids": tokens, "flags": tokens, "types": tokens, "hashes": documents}
    lengths |= {"sentences": sentences + 1, "documents": documents + 1}
    if any(len(arrays[name]) != length for name, length in lengths.items()):
        return False
    return bool(arrays["sentences"][-1] == tokens and arrays["documents"][-1] == sentences)
