"""Replicas on other hosts: what is started there, counted together, refused, and left behind (nothing)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import Command, Result
from support.reaching import fake_ssh
from support.relays import left, measuring, relays, scoped

from vebench.child.request import seeds_of
from vebench.results import store
from vebench.results.records import Run

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are reached from Linux"),
    pytest.mark.xdist_group("hosts"),  # they time nothing, but each takes several processes
]

SHORT = ("-e", "CartPole", "-w", "1", "--windows", "2", "--duration", "0.1", "--warmup", "0.02")
PLAIN = ("--passes", "1", "--no-base", "-q")
CALM = ("--policy", "sleep:1ms")  # of what is measured for long


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    scoped(tmp_path, monkeypatch)
    return fake_ssh(tmp_path, monkeypatch)


def measured(vebench: Command, *arguments: str, backend: str = "for-loop") -> tuple[Result, Run]:
    done = vebench("run", *SHORT, "-b", backend, *PLAIN, "-o", "run.jsonl", *arguments)
    return done, store.read(Path("run.jsonl"))


def test_two_hosts_are_measured_and_compared_together_and_rates_are_the_sum(vebench: Command, reached: Path) -> None:
    Path("zipfile.py").write_text("raise SystemExit('a module of whatever folder this is')")
    done, run = measured(vebench, "--hosts", "a,greets-b", backend="gym-sync")
    (cell,) = run.cells
    assert (done.status, cell.status, cell.workers, cell.replica_hosts) == (0, "ok", 2, ("a", "greets-b")), cell.reason
    assert cell.proof is not None
    assert cell.proof.verdict == "identical"
    assert cell.hosts is not None
    assert [share.host for share in cell.hosts] == ["a", "greets-b"]
    rate = sum(window.rows - window.resets for window in cell.windows) / sum(window.ns for window in cell.windows)
    assert rate * 1e9 == pytest.approx(sum(share.steps_per_second for share in cell.hosts), rel=0.25)
    assert all(abs(share.offset_ns) <= share.error_ns for share in cell.hosts)  # since it is our clock
    assert {host.packages["gymnasium"] for host in run.header.hosts.values()} == {run.header.packages["gymnasium"]}
    assert sorted(one.name for one in reached.iterdir()) == ["a.pid", "greets-b.pid"]
    assert left() == []


def test_each_count_of_hosts_has_a_cell_and_unlike_hosts_are_allowed(
    vebench: Command, reached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reached.exists()
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as some hosts have it
    (tmp_path / "machines").write_text("a slots=4\n\n# not this one\nold\n")
    done, run = measured(vebench, "--hosts", "@machines[count=1..2,unlike=true]")
    assert done.status == 0
    assert {cell.workers: cell.replica_hosts for cell in run.cells} == {1: ("a",), 2: ("a", "old")}
    assert run.header.hosts["old"].packages["gymnasium"] == "0.1"
    told = vebench("report", "run.jsonl").out
    assert "a, old by ssh, added up; clocks known to " in " ".join(told.split())


def test_nodes_are_reached_by_srun_and_one_lost_after_the_plan_ends_its_cells(vebench: Command, reached: Path) -> None:
    Path("nodes").write_text("a\ngone1-b\n")
    done, run = measured(vebench, "--hosts", "@nodes[via=srun,count=1,2]")
    assert (done.status, reached.exists()) == (1, True)
    assert {cell.workers: (cell.status, cell.reason) for cell in run.cells} == {
        1: ("ok", None),
        # As the program in its place says.
        2: ("failed", "gone1-b: lost: ssh: connect to host gone1-b port 22: No route to host"),
    }
    assert "a, gone1-b by srun, added up" in " ".join(vebench("report", "run.jsonl").out.split())
    assert left() == []


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ("a,bare", "--hosts: bare: lost: sh: 1: exec: no-such-python: not found"),
        ("lost,a,locked", "lost port 22: No route to host; locked: lost: me@locked: Permission denied (publickey)."),
        ("a,old", "old differs from a: gymnasium 0.1 instead of"),
    ],
)
def test_hosts_that_cannot_be_used_are_refused_in_a_line(vebench: Command, reached: Path, hosts: str, why: str) -> None:
    done = vebench("run", *SHORT, "-b", "for-loop", *PLAIN, "-o", "run.jsonl", "--hosts", hosts)
    assert (done.status, reached.exists(), Path("run.jsonl").exists()) == (2, True, False)
    assert why in done.refusal
    assert left() == []


def test_a_lost_host_ends_its_cells_with_a_reason_and_others_go_on(vebench: Command, reached: Path) -> None:
    """The second of two passes has both hosts; the first pass and the cells on one host alone are measured."""
    long = ("--windows", "1", "--duration", "1", "--warmup", "0.1", "--timeout", "20")
    Path("two").write_text("a\nb\n")
    asked = ("run", "-e", "CartPole", "-b", "for-loop", "-w", "1", *PLAIN, *long, *CALM, "-o", "run.jsonl")
    with vebench.start(*asked, "--hosts", "@two[count=1,2]", stderr=subprocess.PIPE) as running:
        _of_replica(running)
        os.kill(int((reached / "b.pid").read_text()), signal.SIGKILL)
        assert running.wait(60) == 1
    cells = {cell.workers: cell for cell in store.read(Path("run.jsonl")).cells}
    failed = next(cell for cell in cells.values() if cell.status == "failed")
    assert failed.workers == 2
    assert str(failed.reason).startswith("b: ")
    assert cells[1].status == "ok"
    assert left() == []
    assert vebench("run", "--resume", "run.jsonl", "-q").status == 2
    assert vebench("run", "--resume", "run.jsonl", "-q", "--allow-code").status == 0
    assert [cell.status for cell in store.read(Path("run.jsonl")).cells] == ["ok", "ok"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_on_a_host_however_the_runner_ends(vebench: Command, reached: Path, number: int) -> None:
    asked = ("run", "-e", "CartPole", "-b", "shm-sync", "-w", "1", *PLAIN, *CALM, "--duration", "20", "-o", "run.jsonl")
    with vebench.start(*asked, "--hosts", "a,b", stderr=subprocess.PIPE) as running:
        _of_replica(running)
        assert min(len(relays()), len(measuring())) >= 2  # which is what is looked for below
        running.send_signal(number)
        running.communicate(timeout=30)
    assert sorted(path.name for path in reached.iterdir()) == ["a.pid", "b.pid"]
    assert left() == []


def _of_replica(running: subprocess.Popen[str]) -> int:
    """Return the process of host b's replica, once it is there."""
    until = time.monotonic() + 30
    while time.monotonic() < until and running.poll() is None:
        for pid, asked in measuring().items():
            if asked["start_seed"] > seeds_of(0)[1]:
                time.sleep(0.5)  # it measures
                return pid
        time.sleep(0.02)
    raise AssertionError("no replica of a second host was seen")
