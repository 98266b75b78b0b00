"""Which work a cell has done, by all that is known, and which rates are struck."""

from dataclasses import replace

import pytest
from support.records import make_cell, make_header

from vebench.analysis.cell import CellSummary
from vebench.analysis.summary import summarise
from vebench.child.answers import CellProof, Mismatch, WorkVerdict
from vebench.results.records import CellRecord, Run

STEADY = (1000,) * 4
SEEN = CellProof("identical", rows=90, ends=3, environments=2, steps=400, of_steps=500, seconds=1.5)
OTHER = CellProof("different", rows=1, fault="resized", mismatch=Mismatch(2, 1234, "rewards", "1.0", "0.0"))


def summaries(*cells: CellRecord) -> list[CellSummary]:
    return list(summarise(Run(make_header(), cells)))


@pytest.mark.parametrize(
    ("known", "proof", "verdict"),
    [
        ("identical", OTHER, "different"),
        ("unverified", OTHER, "different"),
        ("different", SEEN, "different"),
        ("equal", SEEN, "equal"),
        ("unverified", SEEN, "identical"),
        ("unverified", replace(SEEN, ends=2), "unverified"),
        ("unverified", replace(SEEN, ends=0, steps=5000), "identical"),
        ("identical", CellProof("unverified", reason="timed out after 300 s"), "identical"),
        ("identical", None, "identical"),
    ],
)
def test_what_is_seen_in_the_cell_counts_if_it_differs_or_if_nothing_was_known(
    known: WorkVerdict, proof: CellProof | None, verdict: WorkVerdict
) -> None:
    (cell,) = summaries(make_cell("gym-sync", 1, STEADY, verdict=known, proof=proof))
    assert (cell.verdict, cell.exclusion) == (verdict, "other work" if verdict == "different" else None)


def test_it_is_said_of_how_many_environments_rows_were_compared_and_repeats_cover_others() -> None:
    some = replace(SEEN, num_envs=9)
    (cell,) = summaries(make_cell("gym-sync", 1, STEADY, verdict=None, proof=some))
    assert cell.work.reason.startswith("seen in the measured cell: 90 rows of 2 environments")
    for repeats, covered in ((3, 6), (5, 9)):
        cells = [make_cell("gym-sync", 1, STEADY, repeat=repeat, proof=some) for repeat in range(repeats)]
        (cell,) = summaries(*cells)
        assert cell.work.proof.environments == covered


def test_one_repeat_that_did_other_work_strikes_the_cell_and_its_proofs_are_added_up() -> None:
    cells = [make_cell("gym-sync", 1, STEADY, repeat=repeat, proof=SEEN) for repeat in range(2)]
    (cell,) = summaries(*cells)
    assert cell.work.proof == replace(SEEN, rows=180, ends=6, environments=4, steps=800, of_steps=1000, seconds=3.0)
    (cell,) = summaries(*cells, make_cell("gym-sync", 1, STEADY, repeat=2, proof=OTHER))
    assert cell.exclusion


def test_a_rate_above_the_ceiling_is_struck_and_keeps_only_how_far_above_it_is() -> None:
    loop, fast, bare = summaries(
        make_cell("for-loop", 1, STEADY), make_cell("gym-sync", 1, (9000,) * 4), make_cell("ceiling", 1, (5000,) * 4)
    )
    assert (fast.exclusion, fast.speedup, fast.figures.efficiency) == ("above ceiling", None, None)
    assert fast.figures.of_ceiling.median == pytest.approx(1.8)
    assert (loop.exclusion, bare.exclusion) == (None, None)


def test_a_rate_of_a_cell_that_was_not_held_to_its_cpus_is_struck_and_nothing_is_compared_with_it() -> None:
    loop, other = summaries(make_cell("for-loop", 1, STEADY, affinity=(0, 1)), make_cell("gym-sync", 1, STEADY))
    assert (loop.exclusion, loop.speedup, other.exclusion, other.speedup) == ("not pinned", None, None, None)
    (unpinned,) = summarise(
        Run(make_header(pin="none"), (make_cell("gym-sync", 1, STEADY, affinity=(0, 1)),))  # as it was asked for
    )
    assert not unpinned.exclusion


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_cell_that_measured_nothing_has_done_no_work(status: str) -> None:
    (cell, liar) = summaries(
        make_cell("gym-sync", 1, status=status),  # type: ignore[arg-type] # as a run file has it
        make_cell("shm-sync", 1, status=status, verdict="different"),  # type: ignore[arg-type] # same reason
    )
    assert (cell.verdict, cell.work_in_words, liar.verdict) == (None, "", "different")
