"""CoNLL files with a label for each token, such as parts of speech."""

import io
from pathlib import Path

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import Item, ReadOptions, Remark, SetAside, read

SENTENCE = "High\tJJ\nfever\tNN\n.\t.\n"


def items_of(data: str, **options: object) -> list[Item]:
    given = ReadOptions(token_labels=True, **options)  # type: ignore[arg-type]
    return list(read(io.BytesIO(data.encode()), given, format="conll"))


def labels_in(data: str, **options: object) -> list[tuple[str, str]]:
    documents = [item for item in items_of(data, **options) if isinstance(item, Document)]
    return [(one.surface(document.text), one.label) for document in documents for one in document.entities]


def test_each_token_is_an_entity_with_its_label() -> None:
    assert labels_in(SENTENCE) == [("High", "JJ"), ("fever", "NN"), (".", ".")]


def test_tags_with_prefixes_are_labels_as_they_stand() -> None:
    assert labels_in("high\tB-NP\nfever\tI-NP\nis\tO\n") == [("high", "B-NP"), ("fever", "I-NP"), ("is", "O")]


def test_the_last_column_holds_the_labels_unless_another_is_named() -> None:
    data = "1\tFever\tfever\tNOUN\tNN\n2\trose\trise\tVERB\tVBD\n"
    assert labels_in(data, text=("2",)) == [("Fever", "NN"), ("rose", "VBD")]
    assert labels_in(data, text=("2",), label="4") == [("Fever", "NOUN"), ("rose", "VERB")]


def test_labels_may_stand_before_the_tokens() -> None:
    assert labels_in("JJ high\nNN fever\n", label="1") == [("high", "JJ"), ("fever", "NN")]


def test_characters_of_chinese_words_are_joined() -> None:
    documents = [item for item in items_of("头 n\n痛 n\n天 q\n") if isinstance(item, Document)]
    assert [document.text for document in documents] == ["头痛天"]


def test_comments_and_number_signs_are_told_apart() -> None:
    assert labels_in("# sentence 1\n# SYM\nfever NN\n") == [("#", "SYM"), ("fever", "NN")]


def test_a_sentence_with_another_number_of_columns_is_set_aside() -> None:
    items = items_of(SENTENCE + "\nodd\n\n" + SENTENCE)
    assert [item.position for item in items if isinstance(item, SetAside)] == ["line 5"]
    assert sum(isinstance(item, Document) for item in items) == 2


@pytest.mark.parametrize("label", ["9", "0", "pos"])
def test_a_column_that_is_not_there_is_a_sentence(label: str) -> None:
    (found,) = items_of(SENTENCE, label=label)
    assert isinstance(found, SetAside)
    assert f"no column {label}; the columns are 1 to 2" in found.reason


def test_what_was_read_is_remarked() -> None:
    remarks = [item.reason for item in items_of(SENTENCE) if isinstance(item, Remark)]
    assert remarks == ["read as token labels in column 2, separated by tabs"]


def test_asking_for_token_labels_is_enough_to_know_the_format(tmp_path: Path) -> None:
    path = tmp_path / "pos.txt"
    path.write_text(SENTENCE, encoding="utf-8")
    (document, _) = read(path, ReadOptions(token_labels=True))
    assert isinstance(document, Document)
    assert len(document.entities) == 3


def test_they_are_not_assumed_unless_asked_for() -> None:
    (found,) = read(io.BytesIO(SENTENCE.encode()), format="conll")
    assert isinstance(found, SetAside)
