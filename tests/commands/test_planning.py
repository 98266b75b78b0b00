"""From a command line to a plan for this machine, also where packages are missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.fakes import fake_world

from vebench.backends import packages

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing installed but what vebench itself needs."""
    base = [package.module for package in packages.BASE]
    monkeypatch.setattr(packages, "find_spec", lambda name: True if name in base else None)


@pytest.mark.usefixtures("bare")
def test_where_no_backend_can_step_the_task_nothing_is_measured_and_each_missing_thing_is_said_once(
    vebench: Command,
) -> None:
    found = vebench("run", "-e", "Pong", "-w", "1,2", world=fake_world())
    assert found.status == 2
    assert found.err == (
        "vebench: no cell of this plan can run here: "
        "not installed: ale-py, opencv-python-headless (pip install 'vebench-rl[atari]'); "
        "not installed: envpool (pip install 'vebench-rl[envpool]')\n"
    )


@pytest.mark.usefixtures("bare")
def test_a_backend_that_lacks_a_package_keeps_no_other_from_being_measured(vebench: Command, tmp_path: Path) -> None:
    assert vebench("run", "-e", "CartPole", "-w", "1", "-q", "-o", "run.jsonl", world=fake_world()).status == 0
    _, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    skipped = {cell["backend"] for cell in cells if cell["status"] == "skipped"}
    assert skipped == {"envpool-sync", "envpool-async"}


@pytest.mark.usefixtures("bare")
def test_a_reference_row_alone_is_measured_if_it_is_all_that_was_asked_for(vebench: Command) -> None:
    assert vebench("run", "-e", "Pong", "-w", "1", "-b", "null", "-q", world=fake_world()).status == 0
