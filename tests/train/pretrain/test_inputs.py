"""What a run is made of: found, made once and found again, or refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from alembert import sample
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import open as open_checkpoint
from alembert.train.pretrain.inputs import PretrainStart, prepare_inputs
from alembert.train.pretrain.settings import ObjectiveWeights, PretrainSettings, SequenceSettings
from alembert.train.run import RunContext

SETTINGS = PretrainSettings(steps=1, segmenter="characters")
ONE_WORKER = RunContext(workers=1)


@pytest.fixture(scope="module")
def cache(home: Path) -> Path:
    return home / "cache"


@pytest.fixture(scope="module")
def start(home: Path) -> PretrainStart:
    return PretrainStart(size="tiny", tokenizer=home / "vocab")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model": "a", "tokenizer": Path("b")}, "A model brings its own tokenizer and size"),
        ({"model": "a", "size": "tiny"}, "Give either a model to adapt, or a size and a tokenizer"),
        ({}, "Say what to start from"),
        ({"tokenizer": Path("b")}, "the size of a new one"),
    ],
)
def test_a_start_that_says_too_much_or_too_little_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        PretrainStart(**given)


def test_files_are_inputs_and_hub_models_are_not(tmp_path: Path) -> None:
    assert PretrainStart(model=str(tmp_path)).files == [tmp_path]
    assert PretrainStart(size="tiny", tokenizer=Path("vocab")).files == [Path("vocab")]
    assert PretrainStart(model="hub:some/name").files == []
    assert PretrainStart(model="hub:some/name").hub == "hub:some/name"
    assert PretrainStart(model=str(tmp_path)).hub is None


def test_a_new_model_fits_its_vocabulary_and_its_objectives(home: Path, start: PretrainStart, cache: Path) -> None:
    weights = ObjectiveWeights(masked_lm=1.0, next_sentence=1.0, boundaries=0.1)
    found = prepare_inputs([home / "corpus"], start, replace(SETTINGS, objectives=weights), ONE_WORKER, cache)
    assert found.checkpoint.blueprint.config.vocab_size == found.tokenizer.vocab_size
    assert set(found.checkpoint.blueprint.heads) == set(found.fresh) == set(weights.chosen())


def test_a_new_model_is_long_enough_for_its_sequences(home: Path, start: PretrainStart, cache: Path) -> None:
    settings = replace(SETTINGS, sequences=SequenceSettings(max_length=128, long_length=600))
    found = prepare_inputs([home / "corpus"], start, settings, ONE_WORKER, cache)
    assert found.checkpoint.blueprint.config.max_position_embeddings == 600


@pytest.mark.parametrize(
    ("weights", "attention"),
    [
        (ObjectiveWeights(), "bidirectional"),
        (ObjectiveWeights(masked_lm=0.5, causal=1.0), "causal"),
        (ObjectiveWeights(masked_lm=1.0, causal=0.5), "bidirectional"),
    ],
)
def test_a_model_attends_as_its_heaviest_objective_does(
    home: Path, start: PretrainStart, cache: Path, weights: ObjectiveWeights, attention: str
) -> None:
    found = prepare_inputs([home / "corpus"], start, replace(SETTINGS, objectives=weights), ONE_WORKER, cache)
    assert found.checkpoint.blueprint.config.attention == attention


def test_only_heads_that_a_model_lacks_are_fresh(home: Path, start: PretrainStart, cache: Path, tmp_path: Path) -> None:
    prepare_inputs([home / "corpus"], start, SETTINGS, ONE_WORKER, cache).checkpoint.save(tmp_path / "model")
    settings = replace(SETTINGS, objectives=ObjectiveWeights(masked_lm=1.0, boundaries=1.0))
    found = prepare_inputs([home / "corpus"], PretrainStart(model=str(tmp_path / "model")), settings, ONE_WORKER, cache)
    assert found.fresh == ("boundaries",)
    kept = open_checkpoint(tmp_path / "model").model.state_dict()
    now = found.checkpoint.model.state_dict()
    assert all(bool((now[name] == weight).all()) for name, weight in kept.items())


def test_what_was_made_on_the_way_is_found_again(tmp_path: Path) -> None:
    texts = [passage.text for passage in sample.load_passages("en")][:12]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "raw.jsonl").write_text(lines)
    cache = tmp_path / "cache"
    stamps = []
    for _ in range(2):
        found = prepare_inputs([tmp_path / "raw.jsonl"], PretrainStart(size="tiny"), SETTINGS, ONE_WORKER, cache)
        files = (tmp_path / "cache").rglob("manifest.json")
        stamps.append({path: path.stat().st_mtime_ns for path in files})
    assert stamps[0] == stamps[1]
    assert len(stamps[0]) == 3  # corpus, vocabulary and shards
    assert found.corpus.counts["documents"] == len(texts)


def test_a_corpus_without_tokens_is_refused(start: PretrainStart, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text('{"text": "\\u200b"}\n')
    with pytest.raises(BadFile, match="No document of the corpus has a token"):
        prepare_inputs([tmp_path / "empty.jsonl"], start, SETTINGS, ONE_WORKER, tmp_path / "cache")
