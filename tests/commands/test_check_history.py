"""``vebench check --history``: earlier runs show by how much runs differ as a whole."""

from __future__ import annotations

import json
from math import exp
from typing import TYPE_CHECKING

import pytest
from support.records import make_cell, make_header

from vebench.results.store import RunWriter

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

NOISE = (0.0, 0.004, -0.004)


def write(path: Path, shift: float) -> None:
    """Write a run that as a whole is faster by this difference of log rates."""
    cells = [
        make_cell(backend, 1, (round(1e6 * exp(shift * (backend != "yardstick") + noise)),) * 2, repeat=repeat)
        for backend in ("for-loop", "gym-sync", "shm-sync", "yardstick")
        for repeat, noise in enumerate(NOISE)
    ]
    with RunWriter.create(path, make_header()) as writer:
        for cell in cells:
            writer.append(cell)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder of runs of one machine that hardly differ; beside it are a baseline and a candidate."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(8):
        write(folder / f"{number}.jsonl", 0.005 * (-1) ** number)
    write(tmp_path / "old.jsonl", 0.0)
    write(tmp_path / "new.jsonl", -0.002)
    write(tmp_path / "slow.jsonl", -0.12)
    return folder


def test_without_a_history_two_runs_may_differ_by_more_than_the_tolerance(vebench: Command, runs: Path) -> None:
    assert runs.is_dir()
    for candidate in ("new.jsonl", "slow.jsonl"):
        found = vebench("check", "old.jsonl", candidate, "--metric", "fps", "-f", "json")
        answer = json.loads(found.out)
        assert (found.status, answer["run_spread"]) == (3, pytest.approx(0.15))
        assert "two runs of the same code may differ" in answer["groups"][0]["why"]


def test_with_a_history_of_runs_that_hardly_differ_check_decides(vebench: Command, runs: Path) -> None:
    for candidate, status, verdict in (("new.jsonl", 0, "same"), ("slow.jsonl", 1, "slower")):
        asked = ("--metric", "fps", "--tolerance", "5%", "--history", runs)
        found = vebench("check", "old.jsonl", candidate, *asked, "-f", "json")
        answer = json.loads(found.out)
        assert (found.status, {group["verdict"] for group in answer["groups"]}) == (status, {verdict})
        assert answer["run_spread"] == pytest.approx(0.005, rel=0.2)
    shown = vebench("check", "old.jsonl", "new.jsonl", "--history", runs).out
    assert "as earlier runs show" in " ".join(shown.split())


def test_a_history_that_is_too_short_is_one_line_and_status_2(vebench: Command, runs: Path) -> None:
    for path in sorted(runs.iterdir())[4:]:
        path.unlink()
    found = vebench("check", "old.jsonl", "new.jsonl", "--history", runs)
    assert found.status == 2
    assert "fewer than 5 runs" in found.refusal


@pytest.mark.parametrize("metric", ["yardstick", "speedup"])
def test_a_history_shows_by_how_much_ratios_within_a_run_differ(vebench: Command, runs: Path, metric: str) -> None:
    asked = ("check", "old.jsonl", "new.jsonl", "--metric", metric, "-f", "json")
    assumed, known = (json.loads(vebench(*asked, *more).out) for more in ((), ("--history", runs)))
    assert (assumed["run_spread"], assumed["cell_spread"]) == (None, pytest.approx(0.02))
    assert (known["run_spread"], known["cell_spread"]) == (
        None,
        pytest.approx(0.004 * (metric == "yardstick"), abs=1e-3),
    )
