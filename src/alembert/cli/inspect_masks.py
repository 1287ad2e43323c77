"""`alembert inspect masks`: what is masked in training, and how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from alembert.cli.options import (
    Assignments,
    ConfigFile,
    asks_for_help,
    check_page,
    data_option,
    output_option,
    print_settings,
    settings_option,
    write_page,
)
from alembert.cli.pretrain import PretrainRunOptions
from alembert.corpus.excerpt import Excerpt, read_excerpt
from alembert.corpus.inputs import check_objective_data, expand_inputs, open_input_corpus
from alembert.corpus.shard_tokenizer import WordSettings
from alembert.data.feed import SequenceSpec
from alembert.errors import BadSetting
from alembert.inspect.masks import MaskAction, MaskedSequence, MaskingPlan, MaskReport, report_masks
from alembert.inspect.masks_page import MaskGroup, MaskRun, group_segments, render_masks_page
from alembert.settings import read_layers, split_table
from alembert.terminal import escape_controls, note, print_json, stdout_console
from alembert.text.tokenizer import Tokenizer
from alembert.train.pretrain.settings import PretrainSettings, resolve_recipe

_STYLES: Final[dict[MaskAction | None, str]] = {
    "mask": "white on red",
    "random": "black on yellow",
    "kept": "black on green",
    None: "",
}
_ENTITY: Final = "underline"
_RECIPE: Final = "adapt"


def masks(
    inputs: Annotated[list[Path], typer.Argument(metavar="CORPUS", help="A Corpus folder, or files with text.")],
    model: Annotated[
        str,
        data_option(
            metavar="FOLDER", help="A checkpoint, hub:organisation/name, or a vocabulary: its tokenizer is used."
        ),
    ],
    *,
    unit: Annotated[str | None, data_option(help="Masking unit: piece, word, span or entity.")] = None,
    recipe: Annotated[str, settings_option(help="Named group of settings; see docs/pretrain.md.")] = _RECIPE,
    config: ConfigFile = None,
    assignments: Assignments = None,
    count: Annotated[int, output_option(min=0, help="Sequences to show.")] = 5,
    html: Annotated[Path | None, output_option(metavar="FILE", help="Also write a page.")] = None,
    as_json: Annotated[bool, output_option("--json", help="Print sequences and counts as one JSON object.")] = False,
) -> None:
    """Show masked training sequences, with statistics over many."""
    check_page(html)
    layers = read_layers(config, assignments, {"masks": {"unit": unit}})
    options, layers = split_table(PretrainRunOptions(), "run", layers)
    settings = resolve_recipe(recipe, layers)
    if asks_for_help(assignments):
        print_settings(settings, run=options)
        return
    plan = _plan(settings)
    tokenizer = Tokenizer.open(model)
    dictionary = None if options.dictionary is None else Path(options.dictionary)
    excerpt = _excerpt(inputs, tokenizer, settings, dictionary)
    if excerpt.set_aside:
        note(f"{excerpt.set_aside:,} records could not be read and are not shown.")
    report = report_masks(excerpt.tokens, tokenizer, plan, count=count)
    lines = [_sample_line(excerpt, report), _plan_line(plan)]
    if html is not None:
        write_page(html, render_masks_page(report, "What is masked", " ".join(lines)))
    if as_json:
        print_json({"sample": _sample_table(excerpt, report), **report.as_json()})
    else:
        _print(report, [*lines, *_passes_line(settings)])


def _plan(settings: PretrainSettings) -> MaskingPlan:
    """Turn the settings of a run into what its first part does to sequences."""
    if not settings.objectives.masked_lm:
        raise BadSetting(
            "masked_lm has the weight 0 in these settings: nothing is masked. Choose another --recipe, or masked_lm = 1."
        )
    sequences = settings.sequences
    return MaskingPlan(
        cutting=SequenceSpec(
            length=sequences.max_length,
            pairs=settings.objectives.pairs,
            short_share=sequences.short_share,
            cut=sequences.cut,
        ),
        masks=settings.masks,
        seed=settings.seed,
        micro_tokens=settings.batch.micro_tokens,
        held_out=settings.evaluation.share,
    )


def _excerpt(inputs: list[Path], tokenizer: Any, settings: PretrainSettings, dictionary: Path | None) -> Excerpt:
    """Read the first documents, after the checks that training would make."""
    files = expand_inputs(inputs)
    words = WordSettings(segmenter=settings.segmenter, dictionary=dictionary)
    excerpt = read_excerpt(open_input_corpus(files) or files, tokenizer, words)
    check_objective_data(
        files[0],
        documents=len(excerpt.tokens),
        entities=excerpt.entities,
        next_sentence=bool(settings.objectives.next_sentence),
        wants_entities=settings.masks.unit == "entity" or settings.objectives.needs_entities,
    )
    return excerpt


def _sample_table(excerpt: Excerpt, report: MaskReport) -> dict[str, Any]:
    return {
        "documents": excerpt.documents,
        "of": excerpt.total,
        "whole": excerpt.is_whole,
        "held_out": report.held_out,
        "without_tokens": excerpt.documents - len(excerpt.tokens),
    }


def _sample_line(excerpt: Excerpt, report: MaskReport) -> str:
    """Describe which documents were read, and how many of them are not masked."""
    empty = excerpt.documents - len(excerpt.tokens)
    return (
        _documents_line(excerpt, report.plan)
        + f" Held out as in that run and not masked: {report.held_out:,}." * bool(report.held_out)
        + f" Without a token: {empty:,}." * bool(empty)
    )


def _documents_line(excerpt: Excerpt, plan: MaskingPlan) -> str:
    if excerpt.is_whole:
        return f"All {excerpt.documents:,} documents, in the order of a run with seed {plan.seed}."
    total = "" if excerpt.total is None else f" of {excerpt.total:,}"
    partner = ", and a random B comes from among them" if plan.cutting.pairs == "next_sentence" else ""
    return (
        f"A sample: the first {excerpt.documents:,}{total} documents, masked as in a run with seed {plan.seed} "
        f"(which has them in another order{partner})."
    )


def _plan_line(plan: MaskingPlan) -> str:
    pairs = f", pairs for {plan.cutting.pairs}" if plan.cutting.pairs else ""
    rate = f"{plan.masks.rate:.0%} of the tokens"
    if plan.masks.unit == "entity":
        rate = f"{plan.masks.entity_rate:.0%} of the entities and {plan.masks.rate:.0%} of the other tokens"
    return f"Unit {plan.masks.unit}, {rate}; sequences of up to {plan.cutting.length} tokens{pairs}."


def _passes_line(settings: PretrainSettings) -> list[str]:
    others = [name for name in ("causal", "prefix") if name in settings.objectives.chosen()]
    if not others:
        return []
    return [f"Micro-batches of the objective {' or '.join(others)} are not masked; these are the others."]


def _print(survey: MaskReport, lines: list[str]) -> None:
    console = stdout_console()
    coloured = console.color_system is not None and not console.no_color
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(_legend(coloured), soft_wrap=True)
    for number, sequence in enumerate(survey.sequences, 1):
        console.print(f"\n{_title(number, sequence, survey.labels)}", style="bold", soft_wrap=True)
        sides = group_segments(sequence)
        for name, side in zip("AB", sides, strict=False):
            console.print(f"{name}: " * (len(sides) > 1), _side(side, coloured), sep="", soft_wrap=True)
    console.print()
    for name, value in survey.statistics.rows(survey.labels):
        console.print(f"{name:<24}{value}", soft_wrap=True)


def _title(number: int, sequence: MaskedSequence, labels: tuple[str, str]) -> str:
    label = "" if sequence.label is None else f"; {labels[sequence.label]}"
    size = f"{len(sequence.pieces)} tokens, {sequence.chosen} to predict"
    return f"{number}. document {sequence.document}, {size}{label}"


def _legend(coloured: bool) -> Text:
    runs = [
        MaskRun("masked", "", "mask", 0, spaced=False),
        MaskRun("replaced", "other", "random", 1, spaced=True),
        MaskRun("kept", "", "kept", 2, spaced=True),
    ]
    entity = MaskRun("entity", "", None, None, spaced=True)
    return _side([MaskGroup(False, tuple(runs)), MaskGroup(True, (entity,))], coloured)


def _side(groups: Sequence[MaskGroup], coloured: bool) -> Text:
    """Write a side of a sequence: marks as colours, or as brackets."""
    text = Text()
    for group in groups:
        text.append(" " * group.runs[0].spaced)
        text.append("{" if group.is_entity and not coloured else "")
        for number, run in enumerate(group.runs):
            style = _ENTITY if group.is_entity and coloured else ""
            text.append(" " * (run.spaced and number > 0), style=style)
            _append(text, run, style, coloured)
        text.append("}" if group.is_entity and not coloured else "")
    return text


def _append(text: Text, run: MaskRun, style: str, coloured: bool) -> None:
    shown = escape_controls(f"{run.text}>{run.seen}" if run.mark == "random" else run.text)
    if coloured:
        text.append(shown, style=f"{style} {_STYLES[run.mark]}".strip())
    else:
        text.append({None: shown, "kept": f"[={shown}]"}.get(run.mark, f"[{shown}]"))
