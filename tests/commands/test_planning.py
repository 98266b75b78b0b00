"""From a command line to a plan for this machine, also where packages are missing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from support.fakes import fake_world

from vebench.backends import packages, registry
from vebench.backends.entry import BackendEntry

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
        "vebench: nothing but null can run here: "
        "not installed: ale-py, opencv-python-headless (pip install 'vebench-rl[atari]'); "
        "not installed: envpool (pip install 'vebench-rl[envpool]')\n"
    )


@pytest.mark.usefixtures("bare")
def test_where_not_even_a_reference_row_can_run_no_cell_can(vebench: Command) -> None:
    found = vebench("run", "-e", "Pong", "-w", "1", "-b", "ceiling,envpool-sync", world=fake_world())
    assert found.status == 2
    assert found.refusal.startswith("vebench: no cell of this plan can run here: not installed: envpool ")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("backends", "status"), [("null,envpool-sync", 0), ("envpool-sync", 2), ("ceiling", 2)])
def test_a_dry_run_shows_the_plan_and_why_cells_are_skipped_also_where_a_run_is_refused(
    vebench: Command, backends: str, status: int
) -> None:
    asked = ("run", "-e", "Pong", "-w", "1", "-b", backends, "--set", "base=false")
    assert vebench(*asked, world=fake_world()).status == 2
    found = vebench(*asked, "--dry-run", world=fake_world())
    assert found.status == status
    assert found.err.count("\n") == (status == 2)
    assert "1 skipped" in found.out
    assert f"skipped: {backends.removeprefix('null,')} at 1 worker: not installed: " in found.out


def test_a_plan_too_large_for_the_memory_is_shown_with_how_much_it_needs(vebench: Command) -> None:
    asked = ("run", "-e", "Pong", "-w", "65536", "--envs-per-worker", "1000")
    world = fake_world(memory_available=lambda: 16 << 30)
    refused = vebench(*asked, world=world)
    assert refused.status == 2
    assert refused.refusal.startswith("vebench: nothing but ceiling can run here: needs about ")
    shown = vebench(*asked, "--dry-run", world=world)
    assert shown.status == 0
    assert re.search(r"\b1 cell x 3 repeats, \d+ skipped", shown.out)
    assert "GiB of memory, 16 GiB are" in shown.out


@pytest.mark.usefixtures("bare")
def test_a_backend_that_lacks_a_package_keeps_no_other_from_being_measured(vebench: Command, tmp_path: Path) -> None:
    assert (
        vebench(
            "run", "-e", "CartPole", "-w", "1", "-q", "--proof", "off", "-o", "run.jsonl", world=fake_world()
        ).status
        == 0
    )
    _, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    status = {cell["backend"]: cell["status"] for cell in cells}
    assert status["envpool-sync"] == status["envpool-async"] == "skipped"
    of_gymnasium = [entry.name for entry in registry.ENTRIES if entry.steps_gymnasium and entry.name in status]
    assert {status[name] for name in of_gymnasium} == {"ok"}


@pytest.mark.usefixtures("bare")
def test_a_reference_row_alone_is_measured_if_it_is_all_that_was_asked_for(vebench: Command) -> None:
    assert vebench("run", "-e", "Pong", "-w", "1", "-b", "null", "-q", world=fake_world()).status == 0


def test_a_baseline_of_which_nothing_can_run_here_is_not_measured_again(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("-e", "Pong", "-w", "1", "-b", "null,for-loop", "-o", "base.jsonl", "-q")
    assert vebench("run", *asked, world=fake_world()).status == 0
    monkeypatch.setattr(BackendEntry, "why_not", lambda *_: "it is too large")
    found = vebench("check", "base.jsonl", world=fake_world())
    assert (found.status, found.refusal) == (
        2,
        "vebench: base.jsonl: no cell of this plan can run here: it is too large\n",
    )


@pytest.mark.parametrize("option", ["--duration", "--warmup", "--timeout", "--budget"])
@pytest.mark.parametrize("command", ["run", "compare", "check", "tune", "verify"])
def test_a_time_has_a_unit_or_is_in_seconds(vebench: Command, command: str, option: str) -> None:
    if f"{option} TIME" not in vebench(command, "--help").out:
        return
    required = "a.jsonl" if command == "check" else "-e=CartPole"
    for text in ("soon", "1 parsec", "nan", ""):
        refused = vebench(command, required, option, text)
        assert refused.status == 2
        assert refused.refusal.startswith(f"vebench: {option} ")
        assert "write a time such as" in refused.refusal


def test_units_of_times_are_those_of_seconds(vebench: Command) -> None:
    def plan(*times: str) -> str:
        return vebench("run", "-e", "CartPole", "-b", "null", "--dry-run", *times).out

    seconds = plan("--duration", "0.25", "--warmup", "0", "--timeout", "120")
    assert plan("--duration", "250ms", "--warmup", "0s", "--timeout", "2m") == seconds
