"""The `alembert` command: one file per verb, each a thin layer over a function of the same name.

The file of a verb is loaded when the verb is called, so that `alembert --help` stays fast. Verb files import at their
top; only what loads torch is imported inside the function that needs it, so that `alembert VERB --help` works, and works
fast, without torch. Data goes to stdout, notes and progress to stderr; `options` has the exit codes.
"""

import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from alembert import __version__
from alembert.cli.command import INTERRUPTED, REFUSED, VerbCommand
from alembert.errors import AlreadyDone, Interrupted, UserError
from alembert.terminal import note, say, say_all

COMMANDS: Final = {
    "demo": "Run every step on an embedded sample.",
    "doctor": "Show what this machine can do, what was chosen and why.",
    "corpus": "Build a corpus from raw files, and look at it.",
    "vocab": "Learn, extend, prune and evaluate vocabularies.",
    "pretrain": "Pre-train a model from scratch, or adapt one to your text.",
    "mix": "Mix the weights of a model before and after further training.",
    "finetune": "Fine-tune a model for one task or several.",
    "distill": "Distil a small student from a teacher.",
    "augment": "Augment labelled examples by replacing words.",
    "evaluate": "Score a fine-tuned model on labelled files.",
    "embed": "Train embedding models, embed texts and search them.",
    "export": "Export a fine-tuned model to run without torch.",
    "convert": "Convert old .bin weights to safetensors.",
    "predict": "Predict with a fine-tuned model.",
    "fill": "Fill the masks of a text.",
    "generate": "Continue texts with a causal language model.",
    "score": "Compute the log probability and perplexity of texts.",
    "annotate": "Annotate documents with fine-tuned models.",
    "bench": "Measure the speed of a fine-tuned model.",
    "inspect": "Look inside tokenizers, training data and errors.",
}
"""What `alembert --help` lists, in the order of a model's life: the name of each verb, which is that of its file."""


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


def _show_version(wanted: bool) -> None:
    if wanted:
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
