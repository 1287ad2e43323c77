"""Run benchmarks one after the other, keep what they find in docs/benchmarks.json, and write docs/benchmarks.md from it.

    python benchmarks/all.py [--quick] [--only NAME ...] [--again]

Each benchmark runs in a process of its own; the JSON line with which it ends is kept. One that has a result of today, of this
form and this kind of machine, is not run again, so a stopped run is resumed by the same command; `--again` runs it all the
same. A benchmark that fails is named at the end, and the exit code is 1; if it has printed its line, the line is kept. The peers: pip install -r benchmarks/requirements.txt.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmark_records import Record, Records, figures_of, machine_kind, write_page
from goals import CATALOGUE, Benchmark
from harness import told
from rounds import OtherLoad

HERE = Path(__file__).resolve().parent


def main() -> None:
    arguments = _arguments()
    form, today = "quick" if arguments.quick else "full", datetime.now(UTC).date().isoformat()
    chosen = list(select(arguments.only))
    kind, failed = machine_kind(), []
    told(f"machine: {kind}; {len(chosen)} benchmarks, {form}")
    for number, benchmark in enumerate(chosen, start=1):
        records = Records.read()
        letter = records.letter(kind)
        old = records.find((benchmark.name, letter, form))
        if old and old.date == today and old.other_load is not None and not arguments.again:
            told(f"[{number}/{len(chosen)}] {benchmark.name}: there is a result of today")
            continue
        told(f"[{number}/{len(chosen)}] {benchmark.name}")
        start = time.monotonic()
        line, is_sound = run(benchmark, quick=arguments.quick)
        told(f"{benchmark.name}: {time.monotonic() - start:.0f} s")
        if not is_sound:
            failed.append(benchmark.name)
        if line is None:
            continue
        records.add(record_of(benchmark, line, machine=letter, form=form, date=today))
        records.write()
        write_page(records)
    if failed:
        sys.exit(f"error: these benchmarks failed: {', '.join(failed)}")


def select(names: Sequence[str] | None) -> Iterator[Benchmark]:
    """Find benchmarks by script or full name; those for bfloat16 only where the product takes it, unless they are named."""
    known = {each.script for each in CATALOGUE} | {each.name for each in CATALOGUE}
    if unknown := sorted(set(names or ()) - known):
        sys.exit(f"error: there is no benchmark {unknown[0]!r}. There are: {', '.join(sorted(known))}.")
    for each in CATALOGUE:
        is_named = names is not None and each.name in names
        is_meant = names is None or each.script in names
        if is_named or (is_meant and (not each.needs_bfloat16 or trains_in_bfloat16())):
            yield each


def trains_in_bfloat16() -> bool:
    from alembert import hardware

    return hardware.detect_capabilities().training_type == "bfloat16"


def run(benchmark: Benchmark, *, quick: bool) -> tuple[dict[str, Any] | None, bool]:
    """Run a benchmark and show what it prints; return its JSON line, if there is one, and whether all went well."""
    flags = ["--quick"] if quick else []
    command = [sys.executable, str(HERE / f"{benchmark.script}.py"), *flags, *benchmark.arguments]
    last, load = "", OtherLoad()
    with load, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    found = parsed(last)
    return ({"other_load": load.share} | found if found else None), bool(found) and process.returncode == 0


def parsed(line: str) -> dict[str, Any] | None:
    """Read a JSON line with ratios."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and "ratios" in content else None


def record_of(benchmark: Benchmark, line: dict[str, Any], *, machine: str, form: str, date: str) -> Record:
    return Record(
        benchmark=benchmark.name,
        machine=machine,
        form=form,
        date=date,
        figures=figures_of(line),
        rounds=line.get("rounds"),
        other_load=line["other_load"],
    )


def _arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="the quick form of each, about two minutes")
    options.add_argument("--only", nargs="+", metavar="NAME", help="scripts without .py, such as annotate finetune")
    options.add_argument("--again", action="store_true", help="also what has a result of today")
    return options.parse_args()


if __name__ == "__main__":
    main()
