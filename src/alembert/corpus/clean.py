"""Clean a document: normalise its text, remove boilerplate, decide whether to keep it.

In: a text and `CleanSettings`. Out: `CleanedText`, with the new text, the mapping between old and new offsets, what
each step did, and the reason if the document is dropped. Each step is a setting and is counted; nothing is lost
silently. Duplicates need all documents and are decided afterwards (`decide`).

Boilerplate is machine-made headings ("ABSTRACT.METHODS:" on a line of its own, and the "TITLE:" before a title),
copyright notices ("© 2020 Elsevier Ltd. All rights reserved."), and publishers' notes ("The pre-publication history for
this paper can be accessed here: ..."). The blank lines of a heading stay, so that sections remain separated.

`BuildSettings` are those of `corpus build`, the same in Python, in a TOML file (tables `[clean]` and `[read]`) and
in the manifest. Paths of lexicons and word lists are inputs, not settings: they are identified by their content, so a
corpus does not depend on where they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from alembert.corpus.readers import FORMATS, ReadOptions
from alembert.errors import BadSetting
from alembert.settings import as_table
from alembert.text.language import UNKNOWN_LANGUAGE, detect_language
from alembert.text.normalise import NormalisedText, UnicodeForm, normalise, remove_spans
from alembert.text.sentences import CJK, guess_language

_HEADING = re.compile(r"^(?:TITLE|ABSTRACT|BODY)(?:[.:][^\n]*)?:[ \t]*$\n?|^TITLE:[ \t]*", re.MULTILINE)
_COPYRIGHT_SIGNS = ("©", "(c) ", "opyright", "OPYRIGHT", "ights reserved", "ights Reserved")
_COPYRIGHT = re.compile(
    r"""(?:^|(?<=[.!?)\]”"])[ ]+|(?<=[.!?)\]”"]))          # a notice starts a line or follows a sentence
        (?:
          \(?PsycINFO[ ]Database[ ]Record[ ]\(c\)[ ][^\n]{0,80}?all[ ]rights[ ]reserved\)?\.?
        | (?:Copyright[ ,:]*)?(?:©|\(c\)|Copyright)[ ]*(?:Copyright[ ]*)?(?:\(c\)[ ]*)?
          (?:(?:19|20)\d\d\b(?![ ](?!by\b)(?-i:[a-z]))|The[ ]Authors?\b)[^\n]{0,200}
        | (?:This[ ]article[ ]is[ ]protected[ ]by[ ]copyright\.[ ]*)?All[ ]rights[ ]reserved\.?
        | This[ ]article[ ]is[ ]protected[ ]by[ ]copyright\.?
        )[ \t]*$""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_NOTE_SIGNS = ("pre-publication history", "upplementary material", "upplemental material")
_NOTE = re.compile(
    r"""^[ ]*(?:
          The[ ]pre-publication[ ]history[ ]for[ ]this[ ]paper[ ]can[ ]be[ ]accessed[ ]here:?[^\n]{0,120}
        | (?:Electronic[ ]supplementary[ ]material[ ]*)?The[ ]online[ ]version[ ]of[ ]this[ ]article[ ]\([^)\n]*\)
          [ ]contains[ ]supplementary[ ]material,?[ ]which[ ]is[ ]available[ ]to[ ]authori[sz]ed[ ]users\.?
        | (?:Supplementary|Supplemental)[ ]material[ ]is[ ]available[ ](?:for[ ]this[ ]article|online)\.?
        )[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)


def find_headings(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _HEADING.finditer(text))


def find_copyright_notices(text: str) -> Iterator[tuple[int, int]]:
    return _search_near_signs(_COPYRIGHT, _COPYRIGHT_SIGNS, text)


def find_publisher_notes(text: str) -> Iterator[tuple[int, int]]:
    return _search_near_signs(_NOTE, _NOTE_SIGNS, text)


def _search_near_signs(pattern: re.Pattern[str], signs: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """Try a slow pattern only on lines with one of its signs."""
    done = 0
    for position in sorted(position for sign in signs for position in _find_all(sign, text)):
        if position < done:
            continue
        start = text.rfind("\n", done, position) + 1 or done
        end = text.find("\n", position)
        done = len(text) if end < 0 else end
        match = pattern.search(text, start, done)
        if match:
            yield match.span()


def _find_all(sign: str, text: str) -> Iterator[int]:
    position = text.find(sign)
    while position >= 0:
        yield position
        position = text.find(sign, position + len(sign))


DropReason = Literal["too short", "wrong language", "exact duplicate", "near duplicate"]
_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


@dataclass(frozen=True, kw_only=True)
class CleanSettings:
    """Which cleaning steps run, and how strictly."""

    normalise: bool = True
    """Normalise spaces, line ends, control and zero-width characters, and compose accents."""
    form: UnicodeForm = "NFC"
    """Unicode form: NFC, or NFKC to replace ligatures, superscripts and full-width letters too."""
    collapse_spaces: bool = True
    """Collapse repeated spaces, as they remain where a formula was removed."""
    headings: bool = True
    """Remove machine-made headings such as "ABSTRACT.METHODS:"."""
    notices: bool = True
    """Remove copyright notices and publishers' notes."""
    min_characters: int = 20
    """Drop documents with fewer characters; Chinese and Japanese text is measured by `min_words` alone."""
    min_words: int = 4
    """Drop documents with fewer words; each Chinese character counts as one."""
    languages: tuple[str, ...] = ()
    """Keep only documents in these languages (en, zh, de, ...) or of unknown language; empty keeps all."""
    exact_duplicates: bool = True
    """Drop documents that repeat an earlier one, case and spacing aside."""
    near_duplicates: bool = True
    """Drop documents that nearly repeat an earlier one."""
    similarity: float = 0.8
    """Share of common five-word sequences from which two documents are near duplicates."""

    def __post_init__(self) -> None:
        if self.form not in ("NFC", "NFKC"):
            raise BadSetting(f"`form` is {self.form!r}, which is not a Unicode form that is offered. Use NFC or NFKC.")
        if not 0.5 <= self.similarity <= 1:
            raise BadSetting(f"`similarity` is {self.similarity}; near duplicates can be found from 0.5 to 1.")
        if self.min_characters < 0 or self.min_words < 0:
            raise BadSetting(
                "`min_characters` and `min_words` cannot be negative. Use 0 to keep documents of any length."
            )
        wrong = [code for code in self.languages if not re.fullmatch("[a-z]{2}", code)]
        if wrong:
            raise BadSetting(f"`languages` has {wrong[0]!r}; a language is a code of two small letters, such as en.")


@dataclass(frozen=True)
class CleanedText:
    """A cleaned text, and what was done to it."""

    text: str
    steps: tuple[NormalisedText, ...] = ()
    """The alignments of the steps that changed the text, in order."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each step changed something; steps that did nothing are absent."""
    language: str = UNKNOWN_LANGUAGE
    """Detected only if `languages` is set."""
    drop_reason: DropReason | None = None

    def to_clean(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the original text to the cleaned one; empty if it was removed."""
        for step in self.steps:
            start, end = step.to_plain(start, end)
        return start, end

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the cleaned text to the original."""
        for step in reversed(self.steps):
            start, end = step.to_original(start, end)
        return start, end


def clean(text: str, settings: CleanSettings, *, annotated: bool = False) -> CleanedText:
    """Run the steps that need one document alone; a document annotated by hand is never too short.

    >>> clean("TITLE: Aspirin in the treatment of gout", CleanSettings()).text
    'Aspirin in the treatment of gout'
    """
    steps: list[NormalisedText] = []
    counts: dict[str, int] = {}
    for name, step in _steps(settings):
        changed, count = step(text)
        if changed.text != text:
            steps.append(changed)
            counts[name] = count
            text = changed.text
    language = detect_language(text) if settings.languages else UNKNOWN_LANGUAGE
    short = not text.strip() if annotated else _is_short(text, settings)
    return CleanedText(text, tuple(steps), counts, language, _reason(short, language, settings))


_Step = Callable[[str], tuple[NormalisedText, int]]


def _steps(settings: CleanSettings) -> Iterator[tuple[str, _Step]]:
    if settings.normalise:
        collapse = settings.collapse_spaces
        yield "normalised", lambda text: (normalise(text, settings.form, collapse_spaces=collapse), 1)
    if settings.headings:
        yield "headings", lambda text: _remove(text, find_headings(text))
    if settings.notices:
        yield "copyright notices", lambda text: _remove(text, find_copyright_notices(text))
        yield "publisher notes", lambda text: _remove(text, find_publisher_notes(text))


def _remove(text: str, spans: Iterable[tuple[int, int]]) -> tuple[NormalisedText, int]:
    spans = list(spans)
    return remove_spans(text, spans), len(spans)


def _is_short(text: str, settings: CleanSettings) -> bool:
    """Compare with the minimum length; twelve Chinese characters say as much as forty letters, so only words count."""
    few = len(text.strip()) < settings.min_characters and guess_language(text) != "zh"
    return few or not _has_words(text, settings.min_words)


def _reason(short: bool, language: str, settings: CleanSettings) -> DropReason | None:
    if short:
        return "too short"
    if settings.languages and language not in (*settings.languages, UNKNOWN_LANGUAGE):
        return "wrong language"
    return None


def _has_words(text: str, count: int) -> bool:
    """Check for at least `count` words, without counting further."""
    words = _WORD.finditer(text)
    return all(next(words, None) is not None for _ in range(count))


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """How a corpus is built."""

    format: str | None = None
    """Format of all inputs; none: detected for each file."""
    part_characters: int = 4_000_000
    """Maximum characters of a part, which is the unit of work, of resuming and of memory."""
    part_documents: int = 20_000
    """Maximum documents of a part, including those that are dropped or set aside."""
    default_stop_words: bool = True
    """Ignore lexicon terms that are ordinary English words, units or abbreviations."""
    clean: CleanSettings = field(default_factory=CleanSettings)
    """The cleaning steps."""
    read: ReadOptions = field(default_factory=ReadOptions)
    """How files are read."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise BadSetting(f"`format` is {self.format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
        for name in ("part_characters", "part_documents"):
            if getattr(self, name) < 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; a part holds at least one.")

    def as_config(self) -> dict[str, Any]:
        """Return plain values for the manifest."""
        return as_table(self)


RAW_FILE_SETTINGS: Final = BuildSettings(
    clean=CleanSettings(
        headings=False,
        notices=False,
        min_characters=0,
        min_words=0,
        exact_duplicates=False,
        near_duplicates=False,
    )
)
"""For files that a user trains on directly: every document is kept as it is."""
