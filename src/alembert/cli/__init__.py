"""The `alembert` command: one file per verb, each a thin layer over a function of the same name.

Options are listed in groups, by their `rich_help_panel`. Flags of the last version are replaced by what does the same
now, with a note; `OLD_FLAGS` has them all.

The file of a verb is loaded when the verb is called, so that `alembert --help` stays fast. Verb files import at
their top; only what loads torch is imported inside the function that needs it, so that `alembert VERB --help` works,
and works fast, without torch. Data goes to stdout, notes and progress to stderr; `options` has the exit codes.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from alembert import COMMANDS, __version__
from alembert.errors import AlreadyDone, Interrupted, UserError
from alembert.terminal import note, say, say_all

REFUSED: Final = 2
"""Something that the user can mend; one sentence on stderr says what."""
SET_ASIDE: Final = 3
"""Finished, and some of the input could not be used."""
INTERRUPTED: Final = 130

_READ: Final = {
    "--text": "--set read.text={}",
    "--label": "--set read.label={}",
    "--delimiter": "--set read.delimiter={}",
    "--types": "--set read.types={}",
    "--encoding": "--set read.encoding={}",
}
_SPEED: Final = {"--speed": "--set run.speed=true", "--no-speed": "--set run.speed=false"}
_DEVICE: Final = {"--device": "--set run.device={}"}
_TRAINING: Final = {**_DEVICE, "--rate": "--learning-rate {}", "--show-config": "--set help"}
_FINETUNE: Final = {
    **_TRAINING,
    "--check": "--set run.check=true",
    "--seeds": "--set run.seeds={}",
    "--seed": "--set seed={}",
    "--crf": "--set task.head=crf",
    "--nested": "--set task.head=span",
    "--every-token": "--set task.every_token=true",
    "--forget-training": "--set forget_training=true",
    "--split": "--set run.split={}",
    "--tune": "--set run.tune={}",
    **{flag: _READ[flag] for flag in ("--text", "--label", "--delimiter", "--types")},
}
OLD_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "finetune": _FINETUNE,
    "train": _FINETUNE,
    "pretrain": {
        **_TRAINING,
        "--unit": "--set masks.unit={}",
        "--length": "--set sequences.max_length={}",
        "--steps": "--set steps={}",
        "--seed": "--set seed={}",
        "--dictionary": "--set run.dictionary={}",
        "--cache": "--set run.cache={}",
        "--shard": "--set run.shard=true",
        "--workers": "--set run.workers={}",
    },
    "distill": {
        **_TRAINING,
        "--inside-epochs": "--set intermediate.epochs={}",
        "--intermediate-epochs": "--set intermediate.epochs={}",
        "--seeds": "--set run.seeds={}",
        "--compare": "--set run.compare={}",
        "--augment": "--set augment.copies={}",
        "--start": "--set student.start={}",
        "--hours": "--set hours={}",
        "--tokens": "--set tokens={}",
        "--seed": "--set seed={}",
        "--forget-training": "--set forget_training=true",
        "--vocabulary": "--set run.vocabulary={}",
        "--words": "--set run.words={}",
        "--types": "--set run.types={}",
        "--split": "--set run.split={}",
        "--cache": "--set run.cache={}",
    },
    "augment": {
        **_DEVICE,
        "--originals": "--set run.originals=true",
        "--no-originals": "--set run.originals=false",
        "--rate": "--set replace_probability={}",
        "--candidates": "--set candidates={}",
        "--seed": "--set seed={}",
        "--words": "--set run.words={}",
        **{flag: _READ[flag] for flag in ("--text", "--label", "--delimiter", "--types")},
    },
    "predict": {
        "--least": "--min-triple-score {}",
        **{flag: _READ[flag] for flag in ("--text", "--delimiter")},
    },
    "build": {
        "--format": "--set format={}",
        "--encoding": "--set read.encoding={}",
        "--stop": "--stop-terms {}",
        "--keep": "--keep-terms {}",
        "--workers": "--set run.workers={}",
        "--worker-cpus": "--set run.worker_cpus={}",
        "--ray-address": "--set run.ray_address={}",
    },
    "annotate": {
        **_DEVICE,
        "--text": "--set read.text={}",
        "--workers": "--set run.workers={}",
        "--worker-cpus": "--set run.worker_cpus={}",
        "--ray-address": "--set run.ray_address={}",
    },
    "export": {
        **_SPEED,
        "--limit": "--set max_score_loss={}",
        "--rows": "--set calibration_rows={}",
        "--training-hashes": "--set training_hashes=true",
        "--against": "--dev {}",
        **{flag: _READ[flag] for flag in ("--text", "--label", "--delimiter")},
    },
    "evaluate": {
        **_DEVICE,
        **_SPEED,
        "--rounds": "--set run.bootstrap_samples={}",
        "--bootstrap-samples": "--set run.bootstrap_samples={}",
        **{flag: _READ[flag] for flag in ("--delimiter", "--types", "--encoding")},
    },
    "errors": {flag: _READ[flag] for flag in ("--delimiter", "--types", "--encoding")},
    "encode": {**_DEVICE, "--length": "--max-length {}"},
    "masks": {
        "--dictionary": "--set run.dictionary={}",
        "--length": "--set sequences.max_length={}",
        "--max-length": "--set sequences.max_length={}",
        "--seed": "--set seed={}",
    },
    "generate": {"--longest": "--max-new-tokens {}", "--no-repeat": "--no-repeat-ngram {}"},
}
"""By command: a flag of the last version -> what does the same now, with {} for its value. Accepted for one version."""


_PANEL_ORDER: Final = {"Arguments": 0, "Model and data": 1, "Output": 4, "Settings": 5, "Options": 6}
"""Where a group stands in `--help`; all others stand in the middle."""


_OWN_COMMANDS: Final = {"--fill-mask": "fill", "--generate": "generate"}
"""Flags that `predict` had in the last version -> the command that does the same now."""


class VerbCommand(TyperCommand):
    """A command whose help groups its options, and which knows its flags of the last version."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        return super().parse_args(ctx, list(translate_flags(args, OLD_FLAGS.get(self.name or "", {}))))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group of options: data first, output and settings last."""
        panels: dict[str, list[Any]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for name in sorted(panels, key=lambda name: _PANEL_ORDER.get(name, 3)):
            with formatter.section(name):
                formatter.write_dl(panels[name])
        hidden = {parameter.name for parameter in self.get_params(ctx) if getattr(parameter, "hidden", False)}
        if "as_json" in hidden:
            formatter.write_paragraph()
            formatter.write_text("Like every command, it also takes --json, which prints one JSON object.")


def move_command(words: list[str]) -> list[str]:
    """Replace what `predict` did in the last version by the command that does it now, with a note.

    >>> move_command(["predict", "work/mlm", "--fill-mask", "a [MASK]", "--json"])
    ['fill', 'work/mlm', '--json', 'a [MASK]']
    """
    positions = [position for position, word in enumerate(words) if word.partition("=")[0] in _OWN_COMMANDS]
    if words[:1] != ["predict"] or not positions:
        return words
    flag, sign, value = words[positions[0]].partition("=")
    command = _OWN_COMMANDS[flag]
    note(f"predict {flag} TEXT is now `alembert {command} MODEL TEXT`; the old spelling is accepted for one version")
    rest = words[positions[0] + 1 :] if sign else words[positions[0] + 2 :]
    text = value if sign else " ".join(words[positions[0] + 1 : positions[0] + 2])
    return [command, *words[1 : positions[0]], *rest, *([] if text == "-" else [text])]


def translate_flags(words: Sequence[str], old_flags: Mapping[str, str]) -> Iterator[str]:
    """Replace flags of the last version, with a note for each.

    >>> list(translate_flags(["--rate", "1e-4", "--crf"], {"--rate": "--learning-rate {}"}))
    ['--learning-rate', '1e-4', '--crf']
    """
    rest = iter(words)
    for word in rest:
        flag, sign, value = word.partition("=")
        if word == "--":
            yield from (word, *rest)
        elif flag not in old_flags:
            yield word
        else:
            new = old_flags[flag]
            note(f"{flag} is now {new.format('VALUE')}; the old spelling is accepted for one version")
            takes_value = "{}" in new
            argument = (value if sign else next(rest, "")) if takes_value else ""
            yield from (part.format(argument) for part in new.split(" "))


class LazyCommands(Mapping[str, Any]):
    """The commands by their names; each is loaded when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _load_command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@cache
def _load_command(name: str) -> Any:
    if name not in COMMANDS:
        raise KeyError(name)
    module = import_module(f"alembert.cli.{name}")
    verbs = getattr(module, "app", None)
    if verbs is None:
        verbs = typer.Typer(add_completion=False, rich_markup_mode=None)
        verbs.command(name, cls=VerbCommand)(getattr(module, name))
    command = get_command(verbs)
    command.name = name
    return command


class LazyGroup(TyperGroup):
    """A group that knows the names and helps of its commands, and loads the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names without loading anything."""
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names."""
        return super().resolve_command(ctx, move_command(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="alembert",
    cls=LazyGroup,
    help="The whole life of a domain BERT: vocabulary, pre-training, fine-tuning, distillation, fast CPU inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would show users' texts
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"alembert {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; bugs propagate as exceptions."""
    try:
        if arguments is None:
            _prepare_streams()
        code = int(app(args=arguments, prog_name="alembert", standalone_mode=False) or 0)
        sys.stdout.flush()  # here, where a closed pipe is understood
        return code
    except AlreadyDone as done:
        say(str(done))
        return 0
    except UserError as problem:
        return _refuse(str(problem))
    except TyperException as problem:
        return _refuse_command(problem)
    except Interrupted as stop:
        say(str(stop))
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; point stdout elsewhere so that the interpreter's flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _prepare_streams() -> None:
    """Show what a terminal cannot, and the library's warnings, instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda message, *_: note(str(message))


def _refuse_command(problem: TyperException) -> int:
    message = problem.format_message()
    if message.startswith("Usage:"):  # a command was given without anything: its help is the answer
        say_all(message.splitlines())
        return REFUSED
    sentence = " ".join(message.split()).rstrip(".")
    context = getattr(problem, "ctx", None)
    command = "alembert" if context is None else context.command_path
    return _refuse(f"{sentence}{'' if sentence.endswith('?') else '.'} See `{command} --help`.")


def _refuse(sentence: str) -> int:
    say(f"error: {sentence}")
    return REFUSED


def main() -> None:
    """Entry point of the `alembert` script and of `python -m alembert`."""
    sys.exit(run())
