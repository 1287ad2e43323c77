"""Interleaved rounds: all sides of a comparison take turns in short rounds; the medians of the rounds count, with quartiles.

In a round every side does its work once, right after the other, so that a machine whose speed drifts treats all alike:
the ratio of two sides is the median of the ratios inside rounds. The order is turned round in every second one. Rounds
go on until all ratios are known within two percent, or the time is used up. Meanwhile the CPU time that other processes
took is counted: it is said beside every figure.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Side = Callable[[], float]
"""Does the work once, and returns what it cost: seconds, or another figure of which less is better."""

FEWEST, MOST = 5, 25
"""Rounds of a measurement."""
CERTAIN = 0.02
"""Standard error of a median ratio, as a share of it, at which rounds end."""
BUSY = 0.05
"""Share of the CPUs that other processes may take before figures are said to be those of a busy machine."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise values.

        >>> Spread.of([1.0, 2.0, 3.0, 4.0, 100.0])
        Spread(median=3.0, low=2.0, high=4.0)
        """
        several = list(values)
        several = several if len(several) > 1 else several * 2
        low, middle, high = statistics.quantiles(several, n=4, method="inclusive")
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Rounds:
    """What each side cost in each round, and the share of the CPUs that other processes took meanwhile."""

    costs: Mapping[str, Sequence[float]]
    other_load: float

    @property
    def count(self) -> int:
        return len(next(iter(self.costs.values())))

    def cost(self, side: str) -> float:
        return statistics.median(self.costs[side])

    def ratio(self, ours: str, peer: str) -> Spread:
        """How many times less ours costs than the peer."""
        return Spread.of(theirs / own for own, theirs in zip(self.costs[ours], self.costs[peer], strict=True))


def take_rounds(
    sides: Mapping[str, Side],
    *,
    seconds: float,
    fewest: int = FEWEST,
    warm: bool = True,
    after: Callable[[int], object] = lambda _: None,
) -> Rounds:
    """Let sides take turns until their ratios are known, or for about so many seconds; never less than `fewest` rounds.

    With `warm` each side works once before, uncounted. `after` is called with the number of each round that is done; its
    time is not counted as anybody's load.
    """
    costs: dict[str, list[float]] = {side: [] for side in sides}
    if warm:
        for work in sides.values():
            work()
    load, begun, number = OtherLoad(), time.perf_counter(), 0
    while number < fewest or not (number >= MOST or time.perf_counter() - begun > seconds or is_certain(costs)):
        with load:
            for side in list(sides) if number % 2 == 0 else reversed(sides):
                costs[side].append(sides[side]())
        number += 1
        after(number)
    return Rounds(costs, load.share)


def is_certain(costs: Mapping[str, Sequence[float]]) -> bool:
    """Whether the median ratio of the first side to every other one is known well enough."""
    first, *others = costs.values()
    return all(_standard_error([b / a for a, b in zip(first, each, strict=True)]) <= CERTAIN for each in others)


def _standard_error(values: Sequence[float]) -> float:
    """Of the median, as a share of it, by the quartiles of values that are spread normally."""
    spread = Spread.of(values)
    deviation = (spread.high - spread.low) / 1.349
    return 1.253 * deviation / len(values) ** 0.5 / spread.median


# -- other load


class OtherLoad:
    """The share of the CPUs that processes other than this one and its children take inside `with` blocks, all in all."""

    def __init__(self) -> None:
        self._others = self._seconds = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), busy_seconds(), own_seconds()

    def __exit__(self, *_: object) -> None:
        start, busy, own = self._begun
        self._seconds += time.perf_counter() - start
        self._others += (busy_seconds() - busy) - (own_seconds() - own)

    @property
    def share(self) -> float:
        available = self._seconds * (os.cpu_count() or 1)
        return round(min(1.0, max(0.0, self._others / available)), 3) if available else 0.0


def busy_seconds(stat: str | None = None) -> float:
    """Seconds that all CPUs have worked, or were taken away from this machine, as `/proc/stat` counts them.

    >>> busy_seconds("cpu  100 0 50 700 0 0 0 50 0 0") == 200 / os.sysconf("SC_CLK_TCK")
    True
    """
    text = Path("/proc/stat").read_text() if stat is None else stat
    user, nice, system, _, _, irq, softirq, steal = map(int, text.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def own_seconds() -> float:
    """CPU seconds of this process, of what it has started, and of their children that have ended."""
    times: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(folder.name)
        children.setdefault(int(fields[1]), []).append(number)
        times[number] = sum(map(int, fields[11:15])) / _TICKS
    found, to_see = 0.0, [os.getpid()]
    while to_see:
        number = to_see.pop()
        found += times.get(number, 0.0)
        to_see += children.get(number, [])
    return found
