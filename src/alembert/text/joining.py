"""Pieces written out as a person would write them.

In: pieces in order, perhaps after a text that stands before them. Out: the text. `Tokenizer.decode` does what
transformers does, with a space between any two Chinese characters; here spaces go where readers expect them: none beside
Chinese and Japanese characters and their punctuation, none before a comma, inside brackets and around hyphens. Pieces
do not say where spaces were, so this is a good guess and no inverse of the tokenizer.
"""

import re
from collections.abc import Iterable
from typing import Final

from alembert.text.sentences import CJK
from alembert.text.vocabulary import CONTINUATION

_WIDE: Final = rf"{CJK}\u3001-\u303f\uff01-\uffef—…·"
"""No space on either side: CJK and full-width characters, and the marks that Chinese shares with other scripts."""
_LINKS: Final = r"\-/'’"
_OPENS: Final = r"(\[{“‘"
_CLOSES: Final = r".,;:!?%)\]}”"
_SEAM: Final = "\n"  # no piece holds it
_TIGHT: Final = re.compile(rf"[{_WIDE}{_LINKS}{_OPENS}]{_SEAM}|{_SEAM}[{_WIDE}{_LINKS}{_CLOSES}]|[0-9]\.{_SEAM}[0-9]")


def join_pieces(pieces: Iterable[str], before: str = "") -> str:
    """Write pieces after a text, which stays as it is but for spaces at its end.

    >>> join_pieces(["明", "月", "光", "，"], before="床前")
    '床前明月光，'
    >>> join_pieces(["il", "-", "6", "(", "2", ".", "5", "ng", ")", "in", "血", "清", "wa", "##s", "low", "."])
    'il-6 (2.5 ng) in血清was low.'
    """
    text = before.rstrip()
    for piece in pieces:
        if piece.startswith(CONTINUATION):
            text += piece.removeprefix(CONTINUATION)
        else:
            text += _space_between(text, piece) + piece
    return text


def _space_between(text: str, piece: str) -> str:
    return "" if not text or _TIGHT.search(f"{text[-2:]}{_SEAM}{piece[:1]}") else " "
