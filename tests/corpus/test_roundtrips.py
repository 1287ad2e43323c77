"""Annotations survive every pair of formats, and what a format cannot hold is counted."""

from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.corpus.document import Document, Entity, Relation, Section, find_problems
from alembert.corpus.readers import ReadOptions, read
from alembert.corpus.writers import ConversionLosses, write

SHARED = Path(__file__).resolve().parents[3] / "shared"
NCBI = SHARED / "data" / "ner" / "NCBI-disease-pubtator"
FAITHFUL = ["jsonl", "parquet", "bioc-xml", "bioc-json", "brat"]
ALL = [*FAITHFUL, "pubtator", "conll"]
NAMES = st.text("abcXYZ019", min_size=1, max_size=8)
TEXTS = st.text("abc DEf,.-\n中文，𝛼é\t\r&<>\u2028", min_size=1, max_size=60).filter(lambda text: text.strip())


@st.composite
def documents(draw: st.DrawFn) -> Document:
    text = draw(TEXTS)
    entities = tuple(draw(mentions(text, number)) for number in range(1, draw(st.integers(0, 4)) + 1))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4, unique=True)))
    sections = tuple(Section(start, end, draw(NAMES), draw(NAMES)) for start, end in pairwise(cuts))
    relations = ()
    if len(entities) > 1:
        relations = (Relation("R1", draw(NAMES), (("Arg1", "T1"), ("Arg2", "T2")), (("sure", "yes"),)),)
    labels = tuple(draw(st.lists(NAMES, max_size=2)))
    unlinked = (Relation("R2", draw(NAMES), (("Arg1", "T9"),)),) if draw(st.booleans()) else ()
    meta = {"source": draw(NAMES)}
    return Document(draw(NAMES), text, sections[::2], entities, relations, labels, meta, "en", unlinked)


@st.composite
def mentions(draw: st.DrawFn, text: str, number: int) -> Entity:
    many = min(len(text) + 1, draw(st.sampled_from([2, 2, 2, 4])))
    size = many - many % 2
    edges = sorted(draw(st.lists(st.integers(0, len(text)), min_size=size, max_size=size, unique=True)))
    concepts = tuple(draw(st.lists(NAMES, max_size=2, unique=True)))
    spans = tuple(zip(edges[::2], edges[1::2], strict=True))
    return Entity(f"T{number}", draw(NAMES), spans, concepts, (("note", "seen twice"),) if number == 2 else ())


def through(document: Document, *formats: str) -> tuple[Document, list[ConversionLosses]]:
    losses = []
    for name in formats:
        with TemporaryDirectory() as folder:
            target = Path(folder) / "file"
            losses.append(write([document], target, name))
            found = [item for item in read(target, ReadOptions(), format=name) if isinstance(item, Document)]
        (document,) = found
    return document, losses


def spans(document: Document) -> list[tuple[str, tuple[tuple[int, int], ...], tuple[str, ...]]]:
    return sorted((entity.label, entity.spans, entity.concepts) for entity in document.entities)


def covered(document: Document) -> list[tuple[str, int, int, tuple[str, ...]]]:
    return sorted((entity.label, entity.start, entity.end, entity.concepts) for entity in document.entities)


def words(document: Document) -> Counter[tuple[str, str]]:
    pieces = [(entity.label, document.text[entity.start : entity.end]) for entity in document.entities]
    return Counter((label, "".join(piece.split())) for label, piece in pieces)


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
@given(document=documents())
@settings(deadline=None, max_examples=40)
def test_our_own_formats_lose_nothing(name: str, document: Document) -> None:
    assert through(document, name) == (document, [ConversionLosses()])


@pytest.mark.parametrize("name", ["bioc-xml", "bioc-json"])
@given(document=documents())
@settings(deadline=None, max_examples=60)
def test_bioc_keeps_whole_documents(name: str, document: Document) -> None:
    found, losses = through(document, name)
    in_order = sorted(document.entities, key=lambda entity: entity.id)
    assert sorted(found.entities, key=lambda entity: entity.id) == in_order
    kept = (found.text, found.sections, found.relations, found.labels, found.meta, found.language)
    original = (document.text, document.sections, document.relations, document.labels, document.meta)
    assert found.unlinked_relations == document.unlinked_relations
    assert kept == (*original, document.language)
    assert losses == [ConversionLosses()]


@pytest.mark.parametrize("pair", list(permutations(FAITHFUL, 2)), ids="-".join)
@given(document=documents())
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_faithful_pairs_keep_every_span_concept_and_relation(pair: tuple[str, str], document: Document) -> None:
    found, _ = through(document, *pair)
    assert (found.id, found.text, spans(found)) == (document.id, document.text, spans(document))
    assert found.relations == document.relations


@pytest.mark.parametrize("name", FAITHFUL)
@given(document=documents())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_pubtator_keeps_the_place_of_every_mention(name: str, document: Document) -> None:
    found, losses = through(document, name, "pubtator")
    assert covered(found) == covered(document)
    discontinuous = sum(len(entity.spans) > 1 for entity in document.entities)
    assert losses[1]["discontinuous mentions were written from their first to their last character"] == discontinuous


@pytest.mark.parametrize("name", [*FAITHFUL, "pubtator"])
@given(document=documents())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_conll_keeps_the_words_of_every_mention_or_counts_it(name: str, document: Document) -> None:
    found, losses = through(document, "conll", name)
    lost = sum(count for reason, count in losses[0].items() if reason.startswith("mentions "))
    assert sum(words(found).values()) == len(document.entities) - lost
    assert words(found) <= words(document)


@pytest.mark.parametrize("name", ALL)
@given(document=documents())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_read_back_is_sound(name: str, document: Document) -> None:
    found, _ = through(document, name)
    assert list(find_problems(found)) == []


@pytest.mark.parametrize("name", ["NCBItrainset_corpus.txt", "NCBIdevelopset_corpus.txt", "NCBItestset_corpus.txt"])
def test_the_ncbi_disease_corpus_survives_the_whole_chain(name: str, tmp_path: Path) -> None:
    if not NCBI.exists():
        pytest.skip("the NCBI-disease corpus is not there")
    start = [item for item in read(NCBI / name) if isinstance(item, Document)]
    found, chain = start, ["bioc-xml", "bioc-json", "brat", "jsonl", "pubtator"]
    for step, form in enumerate(chain):
        target = tmp_path / str(step)
        write(found, target, form)
        found = [item for item in read(target, format=form) if isinstance(item, Document)]
    expected = sorted((document.id, document.text, spans(document)) for document in start)
    assert sorted((document.id, document.text, spans(document)) for document in found) == expected


def test_ncbi_disease_has_the_mentions_it_is_known_to_have() -> None:
    if not NCBI.exists():
        pytest.skip("the NCBI-disease corpus is not there")
    found = [item for path in sorted(NCBI.iterdir()) for item in read(path) if isinstance(item, Document)]
    assert sum(len(document.entities) for document in found) == 787 + 960 + 5145
    assert len({document.id for document in found}) == len(found) - 1
