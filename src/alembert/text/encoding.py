"""What a tokenizer gives for one text or one pair of texts.

An `Encoding` is a view of the object that the Rust library made: each property crosses into Python when it is first
asked for and is then kept. A caller that packs millions of documents and reads `ids` alone pays for `ids` alone.
Values are tuples: no conversion beyond what the Rust side hands over, `None` where there is no word, plain integers
for `text[start:end]`, and `numpy.array(encoding.ids, dtype=numpy.int32)` is one cheap step away for those who pack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import tokenizers

from alembert.errors import BadSetting


@dataclass(frozen=True, eq=False, repr=False)
class Encoding:
    """Ids of the pieces of a text, or of a pair, and where each comes from."""

    raw: tokenizers.Encoding
    replaced_surrogates: int = 0
    """How many unpaired surrogates of the input were read as U+FFFD (BERT drops that character)."""
    has_offsets: bool = True

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The id of each piece."""
        return tuple(self.raw.ids)

    @cached_property
    def type_ids(self) -> tuple[int, ...]:
        """0 for the first text with its special tokens, 1 for the second."""
        return tuple(self.raw.type_ids)

    @cached_property
    def special(self) -> tuple[bool, ...]:
        """True for the special tokens that the encoding added; a `[MASK]` written in the text is not one of them."""
        return tuple(map(bool, self.raw.special_tokens_mask))

    @cached_property
    def sequence_ids(self) -> tuple[int | None, ...]:
        """0 for pieces of the first text, 1 for the second, None for added special tokens."""
        return tuple(self.raw.sequence_ids)

    @cached_property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Where each piece stands in its text: `text[start:end]`; (0, 0) for added special tokens."""
        self._need_offsets()
        return tuple(self.raw.offsets)

    @cached_property
    def word_ids(self) -> tuple[int | None, ...]:
        """The number of the word that each piece belongs to, from 0 in each text; None for added special tokens."""
        self._need_offsets()
        return tuple(self.raw.word_ids)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        # Neither ids nor pieces: a repr lands in logs, and they give the user's text away.
        return f"Encoding({len(self)} pieces)"

    def _need_offsets(self) -> None:
        if not self.has_offsets:
            raise BadSetting(
                "This encoding was made with offsets=False, so it knows neither offsets nor words. "
                "Encode with offsets=True to have them."
            )
