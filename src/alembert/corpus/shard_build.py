"""Corpus and tokenizer to Shards: each document cut into pieces once, its sentences, words and entities marked.

In: a Corpus, a Tokenizer, a folder for results, and how Chinese is cut into words. Out: Shards under a name made of the
content of all these, so that what was built before is found again. Worker processes take the parts of the corpus one by
one and stage each as one file; these are then joined in order. A killed build goes on with the parts that it lacks, and
the bytes depend neither on kills nor on the number of workers.

Memory is that of one part for each worker. The trade-off: while parts are joined, the tokens are on the disk twice.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alembert import artifact
from alembert.corpus.jobs import Progress
from alembert.corpus.shard_tokenizer import COUNT_NAMES, ShardArrays, ShardTokenizer, WordSettings
from alembert.corpus.shards import FORMAT, KIND, Shards
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, FolderBusy
from alembert.text.tokenizer import Tokenizer
from alembert.workers import processes

_POLL_SECONDS = 0.25
"""Seconds between two looks at what another process builds."""


def open_or_build_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    words: WordSettings | None = None,
    workers: int | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Shards:
    """Open the shards of this corpus, tokenizer and word settings in `cache`; build them if they are not there.

    Only one process builds; another one that wants the same shards waits for it.
    """
    words = (words or WordSettings()).resolved()
    plan = _plan(corpus, tokenizer, words)
    folder = Path(cache) / f"shards-{_key(plan)[:12]}"
    while not (folder / artifact.MANIFEST).is_file():
        try:
            cutter = ShardTokenizer(tokenizer, words)
            _build(folder, plan, corpus, cutter, workers=workers or processes.default_workers(), tell=tell)
        except FolderBusy:
            tell(Progress("waiting for another process", 0, 0))
            time.sleep(_POLL_SECONDS)
        except BadFile:
            # Another process may have finished between our look and our turn.
            if not (folder / artifact.MANIFEST).is_file():
                raise
    return Shards.open(folder)


def _plan(corpus: Corpus, tokenizer: Tokenizer, words: WordSettings) -> dict[str, Any]:
    dictionary = [words.dictionary] if words.dictionary else []
    config = {
        "format": FORMAT,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": _content_hash(tokenizer),
        "segmenter": words.segmenter,
        "dictionary": bool(dictionary),
    }
    return {"config": config, "inputs": [corpus.folder, *dictionary]}


def _key(plan: Mapping[str, Any]) -> str:
    hashes = [artifact.hash_input(path) for path in plan["inputs"]]
    return artifact.hash_config({**plan["config"], "inputs": hashes})


def _content_hash(tokenizer: Tokenizer) -> str:
    """Hash all that decides about ids and offsets: not the length limit, and not the files."""
    settings = replace(tokenizer.parts.settings, model_max_length=None)
    return artifact.hash_config(asdict(replace(tokenizer.parts, settings=settings)))


def _build(
    folder: Path,
    plan: Mapping[str, Any],
    corpus: Corpus,
    cutter: ShardTokenizer,
    *,
    workers: int,
    tell: Callable[[Progress], None],
) -> None:
    if artifact.find_finished(folder, KIND, **plan):
        return
    with artifact.create(folder, KIND, resume=True, **plan) as draft:
        stage = draft.path / ".stage"
        stage.mkdir(exist_ok=True)
        tasks = [(part, stage / f"{number:06}") for number, part in enumerate(corpus.parts)]
        missing = [task for task in tasks if not task[1].exists()]
        counter = processes.get_context().Value("q", 0)
        job = partial(_tokenize_parts, missing, counter, cutter)
        processes.run_processes(job, min(workers, len(missing)), lambda: tell(_read_progress(stage, len(tasks))))
        draft.counts.update(_join([path for _, path in tasks], draft.path, cutter.types, tell))


def _read_progress(stage: Path, parts: int) -> Progress:
    done = sum(not path.name.startswith(".") for path in stage.iterdir())
    return Progress("tokenising", done, parts)


def _tokenize_parts(tasks: Sequence[tuple[Path, Path]], counter: Any, cutter: ShardTokenizer) -> None:
    """Cut parts of the corpus, each taken by its number from a shared counter, until none is left."""
    # The processes share out the work, and threads that the library had do not survive a fork.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    gc.disable()  # millions of offsets, none of them in a cycle, would be looked at again and again
    while (number := _next(counter)) < len(tasks):
        part, path = tasks[number]
        artifact.atomic_write(path, _to_bytes(*cutter.cut(part)))


def _next(counter: Any) -> int:
    with counter.get_lock():
        number: int = counter.value
        counter.value += 1
        return number


def _to_bytes(counts: Mapping[str, int], arrays: ShardArrays) -> bytes:
    """Write a cut part: a line of JSON with counts and lengths, then the arrays."""
    head = {"counts": counts, "lengths": {name: len(array) for name, array in arrays.items()}}
    return b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values())])


def _from_bytes(content: bytes, types: Mapping[str, str]) -> tuple[dict[str, int], ShardArrays]:
    at = content.index(b"\n") + 1
    head = json.loads(content[:at])
    arrays = {}
    for name, length in head["lengths"].items():
        arrays[name] = np.frombuffer(content, types[name], length, at)
        at += arrays[name].nbytes
    return head["counts"], arrays


def _join(
    staged: Sequence[Path], folder: Path, types: Mapping[str, str], tell: Callable[[Progress], None]
) -> Counter[str]:
    """Write the arrays of all parts one after the other, lengths turned into borders; give the sum of the counts."""
    total = Counter(dict.fromkeys(COUNT_NAMES, 0))
    ends = {"sentences": 0, "documents": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in types}
        for name in ends:
            files[name].write(np.zeros(1, types[name]).tobytes())
        for number, path in enumerate(staged):
            tell(Progress("joining", number, len(staged)))
            counts, arrays = _from_bytes(path.read_bytes(), types)
            total.update(counts)
            for name, array in arrays.items():
                values = ends[name] + np.cumsum(array) if name in ends else array
                files[name].write(values.astype(types[name], copy=False).tobytes())
            ends = {name: end + int(arrays[name].sum()) for name, end in ends.items()}
    return total
