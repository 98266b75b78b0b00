"""What gates say on this machine of code that has not changed, and of a known regression.

``python gate_power.py FOLDER [TRIALS]`` makes TRIALS pairs of runs of the same code by the default plan, every second
one beside a load that comes and goes, and checks the second of each pair against the first: none may exit with 1. Then
it compares ``tests/adapters/sleepy.py``, a for-loop that sleeps for a tenth of each step, TRIALS times with itself
awake, by ``compare --until-decided``. A trial takes one to five minutes. Run files stay in FOLDER, and what is there is
not measured again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ADAPTERS = Path(__file__).parents[1] / "adapters"
PAIR = ("--env", "CartPole", "--workers", "1", "--backend", "for-loop,gym-sync", "--quiet")
SLEEPY = (
    *("--env", "CartPole", "--workers", "1", "--backend", "sleepy:Sleepy", "--quiet"),
    *("--rounds", "4", "--duration", "0.25", "--warmup", "0.3", "--until-decided", "--budget", "300"),
)
LOAD = "import time, random\nwhile True:\n end = time.monotonic() + random.uniform(0.5, 8)\n while time.monotonic() < end: pass\n time.sleep(random.uniform(0.5, 8))"  # noqa: E501 - a program


def vebench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command where it finds the adapter."""
    command = [sys.executable, "-m", "vebench", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ADAPTERS)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def load(*, wanted: bool) -> Iterator[None]:
    """Let another process use a CPU now and then, if it is wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", LOAD])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def unchanged(home: Path, trials: int) -> None:
    """Check pairs of runs of the same code, and print the exit statuses by both metrics."""
    statuses: dict[tuple[str, str], Counter[int]] = {}
    for trial in range(trials):
        beside = "beside a load" if trial % 2 else "alone"
        pair = [home / f"same-{trial:02}-{side}.jsonl" for side in "ab"]
        with load(wanted=bool(trial % 2)):
            for path in pair:
                if not path.exists():
                    vebench("run", *PAIR, "-o", path)
        for metric in ("fps", "speedup"):
            checked = vebench("check", *pair, "--metric", metric, "-f", "json")
            statuses.setdefault((beside, metric), Counter())[checked.returncode] += 1
            why = checked.stderr.strip() or [
                (cell["backend"], cell["verdict"], round(cell["ratio"]["median"], 3) if cell["ratio"] else None)
                for cell in json.loads(checked.stdout)["cells"]
            ]
            print(f"trial {trial + 1}, {beside}, {metric}: exit {checked.returncode}, {why}", flush=True)
    for (beside, metric), counts in statuses.items():
        print(
            f"{beside}, {metric}: " + ", ".join(f"{count} x exit {status}" for status, count in sorted(counts.items()))
        )


def python(home: Path, name: str, share: float) -> Path:
    """Return a Python in which the adapter sleeps for this share of each step."""
    path = home / name / "python"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nSLEEP_SHARE={share} PYTHONPATH="{ADAPTERS}" exec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def regression(home: Path, trials: int) -> None:
    """Compare until it is decided whether a tenth slower is slower, and print the verdicts and the time."""
    awake, sleepy = python(home, "awake", 0.0), python(home, "sleepy", 0.1)
    verdicts: Counter[str] = Counter()
    seconds = []
    for trial in range(trials):
        path = home / f"slower-{trial:02}.jsonl"
        answer = path.with_suffix(".json")
        if not answer.exists():
            for side in "ab":
                path.with_name(f"{path.stem}-{side}.jsonl").unlink(missing_ok=True)
            started = time.monotonic()
            done = vebench("compare", "--a", awake, "--b", sleepy, *SLEEPY, "-f", "json", "-o", path)
            found = {"seconds": time.monotonic() - started, "status": done.returncode, **json.loads(done.stdout)}
            answer.write_text(json.dumps(found))
        found = json.loads(answer.read_text())
        (cell,) = found["cells"]
        verdicts[cell["verdict"]] += 1
        seconds.append(found["seconds"])
        print(f"trial {trial + 1}: {cell['verdict']}, {cell['ratio']}, {found['seconds']:.0f} s", flush=True)
    spread = f"{min(seconds):.0f} to {max(seconds):.0f} s, median {median(seconds):.0f} s"
    print(f"a tenth slower: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}; {spread}")


def main(folder: str, trials: int = 20) -> None:
    """Measure both."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    unchanged(home, trials)
    regression(home, trials)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
