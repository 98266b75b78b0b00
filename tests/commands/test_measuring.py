"""What the commands that measure have in common: a plan for this machine."""

from __future__ import annotations

import pytest

from vebench.backends import packages
from vebench.commands.measuring import prepare
from vebench.errors import UsageError
from vebench.plan.spec import BackendChoice, RunSpec

PONG, CART_POLE = RunSpec(("Pong",), (1, 2)), RunSpec(("CartPole",), (1, 2))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing installed but what vebench itself needs."""
    base = [package.module for package in packages.BASE]
    monkeypatch.setattr(packages, "find_spec", lambda name: True if name in base else None)


@pytest.mark.usefixtures("bare")
def test_where_no_backend_can_step_the_task_nothing_is_measured_and_each_missing_thing_is_said_once() -> None:
    with pytest.raises(UsageError) as raised:
        prepare(PONG)
    assert str(raised.value) == (
        "nothing of this can run here: "
        "not installed: ale-py, opencv-python-headless (pip install 'vebench-rl[atari]'); "
        "not installed: envpool (pip install 'vebench-rl[envpool]')"
    )


@pytest.mark.usefixtures("bare")
def test_a_backend_that_lacks_a_package_keeps_no_other_from_being_measured() -> None:
    plan, _ = prepare(CART_POLE)
    assert {cell.backend.name for cell in plan.cells if cell.skip} == {"envpool-sync", "envpool-async"}


@pytest.mark.usefixtures("bare")
def test_a_reference_row_alone_is_measured_if_it_is_all_that_was_asked_for() -> None:
    plan, _ = prepare(RunSpec(("Pong",), (1,), (BackendChoice("null"),)))
    assert [cell.skip for cell in plan.cells] == [None]
