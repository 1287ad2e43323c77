"""What benchmarks found: docs/benchmarks.json, which `all.py` writes, and the tables of docs/benchmarks.md made from it.

A machine kind is named by its processor, cores and instruction sets, and has a letter. There is one record for each benchmark,
form (quick or full) and machine kind: the newest. Figures that were measured before there was a harness carry no
quartiles and no other load; the page marks them (†).

    python benchmarks/benchmark_records.py        # writes the tables anew
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from goals import CATALOGUE, Benchmark, Row
from rounds import BUSY

DOCS = Path(__file__).resolve().parents[1] / "docs"
STORE, PAGE = DOCS / "benchmarks.json", DOCS / "benchmarks.md"
BEGIN = "<!-- The tables below are written by benchmarks/all.py from benchmarks.json. -->"
END = "<!-- End of the tables. -->"
EARLIER = " †"
"""Marks figures that were recorded before the harness."""
INSTRUCTIONS = {
    "AVX2": {"avx2"},
    "AVX-512": {"avx512f"},
    "VNNI": {"avx512_vnni", "avx_vnni"},
    "bfloat16": {"avx512_bf16", "bf16"},
    "AMX": {"amx_tile"},
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A ratio with its quartiles, the figures behind it, and how much of the machine's limit ours reaches."""

    ratio: float
    spread: tuple[float, float] | None = None
    ours: float | None = None
    peer: float | None = None
    unit: str = ""
    against: str = ""
    limit: str = ""
    share: float | None = None
    peak: float | None = None
    peak_unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one run of a benchmark found on a machine kind, which is named by its letter."""

    benchmark: str
    machine: str
    form: str
    """`quick` or `full`."""
    date: str
    figures: Mapping[str, Figure]
    rounds: int | None = None
    other_load: float | None = None
    """Share of the CPUs that other processes took; none: recorded before the harness."""
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.benchmark, self.machine, self.form


@dataclass(frozen=True)
class Records:
    """The content of docs/benchmarks.json."""

    machines: dict[str, str] = field(default_factory=dict)
    """Letter -> machine kind."""
    records: list[Record] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path = STORE) -> "Records":
        if not path.is_file():
            return cls()
        content = json.loads(path.read_text(encoding="utf8"))
        return cls(content["machines"], [_record_of(each) for each in content["records"]])

    def write(self, path: Path = STORE) -> None:
        order = {benchmark.name: number for number, benchmark in enumerate(CATALOGUE)}
        ordered = sorted(self.records, key=lambda each: (order.get(each.benchmark, 99), *each.key))
        content = {"machines": self.machines, "records": [_plain(each) for each in ordered]}
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
        temporary.replace(path)

    def letter(self, kind: str) -> str:
        """Return the letter of a machine kind; a new kind gets the next one.

        >>> records = Records({"A": "AMD EPYC, 2 cores, AVX2"})
        >>> records.letter("ARM, 4 cores"), records.letter("AMD EPYC, 2 cores, AVX2")
        ('B', 'A')
        """
        for letter, known in self.machines.items():
            if known == kind:
                return letter
        letter = chr(ord(max(self.machines, default="@")) + 1)
        self.machines[letter] = kind
        return letter

    def rank(self, record: Record) -> tuple[bool, bool, str, bool, str]:
        """What is shown first: runs of the harness, then machines with VNNI, for which goals hold, then the newest, then whole forms."""
        has_vnni = "VNNI" in self.machines[record.machine]
        return record.other_load is not None, has_vnni, record.date, record.form == "full", record.machine

    def best(self, benchmark: Benchmark, row: Row, machine: str | None = None) -> Record | None:
        """Find the record that a row of the page shows, perhaps of one machine kind."""
        having = [each for each in self.records if each.benchmark == benchmark.name and row.ratio in each.figures]
        own = [each for each in having if machine in {None, each.machine}]
        return max(own, key=self.rank, default=None)

    def find(self, key: tuple[str, str, str]) -> Record | None:
        return next((each for each in self.records if each.key == key), None)

    def add(self, record: Record) -> None:
        """Add a record in the place of an older one of the same benchmark, form and machine."""
        self.records[:] = [each for each in self.records if each.key != record.key] + [record]


def _record_of(content: dict[str, Any]) -> Record:
    figures = {name: Figure(**each) for name, each in content["figures"].items()}
    figures = {name: replace(each, spread=each.spread and tuple(each.spread)) for name, each in figures.items()}
    return Record(**{**content, "figures": figures})


def _plain(record: Record) -> dict[str, Any]:
    """Leave out what is not known."""
    figures = {name: _known(asdict(each), Figure) for name, each in record.figures.items()}
    return _known(asdict(record), Record) | {"figures": figures}


def _known(content: dict[str, Any], kind: type) -> dict[str, Any]:
    defaults = {each.name: each.default for each in fields(kind)}
    return {name: value for name, value in content.items() if value != defaults[name]}


def figures_of(line: Mapping[str, Any]) -> dict[str, Figure]:
    """Read the figures of the JSON line with which a benchmark ends."""
    found = {}
    for name, ratio in line["ratios"].items():
        known, limit = line.get("figures", {}).get(name, {}), line.get("limits", {}).get(name)
        spread = line.get("spread", {}).get(name)
        if limit:
            known = known | {"limit": limit["name"], "share": limit["share"]}
            known |= {"peak": limit["peak"], "peak_unit": limit["unit"]}
        if ratio is not None:
            found[name] = Figure(ratio=ratio, spread=spread and tuple(spread), **known)
    return found


def machine_kind() -> str:
    """Name the processor, its cores and its instruction sets: nothing that only this machine has."""
    from alembert.hardware.environment import read_cpu

    cpu, cores = read_cpu(), os.cpu_count() or 1
    return describe_kind(cpu.model, cpu.flags, cores)


def describe_kind(model: str, flags: frozenset[str], cores: int) -> str:
    """Name a kind of machine.

    >>> describe_kind("Intel(R) Xeon(R) Processor @ 2.10GHz", frozenset({"avx2", "avx512f", "avx512_vnni"}), 2)
    'Intel Xeon, 2 cores, AVX-512, VNNI'
    """
    model = re.sub(r"\((R|TM)\)|\bProcessor\b|\bCPU\b|@.*", "", model)
    sets = [name for name, any_of in INSTRUCTIONS.items() if flags & any_of]
    if "AVX-512" in sets:
        sets.remove("AVX2")
    return ", ".join([" ".join(model.split()), f"{cores} cores", *sets])


# -- the page


def page(text: str, records: Records) -> str:
    """Return the page with fresh tables between its markers."""
    before, rest = text.split(BEGIN, maxsplit=1)
    after = rest.split(END, maxsplit=1)[1]
    written = "\n".join(tables(records))
    return f"{before}{BEGIN}\n\n{written}\n\n{END}{after}"


def tables(records: Records) -> Iterator[str]:
    kinds = [f"**{letter}** {kind}" for letter, kind in records.machines.items()]
    yield f"Machines: {'; '.join(kinds)}."
    yield ""
    yield "| what | ratio | goal | ours | peer | share of the limit | machine | command |"
    yield "|---|---|---|---|---|---|---|---|"
    yield from _newest(records)
    letters = list(records.machines)
    yield ""
    yield "Ratios that were measured on several kinds of machines, the newest of each:"
    yield ""
    yield f"| what | {' | '.join(letters)} |"
    yield f"|---|{'---|' * len(letters)}"
    yield from _by_machine(records, letters)


def _newest(records: Records) -> Iterator[str]:
    for benchmark in CATALOGUE:
        for row in benchmark.rows:
            if record := records.best(benchmark, row):
                yield _line(benchmark, row, record)


def _line(benchmark: Benchmark, row: Row, record: Record) -> str:
    figure = record.figures[row.ratio]
    cells = [
        row.what,
        f"**{figure.ratio:.3g}**" + (f" ({figure.spread[0]:.3g} to {figure.spread[1]:.3g})" if figure.spread else ""),
        _goal(row, figure),
        "" if figure.ours is None else f"{number(figure.ours)} {figure.unit}",
        "" if figure.peer is None else f"{number(figure.peer)} {_named(figure.against)}".rstrip(),
        _share(figure),
        _circumstances(record),
        f"`{command(benchmark, record.form)}`",
    ]
    return f"| {' | '.join(cells)} |"


def _goal(row: Row, figure: Figure) -> str:
    if row.goal is None:
        return ""
    return f"{row.goal:g}" if figure.ratio >= row.goal else f"{row.goal:g}, **missed**"


def _named(peer: str) -> str:
    return f"({peer})" if peer else ""


def _share(figure: Figure) -> str:
    if figure.share is None:
        return ""
    peak = f" of {number(figure.peak)} {figure.peak_unit}" if figure.peak else ""
    return f"{figure.share:.0%}{peak} ({figure.limit})"


def _circumstances(record: Record) -> str:
    """Name the machine and the form, and whatever makes the figure less certain."""
    where = f"{record.machine}, {record.form}, {record.date}"
    if record.other_load is None:
        where += EARLIER
    elif record.other_load > BUSY:
        where += f"; busy, others took {record.other_load:.0%}"
    return f"{where}; {record.note}" if record.note else where


def _by_machine(records: Records, letters: Sequence[str]) -> Iterator[str]:
    """Compare machine kinds by the ratios that several of them have."""
    for benchmark in CATALOGUE:
        for row in benchmark.rows:
            found = [records.best(benchmark, row, letter) for letter in letters]
            if sum(each is not None for each in found) > 1:
                cells = [f"{each.figures[row.ratio].ratio:.3g}" if each else "" for each in found]
                yield f"| `{benchmark.name}` {row.ratio} | {' | '.join(cells)} |"


def command(benchmark: Benchmark, form: str) -> str:
    return " ".join([f"{benchmark.script}.py", *(["--quick"] if form == "quick" else []), *benchmark.arguments])


def number(value: float) -> str:
    """Write a figure with three digits at least.

    >>> number(26459.0), number(0.4712), number(7.6)
    ('26,459', '0.471', '7.6')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write_page(records: Records, path: Path = PAGE) -> None:
    path.write_text(page(path.read_text(encoding="utf8"), records), encoding="utf8")


if __name__ == "__main__":
    write_page(Records.read())
