"""Whether the lines to paste give the rate that was promised: each in an interpreter of its own, beside its interval.

``python tools/pasted.py RUN.jsonl [--seconds 5] [--repeats 3] [--all]``, with the run file of ``tune`` or ``run``.

Of each task the lines of the best cell of each backend are run, with ``--all`` those of every cell, on the CPUs that
the cell owned, without vebench's loop. Prints Markdown: what was promised with its interval, what came, and whether
that is within.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from support import driving  # noqa: E402 - found by the line above

from vebench.analysis.summary import summarise  # noqa: E402 - as above
from vebench.interpreters.venvs import python_of  # noqa: E402 - as above
from vebench.machine.pinning import ONE_THREAD_EACH  # noqa: E402 - as above
from vebench.reports import figures  # noqa: E402 - as above
from vebench.reports.pages.answer import code_of  # noqa: E402 - as above
from vebench.results import store  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.cell import CellSummary


def rate_of(cell: CellSummary, lines: Sequence[str], seconds: float) -> float:
    """Return the steps per second of the lines in an interpreter of their own; 0 if they fail."""
    installation = cell.entry.installation
    python = (None if installation is None else python_of(installation.name)) or sys.executable
    path = os.pathsep.join(map(str, (TESTS / "support", TESTS / "environments")))
    with tempfile.TemporaryDirectory() as folder:
        script = driving.write(Path(folder), tuple(lines), f"seconds={seconds}")
        done = subprocess.run(
            [python, str(script)],
            env={**os.environ, **ONE_THREAD_EACH, "PYTHONPATH": path},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cell.cpus),
        )
    if done.returncode:
        sys.stderr.write(done.stderr)
        return 0.0
    counted = json.loads(done.stdout.splitlines()[-1])
    return float(counted["steps"] / counted["seconds"])


def chosen(cells: Iterable[CellSummary], *, every: bool) -> list[CellSummary]:
    """Return the best cell of each backend on each task, or all, of those that have a rate with an interval."""
    rated = [cell for cell in cells if cell.steps_per_second is not None and cell.steps_per_second.low is not None]
    rated.sort(key=lambda cell: cell.steps_per_second.median if cell.steps_per_second else 0.0, reverse=True)
    if every:
        return rated
    return list({(cell.env, cell.label): cell for cell in reversed(rated)}.values())[::-1]


def main() -> None:
    """Run the lines, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    run = store.read(asked.file)
    print("| task | setting | promised, steps/s | pasted | of it | within |")
    print("| --- | --- | ---: | ---: | ---: | --- |")
    within = []
    for cell in chosen(summarise(run, str(asked.file)), every=asked.all):
        lines, promised = code_of(cell, run.header.spec), cell.steps_per_second
        if not lines or promised is None or promised.low is None or promised.high is None:
            continue
        rates = [rate_of(cell, lines, asked.seconds) for _ in range(asked.repeats)]
        rate = median(rates)
        within.append(promised.low <= rate <= promised.high)
        print(
            f"| {cell.env} | {cell.key.place} | {figures.rate(promised)} | {rate:,.0f} | {rate / promised.median:.0%} "
            f"| {'yes' if within[-1] else 'no'} |",
            flush=True,
        )
    print(f"\n{sum(within)} of {len(within)} within the interval that was promised.")


if __name__ == "__main__":
    main()
