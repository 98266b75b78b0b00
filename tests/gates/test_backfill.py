"""``vebench history --backfill``: old commits or releases become a history, in a world of known rates."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.commands import Command
from support.fakes import EVERYTHING, fake_resolve
from support.installed import RELEASES, Installed, Repository, commits, git

from vebench.backends.interface import Task
from vebench.errors import UsageError
from vebench.interpreters import Interpreter
from vebench.plan.cells import Cell
from vebench.results import store

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PLAN = ("-b", "for-loop", "-w", "1", "--passes", "2", "--windows", "4", "--budget", "9h", "-f", "json")
HISTORY = ("history", "runs", "--backfill")
SLOWER_FROM, NO_IMPORT = 8, 4


class Models(Repository):
    """Two models, each with its rate in a commit's file. A file without rates is a commit that cannot be imported."""

    def rate_of(self, name: str, cell: Cell) -> float:
        cart, acrobot = map(float, name.split(","))
        return cart if cell.task.id == "CartPole-v1" else acrobot

    def resolve(self, names: tuple[str, ...], backends: tuple[object, ...], *, python: str) -> tuple[Task, ...]:
        if "," not in Path(python).read_text():
            raise UsageError("module models cannot be imported: NameError: name 'cart' is not defined")
        return fake_resolve(names, (), python=python)


def rates_of(commit: int) -> str:
    """Return the rates of both models in a commit. Commits of the same speed differ by a few thousandths."""
    cart = 1000 + commit % 3 if commit < SLOWER_FROM else 333 + commit % 2
    return "nothing" if commit == NO_IMPORT else f"{cart},{2000 + commit % 4}"


def test_twelve_commits_show_which_model_became_slower_and_where(vebench: Command, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    hashes = commits(repository, [rates_of(number) for number in range(12)], "python")
    before = git(repository, "status", "--porcelain"), git(repository, "worktree", "list"), git(repository, "branch")
    here = Models(float)
    asked = (*HISTORY, f"{hashes[0]}..main", "--repo", "repository/python", "-e", "CartPole,Acrobot", *PLAN)
    done = vebench(*asked, world=here.world(resolve=here.resolve))
    found = json.loads(done.out)
    assert here.installed[:2] == [rates_of(0), rates_of(11)], "the oldest and the newest come first"
    assert (here.most, len(here.installed)) == (3, 12)
    kept = [number for number in range(12) if number != NO_IMPORT]
    assert [run["code"].split()[0] for run in found["runs"]] == [hashes[number][:10] for number in kept]
    assert len([line for line in done.err.splitlines() if "skipped" in line]) == 1
    assert f"{hashes[NO_IMPORT][:10]} " in next(line for line in done.err.splitlines() if "skipped" in line)
    changes = {series["env"]: series["changes"] for series in found["series"]}
    (change,) = changes["CartPole-v1"]
    assert (done.status, kept[change["run"]], change["new"], changes["Acrobot-v1"]) == (1, SLOWER_FROM, True, [])
    assert change["ratio"]["low"] < 1 / 3 < change["ratio"]["high"]
    assert f"since run 8 of 11, {hashes[SLOWER_FROM][:10]}" in vebench("history", "runs").out
    after = git(repository, "status", "--porcelain"), git(repository, "worktree", "list"), git(repository, "branch")
    assert after == before


def test_a_budget_ends_a_backfill_and_the_same_command_goes_on(vebench: Command) -> None:
    here = Installed(lambda _: 1000.0)
    asked = (*HISTORY, "1.0..1.11", "--package", "pong", "-e", "Pong", *PLAN)
    first = vebench(*asked, "--budget", "1s", world=here.world())
    assert (first.status, here.installed) == (3, ["1.0"])
    assert "11 of 12 are left" in first.err
    again = vebench(*asked, world=here.world())
    assert (again.status, here.installed.count("1.0")) == (0, 1)
    assert [run["code"] for run in json.loads(again.out)["runs"]] == [f"pong {name}" for name in RELEASES]
    other = vebench(*asked, "-w", "2", world=here.world())
    assert (other.status, "has another plan" in other.refusal) == (2, True)


def test_releases_of_what_decides_rates_are_one_series(vebench: Command) -> None:
    def examine(_option: str, path: str) -> Interpreter:
        return Interpreter(path, "3.11.9", {"gymnasium": "1.4.0", "numpy": Path(path).read_text()}, EVERYTHING)

    here = Installed(lambda name: 1000.0 + RELEASES.index(name) % 3)
    asked = (*HISTORY, "1.2..1.10", "--package", "numpy", "-e", "CartPole", *PLAN)
    found = json.loads(vebench(*asked, world=here.world(examine=examine)).out)
    assert (found["status"], len(found["series"]), len(found["series"][0]["points"])) == (0, 1, 9)


def test_a_disturbed_run_is_not_kept_so_that_it_is_measured_again(vebench: Command) -> None:
    here = Installed(lambda _: 1000.0)
    here.stolen = 0.5
    asked = (*HISTORY, "1.0..1.2", "--package", "pong", "-e", "Pong", *PLAN)
    done = vebench(*asked, world=here.world())
    assert (done.status, "neither end can be measured: other processes disturbed" in done.err) == (2, True)
    assert not list(Path("runs").iterdir())
    here.stolen = 0.0
    assert len(json.loads(vebench(*asked, world=here.world()).out)["runs"]) == 3


@pytest.mark.parametrize("at", [1, 9])
def test_an_interrupt_leaves_whole_runs_and_says_how_to_go_on(vebench: Command, at: int) -> None:
    here = Installed(lambda _: 1000.0)
    here.interrupts_at = at
    asked = (*HISTORY, "1.0..1.11", "--package", "pong", "-e", "Pong", *PLAN)
    done = vebench(*asked, world=here.world())
    assert (done.status, done.out) == (130, "")
    assert done.err.endswith(" -f json\n")
    assert all(store.read(path).header.cells == len(store.read(path).cells) for path in Path("runs").iterdir())
    assert vebench(*asked, world=here.world()).status == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--backfill", "1.0"), "--backfill 1.0: write A..B"),
        (("--backfill", "1.0..2.7"), "2.7: pip finds no such release"),
        (("--backfill", "1.3..1.0"), "1.3: must come before 1.0"),
        (("--backfill", "1.0..1.3", "-b", "gym-sync@/x/python"), "leave out what follows @"),
        (("--backfill", "1.5..1.6"), "neither end can be measured: boom"),
        ((), "without --backfill, nothing is measured: leave out --package"),
    ],
)
def test_what_cannot_be_backfilled_is_refused(vebench: Command, words: Sequence[str], reason: str) -> None:
    here = Installed(lambda _: 1000.0, broken=["1.5", "1.6"])
    done = vebench("history", "runs", "--package", "pong", "-e", "Pong", *words, world=here.world())
    assert done.status == 2
    assert reason in done.err
