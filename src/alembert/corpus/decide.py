"""Which documents stay: one decision over all chunks, in document order.

In: the side files of all chunks (`staging`). Out: one small number for each document, an index into `DECISION_NAMES`. First
MEDLINE: of a PMID that comes several times the last record that gave a document stays, and a deletion ends it; a record
that was set aside or gave none (too short, another language) replaces nothing. Then duplicates: the first
that is annotated stays, or the first if none is. The order of documents is that of the inputs on the command line, so the
answer does not depend on the workers.

It runs in one process and holds up to about 100 bytes for each document or MEDLINE record, most of it while it sorts; signatures
are in files that the system can page out. Two documents that `Deduplicator` takes for duplicates share at least one word of eight bytes of
their signatures, so it is asked only about those documents of which a word occurs twice, which sorting finds a hundred
times faster. The trade-off: superseded citations were already cleaned and matched in vain, but no file is read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alembert.corpus.clean import CleanSettings
from alembert.corpus.duplicates import SIGNATURE_BYTES, Deduplicator
from alembert.corpus.staging import SIZE_NAMES, ChunkSidecar, ChunkStore, hash_id

DECISION_NAMES = ("kept", "superseded", "deleted", "exact duplicate", "near duplicate")
KEPT, SUPERSEDED, DELETED, EXACT_DUPLICATE, NEAR_DUPLICATE = range(len(DECISION_NAMES))
Decisions = NDArray[np.uint8]
ChunkId = tuple[int, int]
"""An input and a chunk of it."""
_GOLD = SIZE_NAMES.index("gold entities")
_ALWAYS_COUNTED = {"documents", "records read", "documents read", "set aside", *SIZE_NAMES}


class _Records(NamedTuple):
    """The deletions and the MEDLINE records of a chunk that gave documents; `documents` says how many each gave."""

    keys: NDArray[np.uint64]
    deleted: NDArray[np.bool_]
    documents: NDArray[np.int64]


def decide(stage: ChunkStore, places: Sequence[ChunkId], settings: CleanSettings, scratch: Path) -> list[Decisions]:
    """Decide on the documents of the chunks at `places`, which come in document order; one array for each chunk."""
    fates = _find_superseded(stage, places)
    if not (settings.exact_duplicates or settings.near_duplicates):
        return fates
    known = Deduplicator(settings.similarity if settings.near_duplicates else None, scratch)
    suspects = _find_duplicate_candidates(stage, places, fates, scratch)
    for annotated in (True, False):  # those that are asked about first stay
        for place, chunk, perhaps in zip(places, fates, suspects, strict=True):
            side = stage.read_sidecar(*place)
            asked = perhaps & (chunk == KEPT) & (_annotated(side) == annotated)
            _mark_duplicates(known, side, np.flatnonzero(asked), chunk)
    if not settings.exact_duplicates:
        for chunk in fates:
            chunk[chunk == EXACT_DUPLICATE] = KEPT
    return fates


def _annotated(side: ChunkSidecar) -> NDArray[np.bool_]:
    marked = np.zeros(len(side.signatures), dtype=bool)
    marked[side.annotated] = True
    return marked


def _mark_duplicates(known: Deduplicator, side: ChunkSidecar, numbers: NDArray[np.int64], chunk: Decisions) -> None:
    """Ask about documents of a chunk, and write down the fate of those that repeat another."""
    for number in numbers.tolist():
        twin = known.check_and_add(side.signatures[number].tobytes())
        if twin is not None:
            chunk[number] = EXACT_DUPLICATE if twin.exact else NEAR_DUPLICATE


def _find_duplicate_candidates(
    stage: ChunkStore, places: Sequence[ChunkId], fates: Sequence[Decisions], scratch: Path
) -> list[NDArray[np.bool_]]:
    """Find the documents that share a word of their signature with another one."""
    borders = np.cumsum([0, *map(len, fates)])
    if not borders[-1]:
        return [np.zeros(len(chunk), dtype=bool) for chunk in fates]
    shape = (SIGNATURE_BYTES // 8, int(borders[-1]))
    columns = np.memmap(scratch / "words.bin", dtype=np.uint64, mode="w+", shape=shape)
    for place, start, end in zip(places, borders, borders[1:], strict=False):
        columns[:, start:end] = stage.read_sidecar(*place).signatures.view(np.uint64).T
    found = np.zeros(shape[1], dtype=bool)
    for column in columns:
        found |= _repeated(np.asarray(column))
    return np.split(found, borders[1:-1])


def _repeated(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark the values that occur more than once."""
    ordered = np.sort(values)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.isin(values, twice)


def _find_superseded(stage: ChunkStore, places: Sequence[ChunkId]) -> list[Decisions]:
    """Find the documents of MEDLINE records that a later record replaces or deletes."""
    chunks, fates = [], []
    for place in places:
        side = stage.read_sidecar(*place)
        chunks.append(_records(side))
        fates.append(np.full(len(side.signatures), KEPT, dtype=np.uint8))
    keys = np.concatenate([chunk.keys for chunk in chunks] or [np.zeros(0, np.uint64)])
    deleted = np.concatenate([chunk.deleted for chunk in chunks] or [np.zeros(0, bool)])
    of_record = _decide_records(keys, deleted)
    borders = np.cumsum([len(chunk.keys) for chunk in chunks])[:-1]
    for number, part in enumerate(np.split(of_record, borders) if chunks else []):
        if len(part):
            fates[number] = np.repeat(part, chunks[number].documents)
    return fates


def _records(side: ChunkSidecar) -> _Records:
    useful = (each for each in side.citations if each.documents or each.deleted)
    rows = [(hash_id(each.pmid), each.deleted, each.documents) for each in useful]
    keys, deleted, documents = zip(*rows, strict=True) if rows else ((), (), ())
    return _Records(np.array(keys, dtype=np.uint64), np.array(deleted, dtype=bool), np.array(documents, dtype=np.int64))


def _decide_records(keys: NDArray[np.uint64], deleted: NDArray[np.bool_]) -> Decisions:
    """Say for each record whether the last one with its key is itself, another, or a deletion."""
    _, first_from_behind, which = np.unique(keys[::-1], return_index=True, return_inverse=True)
    last = (len(keys) - 1 - first_from_behind)[which[::-1]]
    fates: Decisions = np.where(last == np.arange(len(keys)), KEPT, SUPERSEDED).astype(np.uint8)
    fates[deleted[last] & ~deleted] = DELETED
    return fates


def sum_counts(stage: ChunkStore, places: Sequence[ChunkId], fates: Sequence[Decisions]) -> dict[str, int]:
    """Add everything up: what was read, cleaned, dropped, set aside, and what the documents that stay hold."""
    counts: Counter[str] = Counter()
    totals = np.zeros(len(SIZE_NAMES) + len(stage.labels), dtype=np.int64)
    keys = [np.zeros(0, dtype=np.uint64)]
    for place, chunk in zip(places, fates, strict=True):
        side = stage.read_sidecar(*place)
        counts.update(side.counts)
        totals += side.sizes[chunk == KEPT].sum(axis=0, dtype=np.int64)
        counts["gold entities dropped"] += int(side.sizes[chunk != KEPT, _GOLD].sum(dtype=np.int64))
        keys.append(side.keys[chunk == KEPT])
        for number, times in enumerate(np.bincount(chunk, minlength=len(DECISION_NAMES)).tolist()):
            counts["documents" if number == KEPT else f"dropped: {DECISION_NAMES[number]}"] += times
    names = [*SIZE_NAMES, *(f"entities: {label}" for label in stage.labels)]
    counts.update(dict(zip(names, totals.tolist(), strict=True)))
    counts["repeated ids"] = _repeats(np.concatenate(keys))
    counts["records read"] = counts["documents read"] - counts["translations read"] + counts["records set aside"]
    return {
        name: counts[name] for name in sorted({*counts, *_ALWAYS_COUNTED}) if counts[name] or name in _ALWAYS_COUNTED
    }


def _repeats(values: NDArray[np.uint64]) -> int:
    """Count the values that stand earlier, too."""
    ordered = np.sort(values)
    return int((ordered[1:] == ordered[:-1]).sum())


def read_set_aside(stage: ChunkStore, places: Sequence[ChunkId]) -> Iterator[dict[str, str | None]]:
    """Give what was set aside, in the order of the inputs."""
    for place in places:
        yield from stage.read_sidecar(*place).set_aside
