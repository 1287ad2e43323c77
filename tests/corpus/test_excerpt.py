"""An excerpt is the beginning of the shards, of a Corpus or of raw files, and says how much it left out."""

import json
from pathlib import Path

import numpy as np
import pytest

from alembert import sample
from alembert.corpus.build import build
from alembert.corpus.clean import RAW_FILE_SETTINGS, BuildSettings
from alembert.corpus.excerpt import ExcerptLimit, read_excerpt
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.corpus.shards import Shards, TokenArrays
from alembert.corpus.store import Corpus
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import SpecialTokens, Vocabulary

TEXTS = [passage.text for passage in sample.load_passages()]
MARKS = sorted({mark for text in TEXTS for mark in text.lower() if not mark.isspace()})
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary((*SpecialTokens().roles().values(), *MARKS, *(f"##{mark}" for mark in MARKS))), lowercase=True
)
WORDS = WordSettings(segmenter="characters")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as raw text, with a document that has no tokens and a record that cannot be read."""
    path = tmp_path_factory.mktemp("excerpt") / "texts.jsonl"
    lines = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(["\u200b", *TEXTS])]
    path.write_text("\n".join([*lines, '{"id": "bad"}']) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(raw: Path) -> Corpus:
    settings = BuildSettings(part_characters=9_000, clean=RAW_FILE_SETTINGS.clean)
    build([raw], raw.parent / "corpus", settings=settings, workers=1)
    return Corpus.open(raw.parent / "corpus")


@pytest.fixture(scope="module")
def shards(raw: Path, corpus: Corpus) -> Shards:
    return open_or_build_shards(corpus, TOKENIZER, raw.parent, words=WORDS, workers=1)


def begins_like(tokens: TokenArrays, shards: TokenArrays) -> bool:
    names = ("ids", "flags", "sentences", "documents", "hashes")
    both = [(getattr(tokens, name), getattr(shards, name)) for name in names]
    return all(np.array_equal(own, full[: len(own)]) for own, full in both)


@pytest.mark.parametrize(
    "limit", [ExcerptLimit(documents=70), ExcerptLimit(characters=20_000), ExcerptLimit()], ids=str
)
def test_an_excerpt_is_the_beginning_of_the_shards(corpus: Corpus, shards: Shards, limit: ExcerptLimit) -> None:
    found = read_excerpt(corpus, TOKENIZER, WORDS, limit)
    assert begins_like(found.tokens, shards)
    assert found.is_whole == (len(found.tokens) == len(shards))


def test_raw_files_are_taken_as_training_takes_them(raw: Path, shards: Shards) -> None:
    found = read_excerpt([raw], TOKENIZER, WORDS)
    assert begins_like(found.tokens, shards)
    assert (len(found.tokens), found.is_whole, found.set_aside) == (len(shards), True, 1)


def test_the_limit_holds_over_several_files(raw: Path) -> None:
    found = read_excerpt([raw, raw], TOKENIZER, WORDS, ExcerptLimit(documents=len(TEXTS) + 11))
    assert (found.documents, found.total, found.is_whole) == (len(TEXTS) + 11, None, False)


def test_characters_are_counted_document_by_document(corpus: Corpus) -> None:
    found = read_excerpt(corpus, TOKENIZER, WORDS, ExcerptLimit(characters=5_000))
    lengths = np.cumsum([len(text) for text in corpus.texts()])
    assert found.documents == int(np.searchsorted(lengths, 5_000)) + 1


def test_three_documents_are_read_however_long(corpus: Corpus) -> None:
    assert read_excerpt(corpus, TOKENIZER, WORDS, ExcerptLimit(characters=1)).documents == 3


def test_a_corpus_without_documents_is_an_empty_excerpt(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    build([tmp_path / "empty.jsonl"], tmp_path / "corpus", workers=1)
    found = read_excerpt(Corpus.open(tmp_path / "corpus"), TOKENIZER, WORDS)
    assert (len(found.tokens), found.documents, found.is_whole) == (0, 0, True)
