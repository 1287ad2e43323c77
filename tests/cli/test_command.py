"""The options of all commands: how many are shown, which settings `--set help` lists, and flags of the last version."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from alembert.cli import OLD_FLAGS, app, run, translate_flags

MOST_VISIBLE = 12


def commands(command: Any = None) -> Iterator[Any]:
    """All commands that are no groups."""
    command = command or get_command(app)
    if hasattr(command, "commands"):
        for inner in command.commands.values():
            yield from commands(inner)
    else:
        yield command


def options(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def test_no_command_shows_more_options_than_fit_a_screen() -> None:
    visible = {command.name: sum(not option.hidden for option in options(command)) for command in commands()}
    assert {name: count for name, count in visible.items() if count > MOST_VISIBLE} == {}


def test_flags_of_the_last_version_lead_to_flags_that_there_are() -> None:
    for command in commands():
        known = {flag for option in options(command) for flag in (*option.opts, *option.secondary_opts)}
        old_flags = OLD_FLAGS.get(command.name, {}) if known else {}  # embed train has those of finetune
        assert [old for old in old_flags if old in known] == []
        assert [new for new in old_flags.values() if new.split(" ")[0] not in known] == []


@pytest.mark.parametrize(
    "arguments",
    [
        "annotate",
        "augment",
        "corpus build",
        "distill",
        "embed encode",
        "embed train",
        "evaluate",
        "export",
        "finetune --task tag",
        "inspect errors",
        "predict",
        "pretrain",
    ],
)
def test_the_settings_of_a_command_are_listed_without_its_arguments(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = arguments.split()
    assert run([*command, "--set", "help"]) == 0
    known = tomllib.loads(capsys.readouterr().out)
    assert known
    old_flags = OLD_FLAGS.get(command[1] if len(command) == 2 else command[0], {})
    keys = re.findall(r"--set run\.(\w+)=", " ".join(old_flags.values()))
    assert [key for key in keys if key not in known["run"]] == []


def test_an_old_flag_is_replaced_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "3", "--device=cpu", "--crf", "--", "--seeds"]
    assert list(translate_flags(words, OLD_FLAGS["finetune"])) == [
        *("--set", "run.seeds=3", "--set", "run.device=cpu", "--set", "task.head=crf", "--", "--seeds")
    ]
    assert "--seeds is now --set run.seeds=VALUE; the old spelling is accepted for" in capsys.readouterr().err
