"""Machines of many CPUs, simulated: plan, placement, race and answer."""

import pytest
from support.commands import Command
from support.simulated import GIB, Costs, Machine, topology_of

from vebench.backends import packages


@pytest.fixture(autouse=True)
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of these tests do not depend on what is installed beside them."""
    monkeypatch.setattr(packages, "find_spec", lambda _name: True)


def test_a_cell_above_memory_is_killed(vebench: Command) -> None:
    machine = Machine(topology_of(cores=4), memory=GIB, costs={"for-loop": Costs(environment=2 * GIB)})
    asked = ("-b", "for-loop", "-w", "1", "--no-base", "--proof", "off")
    assert vebench("run", "-e", "Pong", *asked, "-q", world=machine.world()).status == 1
    assert machine.clock.now < 10
