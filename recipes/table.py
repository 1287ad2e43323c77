"""Print the scores of a recipe: the mean over seeds of each data set and arm, with the standard deviation.

In: a folder with files `<set>-<arm>-<seed>.scores.json`, as `alembert evaluate --json` prints them.
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def read_scores(folder: Path) -> dict[tuple[str, str], list[float]]:
    """Collect the main measure of each seed by data set and arm."""
    scores = defaultdict(list)
    for path in sorted(folder.glob("*.scores.json")):
        data_set, arm, _ = path.name.removesuffix(".scores.json").rsplit("-", 2)
        table = json.loads(path.read_text(encoding="utf8"))["scores"]
        scores[data_set, arm].append(100 * table["measures"][table["main"]])
    return scores


def format_row(data_set: str, arm: str, values: list[float]) -> str:
    """Format a row of the table."""
    spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"| {data_set} | {arm} | {len(values)} | {statistics.mean(values):.2f}{spread} |"


def main() -> None:
    """Print the table of the folder that the command line names."""
    print("| data | arm | seeds | test |\n|---|---|---|---|")
    for (data_set, arm), values in read_scores(Path(sys.argv[1])).items():
        print(format_row(data_set, arm, values))


if __name__ == "__main__":
    main()
