"""BERT's tokenizer: text to pieces with exact character offsets, and back.

In: Python strings of any kind and length. Out: `Encoding`, whose offsets are those of the original string. The Rust
library `tokenizers` does the work, configured as in transformers for BERT, so that ids and offsets are the same
(docs/tokenizer.md lists where both differ from the original program). Nothing is ever truncated or padded here: the
length limit belongs to the model, and truncation is the caller's explicit decision.

An `Encoding` is a view of the Rust object: each property is converted to Python when it is first used, and cached. A
caller that packs millions of documents and reads `ids` alone pays for `ids` alone. Values are tuples, with `None` where
there is no word.

`Tokenizer.decode` does what transformers does, with a space between any two Chinese characters. `detokenize` puts
spaces where readers expect them: none beside Chinese and Japanese characters and their punctuation, none before a
comma, inside brackets and around hyphens. Pieces do not store where spaces were, so this is a guess and no exact
inverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from alembert.errors import BadFile, BadInput, BadSetting
from alembert.hub import model_folder
from alembert.text import tokenizer_files
from alembert.text.sentences import CJK
from alembert.text.tokenizer_files import AddedToken, TokenizerParts, TokenizerSettings
from alembert.text.vocabulary import CONTINUATION_PREFIX, Vocabulary


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
        """The span of each piece in its text: `text[start:end]`; (0, 0) for added special tokens."""
        self.check_offsets()
        return tuple(self.raw.offsets)

    @cached_property
    def word_ids(self) -> tuple[int | None, ...]:
        """The number of the word that each piece belongs to, from 0 in each text; None for added special tokens."""
        self.check_offsets()
        return tuple(self.raw.word_ids)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        # Neither ids nor pieces: a repr may end up in logs, and they reveal the user's text.
        return f"Encoding({len(self)} pieces)"

    def check_offsets(self) -> None:
        """Refuse an encoding that knows no offsets."""
        if not self.has_offsets:
            raise BadSetting(
                "This encoding was made with offsets=False, so it knows neither offsets nor words. "
                "Encode with offsets=True to have them."
            )


@dataclass(frozen=True, eq=False)
class StackedPieces:
    """The pieces of texts, those of one text after those of another, as arrays."""

    ids_N: npt.NDArray[np.int64]
    starts_N: npt.NDArray[np.int64]
    """Where each piece begins in its text."""
    ends_N: npt.NDArray[np.int64]
    words_N: npt.NDArray[np.int64]
    """The number of the word that each piece belongs to, from 0 in each text."""
    borders: npt.NDArray[np.int64]
    """Where the pieces of each text begin, and where those of the last end."""

    @classmethod
    def of(cls, encodings: Sequence[Encoding]) -> StackedPieces:
        """Stack encodings that were made without special tokens, and with offsets."""
        borders = np.cumsum([0, *map(len, encodings)])
        count = int(borders[-1])
        for encoding in encodings:
            encoding.check_offsets()
        # Straight from the lists of the Rust library: tuples of tuples would take several times as long.
        raw = [encoding.raw for encoding in encodings]
        offsets = chain.from_iterable(chain.from_iterable(one.offsets for one in raw))
        offsets_N2 = np.fromiter(offsets, np.int64, 2 * count).reshape(-1, 2)
        return cls(
            np.fromiter(chain.from_iterable(one.ids for one in raw), np.int64, count),
            np.ascontiguousarray(offsets_N2[:, 0]),
            np.ascontiguousarray(offsets_N2[:, 1]),
            np.fromiter(chain.from_iterable(one.word_ids for one in raw), np.int64, count),
            borders,
        )


_Input = str | tuple[str, str]
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A WordPiece tokenizer with BERT's normalisation and special tokens.

    >>> vocabulary = Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able")
    >>> tokenizer = Tokenizer.from_vocabulary(vocabulary, lowercase=True)
    >>> tokenizer.tokens(tokenizer.encode("Unaffable").ids)
    ['[CLS]', 'un', '##aff', '##able', '[SEP]']
    """

    def __init__(self, parts: TokenizerParts) -> None:
        missing = parts.vocabulary.missing_special()
        if missing:
            raise BadFile(
                f"The vocabulary of {len(parts.vocabulary)} pieces lacks {', '.join(missing)}. "
                "A BERT vocabulary holds its special tokens as pieces; check that this is the right file."
            )
        self._parts = _with_special_tokens(parts)
        self._rust = _build(self._parts)
        self.vocabulary = parts.vocabulary
        special = parts.vocabulary.special
        self.pad_id = self.id_of(special.pad)
        self.unk_id = self.id_of(special.unk)
        self.cls_id = self.id_of(special.cls)
        self.sep_id = self.id_of(special.sep)
        self.mask_id = self.id_of(special.mask)

    @classmethod
    def open(cls, path: str | Path, *, lowercase: bool | None = None) -> Tokenizer:
        """Open a checkpoint folder, `hub:organisation/name`, a `vocab.txt` or a `tokenizer.json`.

        A folder's `tokenizer.json` is preferred to its `vocab.txt`; the settings of `tokenizer_config.json` for lower
        case, accents and Chinese characters override both, as in transformers, and `lowercase` overrides all. A
        `vocab.txt` without further files is taken for cased if any piece made of letters has an upper-case one
        (lower-casing would make it unreachable), and for uncased otherwise (keeping case would make every capitalised
        word unknown).
        """
        return cls(tokenizer_files.read_tokenizer(model_folder(path), lowercase))

    @classmethod
    def from_vocabulary(
        cls,
        vocabulary: Vocabulary,
        *,
        lowercase: bool,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        model_max_length: int | None = None,
    ) -> Tokenizer:
        """Build a tokenizer; `strip_accents=None` strips accents when lower-casing, as the original BERT does."""
        settings = TokenizerSettings(
            do_lower_case=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            model_max_length=model_max_length,
        )
        return cls(TokenizerParts(vocabulary, settings))

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`, which transformers opens alike."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(target / "vocab.txt")
        (target / "tokenizer.json").write_bytes((self._rust.to_str(pretty=True) + "\n").encode())
        (target / "tokenizer_config.json").write_bytes(tokenizer_files.make_config_json(self._parts).encode())

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> Encoding:
        """Encode one text, or a text and its pair (an empty pair is a second text without pieces)."""
        _check(text, "The text")
        if pair is not None:
            _check(pair, "The pair")
        try:
            return Encoding(self._rust.encode(text, pair, add_special_tokens=add_special_tokens))
        except TypeError:
            # An unpaired surrogate, which `encode_batch` replaces.
            pairs = None if pair is None else [pair]
            return self.encode_batch([text], pairs, add_special_tokens=add_special_tokens)[0]

    def encode_batch(
        self,
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        add_special_tokens: bool = True,
        offsets: bool = True,
    ) -> list[Encoding]:
        """Encode many texts, or pairs, on all cores; `offsets=False` is faster and leaves offsets and words out."""
        inputs = _inputs(texts, pairs)
        run = self._rust.encode_batch if offsets else self._rust.encode_batch_fast
        try:
            encodings = run(inputs, add_special_tokens=add_special_tokens)
        except TypeError:
            cleaned = [_without_surrogates(entry) for entry in inputs]
            encodings = run([entry for entry, _ in cleaned], add_special_tokens=add_special_tokens)
            return [Encoding(raw, count, offsets) for raw, (_, count) in zip(encodings, cleaned, strict=True)]
        return [Encoding(raw, has_offsets=offsets) for raw in encodings]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return readable text for ids: pieces joined, spaces before punctuation removed."""
        return self._rust.decode(self._checked_ids(ids), skip_special_tokens=skip_special_tokens)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return [self.vocabulary.pieces[number] for number in self._checked_ids(ids)]

    def id_of(self, token: str) -> int:
        """Return the id of a piece or special token; raise if it is not in the vocabulary."""
        return self.vocabulary.id_of(token)

    def with_markers(self, markers: Iterable[str]) -> Tokenizer:
        """Return a tokenizer with further special pieces, which are never split; they get the next ids."""
        fresh = [piece for piece in markers if piece not in self.vocabulary]
        if not fresh:
            return self
        parts = self._parts
        vocabulary = Vocabulary((*parts.vocabulary.pieces, *fresh), parts.vocabulary.special)
        added = (*parts.added, *(AddedToken(content=piece, special=True, normalized=False) for piece in fresh))
        return Tokenizer(TokenizerParts(vocabulary, parts.settings, added, parts.model_size or len(parts.vocabulary)))

    @property
    def vocab_size(self) -> int:
        """The number of ids, and of the rows of an embedding."""
        return len(self.vocabulary)

    @property
    def lowercase(self) -> bool:
        """Whether text is lower-cased first."""
        return self._parts.settings.do_lower_case

    @property
    def parts(self) -> TokenizerParts:
        """All that defines this tokenizer, to build another one from it."""
        return self._parts

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} pieces, {'uncased' if self.lowercase else 'cased'})"

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(number) for number in ids]
        wrong = next((number for number in numbers if not 0 <= number < self.vocab_size), None)
        if wrong is not None:
            raise BadInput(f"The id {wrong} is outside the vocabulary, whose ids are 0 to {self.vocab_size - 1}.")
        return numbers


def _with_special_tokens(parts: TokenizerParts) -> TokenizerParts:
    """Add the five special tokens to the added ones, which the Rust library finds in the text."""
    listed = {token.content: token for token in parts.added}
    for piece in parts.vocabulary.special.roles().values():
        listed.setdefault(piece, AddedToken(content=piece, special=True, normalized=False))
    added = sorted(listed.values(), key=lambda token: parts.vocabulary.id_of(token.content))
    return TokenizerParts(parts.vocabulary, parts.settings, tuple(added), parts.model_size)


def _build(parts: TokenizerParts) -> tokenizers.Tokenizer:
    special, settings = parts.vocabulary.special, parts.settings
    rust = tokenizers.Tokenizer(_model(parts))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.tokenize_chinese_chars,
        strip_accents=settings.strip_accents,
        lowercase=settings.do_lower_case,
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.post_processor = processors.TemplateProcessing(
        single=[f"{special.cls}:0", "$A:0", f"{special.sep}:0"],
        pair=[f"{special.cls}:0", "$A:0", f"{special.sep}:0", "$B:1", f"{special.sep}:1"],
        special_tokens=[(piece, parts.vocabulary.id_of(piece)) for piece in (special.cls, special.sep)],
    )
    rust.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    rust.add_tokens([tokenizers.AddedToken(**asdict(token)) for token in parts.added])
    return rust


def _model(parts: TokenizerParts) -> models.WordPiece:
    pieces = parts.vocabulary.pieces[: parts.model_size]
    return models.WordPiece(
        {piece: position for position, piece in enumerate(pieces)},
        unk_token=parts.vocabulary.special.unk,
        continuing_subword_prefix=CONTINUATION_PREFIX,
        max_input_chars_per_word=parts.settings.max_input_chars_per_word,
    )


def _inputs(texts: Iterable[str], pairs: Iterable[str] | None) -> list[_Input]:
    first = _listed(texts)
    if pairs is None:
        return list(first)
    second = _listed(pairs)
    if len(first) != len(second):
        raise BadInput(f"There are {len(first)} texts and {len(second)} pairs; each text needs one.")
    return list(zip(first, second, strict=True))


def _listed(texts: Iterable[str]) -> list[str]:
    if not isinstance(texts, Iterable) or isinstance(texts, str | bytes):
        raise BadInput(f"A list of texts was expected, not one {type(texts).__name__}. Use encode for a single text.")
    listed = list(texts)
    for position, text in enumerate(listed):
        _check(text, f"Text {position}")
    return listed


def _check(text: object, name: str) -> None:
    if not isinstance(text, str):
        hint = " Decode it first." if isinstance(text, bytes) else ""
        raise BadInput(f"{name} is of type {type(text).__name__}; a str was expected.{hint}")


def _without_surrogates(entry: _Input) -> tuple[_Input, int]:
    """Replace each unpaired surrogate by U+FFFD, one character for one, so that offsets stay exact.

    The Rust library raises TypeError for such strings and, once the types are checked, for nothing else. Searching for
    surrogates only then saves a scan of ordinary text.
    """
    if isinstance(entry, str):
        return _SURROGATE.subn("\ufffd", entry)
    (first, in_first), (second, in_second) = (_SURROGATE.subn("\ufffd", side) for side in entry)
    return (first, second), in_first + in_second


_WIDE: Final = rf"{CJK}\u3001-\u303f\uff01-\uffef—…·"
"""No space on either side: CJK and full-width characters, and the marks that Chinese shares with other scripts."""
_LINKS: Final = r"\-/'’"
_OPENS: Final = r"(\[{“‘"
_CLOSES: Final = r".,;:!?%)\]}”"
_SEAM: Final = "\n"  # no piece holds it
_TIGHT: Final = re.compile(rf"[{_WIDE}{_LINKS}{_OPENS}]{_SEAM}|{_SEAM}[{_WIDE}{_LINKS}{_CLOSES}]|[0-9]\.{_SEAM}[0-9]")


def detokenize(pieces: Iterable[str], before: str = "") -> str:
    """Append pieces to a text, without the spaces at its end.

    >>> detokenize(["明", "月", "光", "，"], before="床前")
    '床前明月光，'
    >>> detokenize(["il", "-", "6", "(", "2", ".", "5", "ng", ")", "in", "血", "清", "wa", "##s", "low", "."])
    'il-6 (2.5 ng) in血清was low.'
    """
    text = before.rstrip()
    for piece in pieces:
        if piece.startswith(CONTINUATION_PREFIX):
            text += piece.removeprefix(CONTINUATION_PREFIX)
        else:
            text += _space_between(text, piece) + piece
    return text


def _space_between(text: str, piece: str) -> str:
    return "" if not text or _TIGHT.search(f"{text[-2:]}{_SEAM}{piece[:1]}") else " "
