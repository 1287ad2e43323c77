"""Files of arrays come back as they were, or not at all."""

from pathlib import Path

import numpy as np
import pytest

from alembert.text.lexicon_cache import map_arrays, pack_arrays

ARRAYS = {
    "small": np.arange(5, dtype=np.int32),
    "none": np.zeros((0, 2), np.int64),
    "pairs": np.arange(6, dtype=np.uint64).reshape(3, 2),
    "flags": np.array([True, False]),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.arrays"
    path.write_bytes(pack_arrays(ARRAYS, {"name": "β"}))
    return path


def test_arrays_come_back_as_they_were(file: Path) -> None:
    arrays, head = map_arrays(file)
    assert head == {"name": "β"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_arrays_are_mapped_and_read_only(file: Path) -> None:
    array = map_arrays(file)[0]["small"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("size", [0, 3, 55, 56, 57, 200, -1])
def test_a_truncated_file_is_refused(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match="array"):
        map_arrays(file)


def test_a_file_with_any_other_byte_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match="damaged"):
            map_arrays(file)


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="names has the type object"):
        pack_arrays({"names": np.array(["a", None])}, {})
