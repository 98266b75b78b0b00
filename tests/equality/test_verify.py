"""``vebench verify``: backends that do the same work pass, and every liar is caught, by the name of its fault."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.commands import ONE_PASS, Command
from support.fakes import FakeStart, fake_world
from support.in_this_process import world_here

from vebench.backends.interface import Setup
from vebench.backends.pools import EnvPoolSync
from vebench.child.answers import Proof
from vebench.child.equality.recorder import EPISODES
from vebench.commands.session import World
from vebench.equality import verify as command
from vebench.plan.tasks import TASKS

Verify = Callable[..., tuple[int, list[dict[str, Any]]]]


# How many steps show the faults that begin late, or that only such an end shows.
LATE = {"wrong_ends:LimitTerminates": "220", "wrong_rewards:SixDecimals": "200"}


@pytest.fixture
def verify(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Return the command: its exit status, and its verdicts. Backends step in this process unless in another world."""

    monkeypatch.setattr(command, "EXAMPLE_S", 0.0)

    def call(*arguments: str, world: World | None = None) -> tuple[int, list[dict[str, Any]]]:
        seed = () if "--seed" in arguments else ("--seed", "1")
        done = vebench("verify", *arguments, *seed, "-f", "json", world=world or world_here())
        assert done.out, done.err
        return done.status, json.loads(done.out)

    return call


@pytest.mark.parametrize(
    ("adapter", "task", "fault"),
    [
        ("liars:RowZero", "CartPole", "every environment returns row 0"),
        ("liars:ClaimsDoubleSilently", "Hopper", "claims 8 frames per step instead of 4"),
        ("liars:Idles", "Hopper", "simulates 2 frames but claims 4"),
        ("liars:Stale", "CartPole", "observations are one step stale"),
        ("liars:Endless", "CartPole", "an end is not reported"),
        ("liars:Miscounts", "CartPole", "rows were counted but not returned"),
        ("liars:ClaimsFour", "CartPole", "claims 4 frames per step instead of 1"),
        ("liars:ResetsAtOnce", "CartPole", "first at environment "),
        ("liars:Idle", "CartPole", "the action space is not the task's"),
        ("liars:EndlessExcused", "CartPole", "an end is not reported"),
        ("liars:Starving", "CartPole", "environment 2 is left behind: no answer in the last"),
        ("liars:Overwrites", "CartPole", "observations change after recv() returned them"),
        ("liars:Subclassed", "CartPole", "observations are a _Computed, not a NumPy array"),
        ("wrong_arrays:FlagsAsBytes", "CartPole", "terminated are uint8, not bool"),
        ("liars:ReportsMoreLater", "CartPole", "changes its frame_skip while it runs: 4 instead of 1"),
        ("liars:WrongLast", "CartPole", "every environment returns row 0 (with "),
        ("liars:OtherChance", "CartPole", "its adapter says: it draws"),
        ("liars:ExcusesAll", "CartPole", "rewards are off by 0.001"),
        # Bugs that real backends had. All of them, on more tasks and in measured cells, are tried by tools/faults.py.
        ("wrong_async:SeedsByBatch", "CartPole", "first at environment "),
        ("wrong_claims:BlankStarts", "CartPole", "declared differences affect"),
        ("wrong_pictures:OtherType", "Hopper", "observations float32(11,) instead of float64(11,)"),
        ("wrong_ends:LimitTerminates", "Pendulum", "terminated and truncated are swapped"),
        ("wrong_seeds:SeedOrNone", "CartPole", "wrong since a later reset, with seed 0 (with 1 environment"),
        ("wrong_seeds:FifthOn", "CartPole", "first at environment 4, step 0: "),
        # Names that explain some rows, and not all.
        ("wrong_rewards:SixDecimals", "Pendulum", "first at environment "),
        ("wrong_rewards:OneWithoutRewards", "Pendulum", "in environment 1 rewards are always 0"),
        ("wrong_rewards:HalfPrecision", "Pendulum", "rewards are rounded to float16"),
    ],
)
def test_a_liar_is_caught_by_the_name_of_its_fault_or_its_first_row_however_late_and_in_whichever_layout(
    verify: Verify, adapter: str, task: str, fault: str
) -> None:
    status, (verdict,) = verify("-e", task, "-b", adapter, "--steps", LATE.get(adapter, "60"), "--num-envs", "4")
    assert (status, verdict["verdict"]) == (1, "different"), verdict
    assert verdict["summary"].startswith(fault) if "first at" in fault else fault in verdict["summary"], verdict


@pytest.mark.parametrize(
    ("adapter", "task", "proof"),
    [
        *((f"wrong_seeds:{name}", "CartPole", "different") for name in ("KeepsRunning", "RewardsKeptAtReset")),
        *((f"wrong_seeds:{name}", "CartPole", "different") for name in ("SeededOnce", "UnseededWhereDue")),
        ("wrong_late:RaisesAtSecondReset", "CartPole", "different"),
        *((f"honest:{name}", "CartPole", "identical") for name in ("InAnyOrder", "Shuffled")),
        ("honest:AnewNormalised", "odd:normalised", "identical"),
    ],
)
def test_a_measured_cell_is_reset_again(vebench: Command, adapter: str, task: str, proof: str) -> None:
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.03", "--warmup", "0.01", "--windows", "2", "--no-base")
    run = ("run", "-e", task, "-b", adapter, "-w", "1", "--envs-per-worker", "3", *brief)
    done = vebench(*run, "-q", "-o", "run.jsonl", world=world_here())
    found = {row["proof"] for row in json.loads(vebench("report", "run.jsonl", "-f", "json").out)}
    assert (done.status, found - {None}) == (proof == "different", {proof}), done.err


@pytest.mark.parametrize(
    ("adapter", "reason"), [("OfGymnasium", None), ("AnewNormalised", "the environment has state that survives reset(")]
)
def test_state_that_survives_a_reset_is_compared_as_far_as_it_can_be(
    verify: Verify, adapter: str, reason: str | None
) -> None:
    asked = ("-e", "odd:normalised", "-b", f"honest:{adapter}", "--steps", "40", "--num-envs", "2")
    status, (verdict,) = verify(*asked)
    assert (status, verdict["verdict"]) == (0, "identical"), verdict
    assert (verdict["reason"] or "").startswith(reason or ""), verdict
    assert bool(verdict["reason"]) == bool(reason)


@pytest.mark.parametrize("backends", ["gym-sync", "gym-sync,shm-sync"])
def test_an_environment_that_nothing_can_step_is_not_compared(verify: Verify, backends: str) -> None:
    status, verdicts = verify("-e", "odd:odd/Verbose-v0", "-b", backends, "--steps", "30")
    assert (status, {verdict["verdict"] for verdict in verdicts}) == (3, {"unverified"})
    assert all("for-loop cannot step" in verdict["reason"] for verdict in verdicts)


def test_what_an_adapter_changes_in_its_process_does_not_change_the_reference(verify: Verify) -> None:
    adapter = "wrong_for_all:PatchesTheStep"
    status, (verdict,) = verify("-e", "CartPole", "-b", adapter, "--steps", "50", "--num-envs", "3", world=World())
    assert (status, verdict["verdict"]) == (1, "different"), verdict


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        # Two games are alike until their actions differ: such rows must not look like those of another environment.
        ("-e Pong -b liars:Sticky --steps 80 --num-envs 2", ""),
        # It declares another fault than it has, and a difference in every row, which excuses no more than the first 16.
        ("-e Adventure -b liars:OtherResizeExcused --steps 20 --num-envs 1", "0, step 16: observations "),
    ],
)
def test_a_liar_is_caught_on_atari_by_its_first_wrong_picture(verify: Verify, asked: str, where: str) -> None:
    pytest.importorskip("ale_py")
    status, (verdict,) = verify(*asked.split(), world=world_here(layouts=1))
    assert (status, verdict["verdict"]) == (1, "different"), verdict
    assert verdict["summary"].startswith(f"first at environment {where}"), verdict


@pytest.mark.parametrize(
    ("adapter", "task"),
    [
        *((name, "Pendulum") for name in ("honest:Copies", "liars:OddButPlain", "honest:SinglePrecisionRewards")),
        *((f"honest:{name}", "CartPole") for name in ("ClaimsChance", "InAnyOrder", "Shuffled", "StepsWhenSent")),
        *(("honest:TellsAnew", "CartPole"), ("honest:Packed", "Hopper"), ("honest:Uncounted", "Hopper")),
    ],
)
def test_no_honest_backend_with_ways_of_its_own_is_accused(verify: Verify, adapter: str, task: str) -> None:
    status, (verdict,) = verify("-e", task, "-b", adapter, "--steps", "60", "--num-envs", "3")
    assert status == 0, verdict
    equal = {name: {"identical"} for name in ("honest:Copies", "liars:OddButPlain")}
    equal["honest:SinglePrecisionRewards"] = {"equal"}
    assert verdict["verdict"] in equal.get(adapter, {"identical", "equal"}), verdict


def test_what_is_compared_is_drawn_from_a_seed_that_can_be_given_again(verify: Verify) -> None:
    sweep = ("-e", "CartPole", "-b", "gym-sync", "--steps", "100", "--seed")
    one, again, other = (verify(*sweep, seed)[1][0] for seed in ("7", "7", "9"))
    assert one == again
    assert (one["verdict"], one["seed"], other["verdict"], other["seed"]) == ("identical", 7, "identical", 9)
    assert one["rows"] != other["rows"]


def test_without_a_seed_another_one_is_drawn_each_time_and_printed(vebench: Command) -> None:
    sweep = ("verify", "-e", "CartPole", "-b", "gym-sync")
    said = [vebench(*sweep, world=fake_world()).out.partition("--seed ")[2].split()[0] for _ in range(4)]
    assert len(set(said)) > 1
    assert all(seed.isdecimal() for seed in said)


def test_a_limit_on_time_is_reached_where_a_task_has_a_short_one(verify: Verify) -> None:
    _, (verdict,) = verify("-e", "Pendulum", "-b", "gym-sync", "--steps", "201", "--num-envs", "2")
    assert (verdict["verdict"], verdict["cut_off"] >= 3) == ("identical", True), verdict


def test_a_liar_that_fails_after_its_first_wrong_row_is_different_all_the_same(verify: Verify) -> None:
    status, (verdict,) = verify("-e", "CartPole", "-b", "liars:Collapses", "--steps", "50")
    assert (status, verdict["verdict"]) == (1, "different"), verdict
    assert verdict["fault"] == "rewards are off by 0.25; then it failed: RuntimeError: collapsed"


def test_backends_over_the_same_environments_are_identical_across_ends_and_resets(verify: Verify) -> None:
    backends = "for-loop,gym-sync,gym-async,shm-sync"
    status, verdicts = verify("-e", "CartPole", "-b", backends, "--steps", "60", "--num-envs", "4")
    assert status == 0
    assert [verdict["verdict"] for verdict in verdicts] == ["identical"] * 4
    assert all(verdict["ends"] > 0 and verdict["rows"] >= 4 * 61 for verdict in verdicts)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("-e Breakout -b envpool-sync --steps 400 --num-envs 1", "identical"),
        ("-e Hopper -b envpool-sync,envpool-async --steps 100 --num-envs 2", "equal"),
    ],
)
def test_envpool_does_the_same_work_on_atari_and_mujoco(verify: Verify, asked: str, expected: str) -> None:
    pytest.importorskip("envpool")
    status, verdicts = verify(*asked.split(), world=world_here(layouts=1))
    assert (status, {verdict["verdict"] for verdict in verdicts}) == (0, {expected}), verdicts
    assert all(verdict["engines"] for verdict in verdicts)
    assert all(verdict["ends"] > 0 for verdict in verdicts)


@pytest.mark.parametrize(
    ("asked", "frames_at_an_end"),
    [
        # A step in which a game ends may be cut short; physics is not.
        ("-e Klax -b gym-sync --steps 160 --num-envs 1", 1),
        ("-e Hopper -b for-loop,gym-sync --steps 100 --num-envs 2", 4),
    ],
)
def test_frames_really_simulated_are_counted_beside_those_claimed_across_ends_and_resets(
    verify: Verify, asked: str, frames_at_an_end: int
) -> None:
    frame_skip = 4
    _, verdicts = verify(*asked.split(), world=world_here(layouts=1))
    for verdict in verdicts:
        claimed = verdict["claimed"]
        # All rows but those of the few resets that were asked for, and of those after ends.
        most = (verdict["rows"] - verdict["ends"]) * frame_skip
        assert (verdict["verdict"], most - 16 * frame_skip <= claimed < most) == ("identical", True)
        assert verdict["ends"] > 0
        short = verdict["ends"] * (frame_skip - frames_at_an_end)
        assert claimed - short <= verdict["simulated"] <= claimed


def test_envpool_differs_where_the_screen_is_taller_than_what_it_reads_and_declares_that(verify: Verify) -> None:
    pytest.importorskip("envpool")
    asked = ("-e", "Carnival", "-b", "envpool-sync", "--steps", "5", "--num-envs", "2")
    status, (verdict,) = verify(*asked, world=world_here(layouts=1))
    assert (status, verdict["verdict"]) == (1, "different")
    assert verdict["summary"].startswith("first at environment 0, step 0: observations ")
    setup = Setup(TASKS["Carnival"], workers=1)
    with closing(EnvPoolSync(setup)) as backend:
        declared = [difference.text for difference in backend.info.differences]
    assert "EnvPool shows only the upper 210 rows of the screen" in declared


def test_a_backend_that_resets_in_the_step_of_the_end_and_says_so_does_the_same_work(verify: Verify) -> None:
    status, (verdict,) = verify("-e", "Hopper", "-b", "liars:ResetsAtOnceAndSaysSo", "--steps", "100")
    assert (status, verdict["verdict"]) == (0, "identical"), verdict
    assert verdict["ends"] > 0
    assert verdict["rows"] > 400


@pytest.mark.parametrize(
    ("env", "status", "verdict", "reason"),
    [
        *((name, 3, "unverified", "with the same seed and actions") for name in ("Chancy", "In-common")),
        ("No-number", 0, "identical", None),
    ],
)
def test_odd_ones_are_judged_by_rows(verify: Verify, env: str, status: int, verdict: str, reason: str | None) -> None:
    code, answers = verify("-e", f"odd:odd/{env}-v0", "-b", "for-loop,gym-sync", "--steps", "30")
    assert code == status
    for answer in answers:
        assert answer["verdict"] == verdict, answer
        assert (answer["reason"] or "").startswith(reason or "")


@pytest.mark.parametrize("steps", ["30", "400"])  # one replay in one process may draw the same numbers as the backend
def test_the_generator_that_all_environments_share_is_named(verify: Verify, tmp_path: Path, steps: str) -> None:
    (tmp_path / "draws_globally.py").write_text(
        "import gymnasium, numpy\n\n"
        "def make():\n    env = gymnasium.make('CartPole-v1')\n"
        "    return gymnasium.wrappers.TransformReward(env, lambda _: numpy.random.random())\n"
    )
    status, (verdict,) = verify("-e", "draws_globally:make", "-b", "gym-sync", "--steps", steps)
    assert (status, verdict["verdict"]) == (3, "unverified")
    assert "np.random" in verdict["reason"]


def test_episodes_are_compared_where_a_start_cannot_be_fixed(verify: Verify) -> None:
    pytest.importorskip("envpool")
    status, (verdict,) = verify("-e", "CartPole", "-b", "envpool-sync", "--steps", "10")
    assert (status, verdict["verdict"], verdict["ends"] > EPISODES / 2) == (0, "same distribution", True), verdict
    assert "draws the start" in verdict["reason"]
    assert verdict["fewest_ends"] > 10


def test_what_verify_finds_is_shown_by_runs_from_then_on(vebench: Command) -> None:
    setting = "gym-async[max_concurrency=1]"  # of which no survey knows
    sweep = ("run", "-e", "Acrobot", "-w", "1", "-b", setting, "--no-base")
    assert vebench(*sweep, "-o", "run.jsonl", "-q", world=fake_world()).status == 0
    found = vebench("verify", "-e", "Acrobot", "-b", setting, world=fake_world())
    assert (found.status, found.out.count("identical") > 0) == (0, True)
    (cell,) = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    assert cell["verdict"] == "identical"
    assert "identical" in vebench(*sweep, "--dry-run").out


def test_a_backend_that_raises_says_after_which_step_and_where_its_traceback_is(verify: Verify, tmp_path: Path) -> None:
    _, (verdict,) = verify("-e", "CartPole", "-b", "liars:RaisesLater", "--steps", "50")
    assert verdict["reason"] == "ValueError: lost, in step 31 after reset 2, with 1 environment, including randomness"
    assert verdict["log"] == ".vebench/verify.log"
    log = (tmp_path / verdict["log"]).read_text()
    assert log.startswith("== CartPole-v1, liars:RaisesLater, ")
    assert "Traceback" in log


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        ("faulty:RaisesOnBuild", "OSError: no such game, while it was built with "),
        ("liars:RaisesInClose", "ValueError: a worker has left no answer, while it was closed, with "),
        ("liars:Dies", "its process was ended by SIGKILL"),
    ],
)
def test_a_backend_that_fails_is_unverified_with_reason_and_layout(verify: Verify, adapter: str, reason: str) -> None:
    world = World() if adapter == "liars:Dies" else None  # it kills its process
    status, (verdict,) = verify("-e", "CartPole", "-b", adapter, "--steps", "40", "--num-envs", "3", world=world)
    assert (status, verdict["verdict"], verdict["reason"].startswith(reason)) == (1, "unverified", True), verdict


def test_below_the_table_is_what_to_paste(vebench: Command) -> None:
    start = FakeStart(
        {
            "gym-sync": lambda _cell, _spec: [Proof("different", 7, fault="rewards are off by 0.25")],
            "gym-async": lambda _cell, _spec: [Proof("identical", 7)],
        }
    )
    asked = ("-e", "odd:odd/No-number-v0", "-b", "gym-sync,gym-async[max_concurrency=1]", "--num-envs", "3")
    done = vebench("verify", *asked, "--seed", "9", "--timeout", "50", world=fake_world(start))
    shown = done.out
    assert "gym-async[max_concurrency=1]: identical" in done.err  # as the page says
    commands = [line for line in shown.splitlines() if line.startswith("vebench verify")]
    asked_for = "vebench verify -e odd:odd/No-number-v0 -b"
    assert commands == [
        f"{asked_for} gym-sync --num-envs 3 --steps 400 --seed 9 --timeout 50",
        f"{asked_for} 'gym-async[max_concurrency=1]' --num-envs 3 --steps 5000 --timeout 50",
    ]
    again = vebench(*shlex.split(commands[0])[1:], world=fake_world(start)).out
    assert commands[0] in again.splitlines()


@pytest.mark.parametrize(
    ("adapter", "task", "environments"), [("liars:RowZero", "CartPole", 2), ("nested:Deaf", "odd:odd/Nested-v0", 1)]
)
def test_a_liar_has_a_smallest_example_that_fails_by_itself(
    vebench: Command, adapter: str, task: str, environments: int
) -> None:
    asked = ("-e", task, "-b", adapter, "--num-envs", "3", "--steps", "40", "--seed", "1", "-f", "json")
    done = vebench("verify", *asked, world=world_here())
    (found,) = json.loads(done.out)
    script = Path(".vebench/example.py")
    assert (done.status, script.read_text()) == (1, found["script"])
    assert found["script"].count(f"workers={environments},") == 2
    path = os.pathsep.join([".", os.environ["PYTHONPATH"]])
    failed = subprocess.run(
        [sys.executable, script], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert failed.stderr.splitlines()[-1] == "AssertionError: they differ"
