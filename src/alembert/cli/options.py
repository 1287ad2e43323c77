"""What commands share: options in their groups of `--help`, texts of the command line or stdin, pages and pictures.

A line of stdin that cannot be used is named, and the rest goes on. A page is refused before the work if it cannot be
written, and is whole or not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from alembert.artifact import atomic_write
from alembert.charts import Chart, TextMark, has_glyphs, render_png
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadInput, BadSetting, is_installed
from alembert.hardware.torch_settings import resolve_device
from alembert.hub import model_folder
from alembert.settings import SETTINGS_HELP, Layers, apply_layers, drop_none, to_toml
from alembert.tasks.files import describe_inferred_task
from alembert.terminal import ProgressBar, note, read_stdin, say_all
from alembert.workers.ray import RayCluster, check_ray_installed

if TYPE_CHECKING:
    from alembert.train.run import RunContext

data_option = partial(typer.Option, rich_help_panel="Model and data")
training_option = partial(typer.Option, rich_help_panel="Training")
output_option = partial(typer.Option, rich_help_panel="Output")
settings_option = partial(typer.Option, rich_help_panel="Settings")

LABELLED_HELP: Final = "Labelled files of any known format, folders, patterns, s3:// addresses, or - for stdin."
Device = Annotated[str, settings_option(help="auto, cpu, cuda ...")]
ConfigFile = Annotated[Path | None, settings_option(metavar="FILE", help="Settings as a TOML file.")]


def assignments_option(settings: Any = None, **tables: Any) -> Any:
    """Return the option --set of a command with these default settings, which `--set help` prints.

    A command whose settings depend on its other options gives none, and prints them itself.
    """

    def show(words: list[str] | None) -> list[str] | None:
        if settings is not None and asks_for_help(words):
            print_settings(settings, **tables)
            raise typer.Exit
        return words

    return settings_option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as read.delimiter=tab; may be repeated. `--set help` lists all settings.",
        is_eager=True,  # --set help needs no other options
        callback=show,
    )


def asks_for_help(words: Sequence[str] | None) -> bool:
    """Check whether --set asks for the settings that there are."""
    return SETTINGS_HELP in (words or ())


def print_settings(settings: Any, **tables: Any) -> None:
    """Print settings as TOML, then tables that a command has beside them."""
    print(to_toml(settings), *(f"\n[{name}]\n{to_toml(table, name)}" for name, table in tables.items()), sep="", end="")


Assignments = Annotated[list[str] | None, assignments_option()]
TrainFiles = Annotated[list[str] | None, data_option(metavar="FILE", help="Training examples; may be repeated.")]
DevFiles = Annotated[
    list[str] | None,
    data_option(metavar="FILE", help="Development examples; by default, a tenth of --train is held out."),
]


def _note_data_flag(files: list[str] | None) -> list[str] | None:
    if files:
        note("--data FILE is now --train FILE --set run.split=80/10/10; the old spelling is accepted for one version")
    return files


UnsplitFiles = Annotated[list[str] | None, typer.Option(hidden=True, callback=_note_data_flag)]
Epochs = Annotated[float | None, training_option(help="Passes over the training data.")]
LearningRate = Annotated[float | None, training_option(help="Peak learning rate.")]
Overwrite = Annotated[bool, output_option("--overwrite", help="Replace a complete result.")]
ScoresAsJson = Annotated[bool, typer.Option("--json", hidden=True)]
CountsAsJson = Annotated[bool, output_option("--json", help="Print the counts as one JSON object.")]
AsJson = Annotated[bool, output_option("--json", help="Print one JSON object.")]
TextColumn = Annotated[list[str] | None, data_option(metavar="COLUMN", help="Column of the text; repeat it for pairs.")]
LabelColumn = Annotated[list[str] | None, data_option(metavar="COLUMN", help="Column of the label.")]
TaskName = Annotated[str | None, data_option(metavar="NAME", help="Task to use if the model has several.")]
OneTask = Annotated[
    str | None, data_option(metavar="NAME", help="One task of a model that has several; all of them if not given.")
]
SplitPart = Annotated[
    str | None, data_option(help="Use only this part of a file that finetune split: train, dev or test.")
]

MinScore = Annotated[
    float | None, output_option(metavar="SCORE", help="Withhold and count predictions below this score (0 to 1).")
]
MinPrecision = Annotated[
    float | None,
    output_option(
        "--min-precision",
        "--least-precision",
        metavar="SHARE",
        help="Withhold predictions below the score that reached this precision on the development data.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ReadTable:
    """Settings of a command that has none but how files are read."""

    read: ReadOptions = field(default_factory=ReadOptions)


def read_options(layers: Layers, text: Sequence[str] | None = None, label: list[str] | None = None) -> ReadOptions:
    """Return how files are read: what --set says under `read`, then --text and --label."""
    flags = drop_none(read={"text": list(text) if text else None, "label": single_label_column(label)})
    return apply_layers(ReadTable(), {**layers, "The flags": flags}).read


@dataclass(frozen=True, kw_only=True)
class DeviceRunOptions:
    """Where a command computes."""

    device: str = "auto"
    """Device to compute on: auto, cpu, cuda or cuda:1."""


@dataclass(frozen=True, kw_only=True)
class TaskRunOptions(DeviceRunOptions):
    """Options of a training run for a task."""

    split: str | None = None
    """Split the files of --train into training, development and test data by these shares, such as 80/10/10."""
    seeds: int = 1
    """Number of runs with different seeds: mean and standard deviation are reported, the best model is kept."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise BadSetting(f"`seeds` is {self.seeds}; expected 1 or more.")


@contextmanager
def open_run_context(device: str, **options: Any) -> Iterator[RunContext]:
    """Open the context of a training run, and show its progress while the block runs."""
    from alembert.train.run import RunContext

    with ProgressBar(sys.stderr, plain_every=60) as bar:
        yield RunContext(
            device=resolve_device(device),
            log=note,
            print_table=say_all,
            on_progress=bar.show_training,
            on_reading=bar.show,
            **options,
        )


def files_by_name(names: Sequence[str], flag: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Read the NAME=FILE of a flag for several tasks; an only task has all files, without its name."""
    if len(names) == 1:
        return {names[0]: list(words)}
    files: dict[str, list[str]] = {name: [] for name in names}
    for word in words:
        name, _, file = word.partition("=")
        if name not in files or not file:
            raise BadSetting(
                f"{flag} is {word!r}; with several tasks name the task of each file, as in {flag} {names[0]}=FILE. "
                f"The tasks are {', '.join(names)}."
            )
        files[name].append(file)
    return files


def withheld_note(count: int, thresholds: Iterable[float]) -> str:
    """Describe how many answers were withheld, and below which scores.

    >>> withheld_note(12, [0.8, 0.8])
    '12 answers below 0.80 were withheld'
    """
    used = sorted({threshold for threshold in thresholds if threshold})
    scores = " or ".join(f"{score:.2f}" if score == round(score, 2) else f"{score:.4f}" for score in used)
    return f"{count:,} answer{'s' * (count > 1)} below {scores} {'were' if count > 1 else 'was'} withheld"


def single_label_column(columns: list[str] | None) -> str | None:
    """Return the column of --label, and refuse several: of a repeated option the last would be used silently."""
    if columns and len(columns) > 1:
        raise BadSetting(
            f"--label was given {len(columns)} times ({', '.join(columns)}); expected one column. Put several labels of a "
            "text into one column, with | between them, or into a list in JSON lines."
        )
    return columns[0] if columns else None


RunOn = Annotated[str, settings_option(metavar="PLACE", help="Where to run: local, or ray (a cluster).")]


@dataclass(frozen=True, kw_only=True)
class RayRunOptions:
    """How a command uses a Ray cluster."""

    ray_address: str | None = None
    """HOST:PORT of a running Ray cluster; none: RAY_ADDRESS, else a cluster is started on this machine."""
    worker_cpus: int | None = None
    """CPUs of each worker; none: 1."""
    workers: int | None = None
    """Number of worker processes; none: as many as there are CPUs for."""

    def __post_init__(self) -> None:
        if self.workers is not None and not 1 <= self.workers <= 65536:
            raise BadSetting(f"`workers` is {self.workers}; expected 1 to 65536.")
        if self.worker_cpus is not None and not 1 <= self.worker_cpus <= 1024:
            raise BadSetting(f"`worker_cpus` is {self.worker_cpus}; expected 1 to 1024.")


def resolve_cluster(on: str, options: RayRunOptions) -> RayCluster | None:
    """Return the cluster to run on; None: this machine, without one."""
    if on == "ray":
        check_ray_installed()
        return RayCluster(address=options.ray_address, workers=options.workers, cpus=options.worker_cpus or 1)
    if on != "local":
        raise BadSetting(f"`--on` is {on!r}; expected local or ray.")
    if options.ray_address is not None or options.worker_cpus is not None:
        raise BadSetting("run.worker_cpus and run.ray_address are for a cluster: add --on ray, or leave them out.")
    return None


def note_items(remarks: Iterable[Remark], set_aside: Iterable[SetAside]) -> None:
    """Print what was noticed while reading, and what was set aside."""
    for remark in remarks:
        note(remark.describe())
    for item in set_aside:
        note(item.describe())


MODEL_HELP = "A checkpoint or Export folder, a shipped model such as bio, or hub:organisation/name."
"""Help of an argument that is a fine-tuned model."""
LANGUAGE_MODEL_HELP = "A checkpoint folder with a language-model head, or hub:organisation/name."
"""Help of an argument that is a model before fine-tuning."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a fine-tuned model; say what it is taken for if it was fine-tuned by another program."""
    folder = model_folder(model)
    if remark := describe_inferred_task(folder, str(model)):
        note(remark)
    return folder


TEXTS_HELP = "Texts; one per line on stdin if none."
"""Help of an argument that takes texts."""


def for_each_line(use: Callable[[str], object]) -> int:
    """Call `use` with each line that is not blank; return how many were set aside because it refused them."""
    set_aside = 0
    for number, ended in enumerate(read_stdin().split("\n"), 1):
        line = ended.removesuffix("\r")
        if not line.strip():
            continue
        try:
            use(line)
        except BadInput as problem:
            set_aside += 1
            note(f"line {number} set aside: {problem}")
    return set_aside


def for_each_text(texts: Sequence[str], use: Callable[[str], object]) -> int:
    """Call `use` with each text, or with each line of stdin if there are none; return how many lines were set aside."""
    used = list(texts)
    for text in texts:
        use(text)

    def take(line: str) -> None:
        use(line)
        used.append(line)

    set_aside = 0 if texts else for_each_line(take)
    if not used and not set_aside:
        raise BadInput("There is no text. Give texts after the model, or one a line on stdin.")
    return set_aside


def find_file_path(texts: Sequence[str]) -> str | None:
    """Return the first text that is the path of a file: its name would be read in place of its lines."""
    return next((text for text in texts if os.path.isfile(text)), None)  # noqa: PTH113 (a text may be too long)


def refuse_files(texts: Sequence[str], command: str) -> None:
    """Refuse paths where a command takes texts."""
    if path := find_file_path(texts):
        raise BadSetting(
            f"{path} is a file, and texts were expected. To read its lines: alembert {command} MODEL < {path}"
        )


def check_page(path: Path | None) -> None:
    """Refuse a name that something else has."""
    if path is not None and (path.is_dir() or path.parent.is_file()):
        raise BadFile(f"The page cannot be written to {path}: a folder or a file is in its way. Choose another name.")


def write_page(path: Path, text: str) -> None:
    """Write a page, and say where it is."""
    _write_content(path, text.encode(), "page")


def _write_content(path: Path, content: bytes, kind: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    except OSError as problem:
        raise BadFile(f"{path} cannot be written: {problem.strerror}.") from None
    note(f"the {kind} is {path}")


PictureFile = Annotated[
    Path | None, output_option(metavar="FILE", help="Also write a page (.html) or a picture (.svg, .png).")
]
_PICTURE_SUFFIXES: Final = (".html", ".svg", ".png")


def check_picture(path: Path | None) -> None:
    """Refuse a file of another kind than a page or a picture, before the work."""
    if path is not None and path.suffix.lower() not in _PICTURE_SUFFIXES:
        raise BadSetting(f"--out is {path}; expected a name that ends in {', '.join(_PICTURE_SUFFIXES)}.")
    check_page(path)


def write_picture(path: Path, page: Callable[[], str], charts: Callable[[], Sequence[Chart]]) -> None:
    """Write a page, or charts as a picture; an SVG has the first of them."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        write_page(path, page())
    else:
        drawn = charts()
        _write_content(path, drawn[0].svg_file() if suffix == ".svg" else _draw_png(drawn), "picture")


def _draw_png(charts: Sequence[Chart]) -> bytes:
    if not is_installed("matplotlib"):
        raise BadSetting(
            "A PNG is drawn with matplotlib, which is not installed. Install it, or choose a name in .svg."
        )
    texts = [mark.text for chart in charts for mark in chart.marks if isinstance(mark, TextMark)]
    if missing := next((text for text in texts if not has_glyphs(text)), None):
        raise BadSetting(f"The font of PNG pictures has no letters for {missing!r}. Choose a name in .svg or .html.")
    return render_png(charts) or b""
