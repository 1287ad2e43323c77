"""The demo: the chain on the embedded sample, step by step, each step saying what it did.

Every step works on what the step before it left in the output folder, as a user's own run would.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alembert import hardware, sample
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from alembert.files.checkpoint import Checkpoint


@dataclass(frozen=True)
class Step:
    """One link of the chain and what it did."""

    title: str
    lines: tuple[str, ...]


def run(out: Path) -> Iterator[Step]:
    """Run all steps, yielding each as it is done."""
    yield _machine()
    tokenizer = _sample_tokenizer()
    yield _tokenising(tokenizer)
    yield _checkpoint(tokenizer, out / "checkpoint")


def _machine() -> Step:
    found = hardware.capabilities()
    return Step(
        "1. This machine",
        tuple(
            f"{choice.name.replace('_', ' ')}: {choice.value}. {choice.reason}" for choice in found.choices
        ),
    )


def _sample_tokenizer() -> Tokenizer:
    """Make a small vocabulary: every character, and every word that occurs at least twice."""
    words = Counter(word for passage in sample.passages() for word in passage.text.lower().split())
    characters = sorted({character for word in words for character in word})
    frequent = sorted(word for word, count in words.items() if count > 1 and word.isalpha() and len(word) > 1)
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *characters,
        *(f"##{c}" for c in characters),
        *frequent,
    ]
    return Tokenizer.from_vocabulary(Vocabulary.of(*dict.fromkeys(pieces)), lowercase=True)


def _tokenising(tokenizer: Tokenizer) -> Step:
    passages = sample.passages()
    encodings = tokenizer.encode_batch([passage.text for passage in passages])
    pieces = sum(map(len, encodings))
    unknown = sum(encoding.ids.count(tokenizer.unk_id) for encoding in encodings)
    shown = passages[0].text[:40]
    return Step(
        "2. Tokenising the embedded sample",
        (
            f"{len(passages)} passages (English and Chinese), {sum(len(p.text) for p in passages):,} characters",
            f"{pieces:,} pieces from a vocabulary of {tokenizer.vocab_size:,}, {unknown} unknown",
            f"{shown!r} -> {' '.join(tokenizer.tokens(tokenizer.encode(shown).ids))}",
        ),
    )


def _checkpoint(tokenizer: Tokenizer, folder: Path) -> Step:
    from alembert.files.checkpoint import Checkpoint
    from alembert.files.checkpoint import open as open_checkpoint
    from alembert.files.family import Blueprint
    from alembert.nn.config import preset
    from alembert.nn.heads import HeadSpec

    config = preset("tiny", vocab_size=tokenizer.vocab_size)
    blueprint = Blueprint(config=config, heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)})
    made = Checkpoint.new(blueprint, tokenizer)
    made.save(folder, overwrite=True)
    tokens, difference = _compare(made, open_checkpoint(folder))
    size = sum(path.stat().st_size for path in folder.iterdir())
    return Step(
        "3. A tiny checkpoint, written and reopened",
        (
            f"{folder}: {config.num_hidden_layers} layers x {config.hidden_size}, {made.parameters:,} parameters "
            f"with random weights, {size / 1e6:.1f} MB",
            f"reopened, {tokens:,} tokens encoded by both: largest difference {difference}",
            f"try: alembert inspect tokens {shlex.quote(str(folder))} 'BRAF V600E-mutant melanoma'",
            f"     alembert predict {shlex.quote(str(folder))} --fill-mask 'Aspirin inhibits [MASK] aggregation.'  (untrained: a guess)",
        ),
    )


def _compare(made: Checkpoint, opened: Checkpoint) -> tuple[int, float]:
    """Encode the test passages with both; give the number of tokens and the largest difference."""
    import torch

    from alembert.nn.batch import Batch

    assert opened.tokenizer is not None
    encodings = opened.tokenizer.encode_batch([passage.text for passage in sample.passages("en", "test")])
    batch = Batch.packed([encoding.ids for encoding in encodings])
    with torch.inference_mode():
        difference = made.model.eval().encoder(batch) - opened.model.encoder(batch)
    return len(batch.ids_N), difference.abs().max().item()
