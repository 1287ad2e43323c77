"""What a pre-training run is made of: corpus, tokenizer, model and shards, opened or made, and checked.

In: what the user named. Out: `PretrainInputs`. Raw files become a Corpus and a missing tokenizer is learnt, both in a
cache folder, so that the same command finds them again. What cannot work is refused before anything long begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from alembert import artifact
from alembert.corpus.build import build as build_corpus
from alembert.corpus.clean import RAW_FILE_SETTINGS
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.inputs import check_objective_data, count_entities, expand_inputs, open_input_corpus
from alembert.corpus.shard_build import open_or_build_shards
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.corpus.shards import Shards
from alembert.corpus.store import Corpus
from alembert.data.feed import HeldOutSplit
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.files.surgery import find_fresh_heads, with_heads
from alembert.files.vocab import VocabOutput, learn
from alembert.hub import find_folder, is_hub_id
from alembert.nn.config import EncoderConfig, preset
from alembert.nn.heads import HeadSpec
from alembert.text.tokenizer import Tokenizer
from alembert.train.pretrain.replaced import choose_objectives, collect_tags
from alembert.train.pretrain.settings import PretrainSettings
from alembert.train.run import RunContext

DEFAULT_VOCAB_SIZE: Final = 8000
"""Size of a vocabulary that is learnt on the way, because none was given."""


@dataclass(frozen=True)
class PretrainStart:
    """What a run starts from: a checkpoint, or a size and a tokenizer (learnt if not given)."""

    model: str | None = None
    tokenizer: Path | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        if self.model is not None and (self.tokenizer is not None or self.size is not None):
            raise BadSetting(
                "A model brings its own tokenizer and size. Give either a model to adapt, or a size and a tokenizer "
                "to begin from nothing."
            )
        if self.model is None and self.size is None:
            raise BadSetting(
                "Say what to start from: a model to adapt (--model), or the size of a new one (--size mini)."
            )

    @property
    def files(self) -> list[Path]:
        """Files and folders that are inputs of the run."""
        local = [] if self.model is None or self.hub else [find_folder(self.model)]
        return local if self.tokenizer is None else [*local, self.tokenizer]

    @property
    def hub(self) -> str | None:
        """The model, if it comes from the Hugging Face hub."""
        return self.model if self.model is not None and is_hub_id(self.model) else None


@dataclass(frozen=True)
class PretrainInputs:
    """Everything that a run reads."""

    corpus: Corpus
    tokenizer: Tokenizer
    shards: Shards
    checkpoint: Checkpoint
    """The model with the heads of the objectives; those in `fresh` have new weights."""
    fresh: tuple[str, ...]
    general: Shards | None = None
    """Text of no domain, to see what is forgotten."""


def prepare_inputs(
    inputs: Sequence[Path],
    start: PretrainStart,
    settings: PretrainSettings,
    context: RunContext,
    cache: Path,
) -> PretrainInputs:
    """Open all that a run needs, or make it in the cache folder."""
    opened = None if start.model is None else _open_model(start.model)
    tokenizer = _open_tokenizer(start, opened)
    _check_length(_build_config(start, settings) if opened is None else opened.blueprint.config, settings)
    _check_shard(settings, context)
    corpus = open_corpus(inputs, context, cache)
    check_corpus(corpus, settings)
    if tokenizer is None:
        tokenizer = _train_tokenizer(corpus, context, cache)
    words = WordSettings(segmenter=settings.segmenter, dictionary=context.dictionary)
    make_shards = partial(
        open_or_build_shards,
        tokenizer=tokenizer,
        cache=cache,
        words=words,
        workers=context.workers,
        on_progress=context.on_reading,
    )
    shards = make_shards(corpus)
    check_split(shards, settings.evaluation.share, needed=2 if settings.objectives.next_sentence else 1)
    model = opened or _create_checkpoint(start, tokenizer, settings)
    checkpoint, fresh = _with_objective_heads(model, settings, tokenizer, shards)
    fresh = fresh if opened is not None else tuple(checkpoint.blueprint.heads)
    general = None
    if context.held_out_general is not None:
        general = make_shards(open_corpus(expand_inputs([context.held_out_general]), context, cache))
        if not len(general):
            raise BadFile(
                f"No document of {context.held_out_general} has a token. Name a file with general text as run.held_out_general."
            )
    return PretrainInputs(corpus, tokenizer, shards, checkpoint, fresh, general)


def open_corpus(inputs: Sequence[Path], context: RunContext, cache: Path) -> Corpus:
    """Open a Corpus folder, or make one of raw files."""
    if corpus := open_input_corpus(inputs):
        return corpus
    content = [artifact.hash_input(path) for path in inputs]
    # With the settings: another version may read files otherwise, and must not meet the cache of this one.
    key = artifact.hash_config({"inputs": content, "settings": asdict(RAW_FILE_SETTINGS)})[:12]
    folder = cache / f"corpus-{key}"
    context.log(f"Raw files: a corpus is made of them as they are, without cleaning ({folder}).")
    build_corpus(
        list(inputs), folder, settings=RAW_FILE_SETTINGS, workers=context.workers, on_progress=context.on_reading
    )
    return Corpus.open(folder)


def check_corpus(corpus: Corpus, settings: PretrainSettings) -> None:
    """Refuse objectives that the corpus has nothing for."""
    check_objective_data(
        corpus.folder,
        documents=corpus.counts["documents"],
        entities=count_entities(corpus),
        next_sentence=bool(settings.objectives.next_sentence),
        wants_entities=settings.masks.unit == "entity" or settings.objectives.needs_entities,
    )


def check_split(shards: Shards, share: float, *, needed: int = 1) -> None:
    """Refuse a corpus of which too little is left to train on."""
    if not len(shards):
        raise BadFile("No document of the corpus has a token, so there is nothing to train on. Check its text.")
    held_out = HeldOutSplit(shards, share).held_out_count
    if len(shards) - held_out < needed:
        raise BadSetting(
            f"Of the {len(shards)} document(s) of the corpus {held_out} are held out, and training needs at least "
            f"{needed}. Give more documents, or lower the `share` of [evaluation]; 0 holds nothing out."
        )


def _open_model(where: str) -> Checkpoint:
    checkpoint = open_checkpoint(where)
    checkpoint.require_tokenizer()
    return checkpoint


def _open_tokenizer(start: PretrainStart, opened: Checkpoint | None) -> Tokenizer | None:
    if opened is not None:
        return opened.tokenizer
    return None if start.tokenizer is None else Tokenizer.open(start.tokenizer)


def _train_tokenizer(corpus: Corpus, context: RunContext, cache: Path) -> Tokenizer:
    folder = cache / f"vocab-{artifact.hash_input(corpus.folder)[:12]}"
    if not (folder / artifact.MANIFEST).is_file():
        context.log(
            f"No tokenizer was given: a vocabulary of {DEFAULT_VOCAB_SIZE:,} pieces is learnt, or of as many as the text has "
            f"characters ({folder})."
        )
        samples = replace(TextSampleReader.open([corpus.folder]), on_progress=context.on_reading)
        learn(samples, VocabOutput(folder, [corpus.folder]), size=DEFAULT_VOCAB_SIZE, grow=True)
    return Tokenizer.open(folder)


def _create_checkpoint(start: PretrainStart, tokenizer: Tokenizer, settings: PretrainSettings) -> Checkpoint:
    config = _build_config(start, settings, tokenizer.vocab_size)
    return Checkpoint.new(Blueprint(config=config), tokenizer, seed=settings.seed)


def _build_config(start: PretrainStart, settings: PretrainSettings, pieces: int = DEFAULT_VOCAB_SIZE) -> EncoderConfig:
    assert start.size is not None
    longest = max(512, settings.sequences.max_length, settings.sequences.long_length or 0)
    return preset(start.size, vocab_size=pieces, max_position_embeddings=longest)


def _with_objective_heads(
    checkpoint: Checkpoint, settings: PretrainSettings, tokenizer: Tokenizer, shards: Shards
) -> tuple[Checkpoint, tuple[str, ...]]:
    """Add the heads that the objectives need, and the attention that it is trained with."""
    objectives = choose_objectives(settings, tokenizer, shards)
    tags = collect_tags(objectives)
    heads: dict[str, HeadSpec] = {objective.head: objective.spec for objective in objectives}
    heaviest = max(objectives, key=lambda objective: objective.weight)
    config = replace(checkpoint.blueprint.config, attention=heaviest.attention)
    checkpoint = _without_other_tags(checkpoint, tags)
    fresh = find_fresh_heads(checkpoint, heads)
    made = with_heads(checkpoint, heads, config=config, seed=settings.seed)
    return replace(made, blueprint=replace(made.blueprint, labels={**made.blueprint.labels, **tags})), fresh


def _without_other_tags(checkpoint: Checkpoint, tags: Mapping[str, tuple[str, ...]]) -> Checkpoint:
    """Drop heads whose outputs have other names: they would begin with the weights of other types."""
    old = checkpoint.blueprint
    kept = {
        name: spec for name, spec in old.heads.items() if old.labels.get(name) == tags.get(name, old.labels.get(name))
    }
    return checkpoint if kept == old.heads else with_heads(checkpoint, kept)


def _check_shard(settings: PretrainSettings, context: RunContext) -> None:
    if context.shard and settings.objectives.rtd:
        raise BadSetting(
            "The generator of rtd cannot be spread over processes. Do without run.shard, or use entity_swap, which needs no "
            "generator."
        )


def _check_length(config: EncoderConfig, settings: PretrainSettings) -> None:
    longest = max(settings.sequences.max_length, settings.sequences.long_length or 0)
    if config.position_embedding_type == "absolute" and longest > config.max_position_embeddings:
        raise BadSetting(
            f"Sequences of {longest} tokens are longer than the model's limit of {config.max_position_embeddings}. "
            "Use a shorter `max_length` and `long_length`."
        )
