"""Vocabulary: order, look-up, and a vocab.txt that is taken exactly or refused with its line."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadFile, BadInput
from alembert.text import vocabulary as module
from alembert.text.vocabulary import Vocabulary

PIECES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1)


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(BadFile) as caught:
        Vocabulary.open(path)
    return str(caught.value)


def test_the_position_is_the_id() -> None:
    assert Vocabulary.from_pieces("b", "a").id_of("a") == 1


def test_an_absent_piece_is_refused() -> None:
    with pytest.raises(BadInput, match="not among the 2 pieces"):
        Vocabulary.from_pieces("b", "a").id_of("c")


def test_a_piece_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="repeats"):
        Vocabulary.from_pieces("a", "b", "a")


@given(pieces=st.lists(PIECES, min_size=1, unique=True))
def test_save_and_open_keep_every_piece(pieces: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    Vocabulary.from_pieces(*pieces).save(path)
    assert Vocabulary.open(path).pieces == tuple(pieces)


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"a\r\nb\r\n")
    assert Vocabulary.open(path).pieces == ("a", "b")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a\nb\na\n", r"line 3 repeats the piece 'a'"),
        (b"a\n\nb\n", r"line 2 is empty"),
        (b"a\nb\xff\n", r"line 2 is not UTF-8 \(byte 0xff\)"),
        ("a\nb".encode("utf-16"), r"line 1 is not UTF-8"),
        (b"\xef\xbb\xbfa\n", r"line 1 begins with a byte-order mark"),
        (b"a\nb\rc\n", r"line 2 holds a line break"),
        (b"", r"is empty"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, content: bytes, sentence: str) -> None:
    assert re.search(sentence, refused(tmp_path / "vocab.txt", content))


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 3)
    assert "4 bytes" in refused(tmp_path / "vocab.txt", b"a\nb\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"absent\.txt is not a file"):
        Vocabulary.open(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("piece", "cased"), [("braf", False), ("BRAF", True), ("##Raf", True), ("<S>", False), ("咳", False)]
)
def test_case_is_told_from_pieces_of_letters(piece: str, cased: bool) -> None:
    assert Vocabulary.from_pieces("[CLS]", "[unused1]", piece).is_cased() is cased
