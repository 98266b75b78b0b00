"""Check twelve tunings of environments that vebench knows nothing of: none may name a setting that another beats.

``python tools/tunings.py [--budget 60s] [--loops 0] [--only WORD] [--backend NAMES]``

The environments sleep, work in Python or outside of its lock, take uneven times, or have dicts. What is checked: no
setting that was tried is faster than the recommended one by more than the interval of their ratio, unless the answer
names it as one that may not be offered; an answer that recommends nothing has no code and status 3; the whole command
keeps its budget, with ``ALLOWED_S`` for the step under way. With ``--loops N``, N busy loops run beside, and nothing
may be recommended. Verdicts on work are not taken from the user's cache. Prints Markdown; ends with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vebench.analysis.statistics import ratio
from vebench.analysis.summary import summarise
from vebench.plan.grammar import parse_duration
from vebench.results import store

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMED = "timed:vebench/"
ENVIRONMENTS = (
    f"{TIMED}Sleep-1000us-v0",
    f"{TIMED}Sleep-10000us-v0",
    f"{TIMED}Sleep-50000us-v0",
    f"{TIMED}Busy-20us-v0",
    f"{TIMED}Busy-500us-v0",
    f"{TIMED}Busy-5000us-v0",
    f"{TIMED}Native-200us-v0",
    "uneven:Uneven",
    "uneven:Uneven[step_ms=1,reset_ms=5]",
    "various:various/Uneven-v0",
    "odd:odd/Nested-v0",
    "odd:odd/Pair-v0",
)
ALLOWED_S = 5.0
HEAD = ("environment", "status", "recommended", "settings", "seconds", "failed checks")


def main() -> int:
    """Tune all of them, and print a row for each. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--loops", type=int, default=0)
    parser.add_argument("--only", default="", help="those whose names have this word")
    parser.add_argument("--backend", action="append", default=[])
    asked = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * len(HEAD))} |")
    failed = False
    with busy(asked.loops), tempfile.TemporaryDirectory() as folder:
        for env in ENVIRONMENTS:
            if asked.only in env:
                row, wrong = tuned(env, asked, Path(folder))
                failed |= bool(wrong)
                print(f"| {' | '.join((*row, '; '.join(wrong) or '-'))} |", flush=True)
    return int(failed)


def tuned(env: str, asked: argparse.Namespace, folder: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return what one tuning answered, as a row without its last place, and which checks have failed."""
    file = folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl"
    root = Path(__file__).parents[1]
    folders = root / "tests" / "environments", root / "docs" / "examples"
    places = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "XDG_CACHE_HOME": str(folder)}
    backends = [word for name in asked.backend for word in ("-b", name)]
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "vebench", "tune", "-e", env, *backends),
            *("--budget", asked.budget, "-o", str(file), "-f", "json"),
        ],
        env={**os.environ, **places},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - began
    name = env.removeprefix(TIMED)
    if done.returncode not in {0, 3}:
        return (name, str(done.returncode), "-", "-", f"{took:.0f}"), [done.stderr.strip().splitlines()[-1]]
    found = json.loads(done.stdout)
    wrong = list(broken(found, done.returncode, file, asked.loops))
    if took > parse_duration("--budget", asked.budget) + ALLOWED_S:
        wrong.append("took longer than its budget")
    measured = sum(one["status"] == "ok" for one in found["tried"])
    named = found["chosen"]["setting"] if found["chosen"] else f"nothing: {found['lack']}"
    return (name, str(done.returncode), named, str(measured), f"{took:.0f}"), wrong


def broken(found: dict[str, Any], status: int, file: Path, loops: int) -> Iterator[str]:
    """Yield which statements on an answer do not hold."""
    if found["chosen"] is None:
        if found["code"] or status != 3:
            yield "recommends nothing, but has code or another status than 3"
        return
    if loops:
        yield "recommends something beside busy loops"
    cells = {cell.key.place: cell for cell in summarise(store.read(file)) if cell.sample.rates}
    chosen, named = cells[found["chosen"]["setting"]], {one["setting"] for one in found["faster"]}
    for place, cell in cells.items():
        beside = ratio(cell.sample, chosen.sample)
        counts = place in {one["setting"] for one in found["tried"]} and place not in named
        if counts and beside is not None and beside.low is not None and beside.low > 1:
            yield f"{place} is {beside.median:.2f} times as fast ({beside.low:.2f} to {beside.high:.2f})"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Let so many processes work for nothing."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
