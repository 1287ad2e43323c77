"""Files that only grow: what was recorded stays, and what was not is cut off."""

import io
from pathlib import Path

import numpy as np
import pytest

from alembert.errors import BadFile
from alembert.infer.index import npy_header
from alembert.infer.stream_job import Ledger

HEADS = {"a": b"head", "b": b""}


def test_what_was_written_behind_the_record_is_cut_off(tmp_path: Path) -> None:
    with Ledger(tmp_path, HEADS) as ledger:
        ledger.append({"a": b"one", "b": b"1"}, state={"at": 1})
    with (tmp_path / "a").open("ab") as file:
        file.write(b"half a blo")
    with Ledger(tmp_path, HEADS) as ledger:
        assert ledger.state == {"at": 1}
        ledger.append({"a": b"two", "b": b"2"}, state={"at": 2})
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"headonetwo", b"12")


def test_before_the_first_record_everything_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"what a killed run left")
    with Ledger(tmp_path, HEADS) as ledger:
        assert ledger.state is None
        assert ledger.size("a") == 4
    assert (tmp_path / "a").read_bytes() == b"head"


def test_a_file_that_lost_a_part_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path, HEADS) as ledger:
        ledger.append({"a": b"one"}, state=None)
    (tmp_path / "a").write_bytes(b"he")
    with pytest.raises(BadFile, match="the disk has lost a part"), Ledger(tmp_path, HEADS):
        pass


def test_a_head_is_written_over_in_place(tmp_path: Path) -> None:
    rows = np.arange(6, dtype="<f4").reshape(3, 2)
    with Ledger(tmp_path, {"x.npy": npy_header(rows.dtype, (0, 2))}) as ledger:
        ledger.append({"x.npy": rows.tobytes()}, state=None)
        ledger.overwrite_start("x.npy", npy_header(rows.dtype, (3, 2)))
        with pytest.raises(ValueError, match="is 3 bytes"):
            ledger.overwrite_start("x.npy", b"abc")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), rows)


def test_the_head_is_that_of_numpy() -> None:
    rows, content = np.zeros((3, 2), np.float16), io.BytesIO()
    np.save(content, rows)
    assert content.getvalue() == npy_header(rows.dtype, rows.shape) + rows.tobytes()
