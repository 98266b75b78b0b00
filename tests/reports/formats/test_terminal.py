"""Pages on a terminal: within its width, and readable without colour."""

from __future__ import annotations

import re

import pytest
from support.pages import SIZES, on_terminal, page_of
from support.records import make_cell, make_header

from vebench.reports.pages.run import RunPage
from vebench.results.records import Run


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_is_never_overrun(wide: RunPage, page: RunPage, width: int) -> None:
    for text in (on_terminal(wide, width), on_terminal(page, width)):
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", range(60, 260, 7))
def test_a_table_too_wide_is_split_and_loses_no_column(wide: RunPage, width: int) -> None:
    text = on_terminal(wide, width)
    assert [text.count(f" {size} worker") >= 1 for size in SIZES] == [True] * len(SIZES)
    assert len(re.findall(r"2,305 steps/s", text)) == 2 * len(SIZES)
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
    assert "* 14,402 ±4.0%" in text


def test_findings_come_last_with_their_remedies(page: RunPage) -> None:
    text = on_terminal(page, 200)
    assert text.index("Findings") > text.index("the winner")
    assert re.search(
        r"\nfailed +timed out after 300 s in recv \| see log *\n +ALE/Pong-v5: gym-async at 4 workers *\n"
        r" +-> see pong\.jsonl\.log .*vebench run --resume pong\.jsonl measures it again",
        text,
    )


def test_on_a_narrow_terminal_a_findings_code_has_a_line_of_its_own(page: RunPage) -> None:
    lines = [line.rstrip() for line in on_terminal(page, 80).splitlines()]
    start = lines.index("failed")
    assert lines[start + 1 : start + 3] == [
        "  timed out after 300 s in recv | see log",
        "    ALE/Pong-v5: gym-async at 4 workers",
    ]


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    cells = (make_cell("\x1b[2Jevil:\nClass", 1, (100,) * 4, env="a\x1b]0;b\x07", differences=("[red]\x1b[31m",)),)
    text = on_terminal(RunPage.of([("x\x1b.jsonl", Run(make_header(), cells))]), 100)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text
