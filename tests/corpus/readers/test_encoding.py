"""Encodings are recognised on evidence or refused, never guessed."""

import io

import pytest

from alembert.corpus.document import Document
from alembert.corpus.readers import ReadOptions, Remark, SetAside, read
from alembert.corpus.readers.contract import DamagedFile
from alembert.corpus.readers.encoding import detect_encoding, resolve_encoding
from alembert.errors import BadSetting

CHINESE = "患者因反复咳嗽三天来医院就诊，没有发热，也没有胸痛。医生说这是上呼吸道感染，可以用药治疗。"
FRENCH = "Le patient a été traité pour une fièvre élevée à l’hôpital, où il a reçu 5 µg de médicament. "
GERMAN = "Die Übelkeit und die Schmerzen im Rücken ließen nach der Operation allmählich nach. "
JAPANESE = "患者は三日前から咳と発熱があり、病院を受診しました。"
KOREAN = "환자는 사흘 전부터 기침과 발열이 있어 병원을 방문하였습니다."
RUSSIAN = "Пациент поступил в больницу с жалобами на кашель и боль в груди."


@pytest.mark.parametrize("text", [CHINESE, FRENCH, GERMAN, JAPANESE, KOREAN, RUSSIAN, "plain"])
def test_utf8_is_utf8(text: str) -> None:
    assert detect_encoding(text.encode(), whole=True) == "utf-8"


def test_a_head_may_end_inside_a_character() -> None:
    assert detect_encoding(CHINESE.encode()[:-1], whole=False) == "utf-8"


@pytest.mark.parametrize("times", [1, 100])
def test_gb18030_is_recognised(times: int) -> None:
    assert detect_encoding((CHINESE * times).encode("gb18030"), whole=True) == "gb18030"


@pytest.mark.parametrize("text", [FRENCH, GERMAN])
def test_windows_1252_is_recognised(text: str) -> None:
    assert detect_encoding(text.encode("cp1252"), whole=True) == "cp1252"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(JAPANESE, "euc-jp"), (JAPANESE, "shift-jis"), (KOREAN, "euc-kr"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"),
     (CHINESE.replace("复", "復"), "big5hkscs")],
)  # fmt: skip
def test_others_are_refused_by_a_sentence_that_names_the_option(text: str, encoding: str) -> None:
    data = (text * 5).encode(encoding, errors="ignore")
    with pytest.raises(DamagedFile, match=r"read\.encoding"):
        detect_encoding(data, whole=True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(encoding: str) -> None:
    items = list(read(io.BytesIO(CHINESE.encode(encoding)), format="text"))
    assert isinstance(items[0], Document)
    assert items[0].text == CHINESE


def test_what_was_recognised_is_remarked() -> None:
    items = list(read(io.BytesIO(CHINESE.encode("gb18030")), format="text"))
    assert items[0] == Document("<stream>", CHINESE)
    assert items[1] == Remark("<stream>", "read as gb18030, which was recognised", 1)


def test_a_named_encoding_is_used() -> None:
    items = list(read(io.BytesIO(RUSSIAN.encode("cp1251")), ReadOptions(encoding="cp1251"), format="text"))
    assert items == [Document("<stream>", RUSSIAN)]


def test_an_unknown_encoding_is_a_wrong_setting() -> None:
    with pytest.raises(BadSetting, match="utf-99"):
        read(io.BytesIO(b"x"), ReadOptions(encoding="utf-99"))


def test_one_broken_line_is_set_aside_alone() -> None:
    lines = [f'{{"text": "été numéro {number}"}}'.encode() for number in range(30)]
    lines[7] = lines[7][:14] + b"\xff" + lines[7][14:]
    items = list(read(io.BytesIO(b"\n".join(lines)), format="jsonl"))
    aside = [item for item in items if isinstance(item, SetAside)]
    assert [item.position for item in aside] == ["line 8"]
    assert sum(isinstance(item, Document) for item in items) == 29


@pytest.mark.parametrize("bad", [b"\xff", b"\xe9 ", b"\x93x\x94"])
def test_utf8_with_a_few_bad_bytes_does_not_become_latin(bad: bytes) -> None:
    lines = ["Rechts die Größe,".encode(), "links das Öl und Käse".encode(), b"bad " + bad]
    items = list(read(io.BytesIO(b"\n\n".join(lines)), ReadOptions(documents="blank"), format="text"))
    assert [item.text for item in items if isinstance(item, Document)] == [line.decode() for line in lines[:2]]
    assert [item.position for item in items if isinstance(item, SetAside)] == ["line 5"]


def test_latin_with_some_good_utf8_is_refused() -> None:
    data = FRENCH.encode("cp1252") + "µg é".encode()
    with pytest.raises(DamagedFile, match=r"read\.encoding"):
        detect_encoding(data, whole=True)


def test_a_whole_document_set_aside_says_the_line() -> None:
    (item,) = read(io.BytesIO("é\nè\n".encode() + b"ab\xff"), format="text")
    assert isinstance(item, SetAside)
    assert "byte 3 of line 3" in item.reason


@pytest.mark.parametrize("before", [0, 1, (1 << 16) - 1, (1 << 16) - 2])
def test_surrogates_written_as_utf8_are_replaced_and_counted(before: int) -> None:
    data = b"a" * before + b"\xed\xa0\x80" + b"b"
    document, remark = read(io.BytesIO(data), format="text")
    assert document == Document("<stream>", "a" * before + "�b")
    assert remark == Remark("<stream>", "lone surrogates were replaced by U+FFFD", 1)


def test_bytes_like_surrogates_stay_in_other_encodings() -> None:
    text = "<?xml version='1.0' encoding='gb18030'?><collection><document><id>1</id><passage><offset>0</offset><text>{}</text></passage></document></collection>"
    words = b"\xed\xb5\xb5\xed".decode("gb18030")
    (item,) = read(io.BytesIO(text.format(words).encode("gb18030")))
    assert isinstance(item, Document)
    assert item.text == words


@pytest.mark.parametrize("name", ["text", "jsonl", "table", "conll"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_encodings_without_a_byte_order_mark_are_set_aside(name: str, encoding: str) -> None:
    data = '{"text": "a"}\n'.encode(f"{encoding}-le")
    (item,) = read(io.BytesIO(data), ReadOptions(encoding=encoding), format=name)
    assert isinstance(item, SetAside)
    assert item.kind == "file"


@pytest.mark.parametrize(
    "name", ["rot13", "base64", "hex", "zlib", "idna", "punycode", "undefined", "unicode_escape", "utf-7", "a\0b"]
)  # fmt: skip
def test_codecs_that_are_not_for_text_files_are_wrong_settings(name: str) -> None:
    with pytest.raises(BadSetting, match="encoding of text files"):
        resolve_encoding(name)


def test_an_encoding_whose_line_feed_is_another_byte_has_lines() -> None:
    items = list(
        read(io.BytesIO('{"text": "a"}\n{"text": "b"}'.encode("cp037")), ReadOptions(encoding="cp037"), "jsonl")
    )
    assert [item.text for item in items if isinstance(item, Document)] == ["a", "b"]
