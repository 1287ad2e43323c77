"""Settings: changed by tables, checked by name and type, and written as TOML that gives them back."""

import dataclasses
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.compress import ExportSettings
from alembert.errors import BadFile, BadSetting
from alembert.settings import (
    OLD_KEYS,
    apply_changes,
    apply_layers,
    as_table,
    parse_assignments,
    read_field_docs,
    read_layers,
    read_toml,
    rename_old_keys,
    split_table,
    to_toml,
)
from alembert.tasks import TASKS
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.tasks.task import get_task_class
from alembert.train.augment import AugmentSettings
from alembert.train.distill.settings import DistillSettings, StageLossWeights
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.pretrain.settings import SequenceSettings
from alembert.train.settings import OptimiserSettings, SavingSettings

SETTINGS: tuple[Any, ...] = (
    AugmentSettings,
    DecodeSettings,
    DistillSettings,
    ExportSettings,
    FinetuneSettings,
    OptimiserSettings,
    SavingSettings,
    SequenceSettings,
    StageLossWeights,
    *(get_task_class(name).settings_class for name in TASKS),
)


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A table."""

    share: float = 0.5
    """How much."""
    names: tuple[str, ...] = ()
    """Which."""
    limit: float | None = 1.0
    """On by default.

    Two lines."""


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Settings of a verb."""

    count: int = 3
    """How many."""
    kind: Literal["a", "b"] = "a"
    """One of two."""
    quick: bool = False
    """True or false."""
    title: str = "none"
    """Any words."""
    steps: int | None = None
    """Off by default."""
    inner: Inner = field(default_factory=Inner)
    """The table."""


def back(settings: Any) -> Any:
    return apply_changes(type(settings)(), tomllib.loads(to_toml(settings)), "The file")


def test_a_table_changes_what_it_names_and_nothing_else() -> None:
    found = apply_changes(Outer(count=5), {"kind": "b", "inner": {"names": ["x"]}}, "The file")
    assert found == Outer(count=5, kind="b", inner=Inner(names=("x",)))


def test_a_whole_number_is_a_number() -> None:
    share = apply_changes(Inner(), {"share": 1}, "The file").share
    assert isinstance(share, float)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"cuont": 1}, "has the key `cuont`, which is unknown here. The nearest known key is `count`."),
        ({"sharee": 1}, "The nearest known key is `share`, under [inner]."),
        ({"share": 0.1}, "`share` belongs under [inner]."),
        ({"inner": {"nmes": []}}, "The file, `inner` has the key `nmes`"),
        ({"count": "three"}, "The file, `count` is 'three', which is not a whole number."),
        ({"count": 3.0}, "which is not a whole number."),
        ({"count": True}, "which is not a whole number."),
        ({"quick": 1}, "which is not true or false."),
        ({"title": 1}, "which is not a string."),
        ({"kind": "c"}, "which is not one of 'a', 'b'."),
        ({"steps": "many"}, 'which is not a whole number or "none".'),
        ({"inner": 3}, "which is not a table."),
        ({"inner": {"share": "half"}}, "The file, `inner`, `share` is 'half', which is not a number."),
        ({"inner": {"names": "x"}}, "which is not a list of strings."),
        ({"inner": {"names": [1]}}, "which is not a list of strings."),
    ],
)
def test_what_does_not_fit_is_refused_in_words(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        apply_changes(Outer(), table, "The file")
    assert sentence in str(refused.value)


@given(
    st.builds(
        Outer,
        count=st.integers(-(2**60), 2**60),
        kind=st.sampled_from("ab"),
        quick=st.booleans(),
        title=st.text(st.characters(codec="utf8")),
        steps=st.none() | st.integers(0, 9),
        inner=st.builds(
            Inner,
            share=st.floats(allow_nan=False, allow_subnormal=False),
            names=st.lists(st.text(st.characters(codec="utf8"))).map(tuple),
            limit=st.none() | st.floats(0, 1, allow_subnormal=False),
        ),
    )
)
def test_toml_gives_the_same_settings_back(settings: Outer) -> None:
    assert back(settings) == settings


def test_plain_values_give_the_same_settings_back() -> None:
    settings = Outer(inner=Inner(names=("x", "y")))
    assert apply_changes(Outer(), as_table(settings), "The table") == settings


def test_toml_explains_each_key() -> None:
    lines = to_toml(Outer()).splitlines()
    assert lines[:4] == ["# How many.", "count = 3", "# One of two.", 'kind = "a"']
    assert "# Two lines." in lines


def test_what_is_off_is_off_whatever_the_file_is_read_on_top_of() -> None:
    settings = Outer(inner=Inner(limit=None))
    assert settings.steps is None
    below = Outer(steps=9, inner=Inner(limit=4))
    assert apply_changes(below, tomllib.loads(to_toml(settings)), "The file") == settings


def test_a_file_can_switch_off_what_is_on() -> None:
    assert apply_changes(Outer(steps=9), {"steps": "none"}, "The file") == Outer()


def test_fields_of_parents_are_explained_too() -> None:
    assert read_field_docs(Child) == {"first": "Of the parent.", "second": "Of the child."}


@dataclass(frozen=True)
class Parent:
    """A parent."""

    first: int = 1
    """Of the parent."""


@dataclass(frozen=True)
class Child(Parent):
    """A child."""

    second: int = 2
    """Of the child."""
    third: int = 3


def test_checks_of_the_dataclass_still_hold() -> None:
    @dataclass(frozen=True)
    class Checked:
        rate: float = 0.1

        def __post_init__(self) -> None:
            if self.rate > 1:
                raise BadSetting("too much")

    with pytest.raises(BadSetting, match="too much"):
        apply_changes(Checked(), {"rate": 2.0}, "The file")


def test_a_frozen_object_is_left_as_it_is() -> None:
    before = Outer()
    apply_changes(before, {"count": 9}, "The file")
    assert before == replace(before) == Outer()
    assert dataclasses.asdict(before)["count"] == 3


@pytest.mark.parametrize("content", [b"count = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(BadFile, match=r"bad\.toml are not TOML"):
        read_toml(tmp_path / "bad.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot be read: No such file"):
        read_toml(tmp_path / "nothing.toml")


def test_a_file_of_brackets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 100_000}{']' * 100_000}")
    with pytest.raises(BadFile, match="not TOML"):
        read_toml(tmp_path / "deep.toml")


def test_a_whole_number_beyond_all_floats_is_refused() -> None:
    with pytest.raises(BadSetting, match="which is not a number"):
        apply_changes(Inner(), {"share": 10**400}, "The file")


def set_to(*words: str) -> Outer:
    return apply_layers(Outer(), {"--set": parse_assignments(words)})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["count=7"], Outer(count=7)),
        (["count=20k"], Outer(count=20_000)),
        (["kind=b", "quick=true"], Outer(kind="b", quick=True)),
        (["title=7"], Outer(title="7")),
        (["title=a=b"], Outer(title="a=b")),
        (["steps=none"], Outer(steps=None)),
        (["inner.share=1e-3"], Outer(inner=Inner(share=1e-3))),
        (["inner.names=x"], Outer(inner=Inner(names=("x",)))),
        (["inner.names=1,2", "inner.names=y"], Outer(inner=Inner(names=("1,2", "y")))),
        (['inner.names=["x", "y"]'], Outer(inner=Inner(names=("x", "y")))),
        (["inner.limit=none"], Outer(inner=Inner(limit=None))),
    ],
)
def test_a_setting_can_be_assigned_by_its_dotted_name(words: list[str], expected: Outer) -> None:
    assert set_to(*words) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["count"], "--set is 'count'; expected KEY=VALUE"),
        (["=3"], "expected KEY=VALUE"),
        (["inner..share=3"], "expected KEY=VALUE"),
        (["cuont=3"], "--set has the key `cuont`, which is unknown here. The nearest known key is `count`."),
        (["inner.shaer=3"], "The nearest known key is `share`."),
        (["count=many"], "--set, `count` is 'many', which is not a whole number."),
        (["count=1", "count=2"], "--set, `count` is [1, 2], which is not a whole number."),
        (["inner=3"], "which is not a table"),
        (["inner=3", "inner.share=1"], "`inner` is set as a value too"),
        (["inner.share=1", "inner=3"], "which is a table"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused_in_words(words: list[str], sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        set_to(*words)
    assert sentence in str(refused.value)


def test_flags_win_over_assignments_and_these_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text('count = 4\nkind = "b"\ntitle = "file"\n')
    layers = read_layers(tmp_path / "file.toml", ["count=5", "title=set"], {"count": 6, "steps": None})
    assert apply_layers(Outer(), layers) == Outer(count=6, kind="b", title="set")


def test_a_table_is_taken_out_of_all_layers() -> None:
    layers = {"The file": {"count": 4, "inner": {"share": 0.1}}, "--set": {"inner": {"names": ["x"]}}}
    found, rest = split_table(Inner(), "inner", layers)
    assert (found, rest) == (Inner(share=0.1, names=("x",)), {"The file": {"count": 4}, "--set": {}})


def test_names_of_the_last_version_are_read_as_the_new_ones(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(
        "looks = 2\n[optimiser]\nrate = 1e-4\n[task]\nlength = 64\n[task.ner]\nlength = 32\n"
    )
    with pytest.warns(FutureWarning) as told:
        found = read_toml(tmp_path / "old.toml")
    assert found == {
        "evals_per_epoch": 2,
        "optimiser": {"learning_rate": 1e-4},
        "task": {"max_length": 64, "ner": {"max_length": 32}},
    }
    assert f"{tmp_path / 'old.toml'}: the key `looks` is now `evals_per_epoch`" in str(told[0].message)


def test_what_a_program_saved_is_renamed_without_a_word() -> None:
    assert rename_old_keys({"losses": {"hard": 1.0}, "hard": 2}) == {"losses": {"labels": 1.0}, "hard": 2}


def test_every_new_name_is_that_of_a_setting() -> None:
    names = {item.name for kind in SETTINGS for item in dataclasses.fields(kind)}
    assert set(OLD_KEYS.values()) <= names
