"""Print the scores of a recipe: the mean over seeds of each data set and arm, with the standard deviation.

In: a folder with files `<set>-<arm>.scores.json`, as `alembert evaluate --json` prints them. With `--minus ARM BASE` the
differences of two arms follow, paired by seed, and their mean over the data sets with its 95 % interval over seeds.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

_T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Student's t of a two-sided interval of 95 %, by the number of values."""

Scores = dict[tuple[str, str], dict[str, float]]
"""Main measures by data set and arm, and by seed."""


def read_scores(folder: Path) -> Scores:
    """Read the main measure of each seed."""
    scores = {}
    for path in sorted(folder.glob("*.scores.json")):
        data_set, arm = path.name.removesuffix(".scores.json").rsplit("-", 1)
        table = json.loads(path.read_text(encoding="utf8"))
        alone = [{"name": "", "value": table["scores"]["measures"][table["scores"]["main"]]}]
        seeds = (table["spread"] or {"seeds": alone})["seeds"]
        scores[data_set, arm] = {seed["name"]: 100 * seed["value"] for seed in seeds}
    return scores


def format_mean(values: list[float], sign: str = "") -> str:
    """Format a mean with the standard deviation, if there is one."""
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.2f}{spread}"


def subtract(scores: Scores, arm: str, base: str) -> dict[str, dict[str, float]]:
    """Subtract two arms, paired by seed, for each data set that has both."""
    return {
        data_set: {seed: value - scores[data_set, base][seed] for seed, value in values.items()}
        for (data_set, name), values in scores.items()
        if name == arm and scores.get((data_set, base), {}).keys() == values.keys()
    }


def format_differences(scores: Scores, arm: str, base: str) -> list[str]:
    """Format the differences of two arms: a row for each data set, and one for their mean."""
    by_set = {data_set: list(own.values()) for data_set, own in subtract(scores, arm, base).items()}
    if not by_set:
        return []
    rows = [f"| {data_set} | {len(own)} | {format_mean(own, '+')} |" for data_set, own in by_set.items()]
    means = [statistics.mean(each) for each in zip(*by_set.values(), strict=True)]
    rows.append(f"| mean of {len(by_set)} | {len(means)} | {format_mean(means, '+')}{_format_interval(means)} |")
    return ["", f"| data | seeds | {arm} - {base} |", "|---|---|---|", *rows]


def _format_interval(values: list[float]) -> str:
    if len(values) not in _T_95:
        return ""
    half = _T_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.mean(values)
    return f" ({mean - half:+.2f} to {mean + half:+.2f})"


def main() -> None:
    """Print the table of the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minus", nargs=2, metavar=("ARM", "BASE"))
    arguments = parser.parse_args()
    scores = read_scores(arguments.folder)
    print("| data | arm | seeds | test |\n|---|---|---|---|")
    for (data_set, arm), values in scores.items():
        print(f"| {data_set} | {arm} | {len(values)} | {format_mean(list(values.values()))} |")
    if arguments.minus:
        print("\n".join(format_differences(scores, *arguments.minus)))


if __name__ == "__main__":
    main()
