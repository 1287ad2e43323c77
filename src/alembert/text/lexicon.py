"""Lexicons: lists of terms of one kind, with the concept each stands for.

In: a table (`term, id, source, kind`, with or without a header; TSV, or CSV with commas or semicolons) or a plain list
(one term a line), gzipped or not. Out: the terms with their ids, and the rows that could not be used, each with its
line and the reason. A bad row is set aside alone; a file of which most rows are bad is probably no lexicon, and is an
error.

The linguistic rules are here too: the spellings of a term, and where its case matters.
"""

from __future__ import annotations

import csv
import gc
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from alembert.errors import BadFile, BadSetting
from alembert.text.wordhash import HYPHENS

MAX_TERM_LENGTH = 512
_LONGEST_ROW = 1 << 16
_LARGEST_FILE = 1 << 32
_BAD_ROWS_KEPT = 20
_WITHOUT_HYPHENS = str.maketrans("", "", HYPHENS)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufeff\ud800-\udfff]")
_INVERTED = re.compile(r"[^\W\d_][\w'’/ -]*(?:, [^\W\d_][\w'’/ -]*[^\W_]){1,3}")
_SYMBOL = re.compile(r"[A-Z0-9]")
_WORD = re.compile(r"[^\W_]")
_NAME = re.compile(r"[^\W\d_]{2}")
"""In the term of a row, but not in a position number such as that of "2,4-D"."""
_ID = re.compile(r"[\w.:/-]*\d[\w.:/-]*")
_LINES_LOOKED_AT = 200
_IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


# Where the case of letters matters in matching a term. Plain numbers: access to members of an Enum is slow.
CASE_FREE = 0
"""Nowhere: "Acute Abdomen" is also "acute abdomen" and "ACUTE ABDOMEN"."""
CASE_FIRST = 1
"""Everywhere but in the first letter: "Gout" is also "gout", and "All" is not "ALL"."""
CASE_EXACT = 2
"""Everywhere: "WAS" is not "was", "p53" is not "P53"."""


@dataclass(frozen=True)
class BadLexiconRow:
    """A row that was set aside."""

    line: int
    reason: str


@dataclass(frozen=True)
class BadLexiconRows:
    """The rows of a file that were set aside."""

    first: tuple[BadLexiconRow, ...] = ()
    count: int = 0

    def warnings(self, path: Path | None) -> list[str]:
        """Return a sentence for each of the first rows, with the file and the line."""
        warnings = [f"{path}, line {row.line}: {row.reason}; the row is skipped." for row in self.first]
        if self.count > len(warnings):
            warnings.append(f"{path}: {self.count - len(warnings)} more rows are skipped.")
        return warnings


@dataclass(frozen=True)
class Lexicon:
    """The terms of one file. The same term may stand for several concepts."""

    label: str
    terms: list[tuple[str, str]]
    """Each term with the id of its concept, which is empty if the file has none."""
    path: Path | None = None
    bad: BadLexiconRows = BadLexiconRows()

    def warnings(self) -> list[str]:
        """Return a sentence for each bad row, with the file and the line."""
        return self.bad.warnings(self.path)

    def identify(self) -> None:
        """Have no name under which compiled terms are kept (`lexicon_cache`): these were never in a file."""

    def read(self) -> Lexicon:
        return self


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector from visiting millions of long-lived tuples again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def parse_lexicon_option(option: str, flag: str = "lexicon") -> tuple[str, Path]:
    """Parse the value of a flag for a lexicon.

    >>> parse_lexicon_option("gene=hgnc.tsv.gz")[0]
    'gene'
    """
    label, sign, path = option.partition("=")
    if not (sign and path and re.fullmatch(r"\w[\w.-]*", label)):
        raise BadSetting(f"`--{flag} {option}` is not of the form LABEL=PATH, for example gene=hgnc.tsv.gz.")
    return label, Path(path)


def parse_lexicon_options(options: Iterable[str]) -> dict[str, Path]:
    """Parse the values of `--lexicon` into paths by label, in the order given."""
    lexicons: dict[str, Path] = {}
    for option in options:
        label, path = parse_lexicon_option(option)
        if label in lexicons:
            raise BadSetting(f"`--lexicon {label}=...` is given twice. Give each lexicon a label of its own.")
        lexicons[label] = path
    return lexicons


def read_lexicon(path: str | Path, label: str) -> Lexicon:
    """Read a lexicon file and set its bad rows aside."""
    path = Path(path)
    terms: list[tuple[str, str]] = []
    bad: list[BadLexiconRow] = []
    layout: _LexiconLayout | None = None
    separator, has_header = _dialect(path)
    for line, row in _rows(path, separator):
        if isinstance(row, str):
            bad.append(BadLexiconRow(line, row))
            continue
        if layout is None:
            layout = _layout(row, has_header)
            if layout.named:
                continue
        fault = layout.fault(row)
        if fault is None:
            terms.append(layout.take(row))
        else:
            bad.append(BadLexiconRow(line, fault))
    _check(path, len(terms), bad)
    if layout and not layout.named and layout.width == 2 and _are_counts(terms):
        terms = [(term, "") for term, _ in terms]
    return Lexicon(label, terms, path, BadLexiconRows(tuple(bad[:_BAD_ROWS_KEPT]), len(bad)))


def read_word_list(path: str | Path) -> frozenset[str]:
    """Read a `--stop-terms` or `--keep-terms` list: the first cell of each row."""
    return frozenset(term for term, _ in read_lexicon(path, "words").terms)


def list_spellings(term: str) -> list[str]:
    """Return a term and, if it is inverted, also the name in its natural order.

    >>> list_spellings("Leukemia, Myeloid, Acute")
    ['Leukemia, Myeloid, Acute', 'Acute Myeloid Leukemia']
    >>> list_spellings("2,4-Dichlorophenol")
    ['2,4-Dichlorophenol']
    """
    if ", " not in term or not _INVERTED.fullmatch(term):
        return [term]
    return [term, " ".join(reversed(term.split(", ")))]


def choose_case_rule(term: str) -> int:
    """Decide where case matters: in symbols, and in words too short to be sure of.

    >>> [choose_case_rule(term) for term in ("BRCA1", "p53", "Gout", "Acute Abdomen")] == [CASE_EXACT, CASE_EXACT, CASE_FIRST, CASE_FREE]
    True
    """
    if len(term) > 5 and (" " in term or term != term.upper()):  # most terms
        return CASE_FREE
    if _IDEOGRAPH.search(term):
        return CASE_FREE
    if " " not in term and term == term.upper():
        return CASE_EXACT
    return CASE_EXACT if _SYMBOL.search(term, 1) or term[0].isdigit() else CASE_FIRST


def case_agrees(rule: int, term: str, surface: str) -> bool:
    """Compare the case of a surface with that of the term, whose words it has, ignoring hyphens and plurals."""
    letters = surface.translate(_WITHOUT_HYPHENS)
    if rule == CASE_EXACT:
        return letters == term
    return letters[1:].removesuffix("s") == term[1:].removesuffix("s")


def strip_hyphens(term: str) -> str:
    """Normalise a term for `case_agrees`."""
    return term.translate(_WITHOUT_HYPHENS)


@dataclass(frozen=True)
class _LexiconLayout:
    """The columns of a file, detected from its first row."""

    named: bool
    width: int
    concept: int | None
    term: int = 0

    def take(self, row: list[str]) -> tuple[str, str]:
        return row[self.term].strip(), "" if self.concept is None else row[self.concept].strip()

    def fault(self, row: list[str]) -> str | None:
        """Return why a row cannot be used."""
        if len(row) != self.width:
            return f"it has {len(row)} columns and the first row has {self.width}"
        return _fault(row[self.term].strip())


def _layout(first: list[str], has_header: bool) -> _LexiconLayout:
    header = [cell.strip().lower() for cell in first]
    if "term" in header:
        concept = header.index("id") if "id" in header else None
        return _LexiconLayout(True, len(header), concept, header.index("term"))
    return _LexiconLayout(has_header, len(header), 1 if len(header) > 1 else None)


def _dialect(path: Path) -> tuple[str, bool]:
    """Detect the separator of columns, and a header without the word `term`."""
    lines = [text for _, text, fault in islice(_texts(path), _LINES_LOOKED_AT) if fault is None]
    if any("\t" in line for line in lines):
        return "\t", False
    is_csv = is_named_csv(path)
    tables = {sign: [_cells(line, sign) for line in lines] for sign in ";,"}
    for sign, rows in tables.items():
        if _is_table(rows, is_csv=is_csv):
            return sign, len(rows) > 1 and not _ID.fullmatch(rows[0][1]) and _has_ids(rows[1:])
    widths = max(sorted({len(row) for row in rows}) for rows in tables.values())
    if is_csv and len(widths) > 1:
        raise BadFile(
            f"{path} has rows of {widths[0]} to {widths[-1]} columns, and a lexicon in CSV has the same columns in each row: term,id. "
            "Put terms that hold a comma into quotes, or call a list of terms .txt."
        )
    return "\t", False


def is_named_csv(path: Path) -> bool:
    """Return whether a file has the name of a CSV file, which decides how lists without tabs are read."""
    return path.name.lower().removesuffix(".gz").endswith(".csv")


def _is_table(rows: list[list[str]], *, is_csv: bool) -> bool:
    """Distinguish a table from a list of terms that hold commas, by its header, its name, or a column of ids."""
    if not rows or len(rows[0]) < 2:
        return False
    if "term" in (cell.strip().lower() for cell in rows[0]):
        return True
    if len({len(row) for row in rows}) > 1:
        return False
    return is_csv or _has_ids(rows) or (len(rows) > 1 and _has_ids(rows[1:]))


def _has_ids(rows: list[list[str]]) -> bool:
    return all(len(row) > 1 and _NAME.search(row[0]) and _ID.fullmatch(row[1].strip()) for row in rows)


def _check(path: Path, good: int, bad: list[BadLexiconRow]) -> None:
    if len(bad) > good:
        raise BadFile(
            f"{path}: {len(bad)} of {len(bad) + good} rows cannot be used; the first is line {bad[0].line} "
            f"({bad[0].reason}). A lexicon has one term a line, or rows of term<TAB>id, in UTF-8."
        )
    if not good:
        raise BadFile(f"{path} holds no terms. A lexicon has one term a line, or rows of term<TAB>id.")


def _are_counts(terms: list[tuple[str, str]]) -> bool:
    """Distinguish frequencies from ids: a column of descending numbers was sorted by frequency."""
    if not all(number.isdecimal() for _, number in terms):
        return False
    counts = [int(number) for _, number in terms]
    return counts[0] > counts[-1] and all(a >= b for a, b in pairwise(counts))


def _rows(path: Path, separator: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield each line's cells, or the reason why it has none."""
    for line, text, fault in _texts(path):
        yield line, fault or _cells(text, separator)


def _cells(text: str, separator: str) -> list[str]:
    return text.split("\t") if separator == "\t" else next(csv.reader([text], delimiter=separator))


def _texts(path: Path) -> Iterator[tuple[int, str, str | None]]:
    """Yield each line that is neither blank nor a `#` comment, or why it cannot be read."""
    for line, raw in enumerate(_lines(path), start=1):
        if len(raw) > _LONGEST_ROW:
            yield line, "", f"it is longer than {_LONGEST_ROW} bytes"
            continue
        try:
            text = raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield line, "", "it is not UTF-8"
            continue
        if text.strip() and not text.startswith("#"):
            yield line, text, None


def _fault(term: str) -> str | None:
    if not _WORD.search(term):
        return "its term has no letter or digit"
    if len(term) > MAX_TERM_LENGTH:
        return f"its term has {len(term)} characters and the longest allowed is {MAX_TERM_LENGTH}"
    return "its term holds a control character" if _CONTROL.search(term) else None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with _open(path) as file:
            yield from _bounded(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFile(f"{path} is damaged: its compressed data end too early or are wrong. Fetch it again.") from error
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror or error}.") from error


def _bounded(file: io.BufferedReader, path: Path) -> Iterator[bytes]:
    """Read lines without ever holding a whole one that is too long (the rest of it is skipped)."""
    size = 0
    while raw := file.readline(_LONGEST_ROW + 1):
        size += len(raw)
        rest = raw
        while len(rest) > _LONGEST_ROW and not rest.endswith(b"\n"):
            rest = file.readline(_LONGEST_ROW + 1)
            size += len(rest)
        if size > _LARGEST_FILE:
            raise BadFile(f"{path} holds more than {_LARGEST_FILE >> 30} GiB of text. A lexicon must be smaller.")
        yield raw


def _open(path: Path) -> io.BufferedReader:
    with path.open("rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
    return io.BufferedReader(gzip.GzipFile(path)) if gzipped else path.open("rb")
