"""Figures that others have published: apart from what was measured, with their source, and for these tasks only."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.pages import document_of, page_of
from support.records import make_cell, make_repeated, write_run

from vebench.reports.document import View
from vebench.reports.pages.published import PUBLISHED_TITLE, published, published_tables
from vebench.reports.pages.run import RunPage

RATES = {("for-loop", 1): 1000.0, ("shm-sync", 2): 1800.0}


def test_published_figures_are_shown_on_request_and_for_the_tasks_of_the_run(vebench: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "pong.jsonl", make_repeated(RATES))
    shown = vebench("report", "pong.jsonl", "--published", "-f", "markdown").out
    assert f"### {PUBLISHED_TITLE}: PongNoFrameskip-v4 with frame skip 4, highest frames/s" in shown
    assert "1,069,922" in shown
    assert "Ant-v3" not in shown
    assert PUBLISHED_TITLE not in vebench("report", "pong.jsonl", "-f", "markdown").out
    assert "707,494" in vebench("report", "pong.jsonl", "--published").out


def test_they_are_in_a_table_of_their_own_with_source_date_and_what_they_count() -> None:
    document = document_of(RunPage.of([("a.jsonl", make_repeated(RATES))], View(published=True)))
    *measured, table = document.tables
    assert table.title.startswith(PUBLISHED_TITLE)
    assert all(PUBLISHED_TITLE not in other.title for other in measured)
    source, machines = table.notes
    assert "2022" in source
    assert "EPYC 7742" in machines
    assert "EnvPool" in source
    assert "https://github.com/sail-sg/envpool" in source
    sampler = next(line for line in table.listing.lines if line.startswith("Sample Factory: "))
    assert "observations go nowhere" in sampler
    assert (document.charts, document.answers) == (
        document_of(RunPage.of([("a.jsonl", make_repeated(RATES))])).charts,
        document_of(RunPage.of([("a.jsonl", make_repeated(RATES))])).answers,
    )


def test_they_reach_no_data(vebench: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "pong.jsonl", make_repeated(RATES))
    for form in ("json", "csv"):
        plain, more = (vebench("report", "pong.jsonl", *flag, "-f", form).out for flag in ((), ("--published",)))
        assert plain == more


def test_of_a_task_that_nobody_published_a_report_says_so() -> None:
    (section,) = page_of(make_cell(env="CartPole-v1", steps=(9, 9))).sections
    page = RunPage.of([("a.jsonl", section.run)], View(published=True))
    assert document_of(page).legend[-1] == "No published figure is known for these tasks."


@pytest.mark.parametrize("entry", published(), ids=lambda entry: entry.task)
def test_each_entry_has_a_figure_for_each_machine_and_says_what_each_system_counts(entry: object) -> None:
    (known,) = (one for one in published() if one is entry)
    assert {len(rates) for rates in known.frames_per_second.values()} == {len(known.machines)}
    assert known.url.startswith("https://")
    assert known.date[:4].isdigit()
    explained = ", ".join(known.counts)
    for system in known.frames_per_second:
        assert system in explained or system.partition(" (")[0] in explained
    assert json.dumps(known.counts).isascii()


def test_all_tables_of_a_task_belong_to_it() -> None:
    tables = published_tables(["Ant-v5", "ALE/Pong-v5", "CartPole-v1"])
    assert [table.group for table in tables] == ["Ant-v5", "ALE/Pong-v5"]
