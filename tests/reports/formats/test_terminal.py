"""Pages on a terminal: within its width, and readable without colour."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.pages import SIZES, on_terminal, page_of
from support.records import make_cell, make_header

from vebench.reports.pages.run import RunPage
from vebench.reports.view import View
from vebench.results.records import Run


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_is_never_overrun(wide: RunPage, page: RunPage, width: int) -> None:
    for text in (on_terminal(wide, width), on_terminal(page, width)):
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", range(60, 260, 7))
def test_a_table_too_wide_is_split_and_loses_no_column(wide: RunPage, width: int) -> None:
    text = on_terminal(wide, width)
    assert [text.count(f" {size} worker") >= 1 for size in SIZES] == [True] * len(SIZES)
    assert len(re.findall(r"9,220 ±4\.0%", text)) == 2 * len(SIZES)
    assert len(re.findall(r"1\.00x ±5\.\d%", text)) == 2 * len(SIZES) - 1  # one is the loop over itself


def test_three_worker_counts_fit_beside_each_other_in_80_columns() -> None:
    fast = (1_111_111, 1_222_222, 1_111_111, 1_222_222)
    cells = [
        make_cell(backend, size, fast) for size in (1, 2, 4) for backend in ("for-loop", "envpool-async", "ceiling")
    ]
    text = on_terminal(page_of(*cells), 80)
    assert re.search(r"backend +1 worker +2 workers +4 workers !", text)


def test_without_colour_the_best_is_still_marked(page: RunPage) -> None:
    text = on_terminal(page, 100)
    assert "\x1b" not in text
    assert " *14,402 ±4.0%" in text
    assert "\n* highest median" in text


def test_findings_come_before_the_table_with_what_they_mean_and_their_remedies(page: RunPage) -> None:
    text = on_terminal(page, 200)
    assert text.index("failed: ") < text.index("±: the true rate") < text.index("frames/s (4 frames per step)")
    assert (
        "fault failed: timed out after 300 s in recv | see log (ALE/Pong-v5: gym-async at 4 workers) -> see "
        "pong.jsonl.log for what it printed, if anything; once that is fixed, vebench run --resume pong.jsonl measures"
    ) in " ".join(text.split())


def test_findings_of_one_kind_are_one_entry_with_a_line_for_each_message() -> None:
    cells = [
        make_cell("gym-sync", 1, status="failed", reason="boom"),
        make_cell("gym-async", 1, status="failed", reason="bang"),
    ]
    lines = [line.rstrip() for line in on_terminal(page_of(*cells), 200).splitlines()]
    start = lines.index("fault  failed:")
    assert lines[start + 1 : start + 3] == [
        "         boom (ALE/Pong-v5: gym-sync at 1 worker)",
        "         bang (ALE/Pong-v5: gym-async at 1 worker)",
    ]
    assert lines[start + 3].startswith("         -> see a.jsonl.log")
    assert sum("failed:" in line for line in lines) == 1


def test_notes_are_counted_and_only_shown_to_those_who_want_all(page: RunPage) -> None:
    assert "\n3 notes: vebench report --all pong.jsonl\n" in on_terminal(page, 80)
    assert "oversubscribed" not in on_terminal(page, 80)
    everything = on_terminal(replace(page, view=View(every_finding=True)), 80)
    assert "\nnote     oversubscribed: more workers than the 2 CPUs owned" in everything
    assert "report --all" not in everything


def test_a_file_name_in_a_command_to_paste_is_quoted(sweep: Run) -> None:
    assert "vebench report --all 'my run; ls.jsonl'\n" in on_terminal(RunPage.of([("my run; ls.jsonl", sweep)]), 80)


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    cells = (make_cell("\x1b[2Jevil:\nClass", 1, (100,) * 4, env="a\x1b]0;b\x07", differences=("[red]\x1b[31m",)),)
    text = on_terminal(RunPage.of([("x\x1b.jsonl", Run(make_header(), cells))]), 100)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text
