"""States come back bit by bit, damaged ones are passed over with a note, and the right ones are kept."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from alembert.artifact import hash_config
from alembert.errors import BadFile
from alembert.train.state import RunStates, Snapshot

TYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
FACTS = {"cursor": [3, 2**60], "seconds": 0.1 + 0.2, "best": None, "名": "值\ud800", "deep": {"a": [True]}}
FILES = ["model.safetensors", "optimiser.safetensors", "state.json"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def snapshot(step: int, **facts: Any) -> Snapshot:
    weight = torch.full((4, 3), float(step))
    tensors = {"model": {"w": weight}, "optimiser": {"w.mean": weight / 7, "w.step": torch.tensor(step)}}
    return Snapshot(step, {"step": step, **facts}, tensors)


def place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(folder: Path) -> list[int]:
    return [int(name.removeprefix("step-")) for name in names(folder)]


def save(folder: Path, *steps: int, best: int | None = None, keep: int = 2) -> RunStates:
    states = RunStates(folder, keep)
    for step in steps:
        states.save(snapshot(step), best=step == best)
    return states


def is_same(one: Tensor, other: Tensor) -> bool:
    """Compare type, shape and bits, so that NaN equals NaN and -0 is not 0."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return bits(one).equal(bits(other))


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def latest(states: RunStates) -> tuple[Snapshot, list[str]]:
    return states.latest() or pytest.fail("there is no state")


def check(found: Snapshot | None, expected: Snapshot) -> None:
    assert found is not None
    assert (found.step, found.facts) == (expected.step, expected.facts)
    assert {group: set(named) for group, named in found.tensors.items()} == {
        group: set(named) for group, named in expected.tensors.items()
    }
    for group, named in expected.tensors.items():
        assert all(is_same(found.tensors[group][name], tensor) for name, tensor in named.items())


def round_trip(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    RunStates(folder).save(Snapshot(1, FACTS, {"model": tensors}))
    found, notes = latest(RunStates(folder))
    assert notes == []
    check(found, Snapshot(1, FACTS, {"model": tensors}))
    return found.tensors["model"]


def any_bits(kind: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if kind is torch.bool:
        return torch.rand(shape) < 0.5
    width = torch.empty((), dtype=kind).element_size()
    data = torch.randint(0, 256, (*shape, width), dtype=torch.uint8)
    return data.view(kind).reshape(shape) if data.numel() else torch.empty(shape, dtype=kind)


class TestRoundTrip:
    @settings(max_examples=30, deadline=None)
    @given(
        tensors=st.dictionaries(
            st.text(max_size=5), st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 3), max_size=4))
        )
    )
    def test_any_type_shape_and_name(
        self, tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, tuple[torch.dtype, list[int]]]
    ) -> None:
        made = {name: any_bits(kind, tuple(shape)) for name, (kind, shape) in tensors.items()}
        round_trip(tmp_path_factory.mktemp("states") / "state", made)

    def test_the_library_reads_the_same(self, tmp_path: Path) -> None:
        tensors = {f"{kind}-{n}": any_bits(kind, (n, 3)) for kind in TYPES for n in (0, 1, 5)}
        round_trip(tmp_path, tensors)
        theirs = load_file(place(tmp_path, 1) / "model.safetensors")
        assert theirs.keys() == tensors.keys()
        assert all(is_same(theirs[name], tensor) for name, tensor in tensors.items())

    def test_every_tensor_begins_at_a_multiple_of_its_element_size(self, tmp_path: Path) -> None:
        round_trip(tmp_path, {str(kind): any_bits(kind, (3,)) for kind in TYPES})
        data = (place(tmp_path, 1) / "model.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        assert length % 8 == 0
        for entry in json.loads(data[8 : 8 + length]).values():
            start, end = entry["data_offsets"]
            assert start % ((end - start) // 3) == 0

    def test_views_and_tied_tensors(self, tmp_path: Path) -> None:
        base = torch.randn(6, 4)
        tied = torch.nn.Parameter(base)
        views = {"a": tied, "b": tied, "t": base.T, "s": base[::2, 1:], "e": torch.tensor(3.0).expand(2, 3)}
        views |= {"one": base.flatten()[5::20], "empty": base[:, 4:], "number": base[3, 2]}
        found = round_trip(tmp_path, views)
        found["a"].zero_()
        assert found["b"].equal(base)

    def test_loaded_tensors_outlive_their_file(self, tmp_path: Path) -> None:
        found = round_trip(tmp_path, {"w": torch.arange(5000)})
        path = place(tmp_path, 1) / "model.safetensors"
        path.write_bytes(b"\0" * path.stat().st_size)
        assert found["w"].equal(torch.arange(5000))

    def test_no_groups_and_empty_groups(self, tmp_path: Path) -> None:
        expected = Snapshot(0, {}, {"model": {}})
        RunStates(tmp_path).save(expected)
        found, _ = latest(RunStates(tmp_path))
        check(found, expected)

    def test_nothing_saved_yet(self, tmp_path: Path) -> None:
        states = RunStates(tmp_path / "absent")
        assert states.latest() is None
        assert states.best() is None
        assert names(tmp_path) == []

    def test_only_the_named_files_are_there(self, tmp_path: Path) -> None:
        save(tmp_path, 1200)
        assert names(tmp_path) == ["step-000001200"]
        assert names(place(tmp_path, 1200)) == FILES

    @pytest.mark.parametrize(
        ("facts", "tensors"),
        [
            ({"loss": float("nan")}, {}),
            ({}, {"../model": {}}),
            ({}, {"model": {"w": torch.zeros(1, dtype=torch.complex64)}}),
            ({}, {"model": {"__metadata__": torch.zeros(1)}}),
        ],
    )
    def test_what_cannot_be_saved_is_a_bug(self, tmp_path: Path, facts: Any, tensors: Any) -> None:
        with pytest.raises(ValueError, match=r"JSON|cannot name a file|not saved|for themselves"):
            RunStates(tmp_path / "state").save(Snapshot(1, facts, tensors))
        assert names(tmp_path) == []


class TestWhichAreKept:
    def test_the_newest_two(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2, 3, 4)
        assert steps(tmp_path) == [3, 4]

    def test_the_best_too(self, tmp_path: Path) -> None:
        best = save(tmp_path, 1, 2, 3, 4, 5, best=2).best()
        assert steps(tmp_path) == [2, 4, 5]
        check(best, snapshot(2))

    def test_the_old_best_goes_when_no_kept_state_knows_it(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, 3, best=1)
        states.save(snapshot(4), best=True)
        assert steps(tmp_path) == [1, 3, 4]  # state 3 may have to be gone back to, and its best is 1
        states.save(snapshot(5))
        assert steps(tmp_path) == [4, 5]

    def test_no_best(self, tmp_path: Path) -> None:
        assert save(tmp_path, 1, 2).best() is None

    def test_going_back_brings_the_best_of_that_time(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, 3, best=1)
        states.save(snapshot(4), best=True)
        shutil.rmtree(place(tmp_path, 4))
        check(RunStates(tmp_path).best(), snapshot(1))

    def test_numbers_beyond_nine_digits(self, tmp_path: Path) -> None:
        save(tmp_path, 999_999_998, 999_999_999, 1_000_000_000)
        assert steps(tmp_path) == [1_000_000_000, 999_999_999]  # in the order of their names

    def test_a_step_before_others_survives_its_own_save(self, tmp_path: Path) -> None:
        save(tmp_path, 7, 8, 5)
        assert steps(tmp_path) == [5, 7, 8]

    def test_folders_of_others_stay(self, tmp_path: Path) -> None:
        for name in ("step-1", "notes", "step-000000001x"):
            (tmp_path / name).mkdir()
        save(tmp_path, 3, 4, 5)
        assert {"step-1", "notes", "step-000000001x"} <= set(names(tmp_path))

    @settings(max_examples=25, deadline=None)
    @given(marks=st.lists(st.booleans(), min_size=1, max_size=8), keep=st.integers(1, 3))
    def test_newest_and_best_are_always_there(
        self, tmp_path_factory: pytest.TempPathFactory, marks: list[bool], keep: int
    ) -> None:
        folder = tmp_path_factory.mktemp("states")
        best = None
        for step, mark in enumerate(marks):
            best = step if mark else best
            RunStates(folder, keep).save(snapshot(step), best=mark)
            assert {*range(max(0, step + 1 - keep), step + 1), best} - {None} <= set(steps(folder))
            found = RunStates(folder).best()
            assert (found.step if found else None) == best


class TestSameStepAgain:
    def test_replaces_it(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2)
        states.save(snapshot(2, again=True))
        found, notes = latest(states)
        check(found, snapshot(2, again=True))
        assert notes == []
        assert steps(tmp_path) == [1, 2]

    def test_stays_the_best(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, best=2)
        states.save(snapshot(2))
        check(states.best(), snapshot(2))

    def test_becomes_the_best(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, best=1)
        states.save(snapshot(2), best=True)
        check(states.best(), snapshot(2))

    def test_a_damaged_one_is_set_aside(self, tmp_path: Path) -> None:
        for _ in range(2):
            save(tmp_path, 1, 2)
            flip(place(tmp_path, 2) / "model.safetensors")
        RunStates(tmp_path).save(snapshot(2))
        assert names(tmp_path) == [
            "damaged-step-000000002",
            "damaged-step-000000002-2",
            "step-000000001",
            "step-000000002",
        ]


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, position: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1
    path.write_bytes(data)


def replace_by_older(path: Path) -> None:
    shutil.copy(place(path.parents[1], 1) / path.name, path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def garbage(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


GARBAGE = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"sha256": "", "format": 1}',
    b'{"sha256": NaN, "step": NaN}',
    b'{"step": ' + b"9" * 5000 + b"}",
]
DAMAGES = {
    "truncated": truncate,
    "one bit": flip,
    "deleted": Path.unlink,
    "of another state": replace_by_older,
    "a folder": replace_by_folder,
    **{f"garbage {number}": garbage(content) for number, content in enumerate(GARBAGE)},
}


class TestDamage:
    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("name", FILES)
    def test_the_state_before_is_used(self, tmp_path: Path, name: str, damage: str) -> None:
        states = save(tmp_path, 1, 2)
        DAMAGES[damage](place(tmp_path, 2) / name)
        found, notes = latest(states)
        check(found, snapshot(1))
        (note,) = notes
        assert note.startswith("The state step-000000002 is passed over: ")
        assert str(place(tmp_path, 2) / name) in note

    def test_any_changed_bit_of_the_record(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2)
        path = place(tmp_path, 2) / "state.json"
        whole = path.read_bytes()
        for position in range(len(whole)):
            flip(path, position)
            found, notes = latest(RunStates(tmp_path))
            check(found, snapshot(1 if notes else 2))
            path.write_bytes(whole)

    def test_facts_of_another_state_are_noticed(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2)
        path = place(tmp_path, 2) / "state.json"
        path.write_text(path.read_text().replace('"step": 2\n', '"step": 3\n'))
        _, notes = latest(RunStates(tmp_path))
        assert "it is not what was written" in notes[0]

    def test_a_copy_under_another_name_is_noticed(self, tmp_path: Path) -> None:
        save(tmp_path, 1)
        shutil.copytree(place(tmp_path, 1), place(tmp_path, 2))
        found, notes = latest(RunStates(tmp_path))
        check(found, snapshot(1))
        assert "it is the record of step 1" in notes[0]

    def test_another_format_says_so(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2)
        path = place(tmp_path, 2) / "state.json"
        record = json.loads(path.read_bytes()) | {"format": 2}
        del record["sha256"]
        path.write_text(json.dumps(record | {"sha256": hash_config(record)}))
        _, notes = latest(RunStates(tmp_path))
        assert "another version of alembert" in notes[0]

    def test_none_is_good(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2)
        for step in (1, 2):
            truncate(place(tmp_path, step) / "model.safetensors")
        with pytest.raises(BadFile, match=r"none can be used.*000002.*000001.*or delete that folder"):
            states.latest()

    def test_a_disk_that_cannot_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: Path) -> str:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        save(tmp_path, 1)
        monkeypatch.setattr("alembert.train.state.hash_file", fail)
        with pytest.raises(BadFile, match=r"model\.safetensors cannot be read: Input/output error"):
            RunStates(tmp_path).latest()

    @pytest.mark.parametrize("fresh", [False, True], ids=["after latest", "without latest"])
    def test_damaged_ones_do_not_count_as_kept(self, tmp_path: Path, fresh: bool) -> None:
        save(tmp_path, 1, 2, 3, keep=3)
        for step in (2, 3):
            flip(place(tmp_path, step) / "model.safetensors")
        states = RunStates(tmp_path)
        assert fresh or states.latest()
        states.save(snapshot(4))
        assert names(tmp_path) == [
            "damaged-step-000000002",
            "damaged-step-000000003",
            "step-000000001",
            "step-000000004",
        ]

    def test_damage_under_a_running_process_is_found_by_latest(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2)
        flip(place(tmp_path, 2) / "model.safetensors")
        assert states.latest()
        states.save(snapshot(3))
        assert names(tmp_path) == ["damaged-step-000000002", "step-000000001", "step-000000003"]

    def test_damaged_best_is_named(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, 3, best=1)
        flip(place(tmp_path, 1) / "model.safetensors")
        with pytest.raises(BadFile, match=r"best state cannot be used.*step-000000001.*delete"):
            states.best()

    def test_deleted_best(self, tmp_path: Path) -> None:
        states = save(tmp_path, 1, 2, 3, best=1)
        shutil.rmtree(place(tmp_path, 1))
        assert states.best() is None

    def test_damaged_newest_best_gives_the_one_before(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2, 3, best=1).save(snapshot(4), best=True)
        flip(place(tmp_path, 4) / "optimiser.safetensors")
        check(RunStates(tmp_path).best(), snapshot(1))

    def test_a_best_that_was_damaged_is_not_inherited(self, tmp_path: Path) -> None:
        save(tmp_path, 1, 2, best=2)
        flip(place(tmp_path, 2) / "model.safetensors")
        RunStates(tmp_path).save(snapshot(3))
        assert RunStates(tmp_path).best() is None
