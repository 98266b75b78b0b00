"""A real Ray cluster of two nodes on this machine: ``make test-cluster``, in an interpreter that has Ray."""

import os
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from support.commands import Command
from support.relays import left

from vebench.results import store
from vebench.results.records import CellRecord

pytestmark = [pytest.mark.cluster, pytest.mark.whole_machine]

PONG = ("-e", "Pong", "-b", "for-loop", "-w", "1", "--passes", "1", "--no-base", "-q")
# Its processes wait 15 s for each other, which is too short on a machine that others use, too.
ATTEMPTS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head and another node, with a CPU each. It stands until the last test: to start it takes a minute."""
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.getbasetemp() / "ray"
    folder.mkdir()
    os.environ["RAY_TMPDIR"] = str(folder.parent)  # where Ray writes the cluster's address, into a folder named ray
    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": str(folder)}
    for attempt in range(ATTEMPTS):
        made = Cluster()
        try:
            _on_a_cpu(0, partial(made.add_node, **head))
            _on_a_cpu(1, partial(made.add_node, num_cpus=1))
            break
        except RuntimeError:
            made.shutdown()
            if attempt == ATTEMPTS - 1:
                raise
    yield made
    made.shutdown()


def _on_a_cpu(number: int, start: Callable[[], object]) -> None:
    """Start something that is allowed one of this process's CPUs, as if it were a host with that one."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(allowed)[number % len(allowed)]})
    try:
        start()
    finally:
        os.sched_setaffinity(0, allowed)


def rate(cell: CellRecord) -> float:
    return sum(window.rows - window.resets for window in cell.windows) / sum(window.ns for window in cell.windows)


def test_two_nodes_do_what_each_of_them_does_added_up(vebench: Command, cluster: Any) -> None:
    done = vebench(
        "run", *PONG, "--windows", "4", "--duration", "1", "--hosts", f"ray[address={cluster.address},count=1,2]"
    )
    assert done.status == 0, done
    both: dict[int, CellRecord] = {cell.workers: cell for cell in store.read(store.run_files_in()[-1]).cells}
    first, second = both[2].hosts or ()
    for share in (first, second, *(both[1].hosts or ())):
        assert abs(share.offset_ns) <= share.error_ns  # the truth is 0
        assert share.error_ns < 5_000_000
    assert rate(both[2]) * 1e9 == pytest.approx(first.steps_per_second + second.steps_per_second, rel=0.1)
    assert min(first.steps_per_second, second.steps_per_second, rate(both[1])) > 0
    assert left() == []
