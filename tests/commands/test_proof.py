"""What a measured cell returned is compared with the reference: what that finds, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.commands import ONE_PASS
from support.in_this_process import world_here

from vebench.results import store

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

    from vebench.child.answers import CellProof

BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.1", "--warmup", "0.05", "--rounds", "2", "-q", "-o", "run.jsonl")
HERE = ("run", "-e", "CartPole", "-w", "2", "--no-base")


def proof_of(vebench: Command, tmp_path: Path, backend: str) -> CellProof:
    """Return what is found in a cell of this adapter."""
    assert vebench(*HERE, "-b", f"timed_liars:{backend}", *BRIEF, world=world_here()).status == 0
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert cell.proof is not None
    return cell.proof


@pytest.mark.parametrize("backend", ["Honest", "HonestOutOfOrder"])
def test_an_honest_adapter_is_identical_to_the_last_window(vebench: Command, tmp_path: Path, backend: str) -> None:
    proof = proof_of(vebench, tmp_path, backend)
    assert (proof.verdict, proof.fault, proof.mismatch) == ("identical", None, None)
    assert proof.steps == proof.of_steps
    assert min(proof.rows, proof.ends, proof.environments) > 1


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("Lazy", "observations"),
        ("Drifting", "rewards"),
        ("NeverEnds", "ends where there were"),
        ("OnlyWhenSeen", "observations are a Shown, not a NumPy array"),
        ("ChangesRows", "change after they were handed out"),
        ("Twice", "the same row twice in a batch"),
        ("Short", "rows counted that were not returned"),
        ("NewInfo", "reports another frame_skip while it runs"),
    ],
)
def test_what_is_right_before_the_run_and_at_first_and_wrong_while_it_is_timed_is_found_by_name(
    vebench: Command, tmp_path: Path, backend: str, words: str
) -> None:
    proof = proof_of(vebench, tmp_path, backend)
    assert proof.verdict == "different"
    assert words in f"{proof.fault} {proof.mismatch and proof.mismatch.field}"
