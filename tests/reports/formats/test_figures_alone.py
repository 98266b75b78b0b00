"""The figures of runs alone, as a user asks for them: ``-f svg``, ``-f png``, ``-f pdf``."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Command, Result
from support.fakes import FakeStart, Script, failing, fake_world, steady
from support.records import make_header, make_sweep, write_run

from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.results.records import CellRecord, Run

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
BEGINS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def write(path: Path, *cells: CellRecord) -> Path:
    """Write a run file with these cells."""
    return write_run(path, Run(make_header(), cells))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file with curves over two numbers of workers."""
    cells = [cell for cell in make_sweep().cells if cell.workers < 4 and cell.backend in ("for-loop", "ceiling")]
    return write(tmp_path / "run.jsonl", *cells)


@pytest.mark.parametrize("form", BEGINS)
def test_figures_are_written_to_a_file_by_its_suffix(vebench: Command, run: Path, form: str) -> None:
    assert vebench("report", run, "-o", f"figures.{form}") == Result(0, "", "")
    assert (run.parent / f"figures.{form}").read_bytes().startswith(BEGINS[form])
    assert sorted(path.name for path in run.parent.iterdir()) == [f"figures.{form}", "run.jsonl"]


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_no_picture_goes_to_a_terminal(vebench: Command, run: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    result = vebench("report", run, "-f", form)
    assert (result.status, f"-o report.{form}" in result.refusal) == (2, True)


@pytest.mark.parametrize(("script", "status"), [(steady, 0), (failing("boom"), 1)], ids=["done", "failed"])
def test_without_a_figure_a_report_is_refused_and_a_run_keeps_its_status(
    vebench: Command, script: Callable[[Cell, RunSpec], Script], status: int
) -> None:
    world = fake_world(FakeStart({"for-loop": script}))
    result = vebench("run", "-e", "CartPole", "-b", "for-loop", "-w", "1", "-q", "-o", "one.png", world=world)
    assert (result.status, "-o one.png: no figure" in result.err) == (status, True)
    refused = vebench("report", "-o", "one.png")
    assert (refused.status, "no figure" in refused.refusal) == (2, True)
    assert not Path("one.png").exists()
