"""Replicas on the nodes of a Ray cluster, by a library of that name which has no cluster.

``make test-cluster`` does the same with a real one.
"""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support import places
from support.commands import Command
from support.relays import measuring, scoped

from vebench.backends import packages
from vebench.child.request import seeds_of
from vebench.results import store

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are reached from Linux"),
    pytest.mark.xdist_group("hosts"),  # they time nothing, but each takes several processes
]

SHORT = ("-e", "CartPole", "-b", "for-loop", "-w", "1", "--windows", "2", "--duration", "0.1", "--warmup", "0.02")
RUN = ("run", *SHORT, "--passes", "1", "--no-base", "-q", "-o", "run.jsonl")


@pytest.fixture
def nodes(vebench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Ray for that command, and a cluster of two nodes on one host, one head without CPUs, and one that is dead."""
    folder = Path(places.__file__).parent / "fake_ray"
    assert vebench  # which has a path already
    scoped(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("FAKE_RAY_NODES", "dead,two,head,two")
    return monkeypatch


@pytest.mark.usefixtures("nodes")
def test_each_node_has_a_replica_and_the_curve_over_nodes_a_cell_for_each_count(vebench: Command) -> None:
    Path("secrets.py").write_text("raise SystemExit('a module of whatever folder this is')")
    done = vebench(*RUN, "--hosts", "ray[count=1..2]")
    one, both = sorted(store.read(Path("run.jsonl")).cells, key=lambda cell: cell.workers)
    assert (done.status, one.status, both.status) == (0, "ok", "ok"), (done, one.reason, both.reason)
    assert (one.replica_hosts, both.replica_hosts) == (("two",), ("two", "two:2"))
    assert (one.workers, both.workers, len(both.hosts or ())) == (1, 2, 2)


@pytest.mark.usefixtures("nodes")
def test_a_node_whose_program_was_killed_is_named_once_and_for_all(vebench: Command) -> None:
    asked = ("run", "-e", "CartPole", "-b", "for-loop", "-w", "1", "--passes", "1", "--no-base", "-q")
    slow = ("--policy", "sleep:1ms", "--duration", "20")
    with vebench.start(*asked, *slow, "-o", "run.jsonl", "--hosts", "ray") as running:
        second = seeds_of(0)[1] + 1
        while not (started := {asked["start_seed"]: pid for pid, asked in measuring().items()}).get(second):
            assert running.poll() is None
            time.sleep(0.05)
        os.kill(_parent(started[second]), signal.SIGKILL)
        assert running.wait(60) == 1
    (cell,) = store.read(Path("run.jsonl")).cells
    assert (cell.status, cell.reason) == ("failed", "two:2: lost: its program has ended")


def _parent(pid: int) -> int:
    """Return the relay that has started a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--hosts", "ray[address=nowhere:1]"), "--hosts: Ray at nowhere:1: ConnectionError: Could not connect to"),
        (("--hosts", "three[via=ray]"), "--hosts: three: lost: the cluster has no such node now; it has"),
    ],
)
def test_a_cluster_of_no_use_is_refused_in_a_line(vebench: Command, options: tuple[str, ...], why: str) -> None:
    done = vebench(*RUN, *options)
    assert (done.status, Path("run.jsonl").exists()) == (2, False)
    assert why in done.refusal


@pytest.mark.skipif(packages.importable("ray"), reason="Ray is installed")
def test_without_ray_it_is_said_what_to_install(vebench: Command) -> None:
    done = vebench(*RUN, "--hosts", "ray")
    assert (done.status, done.refusal) == (
        2,
        "vebench: --hosts: Ray at auto: needs Ray (in vebench's clone: pip install '.[ray]')\n",
    )
