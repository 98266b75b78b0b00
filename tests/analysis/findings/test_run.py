"""Findings on a run as a whole, and on its file."""

from __future__ import annotations

import msgspec
import pytest
from support.findings import STEADY
from support.records import make_cell, make_header

from vebench.analysis.rules import of_run, unusable
from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.results.records import Run


@pytest.mark.parametrize(("planned", "found"), [(None, []), (3, []), (4, ["3 of 4 cells"]), (30, ["3 of 30 cells"])])
def test_a_run_that_did_not_get_to_its_end_is_reported(planned: int | None, found: list[str]) -> None:
    cells = [make_cell("for-loop", workers, STEADY) for workers in (1, 2)]
    cells.append(make_cell("gym-sync", 1, status="failed", reason="boom"))
    cells.append(make_cell("gym-sync", 2, status="failed", reason="interrupted"))
    run = Run(msgspec.structs.replace(make_header(), cells=planned), tuple(cells))
    findings = of_run(run, (), "a.jsonl")
    assert [finding.message for finding in findings] == found
    assert all((finding.code, "--resume a.jsonl" in finding.remedy) == ("incomplete", True) for finding in findings)


WINDOWS = {
    "calm": Window(10**9, 1000, 0, others_ns=0, throttles=0),
    "disturbed": Window(10**9, 500, 0, others_ns=5 * 10**8, throttles=0),
    "throttled": Window(10**9, 10, 0, others_ns=0, throttles=1),
}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["calm", "disturbed"], None),
        (["calm", "disturbed", "disturbed"], "others took CPU time of 2 of 3 cells"),
        (["calm", "throttled", "throttled"], "a CPU quota held back 2 of 3 cells"),
        (["calm", "throttled", "disturbed"], "others or a CPU quota held back 2 of 3 cells"),
        (["disturbed"], "others took CPU time of 1 of 1 cell"),
        ([], None),
    ],
)
def test_a_run_of_which_most_cells_did_not_have_their_cpus_is_unusable(cells: list[str], message: str | None) -> None:
    records = [make_cell("for-loop", number + 1, windows=(WINDOWS[kind],) * 4) for number, kind in enumerate(cells)]
    records.append(make_cell("gym-sync", 1, status="failed", reason="boom"))
    run = Run(make_header(), tuple(records))
    found = unusable(summarise(run))
    assert (None if found is None else found.message) == message
    assert [finding for finding in of_run(run, summarise(run)) if finding.code == "unusable"] == [found] * (
        message is not None
    )


def test_a_run_without_pinning_is_reported() -> None:
    assert [finding.code for finding in of_run(Run(make_header(pinning=False), ()), ())] == ["unpinned"]
    asked = of_run(Run(make_header(pinning=False, pin="none"), ()), ())
    assert [(finding.code, finding.remedy) for finding in asked] == [("unpinned", "measure without --pin none")]
    assert of_run(Run(make_header(), ()), ()) == ()


def test_notes_of_the_file_are_reported() -> None:
    (finding,) = of_run(Run(make_header(), (), ("a.jsonl, line 3: cut off, left out",)), ())
    assert (finding.code, finding.message) == ("incomplete", "a.jsonl, line 3: cut off, left out")


@pytest.mark.parametrize(
    ("quota", "reported"), [(None, False), (0.5, True), (1.0, True), (1.5, True), (2.0, False), (64.0, False)]
)
def test_a_quota_holds_for_every_cell_of_the_run(quota: float | None, reported: bool) -> None:
    head = make_header()
    head = msgspec.structs.replace(head, host=msgspec.structs.replace(head.host, quota_cpus=quota))
    assert [finding.code for finding in of_run(Run(head, ()), ())] == (["throttled"] if reported else [])


def test_less_than_a_cpu_is_reported_as_what_it_does() -> None:
    head = make_header()
    head = msgspec.structs.replace(head, host=msgspec.structs.replace(head.host, quota_cpus=0.5))
    (finding,) = of_run(Run(head, ()), ())
    assert "less than one CPU: every cell will be held back" in finding.message
