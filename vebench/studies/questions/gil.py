"""``gil``: whether threads can take the place of processes, which depends on who holds Python's lock (the GIL)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.backends.environments.timed_names import env_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow, Text
from vebench.studies.pairs import LEGEND, Pair, lacking, pairs, times
from vebench.studies.study import PLAN, Part, Study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.studies.study import Measured

THREADS, PROCESSES = "threads", "shm-sync"
# What holds the lock, what lets go of it, and two simulators of which it is asked.
ENVS = (env_name("Busy", 200), env_name("Native", 200), "HalfCheetah", "Pong")
# Threads that gain less than this over one do not share CPUs to speak of.
WORTH = 1.05
WITHOUT_A_LOCK = (
    "A Python without the lock (free-threaded, such as python3.13t) was left out: runs of a study are of vebench's own "
    "Python. With one that has numpy: vebench compare --a python3.13 --b python3.13t --env ENV --backend "
    f"{THREADS},{PROCESSES} --workers N"
)


@dataclass(frozen=True)
class Found:
    """An environment of one size: threads over the loop, processes over the loop, and threads over processes."""

    threads: Pair
    processes: Pair
    between: Pair

    @property
    def env(self) -> str:
        """The environment's short name."""
        return one_line(short_name(self.threads.one.env))

    @property
    def beside(self) -> bool:
        """Whether threads step at the same time, beyond doubt."""
        return self.threads.verdict == "faster"

    @property
    def alone(self) -> bool:
        """Whether threads gain nothing to speak of, beyond doubt."""
        ratio = self.threads.ratio
        return not self.beside and ratio is not None and ratio.high is not None and ratio.high < WORTH

    @property
    def words(self) -> str:
        """What threads gain there, and what that says of the lock."""
        ratio = self.threads.ratio
        if ratio is None:
            return f"{self.env}: {self.threads.words}"
        gain = f"{self.env}: threads reach {times(ratio)} of a loop"
        if self.beside and ratio.low is not None:
            # While one thread holds the lock, all others wait: with a share g of a step under it, no more than 1 / g
            # times the loop's rate can be had.
            return f"{gain}: at least {1 - 1 / ratio.low:.0%} of a step is done without the lock"
        if self.alone:
            return f"{gain}: a step holds the lock, or handing it over costs what is gained without it"
        return f"{gain}: whether they step at the same time is not decided"


def conclude(runs: Sequence[Measured]) -> Conclusion:
    """Return where threads step at the same time, and how they compare with processes."""
    triples = [triple for run in runs for triple in _triples(run)]
    every = pairs(pair for triple in triples for pair in triple)
    found = [Found(*every[first : first + 3]) for first in range(0, len(every), 3)]
    decided = [one for one in found if one.beside or one.alone]
    return Conclusion(
        headline=_headline(decided) or _nothing(runs, every),
        decided=bool(decided),
        tables=(_table(found),) if found else (),
        why=tuple(_why(found)),
        undecided=(*(one.words for one in found if one not in decided and one.threads.ratio), *lacking(every)),
        legend=(
            *LEGEND,
            "threads, processes: the rate over that of a loop over as many environments, on as many CPUs.",
        ),
    )


def _triples(run: Measured) -> Iterator[tuple[tuple[Measured, CellSummary, CellSummary], ...]]:
    """Yield what is compared of each environment and size that has all three rows."""
    by_key = {cell.key: cell for cell in run.cells}
    for key, threads in by_key.items():
        loop, processes = (by_key.get(replace(key, backend=name)) for name in (REFERENCE, PROCESSES))
        if key.backend == THREADS and loop is not None and processes is not None and threads.cpus_owned > 1:
            yield (run, threads, loop), (run, processes, loop), (run, threads, processes)


def _headline(decided: Sequence[Found]) -> str:
    beside, alone = (list(dict.fromkeys(one.env for one in decided if one.beside is yes)) for yes in (True, False))
    parts = []
    if alone:
        gain = max(
            (one.threads.ratio for one in decided if not one.beside and one.threads.ratio), key=lambda r: r.median
        )
        parts.append(f"on {', '.join(alone)} threads gain nothing over a loop, {times(gain)} at the most")
    if beside:
        gains = [one.threads.ratio for one in decided if one.beside and one.threads.ratio]
        most = max(gains, key=lambda ratio: ratio.median)
        parts.append(f"on {', '.join(beside)} they step at the same time, {times(most)} of a loop at the most")
    text = ", and ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _nothing(runs: Sequence[Measured], every: Sequence[Pair]) -> str:
    if not every and any(cell.cpus_owned == 1 for run in runs for cell in run.cells):
        return "Not decided: with one CPU, neither threads nor processes can step at the same time."
    return "Not decided: the data do not say whether threads step at the same time."


def _why(found: Sequence[Found]) -> Iterator[str]:
    yield from (f"{one.words}." for one in found if one.beside or one.alone)
    for one in found:
        if one.between.decided:
            yield f"{one.env}, {one.between.one.key.size}: threads are {one.between.words} than processes."
    yield f"{WITHOUT_A_LOCK}."


def _table(found: Sequence[Found]) -> Table:
    return Table(
        title="Rate over the loop's",
        corner="environment",
        columns=("threads", "processes", "threads over processes", "without the lock, at least"),
        rows=tuple(
            TableRow(
                one.threads.where,
                (one.threads.text, one.processes.text, one.between.text, _without_lock(one)),
            )
            for one in found
        ),
    )


def _without_lock(one: Found) -> Text:
    ratio = one.threads.ratio
    if not one.beside or ratio is None or ratio.low is None:
        return Text((figures.NOTHING,), "missing")
    share = 1 - 1 / ratio.low
    return Text((f"{share:.0%}",), value=share)


STUDY = Study(
    name="gil",
    question="Can threads take the place of processes, or does Python's lock (the GIL) keep them from it?",
    parts=(
        Part(
            "threads",
            replace(PLAN, envs=ENVS, envs_per_worker=(8,)),
            (REFERENCE, THREADS, PROCESSES),
        ),
    ),
    conclude=conclude,
)
