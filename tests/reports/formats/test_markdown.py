"""Pages in Markdown."""

from __future__ import annotations

import msgspec
import pytest
from support.pages import page_of
from support.records import make_cell, make_header

from vebench.reports.formats import markdown
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run


def test_a_run_that_was_not_finished_says_so(sweep: Run) -> None:
    run = Run(msgspec.structs.replace(sweep.header, cells=30), sweep.cells)
    text = markdown.render(RunPage.of([("r.jsonl", run)]))
    assert "- **incomplete**: 14 of 30 cells\n  - → vebench run --resume r.jsonl" in text


def test_a_markdown_table_has_as_many_columns_in_each_line(page: RunPage) -> None:
    lines = [line for line in markdown.render(page).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 5
    assert {line.replace("\\|", "").count("|") for line in lines} == {6}
    assert len({len(line) for line in lines}) == 1
    assert " **14,402 ±4.0%**<br>1.56x ±5.7% |" in lines[4]


def test_markdown_says_how_to_read_a_table_before_it(page: RunPage) -> None:
    text = markdown.render(page)
    assert text.index("In each cell: ") < text.index("**Bold**: the winner") < text.index("### ALE/Pong-v5")


def test_markdown_has_a_title_the_machine_and_the_command_that_repeats_it(page: RunPage) -> None:
    text = markdown.render(page)
    assert text.startswith("# Throughput of vector-env backends\n\n## pong.jsonl\n")
    assert "- machine: Test CPU, 2 of 2 CPUs usable, 24.0 GiB\n" in text
    assert "- command: `vebench run --env Pong`\n" in text
    assert text.index("### Findings") > text.index("### ALE/Pong-v5")


def test_markdown_has_one_table_for_each_task() -> None:
    cells = [make_cell(backend, env=env) for env in ("Ant-v5", "CartPole-v1") for backend in ("for-loop", "gym-sync")]
    text = markdown.render(page_of(*cells))
    assert [line for line in text.splitlines() if line.startswith("| backend")] == [
        "| backend  |  1 worker | same work |"
    ] * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("**x** <b>", r"\*\*x\*\* \<b>"),
        ("x86_64 __init__", r"x86_64 \_\_init\_\_"),
        ("[a](b)", r"[a\](b)"),
        ("±>100%", "±>100%"),
    ],
)
def test_what_would_be_markup_is_escaped(text: str, shown: str) -> None:
    assert f"## {shown}\n" in markdown.render(RunPage.of([(text, Run(make_header(), ()))]))
