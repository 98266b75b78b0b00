"""What sixty command lines print of ten run files, so that a change of the code can be seen to change no number.

``python tools/outputs.py write CHECKOUT FILE.json`` runs them with the checkout's own ``.venv``; the run files are made
anew there, of the same windows. ``python tools/outputs.py compare A.json B.json`` prints what differs, and exits with 1
if anything does. A command line that one of the two refuses with status 2 is named as such.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

FORMATS = ("terminal", "markdown", "json", "csv", "latex", "html")
METRICS = ("yardstick", "speedup", "fps")
REPORTS = (
    *(f"report {name}.jsonl" for name in ("sweep", "noisy", "tasks", "short", "disturbed", "hosts", "failed")),
    *(f"report {name}.jsonl -f json" for name in ("noisy", "tasks", "short", "disturbed", "hosts", "failed")),
    *(f"report sweep.jsonl -f {form}" for form in FORMATS[1:]),
    "report noisy.jsonl --columns efficiency,of_ceiling",
    "report noisy.jsonl --forecast 8",
    "report noisy.jsonl --forecast 8 -f json",
    "report noisy.jsonl -f svg",
    *(f"report noisy.jsonl slower.jsonl -f {form}" for form in FORMATS),
    "report noisy.jsonl machine.jsonl",
    "report tasks.jsonl -f markdown",
    "report sweep.jsonl -f svg",
)
CHECKS = (
    *(f"check noisy.jsonl {name}.jsonl --metric {metric}" for name in ("slower", "again") for metric in METRICS),
    *(f"check noisy.jsonl slower.jsonl -f {form}" for form in ("markdown", "json")),
    "check noisy.jsonl slower.jsonl --tolerance 5%",
    "check noisy.jsonl disturbed.jsonl",
    "check noisy.jsonl failed.jsonl",
    "check noisy.jsonl machine.jsonl",
    "check noisy.jsonl slower.jsonl --history past",
    "check tasks.jsonl short.jsonl --metric speedup",
)
HISTORIES = (
    *(f"history past -f {form}" for form in FORMATS[:3]),
    "history past --metric speedup",
    "history past --metric fps",
    "history steady",
    "history past --env Breakout",
)
OTHERS = (
    *("list", "report nothing.jsonl", "check noisy.jsonl", "run --env CartPole --workers 0", "history empty", "tune"),
    "run --env CartPole --workers 1..4 --dry-run -q",
    "run --env CartPole --workers 1,2 -b for-loop,shm-sync --passes 1 --dry-run -q",
)
LINES = (*REPORTS, *CHECKS, *HISTORIES, *OTHERS)
RATES = {("yardstick", 1): 50_000, ("for-loop", 1): 2300, ("for-loop", 2): 2310, ("ceiling", 1): 4700}
RATES |= {("ceiling", 2): 9400, ("null", 1): 2_500_000}
RATES |= {(name, size): rate * size for name, rate in (("gym-async", 1200), ("shm-sync", 1900)) for size in (1, 2, 4)}


def make_files(folder: Path) -> None:
    """Write the run files, by the records of the tests of the checkout that this process runs with."""
    from support import records

    chance = random.Random(1)

    def noisy(share: float = 0.01, factor: float = 1.0) -> dict[tuple[str, int], float]:
        return {key: rate * factor * chance.lognormvariate(0, share) for key, rate in RATES.items()}

    def write(name: str, run: object) -> None:
        records.write_run(folder / f"{name}.jsonl", run)

    head = records.make_header(4)
    write("sweep", records.make_sweep())
    write("noisy", records.make_repeated(noisy(), head))
    write("again", records.make_repeated(noisy(), head))
    slower = {key: rate * (0.7 if key[0] == "shm-sync" else 1) for key, rate in noisy().items()}
    write("slower", records.make_repeated(slower, head))
    write("machine", records.make_repeated(noisy(factor=1.4), records.on_machine(head, cpu_model="Other CPU")))
    write("short", records.Run(head, tuple(records.make_cell(*key, (round(rate),)) for key, rate in RATES.items())))
    taken = {"steal_ns": 5 * 10**8}
    stolen = [
        records.replace(
            cell, windows=tuple(type(one)(**records.msgspec.to_builtins(one) | taken) for one in cell.windows)
        )
        for cell in records.make_repeated(noisy(), head).cells
    ]
    write("disturbed", records.Run(head, tuple(stolen)))
    tasks = [records.make_repeated(noisy(), head, env=env) for env in ("ALE/Pong-v5", "HalfCheetah-v5")]
    asked = records.make_header(4, envs=["Pong", "HalfCheetah"])
    write("tasks", records.Run(asked, tuple(cell for run in tasks for cell in run.cells)))
    failed = {"status": "failed", "reason": "ended by SIGKILL", "windows": ()}
    cells = [
        records.replace(cell, **failed) if cell.backend == "shm-sync" else cell
        for cell in records.make_repeated(noisy(), head).cells
    ]
    write("failed", records.Run(head, tuple(cells)))
    hosts = records.on_hosts(records.make_header(4, hosts={"names": ["host-0", "host-1"]}), 2, 2)
    write("hosts", records.make_repeated(noisy(), hosts, hosts=records.shares(1000.0, 1300.0)))
    for name, drop in (("past", 0.85), ("steady", 1.0)):
        (folder / name).mkdir()
        levels = {
            key: [rate / 1000 * chance.lognormvariate(0, 0.02) * (drop if day >= 20 else 1) for day in range(30)]
            for key, rate in RATES.items()
            if key[0] in {"for-loop", "gym-async", "yardstick"}
        }
        for file, run in records.make_runs(levels, head):
            write(f"{name}/{Path(file).stem}", run)
    (folder / "empty").mkdir()


def write(checkout: str, target: str) -> None:
    """Run all lines with a checkout, and write what they print, with their statuses."""
    home = Path(checkout).resolve()
    python = str(home / ".venv" / "bin" / "python")
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB", "VEBENCH"))}
        environment |= {"COLUMNS": "120", "XDG_CACHE_HOME": f"{name}/cache", "PYTHONPATH": str(home / "tests")}
        subprocess.run([python, __file__, "files", name], env=environment, check=True)
        for line in LINES:
            how = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
            done = subprocess.run([python, "-m", "vebench", *line.split()], check=False, **how)
            found[line] = [done.returncode, done.stdout.replace(name, "FOLDER"), done.stderr.replace(name, "FOLDER")]
    Path(target).write_text(json.dumps(found, indent=1))
    print(f"{len(found)} command lines")


def compare(one: str, other: str) -> int:
    """Print what differs, and return the exit status."""
    before, after = (json.loads(Path(name).read_text()) for name in (one, other))
    differ = [line for line in before if before[line] != after.get(line)]
    for line in differ:
        print(f"## vebench {line}: status {before[line][0]}, {after[line][0]}")
        for old, new in zip(before[line][1:], after[line][1:], strict=True):
            changes = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
            print("\n".join(change for change in changes if not change.startswith(("---", "+++", "@@"))))
    print(f"{len(differ)} of {len(before)} command lines differ")
    return bool(differ)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["files", folder]:
            make_files(Path(folder))
        case ["write", checkout, file]:
            write(checkout, file)
        case ["compare", one, other]:
            sys.exit(compare(one, other))
        case _:
            sys.exit(__doc__)
