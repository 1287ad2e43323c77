"""The page about formats says what the program has."""

import json
import re
from pathlib import Path

from alembert.corpus.document import from_record
from alembert.corpus.readers import FORMATS as READ
from alembert.corpus.writers import FORMATS as WRITTEN

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def test_every_format_is_on_the_page() -> None:
    assert [name for name in {*READ, *WRITTEN} if f"`{name}`" not in PAGE] == []


def test_the_native_example_is_sound() -> None:
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    document = from_record(json.loads(example[1]))
    assert [entity.surface(document.text) for entity in document.entities] == [
        "Breast cancer",
        "ovarian cancer",
    ]
