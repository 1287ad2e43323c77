"""Build Shards from a Corpus and a Tokenizer: documents are tokenized once, with sentences, words and entities marked.

In: a Corpus, a Tokenizer, a cache folder, and how Chinese is segmented into words. Out: Shards whose folder name is a
hash of all these, so that existing ones are reused. Worker processes claim the parts of the corpus and stage each as
one file; the files are then joined in order. A killed build resumes with the missing parts; the bytes depend neither on
kills nor on the number of workers.

Memory holds one part per worker. The trade-off: while parts are joined, the tokens are on disk twice.
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
from numpy.typing import NDArray

from alembert import artifact
from alembert.corpus.jobs import Progress
from alembert.corpus.shard_tokenizer import COUNT_NAMES, ShardArrays, ShardTokenizer, WordSettings
from alembert.corpus.shards import FORMAT, KIND, Shards, list_types, type_dtype
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, FolderBusy
from alembert.text.tokenizer import Tokenizer
from alembert.workers import pool

_POLL_SECONDS = 0.25
"""Seconds between checks for shards that another process builds."""


def open_or_build_shards(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    words: WordSettings | None = None,
    workers: int | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Shards:
    """Open the shards of this corpus, tokenizer and word settings in `cache`; build them if they do not exist.

    Only one process builds; another one that needs the same shards waits for it.
    """
    words = (words or WordSettings()).resolved()
    plan = _plan(corpus, tokenizer, words)
    folder = Path(cache) / f"shards-{_key(plan)[:12]}"
    while not (folder / artifact.MANIFEST).is_file():
        try:
            shard_tokenizer = ShardTokenizer(tokenizer, words)
            _build(
                folder,
                plan,
                corpus,
                shard_tokenizer,
                workers=workers or pool.default_workers(),
                on_progress=on_progress,
            )
        except FolderBusy:
            on_progress(Progress("waiting for another process", 0, 0))
            time.sleep(_POLL_SECONDS)
        except BadFile:
            # Another process may have finished between our check and our build.
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
    """Hash what determines ids and offsets: not the length limit, and not the files."""
    settings = replace(tokenizer.parts.settings, model_max_length=None)
    return artifact.hash_config(asdict(replace(tokenizer.parts, settings=settings)))


def _build(
    folder: Path,
    plan: Mapping[str, Any],
    corpus: Corpus,
    shard_tokenizer: ShardTokenizer,
    *,
    workers: int,
    on_progress: Callable[[Progress], None],
) -> None:
    if artifact.find_finished(folder, KIND, **plan):
        return
    with artifact.create(folder, KIND, resume=True, **plan) as draft:
        stage = draft.path / ".stage"
        stage.mkdir(exist_ok=True)
        tasks = [(part, stage / f"{number:06}") for number, part in enumerate(corpus.parts)]
        missing = [task for task in tasks if not task[1].exists()]
        counter = pool.get_context().Value("q", 0)
        job = partial(_tokenize_parts, missing, counter, shard_tokenizer)
        pool.run_processes(job, min(workers, len(missing)), lambda: on_progress(_read_progress(stage, len(tasks))))
        draft.counts.update(_join([path for _, path in tasks], draft.path, shard_tokenizer.dtypes, on_progress))


def _read_progress(stage: Path, parts: int) -> Progress:
    done = sum(not path.name.startswith(".") for path in stage.iterdir())
    return Progress("tokenising", done, parts)


def _tokenize_parts(tasks: Sequence[tuple[Path, Path]], counter: Any, shard_tokenizer: ShardTokenizer) -> None:
    """Tokenize the parts that this process claims from a shared counter."""
    # The work is parallel already, and threads of the library do not survive a fork.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    gc.disable()  # millions of offsets, none of them in a cycle, would be visited again and again
    for number in pool.claim_numbers(counter, len(tasks)):
        part, path = tasks[number]
        artifact.atomic_write(path, _to_bytes(*shard_tokenizer.tokenize_part(part)))


def _to_bytes(counts: Mapping[str, int], arrays: ShardArrays) -> bytes:
    """Encode a tokenized part: a line of JSON with counts and lengths, then the arrays."""
    head = {"counts": counts, "lengths": {name: len(array) for name, array in arrays.items()}}
    return b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values())])


def _from_bytes(content: bytes, dtypes: Mapping[str, str]) -> tuple[dict[str, int], ShardArrays]:
    at = content.index(b"\n") + 1
    head = json.loads(content[:at])
    arrays = {}
    for name, length in head["lengths"].items():
        arrays[name] = np.frombuffer(content, dtypes[name], length, at)
        at += arrays[name].nbytes
    return head["counts"], arrays


def _read_counts(path: Path) -> dict[str, int]:
    """Read the counts of a tokenized part alone."""
    with path.open("rb") as file:
        counts: dict[str, int] = json.loads(file.readline())["counts"]
    return counts


def _renumber(types: NDArray[Any], names: Sequence[str], all_names: Sequence[str]) -> NDArray[Any]:
    """Turn the numbers of a part's types into those of the whole corpus."""
    numbers = np.array([0, *(1 + all_names.index(name) for name in names)], np.int64)
    renumbered: NDArray[Any] = numbers[types]
    return renumbered


def _join(
    staged: Sequence[Path], folder: Path, dtypes: Mapping[str, str], on_progress: Callable[[Progress], None]
) -> Counter[str]:
    """Concatenate the arrays of all parts, with lengths turned into borders, and return the sum of the counts."""
    total = Counter(dict.fromkeys(COUNT_NAMES, 0))
    names = list_types({name for path in staged for name in _read_counts(path)})
    final = {**dtypes, "types": type_dtype(len(names))}
    ends = {"sentences": 0, "documents": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in final}
        for name in ends:
            files[name].write(np.zeros(1, final[name]).tobytes())
        for number, path in enumerate(staged):
            on_progress(Progress("joining", number, len(staged)))
            counts, arrays = _from_bytes(path.read_bytes(), dtypes)
            total.update(counts)
            arrays["types"] = _renumber(arrays["types"], list_types(counts), names)
            for name, array in arrays.items():
                values = ends[name] + np.cumsum(array) if name in ends else array
                files[name].write(values.astype(final[name], copy=False).tobytes())
            ends = {name: end + int(arrays[name].sum()) for name, end in ends.items()}
    return total
