"""The files of a tokenizer: `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`.

In: a folder or a single file as Hugging Face tools write them. Out: `TokenizerParts`, all that defines a BERT
tokenizer. Files are read in Python, checked, and reduced to these few parts, rather than passed to the Rust library: so
a damaged file gets a clear error, settings that would truncate or pad text (all-MiniLM's `tokenizer.json` truncates at
128) are ignored, and what is saved depends on the parts alone. The price is that a `tokenizer.json` with other steps
than BERT's is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from alembert.artifact.disk import read_json
from alembert.errors import BadFile, BadInput, UnsupportedTokenizer
from alembert.text.vocabulary import MAX_FILE_BYTES, SpecialTokens, Vocabulary

MAX_WORD_CHARACTERS = 100
"""The default of transformers for BERT (the original program had 200)."""
_NOT_IN_CONFIG = ("model_max_length", "max_input_chars_per_word")
_BERT_CLASSES = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "PreTrainedTokenizer", "TokenizersBackend"}


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """How text is normalised before it is split into pieces, with the names of Hugging Face."""

    do_lower_case: bool
    strip_accents: bool | None = None
    """None: strip accents if text is lower-cased, as the original BERT does."""
    tokenize_chinese_chars: bool = True
    model_max_length: int | None = None
    """Written for other tools; nothing is truncated here."""
    max_input_chars_per_word: int = MAX_WORD_CHARACTERS
    """Longer words are unknown."""


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that is matched in the text before WordPiece."""

    content: str
    special: bool = False
    normalized: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


@dataclass(frozen=True)
class TokenizerParts:
    """All that defines a tokenizer."""

    vocabulary: Vocabulary
    settings: TokenizerSettings
    added: tuple[AddedToken, ...] = ()
    """In the order of their ids; those outside the WordPiece model are the last pieces of the vocabulary."""
    model_size: int | None = None
    """How many pieces, counted from the first, belong to the WordPiece model; None for all."""


def read_tokenizer(path: Path, lowercase: bool | None) -> TokenizerParts:
    """Read a folder, a `vocab.txt` or a `tokenizer.json`; `lowercase` overrides the files."""
    _expect_path(path)
    source = _main_file(path) if path.is_dir() else path
    config = _read_config(source.with_name("tokenizer_config.json"))
    special = _special_tokens(config)
    if source.suffix == ".json":
        return _from_json(source, config, special, lowercase)
    return _from_lines(source, config, special, lowercase)


def make_config_json(parts: TokenizerParts) -> str:
    """Return the text of `tokenizer_config.json`."""
    content = {
        **{f"{role}_token": piece for role, piece in parts.vocabulary.special.roles().items()},
        **{name: value for name, value in asdict(parts.settings).items() if name not in _NOT_IN_CONFIG},
        "added_tokens_decoder": {str(parts.vocabulary.id_of(t.content)): asdict(t) for t in parts.added},
        "tokenizer_class": "BertTokenizer",
    }
    if parts.settings.model_max_length is not None:
        content["model_max_length"] = parts.settings.model_max_length
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _expect_path(path: Path) -> None:
    advice = "Give a checkpoint folder, a vocab.txt or a tokenizer.json."
    try:
        exists = path.exists()
    except OSError as problem:
        # Not quoted: what is too long for a path is probably a document, passed by mistake.
        raise BadFile(f"The path of the tokenizer cannot be used: {problem.strerror}. {advice}") from None
    if not exists:
        raise BadFile(f"{path} does not exist. {advice}")


def _main_file(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.txt"):
        if (folder / name).is_file():
            return folder / name
    raise BadFile(
        f"The folder {folder} has neither tokenizer.json nor vocab.txt. Give a folder that holds a tokenizer."
    )


def _read_config(path: Path) -> dict[str, Any]:
    return read_json(path, largest=MAX_FILE_BYTES) if path.is_file() else {}


def _special_tokens(config: Mapping[str, Any]) -> SpecialTokens:
    entries = {field.name: config.get(f"{field.name}_token") for field in fields(SpecialTokens)}
    named = {role: t.get("content") if isinstance(t, dict) else t for role, t in entries.items()}
    return SpecialTokens(**{role: token for role, token in named.items() if isinstance(token, str)})


def _settings(
    path: Path, config: Mapping[str, Any], defaults: Mapping[str, Any], lowercase: bool | None
) -> TokenizerSettings:
    values = {name: config.get(name, default) for name, default in defaults.items()}
    if lowercase is not None:
        values["do_lower_case"] = lowercase
    for name, value in values.items():
        if not isinstance(value, bool) and not (value is None and name == "strip_accents"):
            raise BadFile(f"`{name}` of the tokenizer {path} is {value!r}; true or false was expected.")
    limit = config.get("model_max_length")
    # transformers writes 10**30 for "no limit".
    usable = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < 10**9
    return TokenizerSettings(**values, model_max_length=limit if usable else None)


def _from_lines(
    path: Path, config: Mapping[str, Any], special: SpecialTokens, lowercase: bool | None
) -> TokenizerParts:
    vocabulary = Vocabulary.open(path, special)
    kind = str(config.get("tokenizer_class") or "BertTokenizer")
    if kind.removesuffix("Fast") not in _BERT_CLASSES:
        raise UnsupportedTokenizer(f"{path} belongs to a {kind}, which cuts text differently from BERT's tokenizer.")
    if path.with_name("added_tokens.json").is_file():
        raise BadFile(
            f"{path} has an added_tokens.json beside it, a form of the past. "
            "Open the folder with transformers and save it again, which writes a tokenizer.json."
        )
    defaults = {"do_lower_case": not vocabulary.is_cased(), "strip_accents": None, "tokenize_chinese_chars": True}
    settings = _settings(path, config, defaults, lowercase)
    return _with_added(path, vocabulary.pieces, special, settings, _listed_tokens(config))


def _from_json(path: Path, config: Mapping[str, Any], special: SpecialTokens, lowercase: bool | None) -> TokenizerParts:
    content = read_json(path, largest=MAX_FILE_BYTES)
    pieces = _model_pieces(path, content.get("model"), special)
    settings = _settings(path, config, _normalizer_settings(path, content.get("normalizer")), lowercase)
    settings = replace(settings, max_input_chars_per_word=_longest_word(path, content["model"]))
    _expect_steps(path, content, special)
    return _with_added(path, pieces, special, settings, content.get("added_tokens") or [])


def _with_added(
    path: Path, pieces: Sequence[str], special: SpecialTokens, settings: TokenizerSettings, entries: Any
) -> TokenizerParts:
    added = _added_tokens(path, entries, pieces)
    model_pieces = set(pieces)
    beyond = [token.content for token in added if token.content not in model_pieces]
    try:
        return TokenizerParts(Vocabulary((*pieces, *beyond), special), settings, added, len(pieces))
    except BadInput as problem:
        raise BadFile(f"{path} cannot be used. {problem}") from None


def _model_pieces(path: Path, model: Any, special: SpecialTokens) -> list[str]:
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise BadFile(f"{path} has no model with a vocabulary in it; it may be damaged. Fetch or save it again.")
    # Old files do not name the type; only WordPiece has this key.
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else "unnamed")
    if kind != "WordPiece" or not isinstance(model["vocab"], dict):
        raise UnsupportedTokenizer(
            f"{path} holds a {kind} tokenizer. Only WordPiece, the tokenizer of BERT, is supported."
        )
    for name, value in {"unk_token": special.unk, "continuing_subword_prefix": "##"}.items():
        if model.get(name, value) != value:
            raise BadFile(f"`{name}` in {path} is {model[name]!r}; BERT's tokenizer has {value!r}.")
    if special.unk not in model["vocab"]:
        raise BadFile(f"The WordPiece model in {path} lacks the unknown token {special.unk}.")
    return _in_order(path, model["vocab"])


def _longest_word(path: Path, model: Mapping[str, Any]) -> int:
    limit = model.get("max_input_chars_per_word", MAX_WORD_CHARACTERS)
    if type(limit) is not int or not 1 <= limit <= MAX_FILE_BYTES:
        raise BadFile(
            f"`max_input_chars_per_word` in {path} is {limit!r}; expected a whole number from 1 to {MAX_FILE_BYTES:,}."
        )
    return limit


def _in_order(path: Path, ids: Mapping[str, Any]) -> list[str]:
    pieces: list[str | None] = [None] * len(ids)
    for piece, number in ids.items():
        if type(number) is not int or not 0 <= number < len(ids) or pieces[number] is not None:
            raise BadFile(
                f"{path} gives a piece the id {number!r}, but its {len(ids)} pieces need the ids "
                f"0 to {len(ids) - 1}, each once. Ids with gaps do not fit the rows of an embedding."
            )
        pieces[number] = piece
    return [piece for piece in pieces if piece is not None]


def _listed_tokens(config: Mapping[str, Any]) -> Any:
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        return listed
    return [{**entry, "id": int(number)} for number, entry in listed.items() if number.isdecimal()]


def _added_tokens(path: Path, entries: Any, pieces: Sequence[str]) -> tuple[AddedToken, ...]:
    """Read the added tokens and check that the ids they state are the ids they will get."""
    ids = {piece: position for position, piece in enumerate(pieces)}
    tokens = []
    try:
        for entry in sorted(entries, key=lambda entry: int(entry["id"])):
            token = _added_token(entry)
            expected = ids.setdefault(token.content, len(ids))
            tokens.append(token)
            if entry["id"] != expected:
                raise BadFile(
                    f"{path} gives the added token {token.content!r} the id {entry['id']}; {expected} was expected."
                )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise BadFile(f"The added tokens of {path} are damaged. Fetch or save the file again.") from None
    return tuple(tokens)


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    names = [field.name for field in fields(AddedToken)]
    token = AddedToken(**{name: entry[name] for name in names if name in entry})
    flags = [value for name, value in asdict(token).items() if name != "content"]
    if not isinstance(token.content, str) or not all(isinstance(flag, bool) for flag in flags):
        raise TypeError("an added token has a text and flags")
    return token


def _normalizer_settings(path: Path, normalizer: Any) -> dict[str, Any]:
    kind = normalizer.get("type") if isinstance(normalizer, dict) else None
    if kind != "BertNormalizer" or not normalizer.get("clean_text", True):
        raise BadFile(f"`normalizer` in {path} is {kind}; a BertNormalizer that cleans text was expected.")
    return {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }


def _expect_steps(path: Path, content: Mapping[str, Any], special: SpecialTokens) -> None:
    splitter = content.get("pre_tokenizer")
    if not isinstance(splitter, dict) or splitter.get("type") != "BertPreTokenizer":
        raise BadFile(f"`pre_tokenizer` in {path} is not a BertPreTokenizer, so this is not BERT's tokenizer.")
    frame = content.get("post_processor")
    if frame is not None and _read_template(frame) != [special.cls, "A", special.sep, "B", special.sep]:
        raise BadFile(
            f"`post_processor` in {path} does not frame texts as {special.cls} A {special.sep} B {special.sep}, "
            "so this is not BERT's tokenizer."
        )


def _read_template(processor: Any) -> list[str] | None:
    """Return the parts of an encoded pair in their order."""
    try:
        if processor["type"] == "BertProcessing":
            cls, sep = processor["cls"][0], processor["sep"][0]
            return [cls, "A", sep, "B", sep]
        return [part["id"] for entry in processor["pair"] for part in entry.values()]
    except (TypeError, KeyError, IndexError, AttributeError):
        return None
