"""How long annotating all of PubMed takes on 1, 10 or 1,000 machines: a simulation of machines that differ, and that fail.

    python benchmarks/scale.py [--quick] [--documents-per-second 500] [--documents 37000000]

In: the speed of one machine, which `alembert annotate` prints. What is assumed, and can be changed on the command line:

- The abstracts are in units (PubMed's 1,300 files, or pieces of them), each annotated by one command; a machine that is idle
  takes the next unit, and needs `--seconds-to-start` to open the model. Nothing is shared between machines but a folder or an object store.
- Machines differ: the logarithm of their speed has a standard deviation of `--spread`, and each unit one of 0.05 more.
- A machine fails after `--hours-to-failure` on average (exponential). A new one takes over after `--minutes-to-replace` and
  resumes the unit, since `annotate` resumes where it was killed: at most one batch of texts is annotated again.
- Network and storage are never the limit: 37 million abstracts are about 50 GB, which 1,000 machines read at 1 GB/s in under a
  minute. A cluster with slower storage is slower than this simulation says.

The last line is JSON; `ratios` has the share of the ideal time (all machines alike, none failing, units of no size).
"""

import argparse
import heapq
import random
from dataclasses import dataclass
from statistics import median

from harness import Comparison, parser, report
from rounds import Spread

FILES = 1300
"""Files of a MEDLINE baseline."""
LOST_SECONDS = 5.0
"""Work since the last part that was written, when a machine fails."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is simulated."""

    machines: int
    units: int
    documents: float
    documents_per_second: float
    spread: float
    hours_to_failure: float
    minutes_to_replace: float
    seconds_to_start: float = 0.0

    @property
    def ideal_hours(self) -> float:
        return self.documents / self.documents_per_second / self.machines / 3600


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a simulated run took."""

    hours: float
    failures: int


def simulate(cluster: Cluster, seed: int) -> Outcome:
    """Hand out the units to whoever is idle until all are annotated.

    >>> cluster = Cluster(machines=2, units=4, documents=7200, documents_per_second=1, spread=0, hours_to_failure=1e12,
    ...     minutes_to_replace=0)
    >>> round(simulate(cluster, seed=1).hours, 1)
    1.0
    """
    chance = random.Random(seed)
    speeds = [_draw_speed(cluster, chance) for _ in range(cluster.machines)]
    unit = cluster.documents / cluster.units
    idle = [(0.0, machine) for machine in range(cluster.machines)]
    heapq.heapify(idle)
    end, failures = 0.0, 0
    for _ in range(cluster.units):
        now, machine = heapq.heappop(idle)
        noise = chance.lognormvariate(0, 0.05 if cluster.spread else 0)
        work = cluster.seconds_to_start + noise * unit / speeds[machine]
        while (until := chance.expovariate(1 / (3600 * cluster.hours_to_failure))) < work:
            failures += 1
            now += until + 60 * cluster.minutes_to_replace
            work += LOST_SECONDS - until
            speeds[machine] = _draw_speed(cluster, chance)
        now += work
        end = max(end, now)
        heapq.heappush(idle, (now, machine))
    return Outcome(hours=end / 3600, failures=failures)


def _draw_speed(cluster: Cluster, chance: random.Random) -> float:
    """Draw the speed of a machine; the mean of all is the given one."""
    return cluster.documents_per_second * chance.lognormvariate(-(cluster.spread**2) / 2, cluster.spread)


def main() -> None:
    """Simulate clusters of several sizes, with units as large as files and smaller."""
    arguments = _arguments()
    shares = {}
    print(f"{'machines':>8} {'units':>7} {'ideal':>9} {'median':>9} {'slowest':>9} {'failures':>9} {'of ideal':>9}")
    for machines in (1, 10, 100, 1000):
        for units in (FILES, 3 * FILES, 10 * FILES):
            cluster = Cluster(
                machines=machines,
                units=units,
                documents=arguments.documents,
                documents_per_second=arguments.documents_per_second,
                spread=arguments.spread,
                hours_to_failure=arguments.hours_to_failure,
                minutes_to_replace=arguments.minutes_to_replace,
                seconds_to_start=arguments.seconds_to_start,
            )
            outcomes = [simulate(cluster, seed) for seed in range(5 if arguments.quick else 25)]
            hours = median(outcome.hours for outcome in outcomes)
            share = Spread.of(cluster.ideal_hours / outcome.hours for outcome in outcomes)
            shares[f"machines_{machines}_units_{units}"] = Comparison(ratio=share, ours=hours, unit="hours")
            print(
                f"{machines:8,} {units:7,} {cluster.ideal_hours:8.2f}h {hours:8.2f}h "
                f"{max(outcome.hours for outcome in outcomes):8.2f}h {median(o.failures for o in outcomes):9,} "
                f"{cluster.ideal_hours / hours:9.0%}"
            )
    report(shares, [], documents_per_second=arguments.documents_per_second)


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, quick="5 runs of each cluster instead of 25")
    options.add_argument("--documents", type=float, default=37e6, help="abstracts in all")
    options.add_argument("--documents-per-second", type=float, default=500, help="that one machine annotates")
    options.add_argument("--spread", type=float, default=0.15, help="standard deviation of the logarithm of the speeds")
    options.add_argument("--hours-to-failure", type=float, default=500, help="of one machine, on average")
    options.add_argument("--minutes-to-replace", type=float, default=5, help="a machine that failed")
    options.add_argument("--seconds-to-start", type=float, default=2, help="until a command annotates")
    return options.parse_args()


if __name__ == "__main__":
    main()
