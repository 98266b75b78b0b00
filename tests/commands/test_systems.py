"""Other systems than Linux: imitated by what Python lacks there, in each process that is started."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import ONE_PASS, lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="imitates other systems on Linux")
IMITATED = """
import click, fcntl, os, sys, sysconfig, zoneinfo
sysconfig.get_config_vars()  # which are of this system
del os.memfd_create, os.pidfd_open, os.sched_getaffinity, os.sched_setaffinity
"""


def vebench_on(system: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(f"{IMITATED}sys.platform = {system!r}")
    command, variables = [sys.executable, "-m", "vebench", *arguments], {"PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_on_macos_backends_run_without_pinning_and_without_advice_for_containers(tmp_path: Path) -> None:
    brief = ("-w", "1", "--duration", "0.05", "--windows", "4", "--no-base", *ONE_PASS, "-o", "run.jsonl")
    done = vebench_on("darwin", tmp_path, "run", "-e", "CartPole", "-b", "gym-async,shm-sync", *brief)
    cells = [(cell["status"], cell["affinity"]) for cell in lines(tmp_path / "run.jsonl", "cell")]
    assert (cells, "could not be bound" in done.stdout) == ([("ok", None)] * 2, False), done


def test_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    done = vebench_on("win32", tmp_path, "list")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
