"""A build of shards that is killed goes on to the bytes of one that was not, and two at once do the work once."""

import multiprocessing
import os
import random
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from alembert import artifact
from alembert.corpus.document import Document
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.corpus.store import KIND, Corpus, CorpusDocument, to_bytes, to_table
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
pytestmark = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
KILLS = 12
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}
PIECES = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghij",
    *(f"##{each}" for each in "abcdefghij"),
)
TOKENIZER = Tokenizer.from_vocabulary(Vocabulary(PIECES), lowercase=True)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of six parts, and the shards of a quiet build."""
    folder = tmp_path_factory.mktemp("kills")
    with artifact.create(folder / "corpus", KIND, config={}) as draft:
        (draft.path / "parts").mkdir()
        for part in range(6):
            entries = [document(part * 10 + n) for n in range(10)]
            (draft.path / f"parts/part-{part:05}.parquet").write_bytes(to_bytes(to_table(entries)))
    run(folder, folder / "quiet")
    return folder


def document(number: int) -> CorpusDocument:
    text = " ".join("abcdefghij"[number % k : k] for k in range(1, 10))
    return CorpusDocument(Document(str(number), text), "s", "en", ((0, 5), (6, len(text))))


def run(work: Path, cache: Path) -> None:
    words = WordSettings(segmenter="characters")
    open_or_build_shards(Corpus.open(work / "corpus"), TOKENIZER, cache, words=words, workers=2)


def run_and_die(work: Path, cache: Path, step: int) -> None:
    """Build, but kill the whole build just before the given operation on the disk of any of its processes."""
    steps, victim = count(1), os.getpid()

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(steps) == step:
            os.kill(victim, signal.SIGKILL)

    sys.addaudithook(die)
    run(work, cache)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_again_and_again_it_ends_with_the_same_bytes(work: Path, tmp_path: Path) -> None:
    numbers, kills, finished = random.Random(5), 0, 0
    while kills < KILLS:
        cache = tmp_path / str(finished)
        process = FORK.Process(target=run_and_die, args=(work, cache, int(2 ** numbers.uniform(0, 7))))
        process.start()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        finished += process.exitcode == 0
    run(work, tmp_path / str(finished))
    for number in range(finished + 1):
        assert content(tmp_path / str(number)) == content(work / "quiet")


def test_several_at_once_give_one_result(work: Path, tmp_path: Path) -> None:
    processes = [FORK.Process(target=run, args=(work, tmp_path / "cache")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert content(tmp_path / "cache") == content(work / "quiet")
