"""Where pages go: to a reader who may leave, to files that may not be written, with colour only on a terminal."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.commands import Command, Result, without_a_reader
from support.fakes import FakeStart, Script, failing, fake_world, steady
from support.records import make_header, make_sweep, write_run

from vebench.errors import UsageError
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.reports.console import save, show
from vebench.reports.formats import FORMATS, MARKDOWN, TERMINAL, Format, format_for
from vebench.reports.run import RunPage
from vebench.results.records import Run

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
# PDF is left out: it is bytes as PNG is, and slow to write.
OF_RUNS = [form for form in FORMATS if "run" in form.kinds and form.name != "pdf"]


def name(form: Format) -> str:
    return form.name


@pytest.mark.parametrize("form", OF_RUNS, ids=name)
def test_a_reader_who_goes_away_is_no_error(page: RunPage, form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_a_reader() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        show(page, form)
        show(page, form)  # nor is what comes after


def test_colour_and_the_spaces_that_fill_lines_are_for_a_terminal_alone(
    page: RunPage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    show(page)
    save(page, TERMINAL, tmp_path / "page.txt")
    assert "\x1b[" in capsys.readouterr().out
    written = (tmp_path / "page.txt").read_text()
    assert "\x1b" not in written
    assert " \n" not in written


def test_a_page_is_appended_with_an_empty_line_after_it(page: RunPage, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Earlier\n")
    for _ in range(2):
        save(page, MARKDOWN, path, "$GITHUB_STEP_SUMMARY", append=True)
    text = str(MARKDOWN.render(page))
    assert path.read_text() == f"# Earlier\n{text}\n{text}\n"


def test_a_file_that_cannot_be_written_is_an_error_that_names_the_option(page: RunPage, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "summary.md"
    with pytest.raises(UsageError) as error:
        save(page, MARKDOWN, path, "$GITHUB_STEP_SUMMARY")
    assert str(error.value) == f"$GITHUB_STEP_SUMMARY {path}: No such file or directory: name another file"


class Stopped:
    """A content that the user interrupts while it is written."""

    def __rich__(self) -> str:
        raise KeyboardInterrupt


def stopped(_page: RunPage, name: str) -> dict[str, object]:
    """Return two files, of which the second is never whole."""
    return {name: "new\n", "figure.svg": Stopped()}


def test_an_interrupted_write_changes_nothing(page: RunPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("old\n")
    form = replace(MARKDOWN, beside="stopped_format:stopped")
    monkeypatch.setitem(sys.modules, "stopped_format", SimpleNamespace(stopped=stopped))
    with pytest.raises(KeyboardInterrupt):
        save(page, form, path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.md", "old\n")]


def test_a_file_keeps_its_permissions_and_a_link_its_target(page: RunPage, tmp_path: Path) -> None:
    path, link = tmp_path / "page.csv", tmp_path / "newest.csv"
    path.write_text("old\n")
    path.chmod(0o640)
    link.symlink_to(path)
    save(page, format_for("csv", None, "run"), link)
    assert link.is_symlink()
    assert path.read_text().startswith("file,env,")
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_no_ordinary_file_is_written_into_and_gets_no_figures_beside_it(page: RunPage, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.md"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save(page, MARKDOWN, pipe)
    assert os.read(reading, 1 << 20).decode() == MARKDOWN.render(page)
    os.close(reading)
    assert [*tmp_path.iterdir()] == [pipe]
    with pytest.raises(UsageError) as error:
        save(page, MARKDOWN, Path("/dev/full"))
    assert "No space left on device" in str(error.value)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file with curves over two numbers of workers."""
    cells = [cell for cell in make_sweep().cells if cell.workers < 4 and cell.backend in ("for-loop", "ceiling")]
    return write_run(tmp_path / "run.jsonl", Run(make_header(), tuple(cells)))


@pytest.mark.parametrize(("form", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_are_written_to_a_file_by_its_suffix(vebench: Command, run: Path, form: str, begin: bytes) -> None:
    assert vebench("report", run, "-o", f"figures.{form}") == Result(0, "", "")
    assert (run.parent / f"figures.{form}").read_bytes().startswith(begin)
    assert sorted(path.name for path in run.parent.iterdir()) == [f"figures.{form}", "run.jsonl"]


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_no_picture_goes_to_a_terminal(vebench: Command, run: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    result = vebench("report", run, "-f", form)
    assert (result.status, f"-o report.{form}" in result.refusal) == (2, True)


@pytest.mark.parametrize(("script", "status"), [(steady, 0), (failing("boom"), 1)], ids=["done", "failed"])
def test_without_a_chart_a_report_is_refused_and_a_run_keeps_its_status(
    vebench: Command, script: Callable[[Cell, RunSpec], Script], status: int
) -> None:
    world = fake_world(FakeStart({"for-loop": script}))
    result = vebench("run", "-e", "CartPole", "-b", "for-loop", "-w", "1", "-q", "-o", "one.png", world=world)
    assert (result.status, "-o one.png: no chart" in result.err) == (status, True)
    refused = vebench("report", "-o", "one.png")
    assert (refused.status, "no chart" in refused.refusal) == (2, True)
    assert not Path("one.png").exists()
