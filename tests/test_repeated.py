"""``tools/repeated.py`` on series of run files whose shares are known."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.places import TOOLS
from support.records import make_cell, make_header, write_run

from vebench.results.records import Run

LUCK = {"for-loop": (1.0, 1.01, 0.99), "shm-sync": (0.98, 1.0, 1.02), "gym-async": (1.0, 0.98, 1.02)}  # of processes


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("repeated", TOOLS / "repeated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "repeated", module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def series(folder: Path, *fast_and_slow: tuple[float, float]) -> Path:
    """Write a run for each pair of steps per second, of a fast and a slow backend. Return the folder."""
    for number, (fast, slow) in enumerate(fast_and_slow):
        steps = {"for-loop": 1000.0, "shm-sync": fast, "gym-async": slow}
        cells = (
            make_cell(backend, 1, (round(rate * LUCK[backend][repeat]),) * 4, repeat=repeat)
            for backend, rate in steps.items()
            for repeat in range(3)
        )
        write_run(folder / f"Pong-{number:02}.jsonl", Run(make_header(), tuple(cells)))
    (folder / "loads.jsonl").write_text(json.dumps({"file": "Pong-00.jsonl", "load": 0.25}))
    return folder


def shares(tool: ModuleType, *folders: Path) -> tuple[dict[str, str], list[str]]:
    """Return the counts by question, and the loads of the runs."""
    rows = [line.split(" | ") for line in tool.page(tool.read(folders)) if line.startswith("| ALE/Pong-v5 |")]
    loads = [line.split(" | ")[2] for line in tool.page(tool.read(folders)) if ".jsonl | " in line]
    return {row[1]: row[2] for row in rows}, loads


def test_runs_that_agree_are_counted_by_question(tool: ModuleType, tmp_path: Path) -> None:
    counts, loads = shares(tool, series(tmp_path, *[(2000.0, 1500.0)] * 4))
    assert list(counts.values()) == ["4 of 4", "4 of 4", "12 of 12", "8 of 8", "0 of 12", "0 of 12"]
    assert next(iter(counts)) == "shm-sync with 1 worker wins"
    assert loads == ["0.25", "-", "-", "-"]


def test_a_run_that_overturns_the_others_is_counted(tool: ModuleType, tmp_path: Path) -> None:
    counts, _ = shares(tool, series(tmp_path, *[(2000.0, 1500.0)] * 9, (1500.0, 2000.0)))
    wins, ties, rates, speedups, slower, unnamed = counts.values()
    assert (wins, ties, rates, speedups) == ("9 of 10", "9 of 10", "28 of 30", "18 of 20")
    assert (slower, unnamed) == ("1 of 30", "1 of 30")


def test_a_stated_tie_is_the_same_answer_and_folders_are_read_together(tool: ModuleType, tmp_path: Path) -> None:
    days = [tmp_path / name for name in ("monday", "tuesday")]
    for day in days:
        day.mkdir()
    series(days[0], (2000.0, 1500.0), (2000.0, 1500.0))
    series(days[1], (1990.0, 2000.0))
    counts, _ = shares(tool, *days)
    assert [*counts.values()][:2] == ["2 of 3", "3 of 3"]


def test_the_interval_of_a_share_is_wilsons(tool: ModuleType) -> None:
    assert tool.wilson(18, 20) == pytest.approx((0.9, 0.699, 0.972), abs=0.001)
