"""Compares releases with the ones before: ``python tools/replay.py FILE [--only ale-py,mujoco] [--again]``.

Each release of a package is installed into an interpreter of its own, with the same versions of all others, and
``vebench compare`` measures it in turn with the release before. The releases of Python are those on the search path.
With ``--again`` each pair of which an interval does not hold 1 is measured once more with ``--effort normal``; the
first answer is contradicted if both intervals have nothing in common.

FILE keeps the answers as JSON Lines; what is in it is not measured again. Prints the table of ``docs/releases.md``.
For a quiet machine: up to three minutes for each pair and task on two CPUs.
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
TOLERANCE = "5%"
SHORT = ("--effort", "low", "--budget", "2m")
LONG = ("--effort", "normal")


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
    "envpool": Package(("0.8.4", "1.0.1", "1.1.1", "1.2.5"), ("Pong", "HalfCheetah"), "envpool-sync"),
    "envpool@3.12": Package(("1.2.5", "1.2.7"), ("Pong", "HalfCheetah"), "envpool-sync", older={"python": "3.12"}),
    "mujoco": Package(("3.0.1", "3.2.7", "3.6.0", "3.11.0", "4.0.0"), ("HalfCheetah",)),
    "numpy": Package(
        ("1.26.4", "2.0.2", "2.4.6"),
        ("Pong", "HalfCheetah", "CartPole"),
        older={"opencv-python-headless": "4.11.0.86"},
    ),
    "python": Package(("3.11", "3.12", "3.13"), ("Pong", "HalfCheetah", "CartPole")),
}


def installed(folder: Path, packages: Mapping[str, str]) -> str:
    """Return a Python with these packages, which are installed unless they are there."""
    place = folder / "-".join(f"{name}{version}" for name, version in packages.items())
    python = str(place / "bin" / "python")
    if not (place / "ready").exists():
        own = f"python{packages['python']}" if "python" in packages else sys.executable
        subprocess.run([own, "-m", "venv", "--clear", place], check=True)
        wanted = [f"{name}=={version}" for name, version in packages.items() if name != "python"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (place / "ready").touch()
    return python


def compared(pythons: Sequence[str], env: str, backends: str, plan: Sequence[str]) -> list[Verdict]:
    """Return the verdict on each backend. Raises RuntimeError with what was printed if there is none."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        command = [sys.executable, "-m", "vebench", "compare", *pythons, "-e", env, "-b", backends, "-w", "2", *plan]
        command += ["--tolerance", TOLERANCE, "-f", "json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)["groups"]


def interval(verdict: Verdict) -> tuple[float, float] | None:
    """Return the interval of a ratio, None if it has none."""
    ratio = verdict["ratio"]
    return (ratio["low"], ratio["high"]) if ratio and ratio["low"] is not None else None


def has_changed(verdict: Verdict) -> bool:
    """Return whether a ratio's interval does not hold 1."""
    its = interval(verdict)
    return its is not None and not its[0] <= 1 <= its[1]


def measured(asked: argparse.Namespace, name: str, before: str, after: str, env: str) -> list[list[Verdict]]:
    """Return the verdicts on each backend: the first, and with ``--again`` the second where one has changed."""
    package, rounds = PACKAGES[name], []
    lines = asked.file.read_text().splitlines() if asked.file.exists() else []
    kept = {tuple(key): found for key, found in map(json.loads, lines)}
    for plan in (SHORT, LONG):
        if rounds and not (asked.again and any(map(has_changed, rounds[0]))):
            break
        key = (name, before, after, env, *plan)
        if key not in kept:
            sides = [{**NEWEST, **package.older, name.partition("@")[0]: version} for version in (before, after)]
            pythons = [installed(asked.folder, side) for side in sides]
            kept[key] = compared(pythons, env, package.backends, plan)
            with asked.file.open("a") as file:
                file.write(json.dumps([key, kept[key]]) + "\n")
        rounds.append(kept[key])
    return [list(both) for both in zip(*rounds, strict=True)]


def shown(verdict: Verdict) -> str:
    """Return by how many percent the rate has changed, with its interval, in bold if that does not hold 0."""
    its = interval(verdict)
    if its is None:
        return "-"
    change, low, high = (100 * (ratio - 1) for ratio in (verdict["ratio"]["median"], *its))
    text = f"{change:+.1f} ({low:+.1f}, {high:+.1f})"
    return f"**{text}**" if has_changed(verdict) else text


def main() -> None:
    """Measure what is missing, and print the table, and what could not be compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default=",".join(PACKAGES))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "vebench-replay")
    asked = parser.parse_args()
    again = wrong = 0
    places = [(env, kind) for env in ("Pong", "HalfCheetah", "CartPole") for kind in ("sync", "async")]
    notes: list[str] = []
    print(f"| release | before | {' | '.join(map(', '.join, places))} |\n{'| --- ' * (2 + len(places))}|")
    for name in asked.only.split(","):
        for before, after in pairwise(PACKAGES[name].releases):
            texts: dict[tuple[str, str], str] = {}
            for env in PACKAGES[name].envs:
                try:
                    found = measured(asked, name, before, after, env)
                except (subprocess.CalledProcessError, RuntimeError) as error:
                    notes.append(f"{name} {after}, {env}: {' '.join(str(error).strip().splitlines()[-1:])}")
                    continue
                for first, *second in found:
                    backend = first["backend"]
                    texts[env, backend.rpartition("-")[2]] = ", again ".join(map(shown, (first, *second)))
                    if interval(first) is None:
                        notes.append(f"{name} {after}, {env}, {backend}: {first['why']}")
                    if second and (both := list(filter(None, map(interval, (first, *second))))):
                        again += 1
                        wrong += max(low for low, _ in both) > min(high for _, high in both)
            print(f"| {name} {after} | {before} | {' | '.join(texts.get(place, '') for place in places)} |", flush=True)
    print("\n", *(f"- {note}\n" for note in notes), f"\n{wrong} of {again} ratios are contradicted.", sep="")


if __name__ == "__main__":
    main()
