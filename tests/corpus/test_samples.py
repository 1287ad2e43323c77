"""What the vocabulary verbs read: plain files and lexicons, in order, with what was set aside counted."""

import json
from pathlib import Path

import pytest

from alembert import artifact
from alembert.corpus.document import Document
from alembert.corpus.excerpt import TextSampleReader
from alembert.corpus.store import CorpusDocument, CorpusEntity, to_bytes, to_table
from alembert.errors import BadFile
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon
from alembert.text.word_counts import TextSample

GENES = Gazetteer.from_lexicons([Lexicon("gene", [("BRAF", "1"), ("IL-6", "2")])])


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    entity = {"id": "T1", "label": "drug", "spans": [[0, 11]]}
    old = {"id": "T2", "label": "gene", "spans": [[21, 25]]}
    records = [
        {"id": "1", "text": "Vemurafenib inhibits BRAF.", "entities": [entity, old]},
        {"id": "2", "text": "Serum IL-6 fell."},
        {"id": "3"},
    ]
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_entities_of_the_input_are_mentions(lines: Path) -> None:
    samples = TextSampleReader.open([lines])
    assert [sample.mentions for sample in samples] == [(("drug", "Vemurafenib"), ("gene", "BRAF")), ()]
    assert samples.set_aside == 1


def test_a_lexicon_replaces_entities_of_its_label_only(lines: Path) -> None:
    found = [sample.mentions for sample in TextSampleReader.open([lines], GENES)]
    assert found == [(("drug", "Vemurafenib"), ("gene", "BRAF")), (("gene", "IL-6"),)]


def test_going_through_twice_gives_the_same(lines: Path) -> None:
    samples = TextSampleReader.open([lines, lines], GENES)
    assert list(samples) == list(samples)
    assert samples.set_aside == 2


def test_a_corpus_gives_its_entities(tmp_path: Path) -> None:
    entry = CorpusDocument(Document("1", "BRAF"), "notes", "en", entities=(CorpusEntity(0, 4, "gene"),))
    with artifact.create(tmp_path / "corpus", "Corpus", config={}) as draft:
        (draft.path / "parts").mkdir()
        (draft.path / "parts/part-00000.parquet").write_bytes(to_bytes(to_table([entry])))
    assert list(TextSampleReader.open([tmp_path / "corpus"])) == [TextSample("BRAF", (("gene", "BRAF"),))]


def test_what_is_not_there_or_no_corpus_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="There is no corpus"):
        TextSampleReader.open([tmp_path / "nowhere"])
    with artifact.create(tmp_path / "tokenizer", "Tokenizer", config={}):
        pass
    with pytest.raises(BadFile, match="is a Tokenizer, and a Corpus was expected"):
        TextSampleReader.open([tmp_path / "tokenizer"])
