"""Cut the records out of a large XML file, and parse each alone.

In: bytes in blocks. Out: the bytes of each ``<tag>...</tag>`` of the given names, or the parsed element. Records are
cut by searching for the tags, not by parsing the file: it is several times faster than an event parser, a bad record
spoils only itself, and the parser never sees what the prolog declares, so that entity bombs and external entities are
impossible. The price: the tags must not nest and must not occur inside comments or CDATA, which holds for MEDLINE, BioC
and JATS files; a record for which it fails does not parse and is set aside.

References to named characters (``&alpha;``) become characters if HTML has the name; any other entity is an error.
"""

from __future__ import annotations

import codecs
import html.entities
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from lxml import etree

from alembert.corpus.readers.contract import DamagedFile, SetAside
from alembert.corpus.readers.encoding import ENCODING_HINT, resolve_encoding
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput, BadSetting

_DECLARED_ENCODING = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_NAMESPACE = re.compile(rb"\sxmlns:[\w.-]+\s*=\s*(?:\"[^\"<]*\"|'[^'<]*')")
_DEFAULT_NAMESPACE = re.compile(rb"\sxmlns\s*=\s*(?:\"[^\"<]*\"|'[^'<]*')")
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_PREFIX = re.compile(rb"[<\s]([A-Za-z_][\w.-]*):[A-Za-z_]")
_LONGEST_TAG = 100
_XML_NAMES = {b"amp", b"lt", b"gt", b"quot", b"apos"}


_SAFE_PARSER_OPTIONS = {
    "resolve_entities": False,
    "no_network": True,
    "huge_tree": False,
    "load_dtd": False,
    "collect_ids": False,
}


class RawXmlRecord(NamedTuple):
    """The bytes of one record and its tag."""

    tag: str
    content: bytes


class XmlRecordReader:
    """Reads the records of one XML source, with the namespaces and the encoding of its prolog."""

    def __init__(self, source: SourceFile, *tags: str) -> None:
        self.source = source
        names = "|".join(map(re.escape, tags)).encode()
        self._start = re.compile(rb"<(" + names + rb")(?=[\s>/])")
        self._wide = source.head(4).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        head = source.head()
        prolog = _prolog(head.decode("utf-16", "replace").encode() if self._wide else head, self._start)
        self._namespaces = b"".join(dict.fromkeys(_NAMESPACE.findall(prolog)))
        encoding = "utf-8" if self._wide else _encoding(source, prolog)
        # Any codec whose tags are ASCII may be cut as if it were Latin-1; only UTF-8 is repaired on the way.
        self._cut_as = "utf-16" if self._wide else "utf-8" if encoding == "utf-8" else "latin-1"
        self._parser = etree.XMLParser(encoding=encoding, **_SAFE_PARSER_OPTIONS)

    def iter_records(self) -> Iterator[RawXmlRecord | SetAside]:
        """Yield the bytes of each record; one that is too long, or cut off by the end of the file, is set aside."""
        held, number, overlong = b"", 0, b""
        for block in self.source.narrow_blocks(self._cut_as):
            held += block
            at = 0
            if overlong:
                at = held.find(overlong) + len(overlong)
                if at < len(overlong):
                    held = held[-_LONGEST_TAG:]
                    continue
                number, overlong = number + 1, b""
                yield self._too_long(number)
            while (match := self._start.search(held, at)) and (end := _find_end(held, match)) > 0:
                number, at = number + 1, end
                yield self._cut(match, end, number)
            held = held[match.start() if match else max(at, len(held) - _LONGEST_TAG) :]
            if match and len(held) > self.source.options.max_record:
                overlong, held = b"</" + match[1] + b">", held[-_LONGEST_TAG:]
        self.source.position = f"record {number + 1}"
        if overlong or self._start.search(held):
            yield self.source.set_aside("the file ends inside this record")
        elif number == 0:
            yield self.source.set_aside("the file holds no records of its format", position="file", kind="file")

    def _cut(self, match: re.Match[bytes], end: int, number: int) -> RawXmlRecord | SetAside:
        if end - match.start() > self.source.options.max_record:
            return self._too_long(number)
        self.source.position = f"record {number}"
        return RawXmlRecord(match[1].decode(), match.string[match.start() : end])

    def _too_long(self, number: int) -> SetAside:
        self.source.position = f"record {number}"
        return self.source.set_aside(f"the record is longer than max_record ({self.source.options.max_record} bytes)")

    def element(self, content: bytes) -> Any:
        """Parse the bytes of a record into an element without its default namespace."""
        first = content.find(b">") + 1
        if b"xmlns" in content[:first]:
            content = _DEFAULT_NAMESPACE.sub(b"", content[:first]) + content[first:]
        if b"&" in content:
            content = _ENTITY.sub(_character, content)
        try:
            return self._parse(content, self._namespaces)
        except (etree.XMLSyntaxError, IndexError) as error:
            if "Namespace prefix" not in _reason(error):
                raise BadInput(f"The record is not well-formed XML ({_reason(error)}).") from None
        return self._with_prefixes(content)

    def _parse(self, content: bytes, namespaces: bytes) -> Any:
        if not namespaces:
            return etree.fromstring(content, self._parser)
        return etree.fromstring(b"<r%s>%s</r>" % (namespaces, content), self._parser)[0]

    def _with_prefixes(self, content: bytes) -> Any:
        """Parse a record whose prefixes (``mml:``) only the DTD declares, which is not read."""
        prefixes = {*_PREFIX.findall(content)} - {b"xml", b"xmlns"}
        namespaces = b"".join(b' xmlns:%b="urn:%b"' % (prefix, prefix) for prefix in sorted(prefixes))
        try:
            return self._parse(content, namespaces)
        except etree.XMLSyntaxError as error:
            raise BadInput(f"The record is not well-formed XML ({_reason(error)}).") from None


def _prolog(head: bytes, start: re.Pattern[bytes]) -> bytes:
    match = start.search(head)
    return head[: match.start()] if match else head[:4096]


def _encoding(source: SourceFile, prolog: bytes) -> str:
    if source.options.encoding:
        return resolve_encoding(source.options.encoding)
    declared = _DECLARED_ENCODING.search(prolog)
    try:
        return resolve_encoding(declared[1].decode() if declared else "utf-8")
    except BadSetting:
        raise DamagedFile(f"the file declares an encoding that does not exist; {ENCODING_HINT}") from None


def _find_end(held: bytes, match: re.Match[bytes]) -> int:
    """Find the end of a record: that of its end tag, or of a self-closing start tag."""
    close = held.find(b">", match.end())
    if close > 0 and held[close - 1 : close] == b"/":
        return close + 1
    tag = b"</" + match[1] + b">"
    end = held.find(tag, match.end())
    return end + len(tag) if end >= 0 else -1


def _character(match: re.Match[bytes]) -> bytes:
    if match[1] in _XML_NAMES:
        return match[0]
    characters = html.entities.html5.get(match[1].decode() + ";")
    if characters is None:
        raise BadInput("The record refers to an entity that is not a named character; entities are not expanded.")
    return "".join(f"&#{ord(character)};" for character in characters).encode()


def _reason(error: Exception) -> str:
    """Return the kind of an error without what it quotes from the record."""
    return re.split(r":|, line \d", getattr(error, "msg", None) or "nothing in it")[0]


_SHORT = {
    "eng": "en", "chi": "zh", "zho": "zh", "ger": "de", "deu": "de", "fre": "fr", "fra": "fr", "spa": "es",
    "por": "pt", "ita": "it", "jpn": "ja", "kor": "ko", "rus": "ru", "dut": "nl", "nld": "nl", "pol": "pl",
    "hun": "hu", "cze": "cs", "ces": "cs", "dan": "da", "nor": "no", "swe": "sv", "fin": "fi", "tur": "tr",
    "ara": "ar", "heb": "he", "per": "fa", "fas": "fa", "gre": "el", "ell": "el", "ukr": "uk", "bul": "bg",
    "rum": "ro", "ron": "ro", "hrv": "hr", "srp": "sr", "slv": "sl", "slo": "sk", "slk": "sk", "lit": "lt",
    "lav": "lv", "est": "et", "vie": "vi", "tha": "th", "hin": "hi", "ind": "id", "cat": "ca", "ice": "is",
}  # fmt: skip


@lru_cache(maxsize=1024)
def to_two_letter_code(code: str | None) -> str | None:
    """Convert a code of ISO 639-2/B, as in MEDLINE, to two letters; "und" and "mul" become None, unknown ones stay.

    >>> to_two_letter_code("chi")
    'zh'
    """
    code = (code or "").strip().lower()
    if code in ("", "und", "mul"):
        return None
    return _SHORT.get(code, code.split("-")[0])
