"""Detect the encoding of a file: UTF-8 first, the others only on evidence, and never a silent guess.

In: the first megabyte of a file. Out: the name of a codec. A byte order mark decides. A file with at least as many good
multi-byte sequences as broken ones is UTF-8 (the broken lines are set aside one by one later), and so is one whose only
fault are surrogates written as UTF-8 (which become U+FFFD). It is GB18030 if nearly all double bytes are in the GB2312
range, everyday characters of written Chinese are among them and Japanese kana are not (EUC-JP and EUC-KR share that
range). It is Windows-1252 (which includes Latin-1) if the few bytes above ASCII are the accented letters and signs of
western languages and almost none of them are good UTF-8. Everything else is an error that names the option to set.
"""

from __future__ import annotations

import codecs
import re

from alembert.corpus.readers.contract import DamagedFile
from alembert.errors import BadSetting

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
ENCODING_HINT = (
    "name its encoding with --set read.encoding=NAME, or as `encoding` under [read] in the file of --config (in Python: "
    "ReadOptions(encoding=...))"
)
# Codecs for domain names and for escapes in source code, which are no encodings of files; some give surrogates.
_NOT_FOR_FILES = {"idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "utf-7"}
_COMMON_CHINESE = frozenset(
    "的一是不了在人有我他这中大来上个国和地到说们为子时要就出会可也你对生能而着下过自后去发行多作分患者病治疗疗药医"
    "症痛用以及其与或者于所方如没么样月天小心现成无本法日好很还之吗呢，。、：；？！（）"
)
_WESTERN_LETTERS = frozenset(
    "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝŒœŠšŽž‘’“”‚„–—…•°±²³¹µ·×÷§«»®©™¼½¾€£\xa0¿¡ªº"
)


def resolve_encoding(name: str) -> str:
    """Return the codec's own name; raise if it is no encoding of text files."""
    try:
        codec = codecs.lookup(name)
        "a\n".encode(name)  # only codecs of text do this
    except (LookupError, ValueError):
        raise _make_unknown_error(name) from None
    if codec.name in _NOT_FOR_FILES or codec.incrementaldecoder is None:
        raise _make_unknown_error(name)
    # Byte order marks are dropped from all UTF-8.
    return "utf-8" if codec.name == "utf-8-sig" else codec.name


def _make_unknown_error(name: str) -> BadSetting:
    return BadSetting(
        f"`encoding` is {name!r}, which is not an encoding of text files that Python knows. "
        "Use a name such as utf-8, gb18030 or cp1252."
    )


def detect_encoding(head: bytes, whole: bool) -> str:
    """Detect the encoding of a file from its first bytes, or raise `DamagedFile` without good evidence."""
    for mark, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return name
    head = SURROGATE.sub(b"", head)
    good, broken = _sequences(head, whole)
    if good >= broken:
        return "utf-8"
    if b"\0" in head:
        raise DamagedFile(f"this is not text: it holds zero bytes. If it is text all the same, {ENCODING_HINT}")
    if _is_gb18030(head):
        return "gb18030"
    if good <= 0.05 * broken and _is_western(head):
        return "cp1252"
    raise DamagedFile(
        f"the text is not UTF-8 and may be GB18030 or Windows-1252, which is uncertain. If you know it, {ENCODING_HINT}"
    )


def _sequences(head: bytes, whole: bool) -> tuple[int, int]:
    """Count the multi-byte sequences that are valid UTF-8, and those that are not."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head, final=whole)
    replaced = text.count("�")
    broken = replaced - head.count("�".encode())
    return len(re.findall(r"[^\x00-\x7f]", text)) - broken, broken


def _is_gb18030(head: bytes) -> bool:
    text = _decoded(head, "gb18030")
    high = re.findall(r"[^\x00-\x7f]", text or "")
    if not high:
        return False
    in_gb2312 = sum(_is_gb2312(character) for character in high)
    kana = sum("\u3040" <= character <= "\u30ff" for character in high)
    everyday = sum(character in _COMMON_CHINESE for character in high)
    return in_gb2312 >= 0.95 * len(high) and kana <= 0.02 * len(high) and everyday >= 0.1 * len(high)


def _is_gb2312(character: str) -> bool:
    try:
        return len(character.encode("gb2312")) == 2
    except UnicodeEncodeError:
        return False


def _is_western(head: bytes) -> bool:
    text = _decoded(head, "cp1252")
    if text is None:
        return False
    high = re.findall(r"[^\x00-\x7f]", text)
    letters = sum(character.isalpha() for character in text)
    usual = sum(character in _WESTERN_LETTERS for character in high)
    return usual >= 0.97 * len(high) and len(high) <= 0.2 * max(letters, 1)


def _decoded(head: bytes, name: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(head, final=False)
    except UnicodeDecodeError:
        return None
