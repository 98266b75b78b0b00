"""How often ``vebench check`` finds a known regression on this machine, and how often it raises a false alarm.

``python gate_power.py FOLDER [TRIALS]`` measures the speedup of ``tests/adapters/sleepy.py``, a for-loop that sleeps
for a share of each step, over a plain one, with 5 repeats and a tolerance of 5 %. Each trial has a baseline, a run of
10 % less (slower in 18 of 20 trials at least), and one of 20 % less (slower always); the next trial's baseline is a run
of the same (slower in 1 of 20 at most). A trial takes about two minutes; run files stay in FOLDER, and those there are
not measured again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ADAPTERS = Path(__file__).parents[1] / "adapters"
PLAN = (
    *("--env", "CartPole", "--workers", "1", "--backend", "for-loop", "--backend", "sleepy:Sleepy", "--quiet"),
    *("--interleave", "--repeats", "5", "--rounds", "10", "--duration", "0.25", "--warmup", "0.5"),
)
SHARES = (0.0, 0.1, 0.2)


def vebench(*arguments: str | Path, share: float = 0.0) -> subprocess.CompletedProcess[str]:
    """Run the command with a backend that sleeps for ``share`` of each step."""
    environment = {**os.environ, "PYTHONPATH": str(ADAPTERS), "SLEEP_SHARE": str(share)}
    command = [sys.executable, "-m", "vebench.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def measured(home: Path, trial: int, share: float) -> Path:
    """Return the trial's run with that share, whole: what of it is there already is not measured again."""
    path = home / f"{trial:02}-{share:.0%}.jsonl"
    done = vebench("run", *(("--resume", path, "--quiet") if path.exists() else (*PLAN, "-o", path)), share=share)
    if done.returncode:
        sys.exit(f"{path}: {done.stderr}")
    return path


def main(folder: str, trials: int = 20) -> None:
    """Measure the trials, and print how often which share got which verdict, and each ratio."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    verdicts: dict[float, Counter[str]] = {share: Counter() for share in SHARES}
    baseline = measured(home, 0, 0.0)
    for trial in range(trials):
        slept = [measured(home, trial, share) for share in SHARES[1:]]
        same = measured(home, trial + 1, 0.0)
        for share, candidate in zip(SHARES, (same, *slept), strict=True):
            checked = vebench("check", baseline, candidate, "--metric", "speedup", "-f", "json")
            (cell,) = json.loads(checked.stdout)["cells"]
            verdicts[share][cell["verdict"]] += 1
            print(f"trial {trial + 1}: {share:4.0%} slept, {cell['verdict']:12} {cell['ratio']}", flush=True)
        baseline = same
    for share, counts in verdicts.items():
        print(f"{share:4.0%} slept: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
