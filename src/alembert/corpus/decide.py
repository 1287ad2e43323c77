"""Decide which documents a corpus keeps: one decision over all chunks, in document order.

In: the side files of all chunks (`chunks`). Out: one small number for each document, an index into `DECISION_NAMES`.
First MEDLINE: of several records with the same PMID the last one that gave a document is kept, and a deletion removes
the citation; a record that was set aside or gave no document (too short, another language) replaces nothing. Then
duplicates: the first annotated document is kept, or the first if none is annotated. Documents have the order of the
inputs on the command line, so the result does not depend on the workers.

The decision runs in one process and holds up to about 100 bytes for each document or MEDLINE record, most of it while
sorting; signatures are in files that the system can page out. Two documents that `Deduplicator` takes for duplicates
share at least one word of eight bytes of their signatures, so it checks only the documents with a repeated word, which
sorting finds a hundred times faster. The trade-off: superseded citations are cleaned and matched in vain, but no file
is read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alembert.corpus.chunks import SIZE_NAMES, ChunkSidecar, ChunkStore
from alembert.corpus.clean import CleanSettings
from alembert.corpus.document import hash_id
from alembert.corpus.duplicates import SIGNATURE_BYTES, Deduplicator

DECISION_NAMES = ("kept", "superseded", "deleted", "exact duplicate", "near duplicate")
KEPT, SUPERSEDED, DELETED, EXACT_DUPLICATE, NEAR_DUPLICATE = range(len(DECISION_NAMES))
Decisions = NDArray[np.uint8]
ChunkId = tuple[int, int]
"""An input and a chunk of it."""
_GOLD = SIZE_NAMES.index("gold entities")
_ALWAYS_COUNTED = {"documents", "records read", "documents read", "set aside", *SIZE_NAMES}


class _Records(NamedTuple):
    """The deletions and the MEDLINE records of a chunk that gave documents; `documents` counts those of each."""

    keys: NDArray[np.uint64]
    deleted: NDArray[np.bool_]
    documents: NDArray[np.int64]


def decide(stage: ChunkStore, chunk_ids: Sequence[ChunkId], settings: CleanSettings, scratch: Path) -> list[Decisions]:
    """Decide on the documents of the chunks, which are in document order; return one array for each chunk."""
    decisions = _find_superseded(stage, chunk_ids)
    if not (settings.exact_duplicates or settings.near_duplicates):
        return decisions
    deduplicator = Deduplicator(settings.similarity if settings.near_duplicates else None, scratch)
    candidates = _find_duplicate_candidates(stage, chunk_ids, decisions, scratch)
    for annotated in (True, False):  # of several duplicates, the one that is checked first is kept
        for chunk_id, chunk_decisions, is_candidate in zip(chunk_ids, decisions, candidates, strict=True):
            side = stage.read_sidecar(*chunk_id)
            to_check = is_candidate & (chunk_decisions == KEPT) & (_annotated(side) == annotated)
            _mark_duplicates(deduplicator, side, np.flatnonzero(to_check), chunk_decisions)
    if not settings.exact_duplicates:
        for chunk_decisions in decisions:
            chunk_decisions[chunk_decisions == EXACT_DUPLICATE] = KEPT
    return decisions


def _annotated(side: ChunkSidecar) -> NDArray[np.bool_]:
    marked = np.zeros(len(side.signatures), dtype=bool)
    marked[side.annotated] = True
    return marked


def _mark_duplicates(
    deduplicator: Deduplicator, side: ChunkSidecar, numbers: NDArray[np.int64], decisions: Decisions
) -> None:
    """Check documents of a chunk, and mark those that repeat another."""
    for number in numbers.tolist():
        duplicate = deduplicator.check_and_add(side.signatures[number].tobytes())
        if duplicate is not None:
            decisions[number] = EXACT_DUPLICATE if duplicate.exact else NEAR_DUPLICATE


def _find_duplicate_candidates(
    stage: ChunkStore, chunk_ids: Sequence[ChunkId], decisions: Sequence[Decisions], scratch: Path
) -> list[NDArray[np.bool_]]:
    """Find the documents that share a word of their signature with another one."""
    borders = np.cumsum([0, *map(len, decisions)])
    if not borders[-1]:
        return [np.zeros(len(chunk), dtype=bool) for chunk in decisions]
    shape = (SIGNATURE_BYTES // 8, int(borders[-1]))
    columns = np.memmap(scratch / "words.bin", dtype=np.uint64, mode="w+", shape=shape)
    for chunk_id, start, end in zip(chunk_ids, borders, borders[1:], strict=False):
        columns[:, start:end] = stage.read_sidecar(*chunk_id).signatures.view(np.uint64).T
    is_candidate = np.zeros(shape[1], dtype=bool)
    for column in columns:
        is_candidate |= _repeated(np.asarray(column))
    return np.split(is_candidate, borders[1:-1])


def _repeated(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark the values that occur more than once."""
    ordered = np.sort(values)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.isin(values, twice)


def _find_superseded(stage: ChunkStore, chunk_ids: Sequence[ChunkId]) -> list[Decisions]:
    """Mark the documents of MEDLINE records that a later record replaces or deletes."""
    chunks, decisions = [], []
    for chunk_id in chunk_ids:
        side = stage.read_sidecar(*chunk_id)
        chunks.append(_records(side))
        decisions.append(np.full(len(side.signatures), KEPT, dtype=np.uint8))
    keys = np.concatenate([chunk.keys for chunk in chunks] or [np.zeros(0, np.uint64)])
    deleted = np.concatenate([chunk.deleted for chunk in chunks] or [np.zeros(0, bool)])
    of_record = _decide_records(keys, deleted)
    borders = np.cumsum([len(chunk.keys) for chunk in chunks])[:-1]
    for number, part in enumerate(np.split(of_record, borders) if chunks else []):
        if len(part):
            decisions[number] = np.repeat(part, chunks[number].documents)
    return decisions


def _records(side: ChunkSidecar) -> _Records:
    useful = (citation for citation in side.citations if citation.documents or citation.deleted)
    rows = [(hash_id(citation.pmid), citation.deleted, citation.documents) for citation in useful]
    keys, deleted, documents = zip(*rows, strict=True) if rows else ((), (), ())
    return _Records(np.array(keys, dtype=np.uint64), np.array(deleted, dtype=bool), np.array(documents, dtype=np.int64))


def _decide_records(keys: NDArray[np.uint64], deleted: NDArray[np.bool_]) -> Decisions:
    """Decide on each record by the last one with its key: itself, another record, or a deletion."""
    _, first_from_behind, which = np.unique(keys[::-1], return_index=True, return_inverse=True)
    last = (len(keys) - 1 - first_from_behind)[which[::-1]]
    decisions: Decisions = np.where(last == np.arange(len(keys)), KEPT, SUPERSEDED).astype(np.uint8)
    decisions[deleted[last] & ~deleted] = DELETED
    return decisions


def sum_counts(stage: ChunkStore, chunk_ids: Sequence[ChunkId], decisions: Sequence[Decisions]) -> dict[str, int]:
    """Sum up what was read, cleaned, dropped and set aside, and what the remaining documents contain."""
    counts: Counter[str] = Counter()
    totals = np.zeros(len(SIZE_NAMES) + len(stage.labels), dtype=np.int64)
    keys = [np.zeros(0, dtype=np.uint64)]
    for chunk_id, chunk in zip(chunk_ids, decisions, strict=True):
        side = stage.read_sidecar(*chunk_id)
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
    """Count the values that repeat an earlier one."""
    ordered = np.sort(values)
    return int((ordered[1:] == ordered[:-1]).sum())


def read_set_aside(stage: ChunkStore, chunk_ids: Sequence[ChunkId]) -> Iterator[dict[str, str | None]]:
    for chunk_id in chunk_ids:
        yield from stage.read_sidecar(*chunk_id).set_aside
