"""Options that several commands share: the same name, the same words."""

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from alembert.errors import BadSetting

LABELLED: Final = "Labelled files of any known format, folders of them, patterns, s3:// addresses, or - for stdin."
Device = Annotated[str, typer.Option(help="auto, cpu, cuda ...")]
ForgetTraining = Annotated[
    bool,
    typer.Option(
        "--forget-training",
        help="Write no hashes of the training texts and entities, to give the model away.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a complete checkpoint.")]
ShowConfig = Annotated[bool, typer.Option("--show-config", help="Print all settings as TOML, and do nothing.")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[FILE=]TYPES",
        help="tag: the only entity types that files annotate, such as Disease,Gene; others are ignored. May be repeated.",
    ),
]
ScoresAsJson = Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")]
LabelColumn = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the label.")]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="SIGN", help="Separator of the columns of tables: , ; | or tab; detected if not given."),
]

MinScore = Annotated[
    float | None,
    typer.Option(metavar="SCORE", help="Withhold answers below this score, 0 to 1; they are counted."),
]
MinPrecision = Annotated[
    float | None,
    typer.Option(
        "--min-precision",
        "--least-precision",
        metavar="SHARE",
        help="Withhold answers below the score that reached this precision on the development data.",
    ),
]


def withheld_note(count: int, thresholds: Iterable[float]) -> str:
    """Say how many answers were withheld, and below which scores.

    >>> withheld_note(12, [0.8, 0.8])
    '12 answers below 0.80 were withheld'
    """
    given = sorted({each for each in thresholds if each})
    scores = " or ".join(f"{each:.2f}" if each == round(each, 2) else f"{each:.4f}" for each in given)
    return f"{count:,} answer{'s' * (count > 1)} below {scores} {'were' if count > 1 else 'was'} withheld"


def one_label(columns: list[str] | None) -> str | None:
    """Return the column of --label, and refuse several: of a repeated option the last would be used silently."""
    if columns and len(columns) > 1:
        raise BadSetting(
            f"--label was given {len(columns)} times ({', '.join(columns)}); expected one column. Put several labels of a "
            "text into one column, with | between them, or into a list in JSON lines."
        )
    return columns[0] if columns else None
