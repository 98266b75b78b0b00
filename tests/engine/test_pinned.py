"""Where a run really runs: read from /proc while real cells of every backend measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vebench.machine import counters

ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PROCESSOR = 36  # field 39 of /proc/PID/stat, proc(5), counted from the state, which follows the name

pytestmark = pytest.mark.skipif(len(ALLOWED) < 2, reason="needs a CPU to stay away from")


def seen(process: subprocess.Popen[bytes]) -> set[int]:
    """Return the CPUs that threads of ``process`` and of all below it were last on, looked up until it ends."""
    cpus = set()
    while process.poll() is None:
        for pid in counters.process_tree(process.pid):
            for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
                try:
                    fields = stat.read_bytes().rpartition(b")")[2].split()
                except OSError:  # it has ended
                    continue
                # A thread that has just been made, or has ended, tells where its maker was, or nothing.
                cpus.add(int(fields[PROCESSOR]))
        time.sleep(0.02)
    return cpus


@pytest.mark.parametrize(("env", "backends"), [("CartPole", None), ("Hopper", "ceiling")])
def test_no_backend_leaves_the_cpus_that_the_user_allowed(tmp_path: Path, env: str, backends: str | None) -> None:
    path, only = tmp_path / "run.jsonl", ALLOWED[-1]
    brief = ["--duration", "0.1", "--warmup", "0.05", "--rounds", "2", "-q", "-o", str(path)]
    chosen = ["-b", backends] if backends else []
    command = [sys.executable, "-m", "vebench.cli", "run", "-e", env, "-w", "2", *chosen, *brief]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {only})
    try:
        process = subprocess.Popen(command, cwd=tmp_path)
    finally:
        os.sched_setaffinity(0, before)
    with process:
        assert seen(process) == {only}
    assert process.returncode == 0
    header, *cells = map(json.loads, path.read_text().splitlines())
    assert (header["host"]["cpus_allowed"], header["host"]["usable_cpus"]) == ([only], 1)
    for cell in (cell for cell in cells if cell["status"] == "ok"):
        assert cell["cpus"] == [only]
        assert {cpus for threads in cell["seats"] for cpus in threads} == {str(only)}, cell["backend"]
        assert len(cell["seats"]) >= cell["processes"]


@pytest.mark.parametrize(("backend", "moved"), [("gym-async", 0), ("shm-sync", 1), ("envpool-sync", 0)])
def test_each_worker_is_kept_to_a_cpu_of_its_own(tmp_path: Path, backend: str, moved: int) -> None:
    if backend.startswith("envpool"):
        pytest.importorskip("envpool")
    brief = ["--duration", "0.05", "--warmup", "0.02", "--rounds", "1", "-q", "-o", "run.jsonl"]
    command = [sys.executable, "-m", "vebench.cli", "run", "-e", "CartPole", "-w", "2", "-b", backend, *brief]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    (cell,) = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines()[1:])
    caller, *workers = cell["seats"]
    # Of EnvPool the last threads of the one process step; of ours the caller is a worker, too.
    stepping = [thread for process in workers for thread in process] or caller[-2:]
    seats = [*(caller if moved else ()), *stepping]
    assert sorted(seats) == sorted(map(str, cell["cpus"]))
