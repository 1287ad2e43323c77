"""Shards: every token in its place, marked as a plain, slow reading of the corpus would mark it."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert import artifact, sample
from alembert.corpus import shard_build, shard_tokenizer
from alembert.corpus.build import build
from alembert.corpus.clean import BuildSettings, CleanSettings
from alembert.corpus.document import Document
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import ShardTokenizer, WordSettings
from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START, Shards
from alembert.corpus.store import KIND, Corpus, CorpusDocument, CorpusEntity, to_bytes, to_table
from alembert.errors import BadFile, MissingExtra
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from alembert.text.words import Dictionary, DictionarySegmenter, JiebaSegmenter, find_words

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz0123456789.,-()%/;:'")
WORDS = ("the", "patient", "##ine", "##in", "##ed", "of", "with", "was", "and", "insu", "##lin", "treat")
CHARACTERS = tuple(sorted({mark for each in sample.load_passages("zh") for mark in each.text if mark > "\u2fff"}))
PLAIN = WordSettings(segmenter="characters")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def make_tokenizer(*more: str) -> Tokenizer:
    pieces = (*SPECIAL, *LETTERS, *(f"##{mark}" for mark in LETTERS), *WORDS, *CHARACTERS, *more)
    return Tokenizer.from_vocabulary(Vocabulary(tuple(dict.fromkeys(pieces))), lowercase=True)


TOKENIZER = make_tokenizer()


def make_corpus(folder: Path, *parts: list[CorpusDocument]) -> Corpus:
    with artifact.create(folder, KIND, config={}) as draft:
        (draft.path / "parts").mkdir()
        for number, entries in enumerate(parts):
            (draft.path / f"parts/part-{number:05}.parquet").write_bytes(to_bytes(to_table(entries)))
    return Corpus.open(folder)


def entry(text: str, *spans: tuple[int, int], entities: tuple[tuple[int, int], ...] = ()) -> CorpusDocument:
    found = tuple(CorpusEntity(start, end, "disease") for start, end in entities)
    return CorpusDocument(Document("d", text), "s", "en", spans or ((0, len(text)),), found)


def shards_of(folder: Path, *entries: CorpusDocument, words: WordSettings = PLAIN) -> Shards:
    return open_or_build_shards(
        make_corpus(folder / "corpus", list(entries)), TOKENIZER, folder, words=words, workers=1
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The embedded sample as a corpus of several parts, with its gold entities."""
    folder = tmp_path_factory.mktemp("sample")
    with (folder / "sample.jsonl").open("w") as lines:
        for passage in sample.load_passages():
            spans = [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
            ]
            lines.write(json.dumps({"id": passage.id, "text": passage.text, "entities": spans}) + "\n")
    chosen = BuildSettings(part_characters=9_000, clean=CleanSettings(min_words=1))
    build([folder / "sample.jsonl"], folder / "corpus", settings=chosen, workers=1)
    return Corpus.open(folder / "corpus")


@pytest.fixture(scope="module")
def shards(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_or_build_shards(corpus, TOKENIZER, tmp_path_factory.mktemp("cache"), words=PLAIN, workers=2)


def plainly(
    each: CorpusDocument, segmenter: object = None, dictionary: Dictionary | None = None
) -> list[tuple[int, int, int]]:
    """Give id, sentence and flags of each piece, found by going through all of them for each question."""
    text = each.document.text
    found = TOKENIZER.encode(text, add_special_tokens=False)
    spans = find_words(text, segmenter or DictionarySegmenter(Dictionary(())), dictionary)
    is_chinese = any("\u3400" <= mark <= "\u9fff" for mark in text)
    rows, before_sentence, before_word = [], None, None
    for piece, (start, _) in zip(found.ids, found.offsets, strict=True):
        sentence = max([n for n, (begin, _) in enumerate(each.sentences) if begin <= start], default=0)
        word = max([n for n, (begin, _) in enumerate(spans) if begin <= start], default=0)
        begins = not TOKENIZER.vocabulary.pieces[piece].startswith("##")
        begins = begins and (not is_chinese or word != before_word)
        rows.append([piece, sentence, WORD_START if begins or sentence != before_sentence else 0])
        before_sentence, before_word = sentence, word
    taken: set[int] = set()
    for mention in sorted(each.entities, key=lambda m: (m.start - m.end, m.start)):
        own = [n for n, (a, b) in enumerate(found.offsets) if a < mention.end and b > mention.start]
        if own and taken.isdisjoint(own):
            taken.update(own)
            for n in own:
                rows[n][2] |= IN_ENTITY | ENTITY_START * (n == own[0]) | ENTITY_END * (n == own[-1])
    return [tuple(row) for row in rows]


def marked(shards: Shards, document: int) -> list[tuple[int, int, int]]:
    start, end = shards.get_token_range(document)
    borders = shards.get_sentence_borders(document)
    sentences = np.searchsorted(borders, np.arange(start, end), "right") - 1
    return list(zip(shards.ids[start:end], sentences, shards.flags[start:end], strict=True))


def test_every_mark_is_that_of_a_plain_reading(corpus: Corpus, shards: Shards) -> None:
    entries = list(corpus.entries())
    assert {"en", "zh"} == {each.language for each in entries}
    assert [marked(shards, n) for n in range(len(shards))] == [plainly(each) for each in entries]


def test_jieba_and_a_dictionary_mark_as_a_plain_reading_does(corpus: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("rjieba")
    terms = tmp_path / "terms.txt"
    terms.write_text("2型糖尿病\n二甲双胍\n", encoding="utf-8")
    chosen = WordSettings(segmenter="jieba", dictionary=terms)
    shards = open_or_build_shards(corpus, TOKENIZER, tmp_path / "cache", words=chosen)
    jieba, dictionary = JiebaSegmenter(), Dictionary.read(terms)
    expected = [plainly(each, jieba, dictionary) for each in corpus.entries()]
    assert [marked(shards, n) for n in range(len(shards))] == expected


def test_counts_say_what_there_is(corpus: Corpus, shards: Shards) -> None:
    flags = np.asarray(shards.flags)
    expected = {
        "documents": corpus.counts["documents"],
        "documents without tokens": 0,
        "sentences": corpus.counts["sentences"],
        "tokens": len(shards.ids),
        "words": int((flags & WORD_START > 0).sum()),
        "entities": int((flags & ENTITY_START > 0).sum()),
        "entities dropped: overlap": corpus.counts["gold entities"] - int((flags & ENTITY_START > 0).sum()),
        "entities dropped: no token": 0,
        "unknown pieces": int((shards.ids == TOKENIZER.unk_id).sum()),
    }
    opening = np.asarray(shards.types)[flags & ENTITY_START > 0]
    expected |= {f"entities: {name}": int((opening == n).sum()) for n, name in enumerate(shards.type_names, 1)}
    assert shards.counts == expected


def test_every_piece_of_an_entity_knows_its_type(corpus: Corpus, shards: Shards) -> None:
    assert shards.type_names == ("chemical", "disease", "gene")
    for number, each in enumerate(corpus.entries()):
        start, end = shards.get_token_range(number)
        offsets = TOKENIZER.encode(each.document.text, add_special_tokens=False).offsets
        for (a, b), kind in zip(offsets, shards.types[start:end], strict=True):
            labels = {mention.label for mention in each.entities if a < mention.end and b > mention.start}
            assert shards.type_names[kind - 1] in labels if kind else not labels


def test_types_are_numbered_alike_in_all_parts(tmp_path: Path) -> None:
    labels = ["x", "b", *(f"t{n:03}" for n in range(300))]
    parts = [[replace(entry("a b"), entities=(CorpusEntity(0, 1, label),))] for label in labels]
    shards = open_or_build_shards(make_corpus(tmp_path / "corpus", *parts), TOKENIZER, tmp_path, words=PLAIN)
    assert [shards.type_names[kind - 1] for kind in shards.types[::2]] == labels
    assert shards.types.dtype == np.uint16
    assert not shards.types[1::2].any()


def test_hashes_are_those_of_the_texts(corpus: Corpus, shards: Shards) -> None:
    expected = b"".join(hashlib.sha256(text.encode()).digest()[:8] for text in corpus.texts())
    assert shards.hashes.tobytes() == expected


def cut(shards: Shards, document: int = 0) -> list[str]:
    """Join the pieces of each word."""
    start, end = shards.get_token_range(document)
    pieces = TOKENIZER.tokens(shards.ids[start:end])
    begins = [n for n in range(end - start) if shards.flags[start + n] & WORD_START]
    return ["".join(pieces[a:b]).replace("##", "") for a, b in pairwise([*begins, end - start])]


def test_jieba_joins_the_characters_of_a_word(tmp_path: Path) -> None:
    pytest.importorskip("rjieba")
    chosen = WordSettings(segmenter="jieba")
    assert cut(shards_of(tmp_path, entry("患者接受治疗"), words=chosen)) == ["患者", "接受", "治疗"]


def test_without_jieba_each_character_is_a_word(tmp_path: Path) -> None:
    assert cut(shards_of(tmp_path, entry("患者接受治疗"))) == list("患者接受治疗")


def test_a_term_of_the_dictionary_is_one_word(tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("2型糖尿病\n", encoding="utf-8")
    chosen = WordSettings(segmenter="characters", dictionary=tmp_path / "terms")
    found = cut(shards_of(tmp_path, entry("treated 2型糖尿病 with"), words=chosen))
    assert found == ["treated", "2型糖尿病", "with"]


def test_auto_records_the_segmenter_that_was_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    shards = shards_of(tmp_path, entry("患者"), words=WordSettings())
    assert shards.manifest.config["segmenter"] == "characters"


def test_jieba_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(MissingExtra, match="rjieba"):
        shards_of(tmp_path, entry("患者"), words=WordSettings(segmenter="jieba"))


def test_text_outside_of_sentences_belongs_to_the_one_before(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, entry("a b c d e f", (2, 3), (6, 7)))
    assert shards.get_sentence_borders(0).tolist() == [0, 3, 6]


def test_sentences_and_documents_without_pieces_vanish(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, entry("\u200b"), entry("a \u200b b", (0, 1), (2, 3), (4, 5)), entry(" "))
    found = (len(shards), shards.get_sentence_borders(0).tolist(), shards.counts["documents without tokens"])
    assert found == (1, [0, 1, 2], 2)


def flags_of(folder: Path, text: str, *entities: tuple[int, int]) -> tuple[list[int], Shards]:
    shards = shards_of(folder, entry(text, (0, 3), (4, len(text)), entities=entities))
    return [int(flag) & ~WORD_START for flag in shards.flags], shards


def test_an_entity_of_one_piece_is_first_and_last(tmp_path: Path) -> None:
    assert flags_of(tmp_path, "a b c d", (2, 3))[0] == [0, IN_ENTITY | ENTITY_START | ENTITY_END, 0, 0]


def test_an_entity_may_cross_a_sentence_border(tmp_path: Path) -> None:
    assert flags_of(tmp_path, "a b c d", (2, 7))[0] == [0, IN_ENTITY | ENTITY_START, IN_ENTITY, IN_ENTITY | ENTITY_END]


def test_the_longest_of_overlapping_entities_stays_then_the_leftmost(tmp_path: Path) -> None:
    found, shards = flags_of(tmp_path, "a b c d e f", (0, 3), (2, 7), (6, 11), (4, 5))
    begins = IN_ENTITY | ENTITY_START
    assert found == [0, begins, IN_ENTITY, IN_ENTITY | ENTITY_END, 0, 0]
    assert (shards.counts["entities"], shards.counts["entities dropped: overlap"]) == (1, 3)


def test_an_entity_without_pieces_is_counted(tmp_path: Path) -> None:
    assert flags_of(tmp_path, "a b c", (1, 2))[1].counts["entities dropped: no token"] == 1


texts = st.text(st.one_of(st.sampled_from("ab ,.\n2型糖尿病患者é한\u0301"), st.characters(codec="utf-8")), max_size=40)


@st.composite
def entries(draw: st.DrawFn) -> CorpusDocument:
    text = draw(texts)
    places = st.integers(0, len(text))
    borders = sorted(draw(st.sets(places, max_size=4)))
    mentions = [tuple(sorted(pair)) for pair in draw(st.lists(st.tuples(places, places), max_size=4))]
    return CorpusDocument(
        Document("d", text),
        "s",
        "en",
        tuple(pairwise(borders)),
        tuple(CorpusEntity(start, end, "x") for start, end in mentions if start < end),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(entries(), max_size=5))
def test_any_text_is_cut_as_by_the_tokenizer_and_marked_as_by_a_plain_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[CorpusDocument]
) -> None:
    monkeypatch.setattr(shard_tokenizer, "_BATCH_CHARACTERS", 50)
    path = tmp_path / "part"
    path.write_bytes(to_bytes(to_table(found)))
    cutter = ShardTokenizer(TOKENIZER, PLAIN)
    counts, arrays = cutter.tokenize_part(path)
    full = [rows for rows in map(plainly, found) if rows]
    flat = [row for rows in full for row in rows]
    assert arrays["ids"].tolist() == [row[0] for row in flat]
    assert arrays["flags"].tolist() == [row[2] for row in flat]
    assert arrays["documents"].tolist() == [len({row[1] for row in rows}) for rows in full]
    assert arrays["sentences"].sum() == counts["tokens"] == len(flat)
    assert arrays["sentences"].all()


def states(folder: Path) -> Iterator[tuple[Path, int]]:
    yield from ((path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*")))


def test_what_is_there_is_only_opened(corpus: Corpus, shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(states(shards.folder.parent))
    monkeypatch.setattr(shard_build, "_build", None)
    again = open_or_build_shards(corpus, TOKENIZER, shards.folder.parent, words=PLAIN)
    assert (again.folder, list(states(shards.folder.parent))) == (shards.folder, before)


def test_another_tokenizer_dictionary_or_corpus_has_shards_of_its_own(tmp_path: Path) -> None:
    one, two = make_corpus(tmp_path / "1", [entry("a")]), make_corpus(tmp_path / "2", [entry("b")])
    (tmp_path / "terms").write_text("糖尿病\n", encoding="utf-8")
    with_terms = WordSettings(segmenter="characters", dictionary=tmp_path / "terms")
    cases = [(one, TOKENIZER, PLAIN), (two, TOKENIZER, PLAIN), (one, make_tokenizer("more"), PLAIN)]
    cases.append((one, TOKENIZER, with_terms))
    found = {open_or_build_shards(c, t, tmp_path, words=w, workers=1).folder for c, t, w in cases}
    assert len(found) == len(cases)


def test_the_place_of_a_dictionary_does_not_matter(tmp_path: Path) -> None:
    corpus, folders = make_corpus(tmp_path / "corpus", [entry("a")]), set()
    for name in ("one", "two"):
        (tmp_path / name).write_text("糖尿病\n", encoding="utf-8")
        chosen = WordSettings(segmenter="characters", dictionary=tmp_path / name)
        folders.add(open_or_build_shards(corpus, TOKENIZER, tmp_path, words=chosen, workers=1).folder)
    assert len(folders) == 1


def test_the_number_of_workers_does_not_change_a_byte(corpus: Corpus, shards: Shards, tmp_path: Path) -> None:
    alone = open_or_build_shards(corpus, TOKENIZER, tmp_path, words=PLAIN, workers=1)
    assert alone.manifest == shards.manifest


@pytest.mark.parametrize(("size", "kind"), [(65_536, "uint16"), (65_537, "uint32")])
def test_a_large_vocabulary_has_wide_ids(tmp_path: Path, size: int, kind: str) -> None:
    pieces = (*SPECIAL, *(f"w{n}" for n in range(size - len(SPECIAL))))
    tokenizer = Tokenizer.from_vocabulary(Vocabulary(pieces), lowercase=True)
    last = pieces[-1]
    shards = open_or_build_shards(make_corpus(tmp_path / "c", [entry(last)]), tokenizer, tmp_path, words=PLAIN)
    assert (shards.ids.dtype, shards.ids.tolist()) == (np.dtype(kind), [size - 1])


def test_an_empty_corpus_gives_empty_shards(tmp_path: Path) -> None:
    shards = open_or_build_shards(make_corpus(tmp_path / "corpus"), TOKENIZER, tmp_path, words=PLAIN)
    assert (len(shards), len(shards.ids), shards.documents.tolist()) == (0, 0, [0])


@pytest.mark.parametrize("name", ["ids", "flags", "types", "sentences", "documents", "hashes"])
def test_a_file_of_another_size_is_refused(tmp_path: Path, name: str) -> None:
    folder = shards_of(tmp_path, entry("a b")).folder
    with (folder / f"{name}.bin").open("ab") as file:
        file.write(b"\0" * 8)
    with pytest.raises(BadFile, match=rf"{name}\.bin"):
        Shards.open(folder)


def test_files_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    folder = shards_of(tmp_path, entry("a b")).folder
    (folder / "sentences.bin").write_bytes(np.array([0, 9], "<i8").tobytes())
    with pytest.raises(BadFile, match="do not fit"):
        Shards.open(folder)


def test_the_arrays_cannot_be_written(shards: Shards) -> None:
    with pytest.raises(ValueError, match="read-only"):
        shards.flags[0] = 0
