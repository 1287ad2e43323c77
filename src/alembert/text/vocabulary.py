"""The ordered list of pieces of a WordPiece tokenizer.

In: a `vocab.txt` in BERT's form (UTF-8, one piece a line, the line number is the id) or pieces given one by one.
Out: a frozen `Vocabulary` that knows the id of each piece and which pieces play BERT's five special roles.
Lines are not stripped, because some published vocabularies hold pieces that look like white space (U+2028); obvious
damage (an empty line, a repeated piece, another encoding) is an error with its line number, because it would shift the
ids of all pieces after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from alembert.errors import BadFile, BadInput

CONTINUATION_PREFIX = "##"
MAX_FILE_BYTES = 64 * 2**20
"""The largest published BERT vocabularies (half a million pieces) take a tenth of it."""


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The pieces that play BERT's five special roles."""

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"

    def roles(self) -> dict[str, str]:
        """Return role -> piece, in BERT's order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Vocabulary:
    """Ordered pieces; the position of a piece is its id.

    >>> Vocabulary.from_pieces("br", "##af", "##a").id_of("##af")
    1
    """

    pieces: tuple[str, ...]
    special: SpecialTokens = SpecialTokens()

    def __post_init__(self) -> None:
        if fault := _find_fault(self.pieces):
            position, what = fault
            raise BadInput(f"Piece {position} of the vocabulary {what}. Give each piece once, not empty.")

    @classmethod
    def from_pieces(cls, *pieces: str) -> Vocabulary:
        return cls(pieces)

    @classmethod
    def open(cls, path: str | Path, special: SpecialTokens | None = None) -> Vocabulary:
        """Open a `vocab.txt`; line ends may be those of Unix or Windows."""
        lines = _decode(Path(path)).replace("\r\n", "\n").split("\n")
        while lines and not lines[-1]:
            lines.pop()
        if not lines:
            raise BadFile(f"{path} is empty. A vocabulary has one piece on each line.")
        if fault := _find_fault(lines):
            position, what = fault
            raise BadFile(f"{path}, line {position + 1} {what}. Each line must hold one piece, and each piece once.")
        return cls(tuple(lines), special or SpecialTokens())

    def save(self, path: str | Path) -> None:
        """Write a `vocab.txt` that `open` reads back unchanged."""
        Path(path).write_bytes("".join(f"{piece}\n" for piece in self.pieces).encode())

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """Piece -> id."""
        return {piece: position for position, piece in enumerate(self.pieces)}

    def id_of(self, piece: str) -> int:
        """Return the id of a piece; unlike encoding, this does not fall back to the unknown token."""
        if piece not in self.ids:
            raise BadInput(f"The piece {piece!r} is not among the {len(self)} pieces of the vocabulary.")
        return self.ids[piece]

    def missing_special(self) -> list[str]:
        """Return the special tokens that the pieces lack."""
        return [piece for piece in self.special.roles().values() if piece not in self]

    def is_cased(self) -> bool:
        """Whether some plain piece would be unreachable if text were lower-cased.

        Only pieces made of letters count: markers such as `[CLS]` or `<S>` are upper-case in every vocabulary.

        >>> Vocabulary.from_pieces("[CLS]", "aspirin").is_cased(), Vocabulary.from_pieces("[CLS]", "BRAF").is_cased()
        (False, True)
        """
        plain = (piece.removeprefix(CONTINUATION_PREFIX) for piece in self.pieces)
        return any(piece.isalpha() and piece != piece.lower() for piece in plain)

    def __len__(self) -> int:
        return len(self.pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __contains__(self, piece: object) -> bool:
        return piece in self.ids


def read_limited(path: Path) -> bytes:
    """Read a file of a tokenizer; raise if it does not exist or is too large to be one."""
    if not path.is_file():
        raise BadFile(f"{path} is not a file. Give the path of a file that exists.")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise BadFile(
            f"{path} has {size:,} bytes; a tokenizer's file has at most {MAX_FILE_BYTES:,}. "
            "Check that this is the right file."
        )
    try:
        return path.read_bytes()
    except OSError as problem:
        raise BadFile(f"{path} cannot be read: {problem.strerror}.") from None


def _decode(path: Path) -> str:
    data = read_limited(path)
    if data.startswith(b"\xef\xbb\xbf"):
        raise BadFile(
            f"{path}, line 1 begins with a byte-order mark, which would become part of the first piece. "
            "Save the file as UTF-8 without it."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise BadFile(
            f"{path}, line {line} is not UTF-8 (byte 0x{data[problem.start]:02x}). "
            "A vocabulary is a UTF-8 text file with one piece on each line."
        ) from None


def _find_fault(pieces: tuple[str, ...] | list[str]) -> tuple[int, str] | None:
    seen: dict[str, int] = {}
    for position, piece in enumerate(pieces):
        if not piece:
            return position, "is empty"
        if "\n" in piece or "\r" in piece:
            return position, "holds a line break"
        if not _is_text(piece):
            return position, "holds half of a surrogate pair"
        first = seen.setdefault(piece, position)
        if first != position:
            return position, f"repeats the piece {piece!r} of position {first}"
    return None


def _is_text(piece: str) -> bool:
    return piece.isascii() or piece.encode(errors="ignore").decode() == piece
