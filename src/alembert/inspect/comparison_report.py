"""A comparison of models for people: one table, a column for each model, and the sentences that belong to it."""

from __future__ import annotations

from collections.abc import Iterator

from alembert.data.windows import REFERENCE_TOKENS
from alembert.inspect.comparison import Comparison, Standing
from alembert.inspect.evaluation_report import between, few_documents
from alembert.inspect.tables import Cell, Table


def table(found: Comparison) -> Table:
    """Put the models side by side."""
    columns = [dict(_facts(found, model)) for model in found.models]
    rows = tuple((what, *(column[what] for column in columns)) for what in columns[0])
    header = ("", *(model.name for model in found.models))
    return Table(name="comparison", title="Score, size and speed", header=header, rows=rows)


def by_model(found: Comparison) -> Table:
    """Put the models one below the other, with what matters most of each."""
    speeds = () if found.machine is None else ("texts a second", "tokens a second", "speed-up")
    header = ("model", found.measure, "95 % interval", "layers x width", "weights", *speeds)
    rows = tuple((*_brief(model), *_rates(found, model)) for model in found.models)
    return Table(name="models", title="Score, size and speed", header=header, rows=rows)


def _brief(model: Standing) -> tuple[Cell, ...]:
    size = model.size
    shape, weights = f"{size.layers} x {size.width}", f"{size.bytes / 1e6:,.1f} MB"
    return model.name, model.score, between(model.interval), shape, weights


def _rates(found: Comparison, model: Standing) -> tuple[Cell, ...]:
    speed, times = model.speed, found.speed_up(model)
    if speed is None or times is None:
        return ()
    return round(speed.texts_per_second), round(speed.tokens_per_second), f"{times:.2f}x"


def lines(found: Comparison) -> list[str]:
    """Write the comparison for a terminal."""
    drawn = table(found)
    return [drawn.title, *drawn.lines(), "", *sentences(found)]


def sentences(found: Comparison, *, brief: bool = False) -> Iterator[str]:
    """Say what the numbers of the table are, or of that which has one row a model (`brief`)."""
    compared = "speed-up is" if brief else "difference, share and factors are"
    paired = "" if brief else ", p by paired bootstrap"
    yield (
        f"Score: {found.measure} on {found.examples:,} examples, 95 % interval from {found.rounds:,} samples; {compared} "
        f"against {found.reference.name}{paired}."
    )
    yield from few_documents(found.documents)
    if not brief:
        yield f"Multiplications: of the encoder, for a token of a text of {REFERENCE_TOKENS} tokens."
    if found.machine is None:
        yield "Speed was not measured."
    else:
        yield _speed_sentence(found)
    if found.set_aside:
        yield f"{found.set_aside:,} items of the files were set aside and are not in the scores."


def _speed_sentence(found: Comparison) -> str:
    measured = [model.speed for model in found.models if model.speed is not None]
    rounds, texts = len(measured[0].seconds), measured[0].texts
    unrest = max(speed.unrest for speed in measured)
    return (
        f"Speed: measured on this machine ({found.machine}), from text to answer, {texts:,} of the examples, the models in "
        f"turn, middle of {rounds} rounds, which differ by up to {unrest:.0%}."
    )


def _facts(found: Comparison, model: Standing) -> Iterator[tuple[str, str]]:
    yield found.measure, f"{model.score:.4f}"
    yield "95 % interval", between(model.interval)
    if len(found.models) > 1:
        kept = found.kept(model)
        yield "share kept", "-" if kept is None else f"{kept:.1%}"
        yield "difference", _difference(model)
    yield "parameters", counted(model.size.parameters)
    yield "weights", f"{model.size.bytes / 1e6:,.1f} MB"
    yield "layers x width", f"{model.size.layers} x {model.size.width}"
    yield "multiplications", _multiplications(found, model)
    if model.speed is not None:
        yield "texts a second", _rate(model.speed.texts_per_second)
        yield "tokens a second", _rate(model.speed.tokens_per_second)
    speed_up = found.speed_up(model)
    if speed_up is not None and len(found.models) > 1:
        yield "speed-up", f"{speed_up:.2f}x"


def _difference(model: Standing) -> str:
    if model.against is None:
        return "-"
    return f"{model.against.difference:+.4f} (p = {model.against.p_value:.2g})"


def _multiplications(found: Comparison, model: Standing) -> str:
    times, count = found.fewer(model), counted(model.size.multiplications)
    if times == 1:
        return count
    return f"{count} ({times:.1f}x fewer)" if times > 1 else f"{count} ({1 / times:.1f}x more)"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(number: int) -> str:
    """Write a large count with three digits.

    >>> counted(950), counted(14_350_248), counted(999_999), counted(110_000_000)
    ('950', '14.4 M', '1.00 M', '110 M')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # What would be written as 1,000 of a unit is one of the next.
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + f" {unit}"
    return str(number)
