"""The decision which documents stay equals the plain one that looks at each document in turn."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.chunks import Chunk, ChunkStore, Citation
from alembert.corpus.clean import CleanSettings
from alembert.corpus.decide import (
    DELETED,
    EXACT_DUPLICATE,
    KEPT,
    NEAR_DUPLICATE,
    SUPERSEDED,
    _decide_records,
    decide,
    sum_counts,
)
from alembert.corpus.document import Document, Entity
from alembert.corpus.duplicates import Deduplicator, compute_signature
from alembert.corpus.store import CorpusDocument


def texts(seed: int) -> list[str]:
    """Some texts of which many repeat others, word for word or nearly."""
    numbers = random.Random(seed)
    made = [" ".join(f"w{numbers.randrange(500)}" for _ in range(60)) for _ in range(30)]
    repeated = [numbers.choice(made) for _ in range(15)]
    nearly = [f"{numbers.choice(made)} and so on" for _ in range(15)]
    every = [*made, *repeated, *nearly]
    numbers.shuffle(every)
    return every


def staged(folder: Path, chunks: list[list[str]]) -> ChunkStore:
    stage = ChunkStore(folder / "stage", ())
    stage.prepare(1)
    for number, part in enumerate(chunks):
        entries = [CorpusDocument(Document(str(place), text), "in", "en") for place, text in enumerate(part)]
        stage.write_chunk(0, number, Chunk(entries, [compute_signature(text) for text in part]))
    return stage


@pytest.mark.parametrize("seed", range(5))
def test_asking_about_suspects_is_asking_about_all(tmp_path: Path, seed: int) -> None:
    every = texts(seed)
    chunks = [every[:7], every[7:7], every[7:]]
    fates = decide(staged(tmp_path, chunks), [(0, 0), (0, 1), (0, 2)], CleanSettings(), tmp_path)
    known = Deduplicator(0.8)
    twins = [known.check_and_add(compute_signature(text)) for text in every]
    expected = [KEPT if twin is None else EXACT_DUPLICATE if twin.exact else NEAR_DUPLICATE for twin in twins]
    assert np.concatenate(fates).tolist() == expected
    assert {KEPT, EXACT_DUPLICATE, NEAR_DUPLICATE} == set(expected)


ABSTRACT = " ".join(f"word{number}" for number in range(60))
ASPIRIN = Entity(id="T1", label="Drug", spans=((0, 4),))


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([Document("1", ABSTRACT), Document("2", ABSTRACT, entities=(ASPIRIN,))], [EXACT_DUPLICATE, KEPT]),
        ([Document("1", ABSTRACT), Document("2", ABSTRACT, labels=("trial",))], [EXACT_DUPLICATE, KEPT]),
        ([Document("1", f"{ABSTRACT} so"), Document("2", ABSTRACT, entities=(ASPIRIN,))], [NEAR_DUPLICATE, KEPT]),
        ([Document("1", ABSTRACT, entities=(ASPIRIN,)), Document("2", ABSTRACT)], [KEPT, EXACT_DUPLICATE]),
        ([Document(str(number), ABSTRACT, entities=(ASPIRIN,)) for number in range(2)], [KEPT, EXACT_DUPLICATE]),
        ([Document("1", ABSTRACT), Document("2", ABSTRACT)], [KEPT, EXACT_DUPLICATE]),
    ],
)
def test_of_duplicates_the_first_with_annotations_stays(
    tmp_path: Path, documents: list[Document], expected: list[int]
) -> None:
    stage = staged(tmp_path, [])
    for number, document in enumerate(documents):
        stage.write_chunk(0, number, Chunk([CorpusDocument(document, "in", "en")], [compute_signature(document.text)]))
    fates = decide(stage, [(0, number) for number in range(2)], CleanSettings(), tmp_path)
    assert np.concatenate(fates).tolist() == expected


def test_fates_follow_the_records_of_a_chunk(tmp_path: Path) -> None:
    stage = staged(tmp_path, [])
    entries = [CorpusDocument(Document(name, f"text of {name}"), "in", "en") for name in ("1", "2", "2/de", "2", "3")]
    citations = [Citation("1", 1), Citation("2", 2), Citation("9", 0), Citation("2", 1), Citation("3", 1)]
    deletion = Citation("3", 0, deleted=True)
    signatures = [compute_signature(entry.document.text) for entry in entries]
    stage.write_chunk(0, 0, Chunk(entries, signatures, [*citations, deletion]))
    off = CleanSettings(exact_duplicates=False, near_duplicates=False)
    (fates,) = decide(stage, [(0, 0)], off, tmp_path)
    assert fates.tolist() == [KEPT, SUPERSEDED, SUPERSEDED, KEPT, DELETED]


def test_a_record_without_documents_replaces_nothing(tmp_path: Path) -> None:
    stage = staged(tmp_path, [])
    entry = CorpusDocument(Document("1", "text of the first revision"), "in", "en")
    stage.write_chunk(
        0, 0, Chunk([entry], [compute_signature(entry.document.text)], [Citation("1", 1), Citation("1", 0)])
    )
    (fates,) = decide(stage, [(0, 0)], CleanSettings(), tmp_path)
    assert fates.tolist() == [KEPT]


def test_ids_that_documents_share_are_counted(tmp_path: Path) -> None:
    stage = staged(tmp_path, [["one text", "another"], ["a third", "one text"]])
    places = [(0, 0), (0, 1)]
    fates = decide(stage, places, CleanSettings(), tmp_path)
    assert [chunk.tolist() for chunk in fates] == [[KEPT, KEPT], [KEPT, EXACT_DUPLICATE]]
    assert sum_counts(stage, places, fates)["repeated ids"] == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_the_last_record_of_a_key_decides(records: list[tuple[int, bool]]) -> None:
    keys = np.array([key for key, _ in records], dtype=np.uint64)
    deleted = np.array([gone for _, gone in records], dtype=bool)
    fates = _decide_records(keys, deleted)
    last = {key: place for place, (key, _) in enumerate(records)}
    for place, (key, gone) in enumerate(records):
        if not gone:
            expected = DELETED if records[last[key]][1] else KEPT if last[key] == place else SUPERSEDED
            assert fates[place] == expected
