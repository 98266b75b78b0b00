"""How far to trust one run: a plan is measured many times, and each run is judged by all others.

    python tools/repeated.py -e CartPole -e Pong -n 20 -o series    # 20 runs of each, alternating
    python tools/repeated.py -e CartPole -o series -- -w 1,2        # options of ``vebench run`` follow ``--``
    python tools/repeated.py --read series other-day                # measure nothing

The same command continues an interrupted series, and a larger ``-n`` adds runs. It prints Markdown: which answers were
the same, how often intervals held, and how often a backend was called slower although it is faster over all runs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import vebench
from vebench.analysis.answer import Reason, answer_for
from vebench.analysis.cell import CellSummary
from vebench.analysis.statistics import Estimate
from vebench.reports.answer import setting_of

LOADS = "loads.jsonl"
FASTER = 1.1  # a backend this much faster over all runs should not be called slower in one run


def measure(envs: Sequence[str], number: int, folder: Path, options: Sequence[str]) -> None:
    """Measure the runs that the folder lacks, and note the load average at the start of each."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / "unfinished.jsonl"
    for turn, env in product(range(number), envs):
        name = f"{re.sub('[^A-Za-z0-9]+', '-', env)}-{turn:02}.jsonl"
        if (folder / name).exists():
            continue
        unfinished.unlink(missing_ok=True)
        load = os.getloadavg()[0]
        command = [sys.executable, "-m", "vebench", "run", "-e", env, "-o", str(unfinished), "-q", *options]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, 1, 3):  # done, a cell failed, unusable
            sys.exit(status)
        with (folder / LOADS).open("a") as loads:
            loads.write(json.dumps({"file": name, "load": round(load, 2)}) + "\n")
        unfinished.rename(folder / name)


class Once(NamedTuple):
    """A task in one run."""

    run: vebench.Run
    load: float | None  # the load average when it began
    reason: Reason | None  # why it names no winner
    named: list[CellSummary]  # the winner and its stated ties
    cells: dict[object, CellSummary]  # the cells that may win, by key


def read(folders: Sequence[Path]) -> dict[str, list[Once]]:
    """Return the runs in the folders by task."""
    found: defaultdict[str, list[Once]] = defaultdict(list)
    for folder in folders:
        notes = (folder / LOADS).read_text().splitlines() if (folder / LOADS).exists() else []
        loads = {note["file"]: note["load"] for note in map(json.loads, notes)}
        for path in sorted(folder.glob("*-[0-9]*.jsonl")):
            run = vebench.load(path)
            for env in dict.fromkeys(cell.env for cell in run.cells):
                cells = [cell for cell in run.cells if cell.env == env]
                answer = answer_for(cells, run.page.sections[0].head.spec, usable=not run.notice)
                named = [answer.winner, *answer.tied] if answer.winner else []
                able = {cell.key: cell for cell in cells if not cell.reference_row and cell.objection is None}
                found[env].append(Once(run, loads.get(path.name), answer.reason, named, able))
    return found


def held(runs: Sequence[Once], name: str) -> list[bool]:
    """Return, for each interval of this name, whether it holds the geometric mean of the cell in all other runs."""
    by_cell: defaultdict[object, list[Estimate]] = defaultdict(list)
    for key, cell in (item for once in runs for item in once.cells.items()):
        found = getattr(cell, name)
        if found is not None and found.low != found.high:  # the base of speedups has 1.00x of itself
            by_cell[key].append(found)
    holds = []
    for one, alike in ((one, of_cell) for of_cell in by_cell.values() for one in of_cell if len(of_cell) > 1):
        others = fmean(log(other.median) for other in alike if other is not one)
        holds.append(one.low <= exp(others) <= one.high)
    return holds


def overturned(runs: Sequence[Once]) -> tuple[list[bool], list[bool]]:
    """Return, for each pair of backends in each run, whether the run contradicts all runs together.

    The best cells of the pair differ by more than ``FASTER`` in the geometric mean of all runs. First: does the run
    find the faster one significantly slower? Second: does it name the slower one as winner or tie, and not the faster?
    """
    rates: defaultdict[object, list[float]] = defaultdict(list)
    for key, cell in (item for once in runs for item in once.cells.items()):
        rates[key].append(log(cell.rate))
    levels = {key: fmean(logs) for key, logs in rates.items()}
    best = {key.backend: key for key in sorted(levels, key=levels.__getitem__)}
    pairs = [pair for pair in permutations(best.values(), 2) if levels[pair[0]] - levels[pair[1]] > log(FASTER)]
    slower, unnamed = [], []
    for run, *_, cells in runs:
        ratios = run.ratios([(cells[one], cells[other]) for one, other in pairs if one in cells and other in cells])
        slower += [found.verdict == "slower" for found in ratios if found.ratio is not None]
    for named in ({cell.label for cell in once.named} for once in runs if once.named):
        unnamed += [other.backend in named and one.backend not in named for one, other in pairs]
    return slower, unnamed


def wilson(yes: int, of: int) -> tuple[float, float, float]:
    """Return a share and its 95 % interval by Wilson (1927)."""
    z = 1.96
    middle, half = yes + z**2 / 2, z * sqrt(yes * (of - yes) / of + z**2 / 4)
    return yes / of, (middle - half) / (of + z**2), (middle + half) / (of + z**2)


def page(tasks: dict[str, list[Once]]) -> Iterator[str]:
    """Yield the lines of the result."""
    yield "| task | in each run | times | share | 95 % interval |\n| --- | --- | ---: | ---: | ---: |"
    for env, runs in tasks.items():
        wins = Counter(setting_of(once.named[0]) for once in runs if once.named)
        usual = max(wins, key=wins.__getitem__, default="none")
        slower, unnamed = overturned(runs)
        counts = {
            f"{usual} wins": [usual in map(setting_of, once.named[:1]) for once in runs],
            "it wins or is a stated tie of the winner": [usual in map(setting_of, once.named) for once in runs],
            "a rate's interval holds the mean of the other runs": held(runs, "frames_per_second"),
            "a speedup's interval holds the mean of the other runs": held(runs, "speedup"),
            f"a backend {FASTER - 1:.0%} faster over all runs is called slower": slower,
            "it is not named, although the slower one is": unnamed,
        }
        for question, found in counts.items():
            share, low, high = wilson(sum(found), len(found)) if found else (0.0, 0.0, 1.0)
            yield f"| {env} | {question} | {sum(found)} of {len(found)} | {share:.1%} | {low:.1%} to {high:.1%} |"
    yield "\nCells of a run share its moment, so the intervals of their shares are too narrow.\n"
    yield "| run | started | load | machine | winner = ties |\n| --- | --- | ---: | --- | --- |"
    for once in (once for runs in tasks.values() for once in runs):
        (document,), head = once.run.page.documents, once.run.page.sections[0].head
        load = "-" if once.load is None else once.load
        named = f"none: {once.reason.name}" if once.reason else " = ".join(map(setting_of, once.named))
        yield f"| {once.run.path} | {head.started[:16]} | {load} | {dict(document.facts)['machine']} | {named} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-e", "--env", action="append", default=[])
    parser.add_argument("-n", "--number", type=int, default=20, help="runs of each environment")
    parser.add_argument("-o", "--folder", type=Path, default=Path("repeated"), help="of the run files")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FOLDER", help="only evaluate these folders")
    parser.add_argument("options", nargs="*", help="options of vebench run, after --")
    given = parser.parse_args()
    if not given.read:
        measure(given.env or ["CartPole", "Pong"], given.number, given.folder, given.options)
    print("\n".join(page(read(given.read or [given.folder]))))
