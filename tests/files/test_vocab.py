"""The verbs that write: what is in the folder, what the manifest counts, and what is refused before long work."""

import json
from pathlib import Path

import pytest
import torch
import transformers

import alembert
from alembert import artifact, sample
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.files import vocab
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.files.vocab import TokenizerWithModel, VocabOutput
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.text.extend import ExtendSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.word_counts import TextSample

SAMPLES = [
    TextSample(p.text, tuple((e.label, p.text[e.start : e.end]) for e in p.entities)) for p in sample.load_passages()
]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab") / "learnt"
    vocab.learn(SAMPLES, VocabOutput(folder), size=1800, whole=["BRAF V600E"])
    return folder


@pytest.fixture(scope="module")
def model(learnt: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab") / "model"
    config = EncoderConfig(
        vocab_size=1800, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    blueprint = Blueprint(config=config, heads={"masked_lm": HeadSpec(kind="masked_lm", dropout=0.0)})
    Checkpoint.new(blueprint, Tokenizer.open(learnt)).save(folder)
    return folder


@pytest.fixture(scope="module")
def extended(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab") / "extended"
    vocab.extend(
        vocab.open_tokenizer_with_model(model), SAMPLES, VocabOutput(folder, [model]), ExtendSettings(terms=150)
    )
    return folder


def test_a_learnt_vocabulary_is_a_tokenizer_that_transformers_opens(learnt: Path) -> None:
    artifact.verify(learnt)
    assert artifact.open_artifact(learnt, vocab.TOKENIZER_KIND).counts["pieces"] == 1800
    ours, theirs = Tokenizer.open(learnt), transformers.AutoTokenizer.from_pretrained(learnt)
    texts = [each.text for each in SAMPLES]
    assert [list(e.ids) for e in ours.encode_batch(texts)] == theirs(texts)["input_ids"]
    assert {"braf", "v600e"} <= set(ours.vocabulary)


def test_learning_twice_gives_the_same_bytes(learnt: Path, tmp_path: Path) -> None:
    vocab.learn(SAMPLES, VocabOutput(tmp_path / "again"), size=1800, whole=["BRAF V600E"])
    for file in sorted(path.name for path in learnt.iterdir()):
        assert (tmp_path / "again" / file).read_bytes() == (learnt / file).read_bytes(), file


def test_cased_vocabularies_keep_case(tmp_path: Path) -> None:
    done = vocab.learn(SAMPLES, VocabOutput(tmp_path / "cased"), size=2500, lowercase=False)
    assert done.tokenizer.vocabulary.is_cased()
    assert not Tokenizer.open(tmp_path / "cased").lowercase


def test_an_extended_checkpoint_is_what_the_manifest_says(extended: Path) -> None:
    counts = artifact.verify(extended).counts
    proof = json.loads((extended / vocab.REPORT_FILE).read_text())["proof"]
    assert counts["terms"] == counts["words_joined"] == 150
    assert counts["words_checked"] == counts["words_unchanged"] + 150 + counts["words_changed"]
    assert (proof["changed"], proof["joined"]) == (counts["words_changed"], 150)
    assert counts["held_out_pieces_after"] < counts["held_out_pieces_before"]
    assert counts["held_out_mentions_split_after"] < counts["held_out_mentions_split_before"]
    assert 0 < counts["mentions_of_several_words"] < counts["mentions"]


@torch.no_grad()
def test_an_extended_checkpoint_keeps_what_it_knew(model: Path, extended: Path) -> None:
    old, new = alembert.open(model), alembert.open(extended)
    assert old.tokenizer is not None
    assert new.tokenizer is not None
    terms = set(new.tokenizer.vocabulary) - set(old.tokenizer.vocabulary)
    texts = [s.text for s in SAMPLES if not terms & set(new.tokenizer.tokens(new.tokenizer.encode(s.text).ids))]
    assert texts
    rows = [e.ids for e in old.tokenizer.encode_batch(texts)]
    assert rows == [e.ids for e in new.tokenizer.encode_batch(texts)]
    batch = Batch.packed(rows)
    assert torch.equal(old.model(batch)["hidden"], new.model(batch)["hidden"])


def test_transformers_cuts_text_as_the_extended_checkpoint_does(extended: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(extended)
    texts = [each.text for each in SAMPLES]
    ours = Tokenizer.open(extended).encode_batch(texts)
    assert [list(e.ids) for e in ours] == theirs(texts)["input_ids"]
    assert transformers.AutoModelForMaskedLM.from_pretrained(extended).config.vocab_size == 1950


def test_pruning_saves_rows_and_changes_no_word(model: Path, tmp_path: Path) -> None:
    half = SAMPLES[:50]
    done = vocab.prune(vocab.open_tokenizer_with_model(model), half, VocabOutput(tmp_path / "pruned", [model]))
    old, new = alembert.open(model), alembert.open(tmp_path / "pruned")
    assert done.pruning.proof.changed == 0
    assert done.pruning.dropped > 20
    assert done.parameters_before - done.parameters_after == done.pruning.dropped * 17
    assert done.bytes_saved == done.pruning.dropped * 17 * 4
    text = half[0].text
    states = [c.model(Batch.packed([c.tokenizer.encode(text).ids[:512]]))["hidden"] for c in (old, new)]
    assert torch.equal(*states)


def test_a_tokenizer_without_weights_is_extended_and_pruned_too(learnt: Path, tmp_path: Path) -> None:
    subject = vocab.open_tokenizer_with_model(learnt / "vocab.txt")
    assert subject.checkpoint is None
    vocab.extend(subject, SAMPLES, VocabOutput(tmp_path / "more"), ExtendSettings(terms=5))
    vocab.prune(subject, SAMPLES[:3], VocabOutput(tmp_path / "less"))
    assert Tokenizer.open(tmp_path / "more").vocab_size == 1805
    assert Tokenizer.open(tmp_path / "less").vocab_size < 1800


def test_a_model_without_a_tokenizer_is_refused(model: Path, tmp_path: Path) -> None:
    checkpoint = alembert.open(model)
    Checkpoint(model=checkpoint.model, blueprint=checkpoint.blueprint).save(tmp_path / "bare")
    with pytest.raises(BadFile, match="has no tokenizer"):
        vocab.open_tokenizer_with_model(tmp_path / "bare")


def test_a_corpus_without_entities_needs_a_lexicon_or_any_word(learnt: Path, tmp_path: Path) -> None:
    subject, texts = TokenizerWithModel(Tokenizer.open(learnt)), [TextSample(each.text) for each in SAMPLES]
    with pytest.raises(BadInput, match=r"no entities.*--lexicon.*--any-word"):
        vocab.extend(subject, texts, VocabOutput(tmp_path / "out"), ExtendSettings(terms=5))
    assert list(tmp_path.iterdir()) in ([], [tmp_path / ".out.lock"])
    vocab.extend(subject, texts, VocabOutput(tmp_path / "out"), ExtendSettings(terms=5, any_word=True))


@pytest.mark.parametrize("every", [-1, 1])
def test_a_bad_share_of_held_out_documents_is_refused(learnt: Path, tmp_path: Path, every: int) -> None:
    subject = TokenizerWithModel(Tokenizer.open(learnt))
    with pytest.raises(BadSetting, match="held_out"):
        vocab.extend(subject, SAMPLES, VocabOutput(tmp_path / "out"), ExtendSettings(terms=5), held_out_every=every)


def test_nothing_is_read_when_the_folder_is_taken(learnt: Path) -> None:
    def unread() -> object:
        raise AssertionError("the corpus was read")
        yield

    with pytest.raises(BadFile, match="complete Tokenizer already"):
        vocab.learn(unread(), VocabOutput(learnt), size=100)
