"""Extending a real model by 2,700 terms of a real corpus: terms whole, all else bit-equal, transformers agrees."""

from itertools import islice
from pathlib import Path

import pytest
import torch
import transformers

import alembert
from alembert import artifact
from alembert.corpus.excerpt import TextSampleReader
from alembert.files import vocab
from alembert.files.vocab import VocabOutput
from alembert.nn.batch import Batch
from alembert.text.extend import ExtendSettings
from alembert.text.lexicon_cache import LexiconFile, open_lexicons
from alembert.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow
LEXICONS = {"gene": "gene", "disease": "disease", "chemical": "chemical_mesh", "drug": "drug"}
FILES = ("elife-00.jsonl.gz", "pubmed21n1298.xml.gz")


@pytest.fixture(scope="module")
def samples(shared: Path) -> TextSampleReader:
    files = [LexiconFile(label, shared / "lexicon" / f"{name}.tsv.gz") for label, name in LEXICONS.items()]
    return TextSampleReader.open([shared / "corpus" / name for name in FILES], open_lexicons(files).gazetteer)


@pytest.fixture(scope="module")
def lines(samples: TextSampleReader) -> list[str]:
    """20,000 sentences or so."""
    pieces = (line for sample in samples for line in sample.text.replace(". ", ".\n").splitlines() if line)
    return list(islice(pieces, 20_000))


@pytest.fixture(scope="module")
def extended(minilm: Path, samples: TextSampleReader, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "extended"
    vocab.extend(
        vocab.open_tokenizer_with_model(minilm), samples, VocabOutput(folder, [minilm]), ExtendSettings(terms=2700)
    )
    return folder


@pytest.mark.parametrize("word", ["BRAF", "imatinib", "interleukin"])
def test_terms_of_the_field_are_single_tokens(extended: Path, word: str) -> None:
    tokenizer = Tokenizer.open(extended)
    assert tokenizer.tokens(tokenizer.encode(word, add_special_tokens=False).ids) == [word.lower()]


def test_held_out_documents_need_fewer_pieces(extended: Path) -> None:
    counts = artifact.open_artifact(extended).counts
    assert counts["held_out_pieces_after"] < 0.98 * counts["held_out_pieces_before"]
    assert counts["held_out_mentions_split_after"] < 0.6 * counts["held_out_mentions_split_before"]


def test_few_other_words_change(extended: Path) -> None:
    counts = artifact.open_artifact(extended).counts
    assert counts["words_joined"] == 2700
    assert counts["words_changed"] < 0.05 * counts["words_checked"]
    assert counts["occurrences_changed"] < 0.005 * counts["occurrences_checked"]


def test_transformers_cuts_20000_lines_alike(extended: Path, lines: list[str]) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(extended, model_max_length=10**6)
    ours = Tokenizer.open(extended).encode_batch(lines)
    assert len(lines) == 20_000
    assert [list(encoding.ids) for encoding in ours] == theirs(lines)["input_ids"]


@torch.no_grad()
def test_text_without_new_terms_has_bit_equal_states(minilm: Path, extended: Path, lines: list[str]) -> None:
    old, new = alembert.open(minilm), alembert.open(extended)
    assert old.tokenizer is not None
    assert new.tokenizer is not None
    rows = [encoding.ids for encoding in new.tokenizer.encode_batch(lines[:2000])]
    plain = [row for row in rows if max(row) < old.tokenizer.vocab_size and len(row) <= 128][:256]
    assert len(plain) == 256
    batch = Batch.packed(plain)
    before, after = old.model(batch), new.model(batch)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_transformers_opens_the_model(extended: Path) -> None:
    assert transformers.AutoModel.from_pretrained(extended).config.vocab_size == 30_522 + 2700
