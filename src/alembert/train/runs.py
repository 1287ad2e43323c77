"""The training runs below a folder: what each was, how far it came, how well it did; and a page.

In: a folder with results of `pretrain`, `finetune` and `distill`, complete or not, among anything else. Out: a
`RunRecord` for each, the best first, and what was there beside runs. A run is known by its manifest, or by the draft
that a stopped run leaves; scores come from `run/scores.json` or from the log. What cannot be read is listed and stops
nothing. Manifests have no time, so that of the last file is shown.

The page has a table of the runs, their curves over each other, and the settings in which they differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, Final

from alembert.artifact.disk import MALFORMED_ERRORS, read_json
from alembert.artifact.opening import DRAFT, MANIFEST, Manifest, parse_manifest, read_manifest_record
from alembert.charts import Chart, Curve, NumberFormat, Points, build_curve_chart, render_figure, thin_points
from alembert.errors import BadFile
from alembert.html import COLOURS, Html, render_legend, render_list, render_page, render_table, render_tiles
from alembert.train.runlog import LOG_FILE, RunLog

VERBS: Final = ("pretrain", "finetune", "distill")
_SCORES_FILE: Final = "run/scores.json"
_MAX_POINTS: Final = 300
_OWN_FOLDERS: Final = ("run", "inside", "seeds")
"""Folders inside a run that hold its logs."""
_LOSSES: Final = ("loss", "perplexity", "mse", "mae")
_IMITATION: Final = "imitation"
"""What distillation calls its measures, all of which are losses."""
_USUAL_MEASURES: Final = ("f1", "accuracy")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A training run."""

    name: str
    """Its folder, below the one that was searched."""
    verb: str
    tasks: tuple[str, ...]
    finished: bool
    changed: str
    """When its last file was written (UTC, ISO 8601)."""
    data: tuple[str, ...]
    """Names of its inputs: data and the model it began with."""
    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    measure: str | None = None
    """What the best weights are chosen by on development or held-out data."""
    score: float | None = None
    """The best value of the measure."""
    seed_scores: tuple[float, ...] = ()
    """The score of each seed of a run with several."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """All settings as JSON, by names such as `optimiser.learning_rate`."""
    loss: Points = ()
    """Training loss by step."""
    scores: Points = ()
    """The measure by step."""

    @property
    def kind(self) -> str:
        """The verb and the tasks: runs of one kind have the same settings."""
        return " ".join((self.verb, "+".join(self.tasks))).strip()

    @property
    def lower_is_better(self) -> bool:
        return is_loss(self.measure or "")


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """The runs below a folder, and what else was found there."""

    folder: str
    runs: tuple[RunRecord, ...]
    """Those of one measure together, the best first."""
    others: int
    """Results of other kinds, such as corpora and Exports."""
    unreadable: tuple[str, ...]
    """Why folders that look like runs could not be read, a sentence each."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of runs, in their order."""
        return tuple(dict.fromkeys(run.kind for run in self.runs))

    def differing_settings(self, kind: str) -> dict[str, tuple[str | None, ...]]:
        """Return the settings in which runs of a kind differ, with the value of each; None where it has no such setting."""
        runs = [run for run in self.runs if run.kind == kind]
        names = dict.fromkeys(name for run in runs for name in run.settings)
        columns = {name: tuple(run.settings.get(name) for run in runs) for name in names}
        return {name: values for name, values in columns.items() if len(set(values)) > 1}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; the differing settings of a kind have the values of its runs, in their order."""
        differing = {kind: self.differing_settings(kind) for kind in self.kinds}
        return {
            "folder": self.folder,
            "runs": [{**asdict(run), "kind": run.kind} for run in self.runs],
            "differing_settings": {kind: found for kind, found in differing.items() if found},
            "others": self.others,
            "unreadable": list(self.unreadable),
        }


def is_loss(measure: str) -> bool:
    """Return whether a measure is the better the lower it is.

    >>> is_loss("masked_lm loss"), is_loss("imitation hidden"), is_loss("f1")
    (True, True, False)
    """
    return measure.startswith(_IMITATION) or measure.rsplit(" ", maxsplit=1)[-1] in _LOSSES


def list_runs(folder: str | Path) -> RunOverview:
    """Find all runs below a folder; the folder may be a run itself."""
    place = Path(folder)
    if not place.is_dir():
        raise BadFile(f"There is no folder {folder}. Name one that holds the results of pretrain, finetune or distill.")
    runs, others, unreadable = [], 0, []
    for candidate in _walk(place):
        try:
            manifest = _read_record(candidate)
            if manifest is None or manifest.config.get("verb") not in VERBS:
                others += manifest is not None
                continue
            runs.append(_read_run(candidate, manifest, place))
        except (BadFile, OSError, *MALFORMED_ERRORS) as problem:
            reason = str(problem) if isinstance(problem, BadFile) else "its files are not those of a run"
            unreadable.append(f"{candidate.relative_to(place)}: {reason}")
    if not runs:
        more = f" {len(unreadable)} folders could not be read, the first: {unreadable[0]}" if unreadable else ""
        raise BadFile(
            f"There is no run below {folder}: no result of pretrain, finetune or distill, complete or not. Check the path.{more}"
        )
    return RunOverview(folder=str(folder), runs=tuple(_sort(runs)), others=others, unreadable=tuple(unreadable))


def _walk(place: Path) -> Iterator[Path]:
    """Yield folders that have a manifest, a draft or a log of their own; hidden ones are caches."""
    for name, folders, files in os.walk(place):
        here = Path(name)
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        is_artifact = MANIFEST in files or DRAFT in files
        if is_artifact or LOG_FILE in files:
            yield here
        if is_artifact:
            folders[:] = [each for each in folders if each not in _OWN_FOLDERS]


def _read_record(folder: Path) -> Manifest | None:
    """Read the manifest or the draft of a folder; None if it is that of another program."""
    for name in (MANIFEST, DRAFT):
        if (path := folder / name).is_file():
            return parse_manifest(read_manifest_record(path, name), name)
    raise BadFile(f"it has a {LOG_FILE}, and neither {MANIFEST} nor {DRAFT}")


def _read_run(folder: Path, manifest: Manifest, place: Path) -> RunRecord:
    finished = (folder / MANIFEST).is_file()
    logs = sorted(folder.glob(f"**/{LOG_FILE}"), key=lambda path: (path.parent.name != "run", path.as_posix()))
    rows = list(RunLog(logs[0].parent, tensorboard=False).rows()) if logs else []
    last: Mapping[str, Any] = next((row for row in reversed(rows) if "step" in row and "tokens" in row), {})
    times = [path.stat().st_mtime for path in (*logs, folder / MANIFEST, folder / DRAFT) if path.is_file()]
    tasks = manifest.config.get("tasks") or {}
    totals = {**last, **manifest.counts, "step": manifest.counts.get("steps", last.get("step"))}
    inputs = {f"input {n}": f"{each.name} ({each.sha256[:8]})" for n, each in enumerate(manifest.inputs, 1)}
    run = RunRecord(
        name=folder.relative_to(place).as_posix(),
        verb=manifest.config["verb"],
        tasks=tuple(str(each.get("task", name)) for name, each in tasks.items()),
        finished=finished,
        changed=datetime.fromtimestamp(max(times), UTC).isoformat(timespec="seconds"),
        data=tuple(each.name for each in manifest.inputs),
        steps=totals["step"],
        tokens=totals.get("tokens"),
        seconds=totals.get("seconds"),
        settings={**inputs, **dict(_flatten(manifest.config))},
        loss=thin_points([(row["step"], row["loss"]) for row in rows if row.get("loss") is not None], _MAX_POINTS),
    )
    return _with_scores(run, folder, rows)


def _flatten(value: Any, above: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flatten(inner, f"{above}.{name}" if above else str(name))
    else:
        yield above, json.dumps(value, ensure_ascii=False)


def _with_scores(run: RunRecord, folder: Path, rows: Sequence[Mapping[str, Any]]) -> RunRecord:
    """Add the score that was saved, or else the best of what the log says about held-out data."""
    scored = _scores_by_name(rows)
    if (folder / _SCORES_FILE).is_file():
        saved = read_json(folder / _SCORES_FILE)
        main = str(saved["main"])
        points = next((points for name, points in scored.items() if name.endswith(f" {main}")), ())
        seeds = [read_json(path)["measures"][main] for path in sorted(folder.glob(f"seeds/*/{_SCORES_FILE}"))]
        score = float(saved["measures"][main])
        return replace(run, measure=main, score=score, scores=points, seed_scores=tuple(map(float, seeds)))
    name = _choose_measure(scored)
    if name is None:
        return run
    best = min if is_loss(name) else max
    # What a task is scored by is called as in the files of complete runs.
    measure = name if is_loss(name) else name.rpartition(" ")[2]
    return replace(run, measure=measure, score=best(value for _, value in scored[name]), scores=scored[name])


def _scores_by_name(rows: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Collect the points of each measure on held-out data, as `masked_lm loss` or `dev f1`."""
    scored: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for objective, measures in row.get("scores", {}).items():
            for name, value in measures.items():
                if value is not None:
                    scored.setdefault(f"{objective} {name}", []).append((float(row["step"]), float(value)))
    return {name: thin_points(points, _MAX_POINTS) for name, points in scored.items()}


def _choose_measure(scored: Mapping[str, Points]) -> str | None:
    """Choose the loss of the first objective, or else a usual measure of the first task; None: nothing was scored."""
    if not scored:
        return None
    first = next(iter(scored)).partition(" ")[0]
    usual = (f"{first} {name}" for name in ("loss", *_USUAL_MEASURES))
    return next((name for name in usual if name in scored), next(iter(scored)))


def _sort(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Put runs of one measure together, scores before losses, the best first; those without any come last."""

    def place(run: RunRecord) -> tuple[Any, ...]:
        score = 0.0 if run.score is None else run.score if run.lower_is_better else -run.score
        return run.measure is None, run.lower_is_better, run.measure or "", score, run.name

    return sorted(runs, key=place)


# -- tables


RUNS_HEADER: Final = ("", "run", "what", "state", "best score", "steps", "tokens", "time", "changed (UTC)", "data")


def list_run_rows(overview: RunOverview) -> list[tuple[str, ...]]:
    """Return a row for each run, numbered, as `RUNS_HEADER` says."""
    return [(str(number), *_run_row(run)) for number, run in enumerate(overview.runs, 1)]


def _run_row(run: RunRecord) -> Iterator[str]:
    yield run.name
    yield run.kind
    yield "finished" if run.finished else "unfinished"
    spread = f" ({min(run.seed_scores):.4f} to {max(run.seed_scores):.4f})" if run.seed_scores else ""
    yield "-" if run.score is None else f"{run.measure} {run.score:.4f}{spread}"
    yield "-" if run.steps is None else f"{run.steps:,}"
    yield "-" if run.tokens is None else f"{run.tokens:,}"
    yield "-" if run.seconds is None else str(timedelta(seconds=round(run.seconds)))
    yield run.changed.replace("T", " ")[:16]
    yield ", ".join(run.data)


def list_setting_rows(overview: RunOverview, kind: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the settings in which runs of a kind differ, a column for each run by its number."""
    numbers = [str(number) for number, run in enumerate(overview.runs, 1) if run.kind == kind]
    differing = overview.differing_settings(kind)
    rows = [(name, *("-" if value is None else value for value in values)) for name, values in differing.items()]
    return (f"setting of {kind}", *numbers), rows


# -- the page

MAX_CURVES: Final = len(COLOURS)
"""Runs in one plot: as many as there are colours."""
_TEXT_COLUMNS: Final = frozenset({1, 2, 3, 4, 8, 9})

NumberedRun = tuple[int, RunRecord]


def render_runs_page(overview: RunOverview) -> str:
    title = f"Runs below {overview.folder}"
    return render_page(title, title, "\n".join(_body(overview)))


def _body(overview: RunOverview) -> Iterator[str]:
    finished = sum(run.finished for run in overview.runs)
    unfinished = len(overview.runs) - finished
    counts = {"finished": finished, "unfinished": unfinished, "other results": overview.others}
    counts["not readable"] = len(overview.unreadable)
    yield render_tiles({name: str(count) for name, count in counts.items()})
    yield "<p>Runs with the same measure stand together, the best first: the score on development data, or the loss on held-out text.</p>"
    yield render_table(RUNS_HEADER, list_run_rows(overview), _TEXT_COLUMNS)
    yield from render_run_curves(overview)
    for kind in overview.kinds:
        header, rows = list_setting_rows(overview, kind)
        if rows:
            yield f"<h2>Settings in which runs of {escape(kind)} differ</h2>"
            yield render_table(header, rows, frozenset(range(len(header))))
    if overview.unreadable:
        yield f"<h2>Not readable</h2>\n{render_list(overview.unreadable)}"


def render_run_curves(overview: RunOverview) -> Iterator[str]:
    """Yield the curves, with a legend and a sentence on those that have no colour."""
    panels = [(chart, curves, left_out) for chart, curves, left_out in _panels(overview)]
    if panels:
        yield "<h2>Curves</h2>"
    parts = []
    for chart, curves, left_out in panels:
        more = f" The best {MAX_CURVES} of {MAX_CURVES + left_out} runs are drawn." if left_out else ""
        legend = render_legend({curve.name: curve.colour for curve in curves})
        parts.append(f"<div>{render_figure(chart, f'{chart.title}, by step.{more}')}{legend}</div>")
    if parts:
        yield Html(f'<div class="several">{"".join(parts)}</div>')


def build_run_charts(overview: RunOverview) -> list[Chart]:
    """Draw the curves of each measure and of the training losses of each verb."""
    return [chart for chart, _, _ in _panels(overview)]


def _panels(overview: RunOverview) -> Iterator[tuple[Chart, list[Curve], int]]:
    runs = list(enumerate(overview.runs, 1))
    for measure in dict.fromkeys(run.measure for run in overview.runs if run.measure is not None):
        own = [(number, run) for number, run in runs if run.measure == measure]
        yield from _panel(f"{measure} on held-out data", own, [run.scores for _, run in own])
    for kind in overview.kinds:
        own = [(number, run) for number, run in runs if run.kind == kind]
        yield from _panel(f"Training loss of {kind}", own, [run.loss for _, run in own])


def _panel(
    title: str, runs: Sequence[NumberedRun], points: Sequence[Points]
) -> Iterator[tuple[Chart, list[Curve], int]]:
    """Draw the first runs that have points; without any there is no panel."""
    drawn = [(number, run, own) for (number, run), own in zip(runs, points, strict=True) if own]
    curves = [
        Curve(f"{number} {run.name}", own, colour) for colour, (number, run, own) in enumerate(drawn[:MAX_CURVES])
    ]
    if curves:
        form: NumberFormat = "{:.4g}".format
        yield build_curve_chart(title, curves, form), curves, max(0, len(drawn) - MAX_CURVES)
