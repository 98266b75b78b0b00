"""Compares releases with the ones before: ``python tools/replay.py FILE [--only ale-py,mujoco] [--again]``.

Each release of a package is installed into an interpreter of its own, with the same versions of all others, and
``vebench compare`` measures it in turn with the release before. With ``--again`` each pair is measured once more, by
ten passes of three windows of a second, and a first verdict counts as contradicted if the second interval lies on the
other side of 1 or, after "same", beyond the tolerance.

FILE keeps the verdicts as JSON Lines; what is in it is not measured again. Prints the table of ``docs/releases.md``.
For a quiet machine: up to four minutes for each pair and task on two CPUs, five with ``--again``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Verdict = dict[str, Any]  # as in the JSON page of ``vebench compare``: of a backend on a task

NEWEST = {
    "gymnasium": "1.4.0",
    "ale-py": "0.12.1",
    "mujoco": "3.6.0",
    "numpy": "2.4.6",
    "opencv-python-headless": "5.0.0.93",
    "imageio": "2.37.2",
    "packaging": "25.0",
}
TOLERANCE = 0.05
SHORT = ("--budget", "3m")
LONG = ("--repeats", "10", "--set", "rounds=3", "--set", "duration=1s")


@dataclass(frozen=True)
class Package:
    """The releases of a package, and what is measured with them; ``older``: what must not be the newest with them."""

    releases: Sequence[str]
    envs: Sequence[str]
    backends: str = "gym-sync,gym-async"
    older: Mapping[str, str] = field(default_factory=dict)


PACKAGES = {
    "gymnasium": Package(("1.0.0", "1.1.1", "1.2.3", "1.3.0", "1.4.0"), ("Pong", "HalfCheetah", "CartPole")),
    "ale-py": Package(("0.10.2", "0.11.2", "0.12.0", "0.12.1"), ("Pong",)),
    "envpool": Package(("0.9.0", "1.0.1", "1.1.1", "1.2.0", "1.2.5"), ("Pong", "HalfCheetah"), "envpool-sync"),
    "mujoco": Package(("3.0.1", "3.1.6", "3.2.7", "3.3.7", "3.6.0", "3.11.0", "4.0.0"), ("HalfCheetah",)),
    "numpy": Package(
        ("1.26.4", "2.0.2", "2.2.6", "2.4.6"),
        ("Pong", "HalfCheetah", "CartPole"),
        older={"opencv-python-headless": "4.11.0.86"},
    ),
}


def installed(folder: Path, packages: Mapping[str, str]) -> str:
    """Return a Python with these packages, which are installed unless they are there."""
    place = folder / "-".join(f"{name}{version}" for name, version in packages.items())
    python = str(place / "bin" / "python")
    if not (place / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        wanted = [f"{name}=={version}" for name, version in packages.items()]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (place / "ready").touch()
    return python


def compared(pythons: Sequence[str], env: str, backends: str, plan: Sequence[str]) -> list[Verdict]:
    """Return the verdict on each backend. Raises RuntimeError with what was printed if there is none."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        command = [sys.executable, "-m", "vebench", "compare", *pythons, "-e", env, "-b", backends, "-w", "2", *plan]
        command += ["--tolerance", str(TOLERANCE), "-f", "json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["groups"]


def contradicted(first: Verdict, second: Verdict) -> bool:
    """Return whether a second measurement's interval shows that a verdict was wrong."""
    low, high = (second["ratio"] or {}).get("low"), (second["ratio"] or {}).get("high")
    if low is None or high is None:
        return False
    beyond = high < 1 - TOLERANCE or low > 1 + TOLERANCE
    return {"slower": low > 1, "faster": high < 1, "same": beyond}.get(first["verdict"], False)


def measured(asked: argparse.Namespace, name: str, before: str, after: str, env: str) -> list[list[Verdict]]:
    """Return the verdicts on each backend: the first, and with ``--again`` the second."""
    package, rounds = PACKAGES[name], []
    lines = asked.file.read_text().splitlines() if asked.file.exists() else []
    kept = {tuple(key): found for key, found in map(json.loads, lines)}
    for plan in (SHORT, LONG)[: 1 + asked.again]:
        key = (name, before, after, env, *plan)
        if key not in kept:
            sides = [{**NEWEST, **package.older, name: version} for version in (before, after)]
            pythons = [installed(asked.folder, side) for side in sides]
            kept[key] = compared(pythons, env, package.backends, plan)
            with asked.file.open("a") as file:
                file.write(json.dumps([key, kept[key]]) + "\n")
        rounds.append(kept[key])
    return [list(both) for both in zip(*rounds, strict=True)]


def shown(verdict: Verdict) -> str:
    """Return a verdict with its ratio and interval."""
    ratio = verdict["ratio"]
    if not ratio or ratio["low"] is None:
        return f"{verdict['verdict']}: {verdict['why']}"
    return f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}), {verdict['verdict']}"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default=",".join(PACKAGES))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "vebench-replay")
    asked = parser.parse_args()
    wrong = decided = 0
    print(
        "| package | release | before | task | backend | rate over the one before | measured again |\n|" + " --- |" * 7
    )
    for name in asked.only.split(","):
        for before, after in pairwise(PACKAGES[name].releases):
            for env in PACKAGES[name].envs:
                try:
                    found = measured(asked, name, before, after, env)
                except (subprocess.CalledProcessError, RuntimeError) as error:
                    why = str(error).strip().splitlines()[-1:]
                    print(f"| {name} | {after} | {before} | {env} | | {' '.join(why)} | |", flush=True)
                    continue
                for verdicts in found:
                    cells = [name, after, before, env, verdicts[0]["backend"], *map(shown, verdicts)]
                    print(f"| {' | '.join(cells)} |", flush=True)
                    if len(verdicts) > 1:
                        decided += verdicts[0]["verdict"] in {"slower", "faster", "same"}
                        wrong += contradicted(*verdicts)
    if asked.again:
        print(f"\n{wrong} of {decided} decided verdicts are contradicted by the longer measurement.")


if __name__ == "__main__":
    main()
