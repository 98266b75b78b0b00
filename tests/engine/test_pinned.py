"""Where a run really runs: read from /proc while real cells of every backend measure."""

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands import ONE_PASS, Command

from vebench.machine import kernel

ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PROCESSOR = 36  # field 39 of /proc/PID/stat, proc(5), counted from the state, which follows the name

pytestmark = [pytest.mark.whole_machine, pytest.mark.skipif(len(ALLOWED) < 2, reason="needs a CPU to stay away from")]


def seen(process: subprocess.Popen[str]) -> set[int]:
    """Return the CPUs that threads of ``process`` and of all below it were last on, looked up until it ends."""
    cpus = set()
    while process.poll() is None:
        for pid in kernel.process_tree(process.pid):
            with suppress(OSError):  # it has ended
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    # A thread that has just been made shows where its maker was.
                    cpus.add(int((thread / "stat").read_bytes().rpartition(b")")[2].split()[PROCESSOR]))
        time.sleep(0.1)
    return cpus


# One backend of each kind that starts processes or threads: a process for each environment, workers, a library's own.
def test_no_backend_leaves_the_cpus_that_the_user_allowed(vebench: Command, tmp_path: Path) -> None:
    backends = "gym-async,shm-async,envpool-async,ceiling"
    path, only = tmp_path / "run.jsonl", ALLOWED[-1]
    brief = ("--duration", "0.1", "--warmup", "0.05", "--windows", "1", "--no-base", *ONE_PASS, "-q")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {only})
    try:
        process = vebench.start("run", "-e", "Hopper", "-w", "2", "-b", backends, *brief, "-o", path)
    finally:
        os.sched_setaffinity(0, before)
    with process:
        assert seen(process) == {only}
    assert process.returncode in {0, 3}  # 3 if others had the CPUs meanwhile
    header, *cells = map(json.loads, path.read_text().splitlines())
    assert (header["host"]["cpus_allowed"], header["host"]["usable_cpus"]) == ([only], 1)
    for cell in (cell for cell in cells if cell["status"] == "ok"):
        assert cell["cpus"] == [only]
        assert {cpus for threads in cell["seats"] for cpus in threads} == {str(only)}, cell["backend"]
        assert len(cell["seats"]) >= cell["processes"]
