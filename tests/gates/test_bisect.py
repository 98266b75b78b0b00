"""``vebench bisect``: which release or commit made sampling slower, in a world of known rates."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.installed import RELEASES, Installed, Rate, Repository, commits, git

pytestmark = pytest.mark.usefixtures("nothing_is_left")

ENDS = ("--good", "1.0", "--bad", "1.11")
CELL = ("-e", "Pong", "-b", "for-loop", "-w", "1", "--proof", "off", "-f", "json")
PONG = ("bisect", "--package", "pong", *ENDS, *CELL)


def slower_from(version: str, ratio: float = 0.9) -> Rate:
    """Return the rate of each release, which is less from one of them on."""
    return lambda name: 1000.0 * (ratio if RELEASES.index(name) >= RELEASES.index(version) else 1.0)


@pytest.mark.parametrize(("version", "ratio", "stolen"), [("1.1", 0.8, 0.0), ("1.4", 1.2, 0.0), ("1.7", 0.9, 0.5)])
def test_the_release_that_changed_the_rate_is_found_with_the_ratio(
    vebench: Command, version: str, ratio: float, stolen: float
) -> None:
    here = Installed(slower_from(version, ratio))
    here.stolen = stolen
    done = vebench(*PONG, world=here.world())
    found = json.loads(done.out)
    assert (done.status, found["found"], found["first"], found["last"]) == (0, True, version, version)
    assert found["chance"] >= 0.99
    assert found["ratio"]["low"] < ratio < found["ratio"]["high"]
    assert found["outcome"] == f"{'slower' if ratio < 1 else 'faster'} since pong {version}"
    assert len(here.installed) < len(RELEASES)
    assert here.most <= 3
    assert {one["name"] for one in found["candidates"] if one["steps"]} <= {*here.installed}


def test_candidates_that_fail_are_skipped_until_resumed(vebench: Command) -> None:
    here = Installed(slower_from("1.6"), lacking=["1.5"], broken=["1.6"])
    found = json.loads(vebench(*PONG, "-o", "steps.jsonl", world=here.world()).out)
    assert (found["status"], found["found"], found["first"], found["last"]) == (3, False, "1.5", "1.7")
    skipped = {one["name"]: one["skipped"] for one in found["candidates"] if one["skipped"]}
    assert skipped["1.5"] == "cannot be installed: error: no compiler"
    assert "boom" in skipped["1.6"]
    again = vebench(*PONG, "--resume", "steps.jsonl", world=Installed(slower_from("1.6")).world())
    assert (again.status, json.loads(again.out)["first"]) == (0, "1.6")


def test_several_changes_are_not_blamed_on_one_release(vebench: Command) -> None:
    rates = {name: 1000.0 - 20 * at for at, name in enumerate(RELEASES)}
    found = json.loads(vebench(*PONG, world=Installed(rates.__getitem__).world()).out)
    assert (found["status"], found["found"]) == (3, False)
    assert "several changes" in found["outcome"]


def test_ends_that_do_not_differ_are_status_3(vebench: Command) -> None:
    done = vebench(*PONG, world=Installed(lambda _: 1000.0).world())
    assert done.status == 3
    assert done.out == ""
    assert "the ends do not differ" in done.err


def test_without_time_a_range_is_the_answer_and_resume_continues(vebench: Command, tmp_path: Path) -> None:
    here = Installed(slower_from("1.7"))
    first = vebench(*PONG, "-o", "steps.jsonl", "--budget", "1s", world=here.world())
    found = json.loads(first.out)
    assert (first.status, found["found"], found["first"]) == (3, False, "1.1")
    steps = (tmp_path / "steps.jsonl").read_bytes()
    (tmp_path / "steps.jsonl").write_bytes(steps + b'{"type":"st')  # as if it had been killed
    done = vebench(*PONG, "--resume", "steps.jsonl", world=here.world())
    assert (done.status, json.loads(done.out)["first"]) == (0, "1.7")
    assert (tmp_path / "steps.jsonl").read_bytes().startswith(steps)
    assert here.installed.count("1.11") == 1  # the ends were not measured again
    other = vebench(*PONG, "-w", "2", "--resume", "steps.jsonl", world=here.world())
    assert other.status == 2
    assert "another bisection" in other.refusal


@pytest.mark.parametrize("at", [1, 40])
def test_an_interrupt_keeps_the_steps_and_says_how_to_go_on(vebench: Command, at: int) -> None:
    here = Installed(slower_from("1.7"))
    here.interrupts_at = at
    done = vebench(*PONG, "-o", "steps.jsonl", world=here.world())
    assert (done.status, done.out) == (130, "")
    assert done.err.endswith("--resume steps.jsonl\n")
    assert vebench(*PONG, "-o", "steps.jsonl", "--resume", "steps.jsonl", world=here.world()).status == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--good", "0.9", "--bad", "1.3"), "0.9: pip finds no such release"),
        (("--good", "1.3", "--bad", "1.0"), "1.3: must come before 1.0"),
        (("--good", "1.5", "--bad", "1.9"), "cannot be installed: error: no compiler"),
    ],
)
def test_ends_that_are_none_are_refused(vebench: Command, words: tuple[str, ...], reason: str) -> None:
    done = vebench("bisect", "--package", "pong", *words, *CELL, world=Installed(slower_from("1.7"), ["1.5"]).world())
    assert done.status == 2
    assert reason in done.err


def test_the_commit_on_the_path_of_first_parents_is_found(vebench: Command, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    hashes = commits(repository, ["1000"] * 5 + ["900"] * 4, "python")
    git(repository, "tag", "v1", hashes[0])
    git(repository, "checkout", "-q", "-b", "side", hashes[6])
    git(repository, "commit", "-q", "--allow-empty", "-m", "Beside")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge side", "side")
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list"), git(repository, "branch")
    ends = ("--good", "v1", "--bad", "main", "--repo", "repository/python")
    done = vebench("bisect", *ends, *CELL, world=Repository(float).world())
    found = json.loads(done.out)
    assert (done.status, found["first"], found["last"]) == (0, hashes[5], hashes[5])
    subjects = [f"Change {number}" for number in range(9)]
    assert [one["subject"] for one in found["candidates"]] == [*subjects, "Merge side"]
    after = git(repository, "status", "--porcelain"), git(repository, "worktree", "list"), git(repository, "branch")
    assert after == before
    for good, bad in (("main", "v1"), ("side", "main")):
        refused = vebench("bisect", "--good", good, "--bad", bad, "--repo", "repository", *CELL)
        assert (refused.status, f"{good}: must come before {bad}, by first parents" in refused.refusal) == (2, True)


def test_a_release_is_tried_with_the_projects_newest_commit(vebench: Command, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    commits(repository, ["of before", "of today"], "python")
    (repository / "python" / "rate").write_text("not committed")
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list")
    here = Installed(slower_from("1.7"))
    done = vebench(*PONG, "--repo", "repository/python", world=here.world())
    assert (done.status, json.loads(done.out)["first"]) == (0, "1.7")
    assert here.others == [["of today"]] * len(here.installed)
    assert (git(repository, "status", "--porcelain"), git(repository, "worktree", "list")) == before
