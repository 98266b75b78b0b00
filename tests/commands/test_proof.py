"""What a measured cell returned is compared with the reference: what that finds, and what is made of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import ONE_PASS, Command, lines
from support.fakes import IDENTICAL, FakeStart, fake_world
from support.in_this_process import world_here
from support.records import write_lines

from vebench.child.answers import CellProof, Mismatch
from vebench.engine import runner
from vebench.engine.runner import CellError
from vebench.results import store

BRIEF = (
    *(*ONE_PASS[:-1], "full", "--duration", "0.04", "--warmup", "0.02"),
    *("--windows", "2", "-q", "-o", "run.jsonl"),
)
HERE = ("run", "-e", "CartPole", "-w", "2", "--no-base")


def proof_of(vebench: Command, tmp_path: Path, backend: str, task: str = "CartPole") -> CellProof:
    """Return what is found in a cell of this adapter. The exit status says whether it did other work."""
    target = f"timed_liars:{backend}" if backend.isidentifier() else backend
    status = vebench("run", "-e", task, *HERE[3:], "-b", target, *BRIEF, world=world_here()).status
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert status == (1 if cell.proof.verdict == "different" else 0)
    return cell.proof


@pytest.mark.parametrize(("drawn", "compared"), [(0, {0, 1, 2, 3, 4}), (1, {0, 1})])
def test_after_two_passes_cells_are_compared_that_are_drawn(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, drawn: int, compared: set[int]
) -> None:
    monkeypatch.setattr(runner.secrets, "randbelow", lambda count: drawn % count)
    asked = ("-w", "1", "-b", "gym-sync", "--passes", "5", "-q", "-o", "run.jsonl")
    assert vebench(*HERE[:3], *asked, world=fake_world()).status == 0
    assert {line["repeat"] for line in lines(Path("run.jsonl"), "proof")} == compared
    assert "unproven" not in vebench("report", "run.jsonl", "--all").out


@pytest.mark.parametrize(
    ("backend", "task"),
    [
        ("Honest", "CartPole"),
        ("HonestOutOfOrder", "CartPole"),
        ("honest:SeldomOutOfOrder", "CartPole"),
        ("native[deliver=device]", "batched:honest[kind=tensors]"),
        ("honest:OfGymnasium", "odd:normalised"),  # state of its environments survives resets
        ("honest:ShuffledNormalised", "odd:normalised"),
    ],
)
def test_an_honest_adapter_is_identical_to_the_last_window(
    vebench: Command, tmp_path: Path, backend: str, task: str
) -> None:
    proof = proof_of(vebench, tmp_path, backend, task)
    assert (proof.verdict, proof.fault, proof.mismatch) == ("identical", None, None)
    assert proof.steps == proof.of_steps
    assert min(proof.rows, proof.environments) > 1


def test_a_cell_of_the_rows_that_are_ready_first_says_what_the_steps_of_each_environment_cost(
    vebench: Command, tmp_path: Path
) -> None:
    assert vebench(*HERE, "-b", "shm-async", *BRIEF, world=world_here()).status == 0
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    proof = cell.proof
    assert proof.verdict == "identical"
    assert {one.batches for one in proof.costs} == {proof.costs[0].batches}
    assert len(proof.costs) == 4
    assert all(0 <= one.slow < one.steps < one.batches for one in proof.costs)
    assert min(one.mean_ns for one in proof.costs) > 0


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("Lazy", "observations"),
        ("Drifting", "rewards"),
        ("NeverEnds", "end"),
        ("OnlyWhenSeen", "observations are a Shown, not a NumPy array"),
        ("ChangesRows", "change after recv() returned them"),
        ("Twice", "the same row twice in a batch"),
        ("Short", "rows were counted but not returned"),
        ("NewInfo", "changes its frame_skip while it runs"),
        ("wrong_buffers:OverwrittenInTurn", "change after recv() returned them"),
        ("wrong_seeds:FromOne", "observations"),
        ("wrong_claims:BlankStarts", "declared differences affect"),
        ("liars:RowZero", "every environment returns row 0"),
    ],
)
def test_a_fault_that_begins_while_it_is_timed_is_found_by_name(
    vebench: Command, tmp_path: Path, backend: str, words: str
) -> None:
    proof = proof_of(vebench, tmp_path, backend)
    for _ in range(2):  # a sample is drawn: another finds what this has missed
        if proof.verdict != "different":
            (tmp_path / "run.jsonl").unlink()
            proof = proof_of(vebench, tmp_path, backend)
    assert proof.verdict == "different", proof
    assert words in f"{proof.fault} {proof.mismatch and proof.mismatch.field}"


@pytest.mark.parametrize(
    ("backend", "words"), [("IdsAsList", "env_ids are a list"), ("ObjectRewards", "rewards are object, not numbers")]
)
def test_what_breaks_the_interface_at_first_is_named_before_anything_is_measured(
    vebench: Command, tmp_path: Path, backend: str, words: str
) -> None:
    assert vebench(*HERE, "-b", f"wrong_arrays:{backend}", *BRIEF, world=world_here()).status == 1
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert f"recv() breaks the interface: {words}" in str(cell.reason)


def test_rows_on_a_device_whose_resets_nobody_can_count_are_refused(vebench: Command) -> None:
    asked = ("run", "-e", "batched:honest[kind=next-step]", *HERE[3:], "-b", "native[deliver=device]", *BRIEF)
    assert vebench(*asked, world=world_here()).status == 1
    assert "same step" in str(store.read(Path("run.jsonl")).cells[0].reason)


@pytest.mark.parametrize("backend", ["Honest", "HonestOutOfOrder"])
def test_environments_that_resets_do_not_renew_are_compared_with_new_ones(
    vebench: Command, tmp_path: Path, backend: str
) -> None:
    for _ in range(2):  # in this process, the second finds references that were used
        proof = proof_of(vebench, tmp_path, backend, "odd:odd/Worn-v0")
        assert proof.verdict == "identical", proof
        (tmp_path / "run.jsonl").unlink()


def test_nothing_is_said_against_environments_that_share_a_generator(vebench: Command, tmp_path: Path) -> None:
    proof = proof_of(vebench, tmp_path, "honest:SharesAGenerator", "odd:odd/In-common-v0")
    assert (proof.verdict, proof.fault, proof.mismatch) == ("unverified", None, None)
    assert "vary between runs" in str(proof.reason)


ASKED = ("run", "-e", "CartPole", "-w", "1", "-b", "gym-sync", "--passes", "1", "--windows", "3", "-o", "run.jsonl")
OTHER = CellProof("different", rows=3, mismatch=Mismatch(0, 7, "rewards", "1.0", "0.5"), steps=9, of_steps=90)


def proven_cell(vebench: Command) -> dict[str, Any]:
    """Return the only cell that has a proof, as JSON has it."""
    (cell,) = (cell for cell in json.loads(vebench("report", "run.jsonl", "-f", "json").out) if cell["proof"])
    return cell


def test_after_the_last_window_separate_processes_compare_cells(vebench: Command) -> None:
    some = replace(IDENTICAL, rows=137, ends=1, steps=40)
    late = CellError("timed out after 300 s (--timeout)")
    dies = {"envpool-sync": lambda _cell, _spec: [CellError("it died")]}
    start = FakeStart(dies, proofs={"gym-sync": [late], "gym-async": [some]})
    asked = (*ASKED[:-2], "-b", "shm-sync,gym-async[max_concurrency=1],envpool-sync", "-q", "-o", "run.jsonl")
    assert vebench(*asked, world=fake_world(start)).status == 1
    assert sorted(start.replayed[0]) == ["gym-async", "gym-sync", "shm-sync"]
    kinds = [json.loads(line)["type"] for line in Path("run.jsonl").read_text().splitlines()]
    assert kinds == ["run", *["cell"] * 6, "proof", "proof", "proof"]
    cells = {cell["backend"]: cell for cell in json.loads(vebench("report", "run.jsonl", "-f", "json").out)}
    assert (cells["gym-sync"]["proof"], cells["gym-sync"]["proof_reason"]) == ("unverified", str(late))
    assert (cells["gym-async"]["verdict"], cells["envpool-sync"]["status"]) == ("unverified", "failed")


def test_a_cell_that_did_other_work_is_struck_whatever_was_known_before(vebench: Command) -> None:
    world = fake_world(FakeStart(proofs={"gym-sync": [OTHER]}))
    found = vebench(*ASKED, world=world)
    assert found.status == 1
    assert found.err.splitlines()[-1].startswith("vebench: gym-sync with 1 worker did different work: ")
    assert "other work" in found.out
    cell = proven_cell(vebench)
    assert (cell["verdict"], cell["struck"], cell["speedup"]) == ("different", "other work", None)
    assert cell["verdict_reason"].startswith("in the measured cell: first at environment 0, step 7: rewards 0.5")
    remedies = [finding["remedy"] for finding in cell["findings"] if finding["code"] == "different-work"]
    assert ": vebench verify --env CartPole-v1 -b gym-sync --num-envs 1 --steps 107" in remedies[0]
    vebench(*ASKED[:-1], "again.jsonl", "-q", world=world)
    checked = vebench("check", "run.jsonl", "again.jsonl")
    assert checked.status == 3
    assert "not comparable" in checked.out


def test_check_fails_if_a_cell_did_other_work_that_did_the_same_in_the_baseline(vebench: Command) -> None:
    assert vebench(*ASKED, "-q", world=fake_world()).status == 0
    stopped = vebench("check", "run.jsonl", world=fake_world(FakeStart(proofs={"gym-sync": [OTHER]})))
    assert stopped.status == 1
    said = " ".join(stopped.out.split())
    assert "not the same work as for-loop (in the measured cell: first at environment 0, step 7: rewards 0.5" in said


def test_a_backend_that_was_known_to_do_other_work_does_not_fail_a_run(vebench: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    vebench(*ASKED, "-q", world=fake_world(FakeStart(proofs={"gym-sync": [OTHER]})))
    assert vebench("run", "--resume", path, "-q", world=fake_world()).status == 1, "it is still in the file"
    written = [line.partition(',"crc32"')[0] + "}" for line in path.read_text().splitlines()]
    write_lines(path, [line.replace('"verdict":"identical"', '"verdict":"different"', 1) for line in written])
    assert vebench("run", "--resume", path, "-q", world=fake_world()).status == 0


def test_an_adapter_of_which_nothing_was_known_is_what_was_seen_of_it_in_the_cell(vebench: Command) -> None:
    mine = [*ASKED[:5], "-b", "timed_liars:Honest", *ASKED[7:], "-q"]
    assert vebench(*mine, world=fake_world(FakeStart())).status == 0
    cell = proven_cell(vebench)
    assert (cell["verdict"], cell["proof"]) == ("identical", "identical")
    assert (cell["proof_rows"], cell["proof_share"]) == (40, 0.9)
    assert cell["verdict_reason"].startswith("seen in the measured cell: 40 rows of 2 environments")


def test_ctrl_c_while_a_cell_is_compared_loses_nothing_that_was_measured(vebench: Command, tmp_path: Path) -> None:
    start = FakeStart(proofs={"gym-sync": [KeyboardInterrupt()]})
    stopped = vebench(*ASKED, "-q", "--no-base", world=fake_world(start))
    assert (stopped.status, "1 of 1 cells are in run.jsonl (of 1, no rows" in stopped.err) == (130, True)
    assert [cell["status"] for cell in lines(tmp_path / "run.jsonl", "cell")] == ["ok"]
    assert vebench("run", "--resume", "run.jsonl", "-q", world=fake_world(start)).status == 0
    assert len(start.started) == 1
    cell = proven_cell(vebench)
    assert (cell["verdict"], cell["proof"], cell["proof_rows"]) == ("identical", "unverified", 0)
    assert cell["proof_reason"] == "interrupted before it was compared"
    (finding,) = (finding for finding in cell["findings"] if finding["code"] == "unverified")
    assert finding["message"].endswith("were not compared: interrupted before it was compared")


def test_a_cell_whose_proof_is_not_in_the_file_is_reported(vebench: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert vebench(*ASKED, "-q", world=fake_world()).status == 0
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if '"proof","env"' not in line))
    cell = proven_cell(vebench)
    assert (cell["proof"], cell["proof_reason"]) == ("unverified", "the run ended before it was compared")
    off = FakeStart()
    assert vebench(*ASKED[:-1], "off.jsonl", "--proof", "off", "-q", world=fake_world(off)).status == 0
    assert (off.replayed, lines(Path("off.jsonl"), "proof")) == ([], [])
