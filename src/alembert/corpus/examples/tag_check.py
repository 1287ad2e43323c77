"""Report malformed tags of CoNLL files, each with its line, which readers accept.

Readers decode all dialects by one lenient rule, so an I- without its B- is an entity all the same. Here a file is
checked against its own dialect, detected from its first 256 kB: in IOB2 each entity begins with B, in BIOES and BILOU
it also has an end. In IOB1 and IO only the prefixes can be checked. One line is held at a time, so files may be of any
size.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from alembert.corpus.readers import sniff_format
from alembert.corpus.readers.conll import (
    TAG_PATTERN,
    ConllLayout,
    detect_conll_layout,
    detect_layout_from_head,
    detect_tag_dialect,
    is_comment_or_docstart,
    is_docstart,
)
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile, SourceLine

_DIALECT_SAMPLE_BYTES = 1 << 18
_PREFIXES: Final = {"BIOES": "BIESMW", "BILOU": "BILU"}
_PREFIX_ALIASES: Final = {"M": "I", "L": "E", "U": "S", "W": "S"}
_MAX_STRAY_SHARE = 0.02
"""Prefixes that end entities are mistakes in an IOB file if their share of the tags of entities is smaller."""
_LOOKS_LIKE_A_TAG = re.compile(r"([A-Za-z])[-_]\S")


@dataclass(frozen=True, slots=True)
class TagProblem:
    """A line whose tag breaks the rules of the file's dialect."""

    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class _ParsedTag:
    """A tag as one of four prefixes (empty outside of entities), or why it is none."""

    prefix: str
    label: str
    shown: str
    wrong: str = ""


_BORDER: Final = _ParsedTag("", "", "a sentence border")


def check_tags(path: Path, options: ReadOptions) -> Iterator[TagProblem]:
    """Yield the problems of a CoNLL file in the order of its lines; a file that is not CoNLL has one, on line 1."""
    source = SourceFile(path, options)
    try:
        yield from _problems(source)
    except DamagedFile as damage:
        line = source.position.removeprefix("line ")
        yield TagProblem(source.name, int(line) if line.isdecimal() else 1, str(damage))
    finally:
        source.close()


def check_tag_files(paths: Iterable[Path], options: ReadOptions) -> Iterator[TagProblem]:
    """Check those of the files that are CoNLL."""
    for path in paths:
        if _is_conll(path, options):
            yield from check_tags(path, options)


def _is_conll(path: Path, options: ReadOptions) -> bool:
    source = SourceFile(path, options)
    try:
        return sniff_format(source) == "conll"
    except DamagedFile:
        return False
    finally:
        source.close()


def _problems(source: SourceFile) -> Iterator[TagProblem]:
    layout, _ = detect_conll_layout(source)
    rules = _DialectRules("token labels" if layout.width else _dialect(source))
    before, line_before = _BORDER, 0
    for line in itertools.chain(source.lines(), [SourceLine(0, "")]):
        if isinstance(line, SetAside):
            tag, number = _wrong(line.reason), int(line.position.removeprefix("line "))
        else:
            tag, number = _read(line.text, layout, rules), line.number
        if tag.wrong:
            yield TagProblem(source.name, number, tag.wrong)
        elif tag.prefix in ("I", "E") and not rules.can_go_on(before, tag):
            reason = f"{tag.shown} follows {before.shown}, not an open entity of its label"
            yield TagProblem(source.name, number, reason)
        elif tag.prefix not in ("I", "E") and not rules.can_end(before):
            reason = f"{before.shown} is followed by {tag.shown}, so its entity is not ended"
            yield TagProblem(source.name, line_before, reason)
        before, line_before = tag, number


def _dialect(source: SourceFile) -> str:
    """Detect the dialect from most of the tags: one stray E does not make a file BIOES."""
    _, tags = detect_layout_from_head(source.head(_DIALECT_SAMPLE_BYTES).decode(source.encoding(), errors="replace"))
    inside = [tag for tag in tags if TAG_PATTERN.fullmatch(tag) and tag != "O"]
    ending = {tag for tag in inside if tag[0] not in "BI"}
    if sum(tag in ending for tag in inside) < _MAX_STRAY_SHARE * len(inside):
        return detect_tag_dialect([tag for tag in tags if tag not in ending])
    return detect_tag_dialect(tags)


def _read(line: str, layout: ConllLayout, rules: _DialectRules) -> _ParsedTag:
    """Parse the tag of a line; a line between sentences, or with a valid token label, is a border."""
    columns = layout.columns(line)
    if is_docstart(line):
        return _BORDER
    if layout.fits(columns):
        return _BORDER if layout.width else _tag(columns[layout.tag], rules)
    if is_comment_or_docstart(line) or not line.strip():
        return _BORDER
    if layout.width and len(columns) != layout.width:
        return _wrong(f"the line has {len(columns)} column(s) where most have {layout.width}")
    if len(columns) <= layout.tag or not columns[layout.tag]:
        return _wrong(f"the line has no tag in column {layout.tag + 1}")
    return _tag(columns[layout.tag], rules) if columns[layout.token] else _wrong("the line has no token")


@dataclass(frozen=True, slots=True)
class _DialectRules:
    """The rules of a dialect; anything may follow a malformed line."""

    dialect: str

    @property
    def prefixes(self) -> str:
        return _PREFIXES.get(self.dialect, "BI")

    def can_go_on(self, before: _ParsedTag, tag: _ParsedTag) -> bool:
        """Whether an I or E may follow a tag."""
        if before.wrong or self.dialect not in ("IOB2", *_PREFIXES):
            return True
        return before.prefix in ("B", "I") and before.label == tag.label

    def can_end(self, before: _ParsedTag) -> bool:
        """Whether an entity may end after a tag."""
        return before.prefix not in ("B", "I") or self.dialect not in _PREFIXES


@lru_cache(maxsize=4096)
def _tag(value: str, rules: _DialectRules) -> _ParsedTag:
    match = TAG_PATTERN.fullmatch(value)
    if match is None:
        # The value may be text of the document, which is not quoted.
        like = _LOOKS_LIKE_A_TAG.match(value)
        what = f"the tag has the unknown prefix {like[1]}" if like else "what stands for a tag is none"
        return _wrong(f"{what}; expected O, or one of {', '.join(rules.prefixes)} with a label")
    prefix = match[1] or ""
    if prefix and prefix not in rules.prefixes:
        return _wrong(f"the prefix of {value} is not one of {rules.dialect} ({', '.join(rules.prefixes)})")
    return _ParsedTag(_PREFIX_ALIASES.get(prefix, prefix), match[2] or "", value)


def _wrong(reason: str) -> _ParsedTag:
    return _ParsedTag("", "", "", reason)
