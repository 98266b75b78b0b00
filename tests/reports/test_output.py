"""Where pages go: to a reader who may leave, to files that may not be written, with colour only on a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.commands import without_a_reader

from vebench.errors import UsageError
from vebench.reports.formats.registry import FORMATS, MARKDOWN, TERMINAL
from vebench.reports.output import save, show
from vebench.reports.view import View

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.reports.formats.registry import Format
    from vebench.reports.pages.run import RunPage

OF_RUNS = [form for form in FORMATS if "run" in form.kinds]


def name(form: Format) -> str:
    return form.name


@pytest.mark.parametrize("form", OF_RUNS, ids=name)
def test_a_reader_who_goes_away_is_no_error(page: RunPage, form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_a_reader() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        show(page, form)
        show(page, form)  # nor is what comes after


@pytest.mark.parametrize("form", OF_RUNS, ids=name)
def test_a_file_holds_what_standard_output_shows_to_those_who_want_all(
    page: RunPage, form: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = replace(page, view=View(every_finding=True))
    show(everything, form)
    save(everything, form, tmp_path / "page")
    assert (tmp_path / "page").read_text() == capsys.readouterr().out


def test_colour_is_for_a_terminal_alone(
    page: RunPage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    show(page)
    save(page, TERMINAL, tmp_path / "page.txt")
    assert "\x1b[" in capsys.readouterr().out
    assert "\x1b" not in (tmp_path / "page.txt").read_text()


def test_a_page_is_appended_with_an_empty_line_after_it(page: RunPage, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Earlier\n")
    for _ in range(2):
        save(page, MARKDOWN, path, "$GITHUB_STEP_SUMMARY", append=True)
    text = str(MARKDOWN.render(page))
    assert path.read_text() == f"# Earlier\n{text}\n{text}\n"


def test_a_file_that_cannot_be_written_is_an_error_that_names_the_option(page: RunPage, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "check.xml"
    with pytest.raises(UsageError) as error:
        save(page, MARKDOWN, path, "--junit")
    assert str(error.value) == f"--junit {path}: No such file or directory: name another file"
