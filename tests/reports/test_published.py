"""Figures that others have published: apart from what was measured, with their source, and for these tasks only."""

from pathlib import Path

import pytest
from support.commands import Command
from support.pages import document_of, page_of
from support.records import make_cell, make_repeated, write_run

from vebench.reports.document import View
from vebench.reports.pages.published import PUBLISHED_TITLE, Published, published, published_tables
from vebench.reports.pages.run import RunPage

ROOT = Path(__file__).parents[2]
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
    tables = published_tables(["ALE/Pong-v5"])
    *measured, table = document.tables[: len(document.tables) - len(tables) + 1]
    assert table.title.startswith(PUBLISHED_TITLE)
    assert all(PUBLISHED_TITLE not in other.title for other in measured)
    assert document.tables[len(measured) :] == tables
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
    (section,) = page_of(make_cell(env="Acrobot-v1", steps=(9, 9))).sections
    page = RunPage.of([("a.jsonl", section.run)], View(published=True))
    assert document_of(page).legend[-1] == "No published figure is known for these tasks."


@pytest.mark.parametrize("entry", published(), ids=lambda entry: entry.task)
def test_each_entry_has_a_figure_for_each_column_and_says_what_each_system_counts(entry: Published) -> None:
    assert {len(rates) for group in entry.groups for rates in group.figures.values()} == {len(entry.columns)}
    assert entry.url.startswith("https://")
    assert entry.date[:4].isdigit()
    systems = [system for group in entry.groups for system in group.figures]
    assert len(set(systems)) == len(systems)
    assert str(entry).isascii()


def test_a_source_that_does_not_say_what_it_counts_is_shown_as_unknown() -> None:
    (table,) = (one for one in published_tables(["Ant-v5"]) if "issues/266" in one.notes[0])
    assert "environments for each row: unknown" in table.listing.lines[0]
    assert "resets counted: yes" in table.listing.lines[0]


def test_all_tables_of_a_task_belong_to_it() -> None:
    tables = published_tables(["Ant-v5", "ALE/Pong-v5", "Acrobot-v1", "CartPole-v1"])
    assert [*dict.fromkeys(table.group for table in tables)] == ["Ant-v5", "ALE/Pong-v5", "CartPole-v1"]


def test_the_documentation_names_each_source() -> None:
    page = (ROOT / "docs" / "frames-per-second.md").read_text(encoding="utf-8")
    assert [entry.url for entry in published() if entry.url not in page] == []
