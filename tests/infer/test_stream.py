"""Inputs as one stream: folders, what stays whole, and reading ahead. What is read is tested with its users."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from alembert.corpus.inputs import list_input_files
from alembert.infer.stream import prefetch


def test_folders_give_their_files_in_order_and_brat_stays_whole(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.jsonl", ".hidden", "pairs/x.txt", "pairs/x.ann"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "b/back").symlink_to(tmp_path)
    found = [path.relative_to(tmp_path).as_posix() for path in list_input_files([tmp_path]).paths]
    assert found == ["a.jsonl", "b/1.txt", "b/2.txt", "b/back", "pairs"]


def test_the_next_item_is_made_before_it_is_asked_for() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            yield number

    for number in prefetch(numbers()):
        assert len(made) <= number + 2
    assert made == [0, 1, 2, 3, 4]


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("the disk is gone")

    items = prefetch(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="the disk is gone"):
        next(items)
