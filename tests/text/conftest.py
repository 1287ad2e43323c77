"""A small vocabulary that cuts words in many ways, for all tests of text."""

import string
import sys
from pathlib import Path

import pytest

from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

sys.path.append(str(Path(__file__).parent))  # for wordpiece_reference

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = tuple(string.ascii_letters + string.digits + string.punctuation + "éßσςαω한д咳嗽")
WORDS = (
    "aspirin",
    "inhibits",
    "platelet",
    "un",
    "##aff",
    "##able",
    "cafe",
    "café",
    "br",
    "##af",
    "mutant",
    "melanoma",
)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_pieces(*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS)


@pytest.fixture(scope="session")
def uncased(vocabulary: Vocabulary) -> Tokenizer:
    return Tokenizer.from_vocabulary(vocabulary, lowercase=True)


@pytest.fixture(scope="session")
def cased(vocabulary: Vocabulary) -> Tokenizer:
    return Tokenizer.from_vocabulary(vocabulary, lowercase=False)
