"""`vocab learn`, `vocab extend` and `vocab prune`: vocabularies written to disk, with their model.

In: samples of a corpus and, but for `learn`, a checkpoint or a bare tokenizer. Out: a Tokenizer folder, or a Checkpoint
that Hugging Face opens, each with `vocabulary.json`, which says what was done and proves what was not. The choice of
pieces is in `text/`; here files are opened and written. Torch is loaded only where there are weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert import artifact
from alembert.errors import TRAINING, AlreadyDone, BadInput, BadSetting, require
from alembert.hub import model_folder
from alembert.text import learn as learning
from alembert.text import learn as pruning
from alembert.text.extend import ExtendSettings, Extension, RequiredTerms
from alembert.text.extend import extend as choose_and_extend
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import TokenizerSettings
from alembert.text.tokenizer_report import TokenizerReport, build_tokenizer_report
from alembert.text.word_counts import TextSample, WordCounts, WordSplitter, count_corpus_words, count_corpus_words_split

if TYPE_CHECKING:
    from alembert.files.checkpoint import Checkpoint

TOKENIZER_KIND: Final = "Tokenizer"
REPORT_FILE: Final = "vocabulary.json"
_MENTION_SHARE: Final = 10
"""At most every tenth piece of a learnt vocabulary is given to words inside entities."""


@dataclass(frozen=True)
class TokenizerWithModel:
    """A tokenizer, and the model that it belongs to, if there is one."""

    tokenizer: Tokenizer
    checkpoint: Checkpoint | None = None

    @property
    def kind(self) -> str:
        return TOKENIZER_KIND if self.checkpoint is None else "Checkpoint"

    @property
    def splitter(self) -> WordSplitter:
        return WordSplitter(self.tokenizer.parts.settings)


@dataclass(frozen=True)
class VocabOutput:
    """Where a result goes, and the files that it was made from, which the manifest records."""

    folder: Path
    inputs: Sequence[Path] = ()
    overwrite: bool = False


@dataclass(frozen=True)
class VocabLearnResult:
    """A new vocabulary, and how well it fits the corpus it was learnt from."""

    tokenizer: Tokenizer
    fit: TokenizerReport
    whole: int
    """Words that were made whole because they were asked for or stand in entities."""


@dataclass(frozen=True)
class VocabExtendResult:
    """An extended vocabulary, and what it saves on documents that had no part in the choice."""

    extension: Extension
    before: TokenizerReport | None
    """On the held-out documents; none if there are none."""
    after: TokenizerReport | None
    mentions: int
    several_words: int
    """Mentions of more than one word; WordPiece cannot hold such a term as one piece."""


@dataclass(frozen=True)
class VocabPruneResult:
    """A smaller vocabulary, and what that saves."""

    pruning: pruning.Pruning
    parameters_before: int
    parameters_after: int
    bytes_saved: int


def open_tokenizer_with_model(where: str | Path) -> TokenizerWithModel:
    """Open a checkpoint with its tokenizer, or a tokenizer alone (a folder without weights, or a single file)."""
    folder = model_folder(where)
    if not _has_weights(folder):
        return TokenizerWithModel(Tokenizer.open(folder))
    require(f"The weights of {where}", *TRAINING)
    from alembert.files.checkpoint import open as open_checkpoint

    checkpoint = open_checkpoint(folder)
    return TokenizerWithModel(checkpoint.require_tokenizer(), checkpoint)


def learn(
    samples: Iterable[TextSample],
    output: VocabOutput,
    *,
    size: int,
    lowercase: bool = True,
    min_count: int = 2,
    whole: Sequence[str] = (),
    grow: bool = False,
) -> VocabLearnResult:
    """Learn a vocabulary and write it as a Tokenizer folder; with `grow` of more pieces if characters alone take more."""
    _expect_positive("size", size)
    settings = {"size": size, "lowercase": lowercase, "min_count": min_count, "whole": sorted(whole)}
    config = {"verb": "vocab learn", **settings}
    with _draft(output, TOKENIZER_KIND, config) as draft:
        splitter = WordSplitter(TokenizerSettings(do_lower_case=lowercase))
        census = count_corpus_words(samples, splitter)
        words = [*RequiredTerms.from_terms(whole, splitter).words, *_frequent_in_entities(census, size, min_count)]
        vocabulary = learning.learn(census, size, whole=words, min_count=min_count, grow=grow)
        tokenizer = Tokenizer.from_vocabulary(vocabulary, lowercase=lowercase)
        learnt = VocabLearnResult(tokenizer, build_tokenizer_report(tokenizer, census), len(set(words)))
        tokenizer.save(draft.path)
        _write_report(draft, {"fit": learnt.fit.as_json()})
        draft.counts.update({"pieces": len(vocabulary), "words": census.total, "documents": census.documents})
    return learnt


def extend(
    subject: TokenizerWithModel,
    samples: Iterable[TextSample],
    output: VocabOutput,
    settings: ExtendSettings,
    *,
    forced: Sequence[str] = (),
    held_out_every: int = 10,
) -> VocabExtendResult:
    """Add terms and write the result; every n-th document has no part in the choice and measures it (0: none)."""
    _expect_positive("terms", settings.terms)
    config = {"verb": "vocab extend", **asdict(settings), "forced": sorted(forced), "held_out": held_out_every}
    with _draft(output, subject.kind, config) as draft:
        census, held_out = _split_counts(samples, subject.splitter, held_out_every)
        if not (census.mentions or settings.any_word or forced):
            raise BadInput(
                "The corpus has no entities, so no word is a candidate. Give a lexicon (--lexicon gene=FILE), "
                "or take any word of the corpus as a candidate (--any-word)."
            )
        terms = RequiredTerms.from_terms(forced, subject.splitter)
        extension = choose_and_extend(subject.tokenizer, census, settings, terms, held_out)
        done = _measure_extension(subject.tokenizer, extension, census.merge(held_out), held_out)
        _write_extended(draft, subject, done)
    return done


def prune(
    subject: TokenizerWithModel, samples: Iterable[TextSample], output: VocabOutput, max_pieces: int | None = None
) -> VocabPruneResult:
    """Drop the pieces that the corpus does not use, or all but its most frequent ones, and write the result."""
    config = {"verb": "vocab prune"} if max_pieces is None else {"verb": "vocab prune", "max_pieces": max_pieces}
    with _draft(output, subject.kind, config) as draft:
        result = pruning.prune(subject.tokenizer, count_corpus_words(samples, subject.splitter), max_pieces)
        before = after = saved = 0
        if subject.checkpoint is None:
            result.tokenizer.save(draft.path)
        else:
            from alembert.files.surgery import with_kept_pieces

            smaller = with_kept_pieces(subject.checkpoint, result.tokenizer, result.kept_ids)
            smaller.write(draft)
            before, after = subject.checkpoint.parameters, smaller.parameters
            saved = subject.checkpoint.bytes - smaller.bytes
        _write_report(draft, {"dropped": result.dropped, "proof": result.proof.to_table()})
        draft.counts.update({"pieces": len(result.kept_ids), "dropped": result.dropped, **result.proof.counts()})
    return VocabPruneResult(result, before, after, saved)


@contextmanager
def _draft(output: VocabOutput, kind: str, config: dict[str, Any]) -> Iterator[artifact.Draft]:
    """Begin a result, unless the same one, from the same inputs, is there."""
    same: dict[str, Any] = {"config": config, "inputs": output.inputs}
    if not output.overwrite and output.inputs and artifact.find_finished(output.folder, kind, **same):
        raise AlreadyDone(f"{output.folder} is already complete: nothing to do.")
    with artifact.create(output.folder, kind, **same, overwrite=output.overwrite) as draft:
        yield draft


def _has_weights(folder: Path) -> bool:
    return folder.is_dir() and any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin"))


def _expect_positive(name: str, value: int) -> None:
    if value < 1:
        raise BadSetting(f"`{name}` is {value}; a whole number from 1 up was expected.")


def _frequent_in_entities(census: WordCounts, size: int, min_count: int) -> list[str]:
    counts = census.mention_words()
    words = [word for word, count in counts.items() if count >= min_count and word.isalpha()]
    return sorted(words, key=lambda word: (-counts[word], word))[: size // _MENTION_SHARE]


def _split_counts(samples: Iterable[TextSample], splitter: WordSplitter, every: int) -> tuple[WordCounts, WordCounts]:
    if every == 0:
        return count_corpus_words(samples, splitter), WordCounts({})
    if every < 2:
        raise BadSetting(f"`held_out` is {every}; use 2 or more (every n-th document), or 0 for none.")
    return count_corpus_words_split(samples, splitter, every)


def _measure_extension(
    before: Tokenizer, extension: Extension, census: WordCounts, held_out: WordCounts
) -> VocabExtendResult:
    return VocabExtendResult(
        extension=extension,
        before=build_tokenizer_report(before, held_out) if held_out.words else None,
        after=build_tokenizer_report(extension.tokenizer, held_out) if held_out.words else None,
        mentions=sum(sum(counts.values()) for counts in census.mentions.values()),
        several_words=census.several_words(),
    )


def _write_extended(draft: artifact.Draft, subject: TokenizerWithModel, done: VocabExtendResult) -> None:
    extension = done.extension
    if subject.checkpoint is None:
        extension.tokenizer.save(draft.path)
    else:
        from alembert.files.surgery import with_added_pieces

        with_added_pieces(subject.checkpoint, extension.tokenizer, extension.sources).write(draft)
    numbers = _counts(done)
    _write_report(draft, {"counts": numbers, **describe_extension(done)})
    draft.counts.update({"pieces": extension.tokenizer.vocab_size, **numbers})


def _counts(done: VocabExtendResult) -> dict[str, int]:
    extension = done.extension
    return {
        "terms": len(extension.terms),
        "terms_forced": extension.forced,
        **_held_out_counts(done),
        "mentions": done.mentions,
        "mentions_of_several_words": done.several_words,
        **extension.proof.counts(),
    }


def describe_extension(done: VocabExtendResult) -> dict[str, Any]:
    """Return the terms, the proof and the fit before and after as plain values."""
    return {
        "terms": [asdict(term) for term in done.extension.terms],
        "proof": done.extension.proof.to_table(),
        "before": done.before and done.before.as_json(),
        "after": done.after and done.after.as_json(),
    }


def _held_out_counts(done: VocabExtendResult) -> dict[str, int]:
    if done.before is None or done.after is None:
        return {}
    return {
        "held_out_words": done.before.words,
        "held_out_pieces_before": done.before.pieces,
        "held_out_pieces_after": done.after.pieces,
        "held_out_mentions": done.before.mentions,
        "held_out_mentions_split_before": done.before.split_mentions,
        "held_out_mentions_split_after": done.after.split_mentions,
    }


def _write_report(draft: artifact.Draft, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    (draft.path / REPORT_FILE).write_text(text, encoding="utf8")
