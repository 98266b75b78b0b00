"""``vebench report``: which runs it renders, in which format, and where to."""

from __future__ import annotations

import csv
import io
import json
import os
from typing import TYPE_CHECKING

import pytest
from support.fakes import fake_world

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

SMALL = ("run", "-e", "CartPole", "-w", "1,2", "-b", "for-loop,null", "-q")


@pytest.fixture
def measured(vebench: Command, tmp_path: Path) -> Path:
    """Return the file of a run of four cells and a yardstick."""
    assert vebench(*SMALL, "-o", "run.jsonl", world=fake_world()).status == 0
    return tmp_path / "run.jsonl"


def test_a_report_of_the_newest_run_needs_no_name(vebench: Command) -> None:
    vebench("run", "-e", "CartPole", "-w", "1", "-b", "for-loop", "-q", world=fake_world())
    cell, _ = json.loads(vebench("report", "-f", "json").out)
    assert (cell["env"], cell["backend"], cell["status"]) == ("CartPole-v1", "for-loop", "ok")
    speed = cell["frames_per_second"]
    assert speed["low"] <= speed["median"] <= speed["high"]


def test_a_reports_format_follows_from_its_files_suffix(vebench: Command, measured: Path, tmp_path: Path) -> None:
    for name in ("report.md", "report.csv", "report.json", "report.txt"):
        assert vebench("report", measured, "-o", tmp_path / name).status == 0
    assert (tmp_path / "report.md").read_text().startswith("# ")
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))) == 5
    assert len(json.loads((tmp_path / "report.json").read_text())) == 5
    assert "\x1b" not in (tmp_path / "report.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["no run", "vebench run"]),
        (("nowhere.jsonl",), ["nowhere.jsonl"]),
        (("-f", "docx"), ["docx", "markdown"]),
        (("-o", "report.docx"), [".md"]),
    ],
)
def test_a_report_that_cannot_be_made_is_one_line_and_status_2(
    vebench: Command, arguments: tuple[str, ...], words: list[str]
) -> None:
    result = vebench("report", *arguments)
    assert result.status == 2
    for word in words:
        assert word in result.refusal


def test_all_and_columns_are_shown_on_request(vebench: Command, measured: Path) -> None:
    few = vebench("report", measured).out
    assert "efficiency" not in few
    every = vebench("report", measured, "--all", "--columns", "efficiency,peak_rss", "--columns", "startup").out
    titles = [f"CartPole-v1: {name}" for name in ("efficiency", "peak_rss_bytes", "startup_seconds")]
    assert [every.index(title) for title in titles] == sorted(every.index(title) for title in titles)
    assert "100 MiB" in every


def test_columns_are_in_documents_of_every_kind_and_data_is_always_complete(vebench: Command, measured: Path) -> None:
    assert "### CartPole-v1: efficiency\n" in vebench("report", measured, "-f", "markdown", "--columns", "eff").out
    plain, asked = (vebench("report", measured, "-f", "json", *more).out for more in ((), ("--columns", "windows")))
    assert plain == asked


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("spread", ["--columns spread", "no such column", "speedup", "of_ceiling", "disturbed_windows"]),
        ("frames", ["--columns frames", "could be frames_per_second or frames_per_cpu_second"]),
        ("efficiency,", ["--columns ''", "no such column"]),
        ("\x1b[2J", ["no such column"]),
    ],
)
def test_an_unknown_column_is_refused_with_the_names_that_there_are(
    vebench: Command, measured: Path, columns: str, words: list[str]
) -> None:
    result = vebench("report", measured, "--columns", columns)
    assert result.status == 2
    for word in words:
        assert word in result.refusal
    assert "\x1b" not in result.refusal


@pytest.mark.parametrize("change", [False, True])
def test_a_report_never_overwrites_a_run(vebench: Command, measured: Path, tmp_path: Path, *, change: bool) -> None:
    target = measured
    if change:  # another run than its input
        target = tmp_path / "other.csv"
        target.write_bytes(measured.read_bytes())
    before = target.read_bytes()
    result = vebench("report", measured, "-f", "csv", "-o", target)
    assert result.status == 2
    assert "would be overwritten" in result.refusal
    assert target.read_bytes() == before


def test_a_report_may_be_written_again(vebench: Command, measured: Path, tmp_path: Path) -> None:
    for name in ("report.md", "report.csv"):
        target = tmp_path / name
        assert [vebench("report", measured, "-o", target).status for _ in range(2)] == [0, 0]


def test_all_runs_of_a_folder_are_reported_with_their_logs_left_out(
    vebench: Command, measured: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for age, name in enumerate(("b.jsonl", "a.jsonl")):
        (folder / name).write_bytes(measured.read_bytes())
        os.utime(folder / name, (age, age))
    (folder / "a.jsonl.log").write_text("== CartPole-v1, null\nboom\n")
    for arguments, names in (([folder], ["b", "a"]), (sorted(folder.iterdir()), ["a", "b"])):
        result = vebench("report", *arguments, "-f", "json")
        files = list(dict.fromkeys(cell["file"] for cell in json.loads(result.out)))
        assert files == [str(folder / f"{name}.jsonl") for name in names]
