"""Options that several commands share, in groups of `--help`, and how their values are read.

Texts of the command line, or one a line on stdin: a line that cannot be used is named, and the rest goes on.

How commands write a page: refused before the work if it cannot be written, and whole or not there.

Exit codes of every command, beside 0 (done), 1 (a bug, Python's own) and 143 (terminated).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from alembert.artifact import atomic_write
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.hub import model_folder
from alembert.settings import apply_layers, read_layers
from alembert.tasks.files import describe_inferred_task
from alembert.terminal import note, read_stdin
from alembert.workers.ray import RayCluster, check_ray_installed

DATA_PANEL: Final = "Model and data"
TRAINING_PANEL: Final = "Training"
OUTPUT_PANEL: Final = "Output"
SETTINGS_PANEL: Final = "Settings"

LABELLED_HELP: Final = "Labelled files of any known format, folders, patterns, s3:// addresses, or - for stdin."
Device = Annotated[str, typer.Option(help="auto, cpu, cuda ...", rich_help_panel=SETTINGS_PANEL)]
ConfigFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings as a TOML file.", rich_help_panel=SETTINGS_PANEL)
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one setting of the file, such as read.delimiter=tab; may be repeated.",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
ShowConfig = Annotated[
    bool,
    typer.Option("--show-config", help="Print all settings as TOML and exit.", rich_help_panel=SETTINGS_PANEL),
]
TrainFiles = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Training examples; may be repeated.", rich_help_panel=DATA_PANEL),
]
DevFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Development examples; by default a tenth of --train is set apart.",
        rich_help_panel=DATA_PANEL,
    ),
]
UnsplitFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE", help="Examples to split into train, dev and test (80/10/10).", rich_help_panel=DATA_PANEL
    ),
]
Epochs = Annotated[float | None, typer.Option(help="Passes over the training data.", rich_help_panel=TRAINING_PANEL)]
LearningRate = Annotated[float | None, typer.Option(help="Peak learning rate.", rich_help_panel=TRAINING_PANEL)]
Seeds = Annotated[
    int,
    typer.Option(
        min=1, help="Train this many times; report mean and deviation, keep the best.", rich_help_panel=TRAINING_PANEL
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a complete result.", rich_help_panel=OUTPUT_PANEL)
]
ScoresAsJson = Annotated[
    bool, typer.Option("--json", help="Print the scores as one JSON object.", rich_help_panel=OUTPUT_PANEL)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT_PANEL)]
TextColumn = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column of the text; repeat it for pairs.", rich_help_panel=DATA_PANEL),
]
LabelColumn = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Column of the label.", rich_help_panel=DATA_PANEL)
]
TaskName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Task to use if the model has several.", rich_help_panel=DATA_PANEL),
]

MinScore = Annotated[
    float | None,
    typer.Option(metavar="SCORE", help="Withhold and count predictions below this score (0 to 1)."),
]
MinPrecision = Annotated[
    float | None,
    typer.Option(
        "--min-precision",
        "--least-precision",
        metavar="SHARE",
        help="Withhold predictions below the score that reached this precision on the development data.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _ReadTable:
    read: ReadOptions = field(default_factory=ReadOptions)


def read_options(
    words: Sequence[str] | None, text: Sequence[str] | None = None, label: list[str] | None = None
) -> ReadOptions:
    """Return how files are read: what --set says under `read`, then --text and --label."""
    flags = {"read": {"text": list(text) if text else None, "label": single_label_column(label)}}
    return apply_layers(_ReadTable(), read_layers(None, words, flags)).read


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
    given = sorted({each for each in thresholds if each})
    scores = " or ".join(f"{each:.2f}" if each == round(each, 2) else f"{each:.4f}" for each in given)
    return f"{count:,} answer{'s' * (count > 1)} below {scores} {'were' if count > 1 else 'was'} withheld"


def single_label_column(columns: list[str] | None) -> str | None:
    """Return the column of --label, and refuse several: of a repeated option the last would be used silently."""
    if columns and len(columns) > 1:
        raise BadSetting(
            f"--label was given {len(columns)} times ({', '.join(columns)}); expected one column. Put several labels of a "
            "text into one column, with | between them, or into a list in JSON lines."
        )
    return columns[0] if columns else None


RunOn = Annotated[str, typer.Option(metavar="PLACE", help="Where to run: local or ray.")]


@dataclass(frozen=True, kw_only=True)
class RayRunOptions:
    """How a command uses a Ray cluster."""

    ray_address: str | None = None
    """HOST:PORT of a running Ray cluster; none: RAY_ADDRESS, else a cluster is started on this machine."""
    worker_cpus: int | None = None
    """CPUs of each worker; none: 1."""

    def __post_init__(self) -> None:
        if self.worker_cpus is not None and not 1 <= self.worker_cpus <= 1024:
            raise BadSetting(f"`worker_cpus` is {self.worker_cpus}; expected 1 to 1024.")


def resolve_cluster(on: str, workers: int | None, options: RayRunOptions) -> RayCluster | None:
    """Return the cluster to run on; None: this machine, without one."""
    if on == "ray":
        check_ray_installed()
        return RayCluster(address=options.ray_address, workers=workers, cpus=options.worker_cpus or 1)
    if on != "local":
        raise BadSetting(f"`--on` is {on!r}; expected local or ray.")
    if options != RayRunOptions():
        raise BadSetting("run.worker_cpus and run.ray_address are for a cluster: add --on ray, or leave them out.")
    return None


MODEL_HELP = "A checkpoint or Export folder, or hub:organisation/name."
"""Help of an argument that is a fine-tuned model."""
LANGUAGE_MODEL_HELP = "A checkpoint folder with a language-model head, or hub:organisation/name."
"""Help of an argument that is a model before fine-tuning."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a fine-tuned model; say what it is taken for if it was fine-tuned by another program."""

    folder = model_folder(model)
    if remark := describe_inferred_task(folder, str(model)):
        note(remark)
    return folder


TEXTS_HELP = "Texts; one a line on stdin if none."
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

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as problem:
        raise BadFile(f"{path} cannot be written: {problem.strerror}.") from None
    note(f"the page is {path}")
