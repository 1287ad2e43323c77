"""The `alembert` command: one file per verb, each a thin layer over a function of the same name.

Verb files import what they need inside the function, so that `alembert --help` stays fast and loads no torch.
Data goes to stdout, notes and progress to stderr; `output` has the exit codes.
"""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from copy import copy

import typer
from typer.exceptions import TyperException

from alembert import __version__
from alembert.cli import (
    annotate,
    augment,
    bench,
    convert,
    corpus,
    demo,
    distill,
    doctor,
    embed,
    evaluate,
    export,
    fill,
    finetune,
    generate,
    inspect,
    output,
    predict,
    pretrain,
    score,
    vocab,
)
from alembert.errors import AlreadyDone, Interrupted, UserError
from alembert.terminal import note, say, say_all

app = typer.Typer(
    name="alembert",
    help="The whole life of a domain BERT: vocabulary, pre-training, fine-tuning, distillation, fast CPU inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables would show users' texts
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.add_typer(corpus.app, name="corpus")
app.add_typer(vocab.app, name="vocab")
app.command("pretrain")(pretrain.pretrain)
app.command("finetune")(finetune.finetune)
app.command("distill")(distill.distill)
app.command("augment")(augment.augment)
app.command("evaluate")(evaluate.evaluate)
app.add_typer(embed.app, name="embed")
app.command("export")(export.export)
app.command("convert")(convert.convert)
app.command("predict")(predict.predict)
app.command("fill")(fill.fill)
app.command("generate")(generate.generate)
app.command("score")(score.score)
app.command("annotate")(annotate.annotate)
app.command("bench")(bench.bench)
app.add_typer(inspect.app, name="inspect")


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
        words = sys.argv[1:] if arguments is None else arguments
        code = int(_app_for(words)(args=words, prog_name="alembert", standalone_mode=False) or 0)
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
        return output.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; point stdout elsewhere so that the interpreter's flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _app_for(words: Sequence[str]) -> typer.Typer:
    """Leave out all verbs but the one that was called: reading the options of the others takes a tenth of a start."""
    commands = [each for each in app.registered_commands if each.name in words[:1]]
    groups = [each for each in app.registered_groups if each.name in words[:1]]
    if not (commands or groups):
        return app
    chosen = copy(app)
    chosen.registered_commands, chosen.registered_groups = commands, groups
    return chosen


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
        return output.REFUSED
    sentence = " ".join(message.split()).rstrip(".")
    context = getattr(problem, "ctx", None)
    command = "alembert" if context is None else context.command_path
    return _refuse(f"{sentence}. See `{command} --help`.")


def _refuse(sentence: str) -> int:
    say(f"error: {sentence}")
    return output.REFUSED


def main() -> None:
    """Entry point of the `alembert` script and of `python -m alembert`."""
    sys.exit(run())
