"""alembert in a spaCy pipeline, with the real spaCy."""

from pathlib import Path
from typing import Any

import pytest

import alembert
from small_checkpoints import fine_tuned

spacy = pytest.importorskip("spacy", reason="spaCy (pip install 'alembert[spacy]') is not installed")
TEXTS = ["Imatinib inhibits BCR-ABL1 in leukemia.", "", "No fever was seen in the patients."]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spacy") / "ner"
    fine_tuned("tag", folder, folder.with_suffix(".jsonl"))
    return folder


def pipeline(**config: Any) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("alembert", config=config)
    return nlp


@pytest.mark.filterwarnings("ignore:.*end inside a token of spaCy:UserWarning")
def test_entities_become_spans_and_ents(tagger: Path) -> None:
    documents = list(pipeline(model=str(tagger)).pipe(TEXTS))
    expected = alembert.load(tagger).predict([TEXTS[0], TEXTS[2]])
    assert [doc.text for doc in documents] == TEXTS
    for doc, prediction in zip((documents[0], documents[2]), expected, strict=True):
        assert prediction.entities
        assert len(doc.spans["alembert"]) == len(prediction.entities)
        for span, entity in zip(doc.spans["alembert"], prediction.entities, strict=True):
            assert span.label_ == entity.label
            assert span.start_char <= entity.start < entity.end <= span.end_char
        assert doc.ents
        assert doc._.alembert.entities == prediction.entities
    assert not documents[1].ents


def test_labels_become_cats(tmp_path: Path) -> None:
    fine_tuned("classify", tmp_path / "topics", tmp_path / "topics.jsonl")
    doc = pipeline(model=str(tmp_path / "topics"))(TEXTS[0])
    assert sum(doc.cats.values()) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:.*end inside a token of spaCy:UserWarning")
def test_terms_can_be_added(tmp_path: Path) -> None:
    fine_tuned("tag, features", tmp_path / "ner", tmp_path / "ner.jsonl")
    (tmp_path / "terms.txt").write_text("leukemia\n")
    doc = pipeline(model=str(tmp_path / "ner"), lexicons={"disease": str(tmp_path / "terms.txt")})(TEXTS[0])
    expected = alembert.load(tmp_path / "ner", lexicons={"disease": tmp_path / "terms.txt"}).predict(TEXTS[0])
    assert doc._.alembert.entities == expected.entities


def test_a_component_without_a_model_is_refused() -> None:
    with pytest.raises(alembert.UserError, match="no model"):
        pipeline()
