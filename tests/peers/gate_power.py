"""How often ``vebench check`` finds a known regression on this machine, and how often it raises a false alarm.

``python gate_power.py FOLDER [TRIALS]`` measures with ``tests/adapters/sleepy.py``, a for-loop that sleeps for a share
of each step: a baseline, a run of the same (slower in 1 of 20 at most), of 10 % (slower in 18 of 20 at least) and of
20 % (slower always), at a tolerance of 5 % with 5 repeats. A trial takes about three minutes on a quiet machine; run
files stay in FOLDER, and trials that are there already are not measured again.
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
    *("--env", "CartPole", "--workers", "1", "--backend", "for-loop", "--backend", "sleepy:Sleepy"),
    *("--repeats", "5", "--rounds", "5", "--duration", "0.5", "--warmup", "0.5", "--quiet"),
)
SHARES = (0.0, 0.1, 0.2)
METRICS = ("fps", "speedup")


def vebench(*arguments: str | Path, share: float = 0.0) -> subprocess.CompletedProcess[str]:
    """Run the command with a backend that sleeps for ``share`` of each step."""
    environment = {**os.environ, "PYTHONPATH": str(ADAPTERS), "SLEEP_SHARE": str(share)}
    command = [sys.executable, "-m", "vebench.cli", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def measured(path: Path, share: float) -> Path:
    """Return a run file with that share, measured unless it is there."""
    if not path.exists():
        done = vebench("run", *PLAN, "-o", path, share=share)
        if done.returncode:
            sys.exit(f"{path}: {done.stderr}")
    return path


def main(folder: str, trials: int = 20) -> None:
    """Measure the trials, and print how often the sleeping backend got which verdict."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    verdicts: dict[tuple[str, float, str], Counter[str]] = {}
    for trial in range(trials):
        baseline = measured(home / f"{trial:02}-baseline.jsonl", 0.0)
        for share in SHARES:
            candidate = measured(home / f"{trial:02}-{share:.0%}.jsonl", share)
            for metric in METRICS:
                done = vebench("check", baseline, candidate, "--metric", metric, "-f", "json")
                for cell in json.loads(done.stdout)["cells"]:
                    key = (metric, share, cell["backend"])
                    verdicts.setdefault(key, Counter())[cell["verdict"]] += 1
        print(f"trial {trial + 1} of {trials}", file=sys.stderr, flush=True)
    for (metric, share, backend), counts in sorted(verdicts.items()):
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        print(f"{metric:8} {share:4.0%} slept  {backend:14} {told}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
