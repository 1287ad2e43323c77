"""The shape of a student: sizes as they are written, what is left open, and settings that cannot be."""

from dataclasses import replace
from typing import Any

import pytest

from alembert.errors import BadSetting
from alembert.files.student_shape import StudentSettings, StudentSize, parse_size, resolve_shape
from alembert.nn.config import EncoderConfig

CONFIG = EncoderConfig(vocab_size=30, hidden_size=24, num_hidden_layers=6, num_attention_heads=4, intermediate_size=48)
AUTO = StudentSettings()
SCRATCH = StudentSettings(start="scratch")


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        ("4x12", StudentSize(4, 12)),
        ("half", StudentSize(3, 24)),
        ("third", StudentSize(2, 24)),
        ("quarter", StudentSize(1, 24)),
    ],
)
def test_a_size_is_read(wanted: str, size: StudentSize) -> None:
    assert parse_size(wanted, CONFIG) == size


def test_the_published_student_has_its_published_shape() -> None:
    base = EncoderConfig(vocab_size=30_522)
    config = resolve_shape(parse_size("4x312", base), base, AUTO).config
    assert (config.num_attention_heads, config.intermediate_size) == (12, 1200)


def test_heads_are_the_nearest_number_that_divides_the_width() -> None:
    assert resolve_shape(StudentSize(2, 18), CONFIG, SCRATCH).config.num_attention_heads == 3


def test_there_is_no_quarter_of_three_layers() -> None:
    with pytest.raises(BadSetting, match="3 layers, of which there is no quarter"):
        parse_size("quarter", replace(CONFIG, num_hidden_layers=3))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"start": "copy"}, "expected one of auto, scratch, teacher"),
        ({"heads": 0}, "`heads` of the student is 0"),
        ({"inner": -1}, "`inner` of the student is -1"),
        ({"activation": "swish"}, "'swish'; expected one of gelu, gelu_new, relu"),
        ({"layers": (2, 1)}, "expected rising numbers"),
        ({"layers": (1,), "start": "scratch"}, "takes none of them"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        StudentSettings(**wrong)
