"""BERT's tokenizer: text to pieces with exact character offsets, and back.

In: Python strings of any kind and length. Out: `Encoding`, whose offsets point into the string as it was given.
The work is done by the Rust library `tokenizers`, set up as transformers sets it up for BERT, so that ids and offsets
are the same (docs/tokenizer.md lists where both differ from the original program). Nothing is ever truncated or
padded here: the length limit belongs to the model, and cutting text is a decision that its caller takes openly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from alembert.errors import BadFile, BadInput
from alembert.hub import model_folder
from alembert.text import tokenizer_files
from alembert.text.encoding import Encoding
from alembert.text.tokenizer_files import AddedToken, Parts, Settings
from alembert.text.vocabulary import CONTINUATION, Vocabulary

_Input = str | tuple[str, str]
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A WordPiece tokenizer with BERT's normalisation and special tokens.

    >>> vocabulary = Vocabulary.of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able")
    >>> tokenizer = Tokenizer.from_vocabulary(vocabulary, lowercase=True)
    >>> tokenizer.tokens(tokenizer.encode("Unaffable").ids)
    ['[CLS]', 'un', '##aff', '##able', '[SEP]']
    """

    def __init__(self, parts: Parts) -> None:
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

        A folder's `tokenizer.json` is preferred to its `vocab.txt`; what `tokenizer_config.json` says about lower
        case, accents and Chinese characters wins over both, as in transformers, and a given `lowercase` wins over all.
        A `vocab.txt` that nothing else describes is taken for cased if any piece made of letters has an upper-case
        one (lower-casing would put it out of reach), and for uncased otherwise (keeping case would make every
        capitalised word unknown).
        """
        return cls(tokenizer_files.read(model_folder(path), lowercase))

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
        """Make a tokenizer; `strip_accents=None` strips accents when lower-casing, as the original BERT does."""
        settings = Settings(
            do_lower_case=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            model_max_length=model_max_length,
        )
        return cls(Parts(vocabulary, settings))

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`, which transformers opens alike."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(target / "vocab.txt")
        (target / "tokenizer.json").write_bytes((self._rust.to_str(pretty=True) + "\n").encode())
        (target / "tokenizer_config.json").write_bytes(tokenizer_files.config_json(self._parts).encode())

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool = True) -> Encoding:
        """Encode one text, or a text and its pair (an empty pair is a second text without pieces)."""
        _check(text, "The text")
        if pair is not None:
            _check(pair, "The pair")
        try:
            return Encoding(self._rust.encode(text, pair, add_special_tokens=add_special_tokens))
        except TypeError:
            # An unpaired surrogate; the batch knows what to do.
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
            found = run(inputs, add_special_tokens=add_special_tokens)
        except TypeError:
            mended = [_without_surrogates(entry) for entry in inputs]
            found = run([entry for entry, _ in mended], add_special_tokens=add_special_tokens)
            return [Encoding(raw, count, offsets) for raw, (_, count) in zip(found, mended, strict=True)]
        return [Encoding(raw, has_offsets=offsets) for raw in found]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return readable text for ids: pieces joined, spaces before punctuation removed."""
        return self._rust.decode(self._checked_ids(ids), skip_special_tokens=skip_special_tokens)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return [self.vocabulary.pieces[number] for number in self._checked_ids(ids)]

    def id_of(self, token: str) -> int:
        """Return the id of a piece or special token; one that is not in the vocabulary is an error."""
        return self.vocabulary.id_of(token)

    def with_markers(self, markers: Iterable[str]) -> Tokenizer:
        """Return a tokenizer that knows these special pieces too, each found whole in a text; they get the next ids."""
        fresh = [piece for piece in markers if piece not in self.vocabulary]
        if not fresh:
            return self
        parts = self._parts
        vocabulary = Vocabulary((*parts.vocabulary.pieces, *fresh), parts.vocabulary.special)
        added = (
            *parts.added,
            *(AddedToken(content=piece, special=True, normalized=False) for piece in fresh),
        )
        return Tokenizer(Parts(vocabulary, parts.settings, added, parts.model_size or len(parts.vocabulary)))

    @property
    def vocab_size(self) -> int:
        """How many ids there are: the number of rows that an embedding needs."""
        return len(self.vocabulary)

    @property
    def lowercase(self) -> bool:
        """Whether text is lower-cased first."""
        return self._parts.settings.do_lower_case

    @property
    def parts(self) -> Parts:
        """All that defines this tokenizer, for those who make another from it."""
        return self._parts

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} pieces, {'uncased' if self.lowercase else 'cased'})"

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(number) for number in ids]
        wrong = next((number for number in numbers if not 0 <= number < self.vocab_size), None)
        if wrong is not None:
            raise BadInput(f"The id {wrong} is outside the vocabulary, whose ids are 0 to {self.vocab_size - 1}.")
        return numbers


def _with_special_tokens(parts: Parts) -> Parts:
    """List the five special tokens among the added ones, where the Rust library looks for them in the text."""
    listed = {token.content: token for token in parts.added}
    for piece in parts.vocabulary.special.roles().values():
        listed.setdefault(piece, AddedToken(content=piece, special=True, normalized=False))
    added = sorted(listed.values(), key=lambda token: parts.vocabulary.id_of(token.content))
    return Parts(parts.vocabulary, parts.settings, tuple(added), parts.model_size)


def _build(parts: Parts) -> tokenizers.Tokenizer:
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
    rust.decoder = decoders.WordPiece(prefix=CONTINUATION)
    rust.add_tokens([tokenizers.AddedToken(**asdict(token)) for token in parts.added])
    return rust


def _model(parts: Parts) -> models.WordPiece:
    pieces = parts.vocabulary.pieces[: parts.model_size]
    return models.WordPiece(
        {piece: position for position, piece in enumerate(pieces)},
        unk_token=parts.vocabulary.special.unk,
        continuing_subword_prefix=CONTINUATION,
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

    The Rust side refuses such strings with a TypeError, and once the types are checked for nothing else. Looking for
    surrogates only then keeps the ordinary path free of a scan.
    """
    if isinstance(entry, str):
        return _SURROGATE.subn("\ufffd", entry)
    (first, in_first), (second, in_second) = (_SURROGATE.subn("\ufffd", side) for side in entry)
    return (first, second), in_first + in_second
