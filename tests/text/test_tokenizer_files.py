"""Opening and saving a tokenizer: the same bytes again, or a sentence."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alembert.errors import BadFile
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


@pytest.fixture
def folder(tmp_path: Path, uncased: Tokenizer) -> Path:
    uncased.save(tmp_path)
    return tmp_path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf8")


def add_token(content: dict[str, Any], text: str, **flags: bool) -> None:
    number = len(content["model"]["vocab"])
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": number, "content": text, **plain, **flags})


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("accents", [True, False, None])
@pytest.mark.parametrize("chinese", [True, False])
def test_save_open_save_gives_the_same_bytes(
    vocabulary: Vocabulary, tmp_path: Path, lowercase: bool, accents: bool | None, chinese: bool
) -> None:
    first = Tokenizer.from_vocabulary(
        vocabulary,
        lowercase=lowercase,
        strip_accents=accents,
        tokenize_chinese_chars=chinese,
        model_max_length=512,
    )
    first.save(tmp_path / "a")
    Tokenizer.open(tmp_path / "a").save(tmp_path / "b")
    assert [(tmp_path / "a" / f).read_bytes() for f in FILES] == [(tmp_path / "b" / f).read_bytes() for f in FILES]


def test_tokenizer_json_and_vocab_txt_open_alike(folder: Path) -> None:
    texts = ["Unaffable café [MASK] 咳嗽"]
    ids = [Tokenizer.open(path).encode(texts[0]).ids for path in (folder, *(folder / f for f in FILES[::2]))]
    assert ids[0] == ids[1] == ids[2]


def test_truncation_and_padding_in_the_file_are_left_behind(folder: Path) -> None:
    pad = {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    cut = {"max_length": 128, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    edit(folder / "tokenizer.json", lambda content: content.update(padding=pad, truncation=cut))
    assert len(Tokenizer.open(folder).encode("un " * 500)) == 502
    assert len(Tokenizer.open(folder).encode("un")) == 3


@pytest.mark.parametrize(("pieces", "lowercase"), [(("braf",), True), (("BRAF",), False)])
def test_case_is_inferred_from_a_lone_vocabulary(tmp_path: Path, pieces: tuple[str], lowercase: bool) -> None:
    Vocabulary.from_pieces(*SPECIAL, *pieces).save(tmp_path / "vocab.txt")
    assert Tokenizer.open(tmp_path).lowercase is lowercase
    assert Tokenizer.open(tmp_path / "vocab.txt", lowercase=not lowercase).lowercase is not lowercase


@pytest.mark.parametrize("main", ["tokenizer.json", "vocab.txt"])
def test_the_configuration_decides_about_case(folder: Path, main: str) -> None:
    edit(folder / "tokenizer_config.json", lambda config: config.update(do_lower_case=False))
    assert Tokenizer.open(folder / main).lowercase is False
    assert Tokenizer.open(folder / main, lowercase=True).lowercase is True


def test_special_tokens_may_have_other_names(tmp_path: Path) -> None:
    Vocabulary.from_pieces("<pad>", "[UNK]", "<s>", "</s>", "[MASK]", "un").save(tmp_path / "vocab.txt")
    config = {"pad_token": "<pad>", "cls_token": {"content": "<s>"}, "sep_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.tokens(tokenizer.encode("un").ids) == ["<s>", "un", "</s>"]


def test_added_tokens_survive_and_are_found_in_text(folder: Path, tmp_path: Path) -> None:
    edit(folder / "tokenizer.json", lambda content: add_token(content, "[E1]", special=True))
    Tokenizer.open(folder).save(tmp_path / "again")
    tokenizer = Tokenizer.open(tmp_path / "again")
    assert tokenizer.tokens(tokenizer.encode("un[E1]un", add_special_tokens=False).ids) == [
        "un",
        "[E1]",
        "un",
    ]
    assert tokenizer.id_of("[E1]") == tokenizer.vocab_size - 1


def model(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["model"].update(changes)


def rename(vocab: dict[str, int], old: str, new: str) -> None:
    vocab[new] = vocab.pop(old)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (model(type="BPE"), "holds a BPE tokenizer"),
        (model(type="Unigram", vocab=[["a", 0.0]]), "holds a Unigram tokenizer"),
        (model(vocab={"[UNK]": 0, "b": 2}), "the id 2"),
        (model(vocab={"[UNK]": 0, "b": 0}), "the id 0"),
        (model(vocab={"[UNK]": 0, "b": True}), "the id True"),
        (model(vocab={"[UNK]": 0, "b": "x"}), "the id 'x'"),
        (model(vocab={"a": 0}), r"lacks the unknown token \[UNK\]"),
        (
            lambda content: content.update(added_tokens=[], model={**content["model"], "vocab": {"[UNK]": 0}}),
            r"lacks \[PAD\]",
        ),
        (lambda content: rename(content["model"]["vocab"], "un", ""), "is empty"),
        (lambda content: rename(content["model"]["vocab"], "un", "\ud800"), "surrogate"),
        (model(vocab=None), "no model with a vocabulary"),
        (model(max_input_chars_per_word=0), "`max_input_chars_per_word`"),
        (lambda content: content.pop("model"), "no model with a vocabulary"),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "is Lowercase"),
        (lambda content: content.update(normalizer=None), "BertNormalizer"),
        (lambda content: content["normalizer"].update(lowercase="yes"), "`do_lower_case`"),
        (lambda content: content.update(pre_tokenizer={"type": "Whitespace"}), "BertPreTokenizer"),
        (lambda content: content.update(post_processor={"type": "ByteLevel"}), "`post_processor`"),
        (lambda content: content.update(added_tokens=[{"id": 0}]), "damaged"),
        (lambda content: content.update(added_tokens=[{"id": 9999, "content": "x"}]), "the id 9999"),
        (lambda content: content.update(added_tokens=[{"id": 0, "content": 3}]), "damaged"),
    ],
)
def test_a_wrong_tokenizer_json_gets_a_sentence(
    folder: Path, change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    (folder / "tokenizer_config.json").unlink()
    edit(folder / "tokenizer.json", change)
    with pytest.raises(BadFile, match=sentence):
        Tokenizer.open(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, trail: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(inside)[:12]:
        yield (*trail, key)
        yield from places(inner, (*trail, key))


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(FILES[:2]))
def test_any_value_anywhere_is_taken_or_refused_with_a_sentence(
    uncased: Tokenizer, tmp_path: Path, data: st.DataObject, name: str
) -> None:
    uncased.save(tmp_path)
    content = json.loads((tmp_path / name).read_text(encoding="utf8"))
    *trail, last = data.draw(st.sampled_from(list(places(content))))
    reduce(getitem, trail, content)[last] = data.draw(JSON)
    (tmp_path / name).write_text(json.dumps(content))
    with suppress(BadFile):
        Tokenizer.open(tmp_path).encode("un [MASK] café")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"])
@pytest.mark.parametrize("name", FILES[:2])
def test_a_damaged_file_gets_a_sentence(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(BadFile, match=name):
        Tokenizer.open(folder)


def test_a_cut_off_file_gets_a_sentence(folder: Path) -> None:
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match="cut off"):
        Tokenizer.open(folder)


def test_a_folder_without_tokenizer_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"neither tokenizer\.json nor vocab\.txt"):
        Tokenizer.open(tmp_path)


def test_a_missing_path_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="does not exist"):
        Tokenizer.open(tmp_path / "absent")


def test_a_text_in_place_of_a_path_is_not_quoted() -> None:
    with pytest.raises(BadFile, match="File name too long") as caught:
        Tokenizer.open("secret " * 1000)
    assert "secret" not in str(caught.value)


def test_a_tokenizer_of_another_kind_gets_a_sentence(tmp_path: Path) -> None:
    Vocabulary.from_pieces(*SPECIAL).save(tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(BadFile, match="BertJapaneseTokenizer"):
        Tokenizer.open(tmp_path)


def test_added_tokens_of_the_past_are_not_lost_silently(tmp_path: Path) -> None:
    Vocabulary.from_pieces(*SPECIAL).save(tmp_path / "vocab.txt")
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 5}')
    with pytest.raises(BadFile, match=r"added_tokens\.json"):
        Tokenizer.open(tmp_path)
