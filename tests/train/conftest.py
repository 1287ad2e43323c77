"""A small real corpus with entities, its vocabulary and its shards, made once."""

import json
import os
from pathlib import Path

import pytest

from alembert import sample
from alembert.corpus.build import build
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.corpus.shards import Shards
from alembert.corpus.store import Corpus
from alembert.files.vocab import VocabOutput, learn
from alembert.text.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `corpus` (English and Chinese, gold entities) and `vocab`."""
    folder = tmp_path_factory.mktemp("home")
    with (folder / "sample.jsonl").open("w", encoding="utf8") as lines:
        for passage in sample.load_passages():
            entities = [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
            ]
            lines.write(json.dumps({"id": passage.id, "text": passage.text, "entities": entities}) + "\n")
    build([folder / "sample.jsonl"], folder / "corpus", workers=1)
    learn(TextSampleReader.open([folder / "corpus"]), VocabOutput(folder / "vocab"), size=1300)
    return folder


@pytest.fixture(scope="session")
def corpus(home: Path) -> Corpus:
    return Corpus.open(home / "corpus")


@pytest.fixture(scope="session")
def tokenizer(home: Path) -> Tokenizer:
    return Tokenizer.open(home / "vocab")


@pytest.fixture(scope="session")
def shards(home: Path, corpus: Corpus, tokenizer: Tokenizer) -> Shards:
    words = WordSettings(segmenter="characters")
    return open_or_build_shards(corpus, tokenizer, home / "cache", words=words, workers=1)
