"""How good ``vebench tune`` chooses, and in which share of the time: beside the whole grid of settings, measured once.

``python tools/tune_against_grid.py ENV [--tunings 10] [--budget 2m] [--repeats 5] [--backend NAMES] [--into FOLDER]``

The grid has every setting that a tuning may try, in ``--repeats`` passes; what was measured before in ``--into`` is not
measured again. Then so many tunings follow. In the end the grid's best settings and those that were chosen take turns,
window by window: the best of many rates is a lucky one, and between minutes the machine is not the same. Prints
Markdown. Without ``--backend``, the usual ones: other projects' take minutes to start. Environments: ``CartPole``,
``HalfCheetah``, ``Pong``, and ``uneven:Uneven`` of tests/environments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from vebench.analysis.summary import summarise
from vebench.backends.registry import ENTRIES
from vebench.commands.planning import known
from vebench.commands.run import start
from vebench.commands.session import World
from vebench.plan.grammar import parse_backends, parse_envs
from vebench.plan.spec import RunSpec
from vebench.results import store
from vebench.results.records import with_current_verdicts
from vebench.tune.command import settings_to_try, wish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.analysis.cell import CellSummary

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "tests" / "environments"
WITHIN = 0.05
FINALISTS, FINAL_PASSES = 5, 10  # the grid's best, beside the choices
USUAL = ",".join(entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row)
DONE = {0, 1, 3}  # 1: a cell failed, which is a setting that cannot be chosen; 3: the time did not suffice


def vebench(*words: str) -> str:
    """Run vebench in a process of its own, and return what it printed."""
    done = subprocess.run([sys.executable, "-m", "vebench", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in DONE:
        raise SystemExit(f"vebench {' '.join(words)}: exit status {done.returncode}")
    return done.stdout


def measure(spec: RunSpec, file: Path) -> None:
    """Measure a plan into ``file``."""
    if start(spec, file, World(), verify=False, dry_run=False, quiet=True) not in DONE:
        raise SystemExit(f"{file}: not measured")


def measure_grid(env: str, backends: str, repeats: int, file: Path, took: Path) -> float:
    """Measure every setting that a tuning may try, unless ``file`` has them. Returns the seconds it took in total."""
    spent = float(took.read_text()) if took.exists() else 0.0
    began = time.monotonic()
    if file.exists():
        vebench("run", "--resume", str(file), "-q")
    else:
        asked = RunSpec(parse_envs([env]), (1,), parse_backends([backends]))
        spec = settings_to_try(asked, wish(None, "ok", f"{WITHIN:.0%}"), World())[0].spec
        measure(replace(spec, interleave=False, repeats=repeats), file)
    took.write_text(str(spent + time.monotonic() - began))
    return float(took.read_text())


def rates_in(file: Path) -> dict[str, float]:
    """Return the rate of each setting of the grid that may be chosen, as far as is known of its work."""
    cells = summarise(with_current_verdicts(store.read(file), known()))
    return {cell.key.place: cell.frames_per_second.median for cell in cells if cell.frames_per_second and usable(cell)}


def measure_final(env: str, places: Sequence[str], file: Path) -> dict[str, float]:
    """Measure these settings in turn, unless ``file`` has them. Returns their rates."""
    if not file.exists():
        labels, sizes = zip(*(place.rsplit(":", 1) for place in places), strict=True)
        workers, envs = zip(*(size.split("x") for size in sizes), strict=True)
        spec = RunSpec(
            parse_envs([env]),
            tuple(sorted(set(map(int, workers)))),
            parse_backends(labels),
            tuple(sorted(set(map(int, envs)))),
            only=tuple(places),
            repeats=FINAL_PASSES,
            rounds=5,
            duration=0.2,
            warmup=0.3,
            interleave=True,
        )
        measure(spec, file)
    return rates_in(file)


def usable(cell: CellSummary) -> bool:
    """Return whether a race would let a cell win: its work need not be known to be the same before it is over."""
    return not (cell.struck or (cell.verdict == "unverified" and cell.verdict_reason))


def tuned(env: str, backends: str, budget: str, file: Path) -> dict[str, Any]:
    """Return the answer of a tuning, with the ``seconds`` that it took. One that ``file`` has is not asked again."""
    if not file.exists():
        began = time.monotonic()
        run_file = file.with_suffix(".jsonl")
        run_file.unlink(missing_ok=True)
        told = vebench("tune", "-e", env, "-b", backends, "--budget", budget, "-f", "json", "-o", str(run_file))
        file.write_text(json.dumps({**json.loads(told), "seconds": time.monotonic() - began}))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def table(answers: Sequence[Mapping[str, Any]], rates: Mapping[str, float], whole: float, settings: int) -> list[str]:
    """Return a table of what was chosen, and what of the best rate that has. ``rates`` are those of the final."""
    best = max(rates, key=lambda place: rates[place])
    lines = [
        "| tuning | choice | of the best | decided | time | of the grid's time |",
        "| ---: | --- | ---: | --- | ---: | ---: |",
    ]
    shares = []
    for number, answer in enumerate(answers, 1):
        chosen = "" if answer["chosen"] is None else answer["chosen"]["setting"]
        shares.append(rates.get(chosen, 0.0) / rates[best])
        lines.append(
            f"| {number} | {chosen or 'nothing'} | {shares[-1]:.0%} | {'yes' if answer['decided'] else 'no'} "
            f"| {answer['seconds']:.0f} s | {answer['seconds'] / whole:.0%} |"
        )
    good = sum(share >= 1 - WITHIN for share in shares)
    time_used = median(answer["seconds"] for answer in answers)
    last = (
        f"Best of {settings} settings: {best}, {rates[best]:,.0f} frames/s; the grid took {whole:.0f} s. "
        f"Within {WITHIN:.0%} of it: {good} of {len(shares)}; in {time_used:.0f} s (median), {time_used / whole:.0%}."
    )
    return [*lines, "", last]


def main() -> None:
    """Measure the grid, tune, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--tunings", type=int, default=10)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", default=USUAL)
    parser.add_argument("--into", type=Path)
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ENVIRONMENTS), os.environ.get("PYTHONPATH", ""))))
    folder = asked.into or Path(".vebench", "grid-" + re.sub(r"\W+", "-", asked.env))
    folder.mkdir(parents=True, exist_ok=True)
    whole = measure_grid(asked.env, asked.backend, asked.repeats, folder / "grid.jsonl", folder / "grid.seconds")
    rates = rates_in(folder / "grid.jsonl")
    print(f"### {asked.env}, {asked.tunings} tunings with --budget {asked.budget}\n")
    answers = [
        tuned(asked.env, asked.backend, asked.budget, folder / f"tuned-{number}.json")
        for number in range(1, asked.tunings + 1)
    ]
    chosen = [answer["chosen"]["setting"] for answer in answers if answer["chosen"] is not None]
    best = sorted(rates, key=lambda place: rates[place], reverse=True)[:FINALISTS]
    final = measure_final(asked.env, list(dict.fromkeys((*best, *chosen))), folder / "final.jsonl")
    print("\n".join(table(answers, final, whole, len(rates))))


if __name__ == "__main__":
    main()
