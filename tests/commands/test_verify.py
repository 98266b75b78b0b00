"""``vebench verify``: backends that do the same work pass, and every liar is caught, by the name of its fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest
from support.places import ADAPTERS, ENVIRONMENTS

from vebench.backends.env_pool import EnvPoolSync
from vebench.backends.environments.atari import SCREEN_ROWS, TALL_SCREENS
from vebench.backends.interface import Setup
from vebench.plan.tasks import BY_NAME, KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def verify(tmp_path: Path) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Return the command: its exit status, and its verdicts."""

    def call(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        command = [sys.executable, "-m", "vebench.cli", "verify", *arguments, "-f", "json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ADAPTERS, ENVIRONMENTS)))}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return call


@pytest.mark.parametrize(
    ("liar", "task", "fault"),
    [
        ("NoReset", "CartPole", "no reset after the end"),
        ("RowZero", "CartPole", "row 0 stands for every environment"),
        ("FrameSkipFive", "Pong", "frame skip 5 instead of 4"),
        ("FrameSkipFive", "Hopper", "frame skip 5 instead of 4"),
        ("ClaimsDouble", "Pong", "simulates 4 frames of 8 claimed"),
        ("ClaimsDouble", "Hopper", "simulates 4 frames of 8 claimed"),
        ("ClaimsDoubleSilently", "Hopper", "claims 8 frames in a step where the reference simulates 4"),
        ("Idles", "Hopper", "simulates 2 frames of 4 claimed"),
        ("Stale", "CartPole", "observations are one step stale"),
        ("Deaf", "CartPole", "actions are ignored"),
        ("Clipped", "Pendulum", "rewards are clipped to their signs"),
        ("Endless", "CartPole", "an end is not reported"),
        ("Swapped", "CartPole", "env ids are swapped"),
        ("OtherResize", "Pong", "another picture"),
        ("OtherResizeExcused", "Adventure", "another picture"),
        # In its first steps this game takes no action, which is no fault.
        ("Cropped", "KingKong", "shows the upper 210 of the screen's 250 rows"),
        ("Cropped", "Adventure", "shows the upper 210 of the screen's 250 rows"),
        ("Sticky", "Pong", "something is random that must not be, such as sticky actions"),
        ("Miscounts", "CartPole", "rows counted that were not returned"),
        ("Twice", "CartPole", "the same row twice in a batch"),
        ("ClaimsFour", "CartPole", "claims 4 frames in a step that has 1"),
        ("ResetsUncounted", "CartPole", "resets as next_step, but reports same_step"),
        ("ResetsAtOnce", "CartPole", "resets as same_step, but reports next_step"),
        ("Lazy", "CartPole", "observations are a _Unseen, not a NumPy array"),
        ("Idle", "CartPole", "actions are drawn from another space than the task's"),
        ("EndlessExcused", "CartPole", "an end is not reported"),
        ("Starving", "CartPole", "an environment is left behind: environment 2 has returned 0 rows"),
        ("Infinite", "CartPole", "other observations: rewards and ends agree"),
    ],
)
def test_a_liar_is_caught_by_the_name_of_its_fault(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], liar: str, task: str, fault: str
) -> None:
    # Most of the time goes to loading games: two are enough to tell one from the other.
    envs = "2" if task in ("Pong", "Adventure", "KingKong") else "4"
    status, (verdict,) = verify("-e", task, "-b", f"liars:{liar}", "--steps", "200", "--num-envs", envs)
    assert (status, verdict["verdict"]) == (1, "different"), verdict
    assert verdict["fault"].startswith(fault), verdict


def test_a_liar_that_fails_when_it_is_tried_again_is_different_all_the_same(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    status, (verdict,) = verify("-e", "CartPole", "-b", "liars:Collapses", "--steps", "50")
    assert (status, verdict["verdict"]) == (1, "different"), verdict
    assert verdict["fault"] == "run again, it failed: RuntimeError: collapsed"


def test_backends_over_the_same_environments_are_identical_across_ends_and_resets(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    status, verdicts = verify("-e", "CartPole", "-b", "for-loop,gym-sync,gym-async,shm-sync", "--steps", "300")
    assert status == 0
    assert [verdict["verdict"] for verdict in verdicts] == ["identical"] * 4
    assert all(verdict["ends"] > 0 and verdict["rows"] >= 4 * 301 for verdict in verdicts)


@pytest.mark.parametrize(
    ("task", "steps", "expected"),
    [("Breakout", "300", "identical"), ("Hopper", "100", "equal")],
)
def test_envpool_does_the_same_work_on_atari_and_mujoco(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], task: str, steps: str, expected: str
) -> None:
    pytest.importorskip("envpool")
    status, verdicts = verify("-e", task, "-b", "envpool-sync,envpool-async", "--steps", steps, "--num-envs", "2")
    assert (status, [verdict["verdict"] for verdict in verdicts]) == (0, [expected] * 2), verdicts
    assert all(verdict["engines"] for verdict in verdicts)
    assert all(verdict["simulated"] == verdict["claimed"] > 0 for verdict in verdicts)
    assert all(verdict["ends"] > 0 for verdict in verdicts)


def test_a_picture_that_differs_is_written_beside_the_references(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], tmp_path: Path
) -> None:
    cv2 = pytest.importorskip("cv2")
    _, (verdict,) = verify(
        "-e", "Pong", "-b", "liars:OtherResize", "--steps", "5", "--num-envs", "1", "--save-frames", "frames"
    )
    kinds = ("expected", "found", "difference")
    stem = "ALE-Pong-v5-liars-OtherResize-env0-step0"
    assert verdict["pictures"] == [str(tmp_path / "frames" / f"{stem}-{kind}.png") for kind in kinds]
    expected, found, difference = (cv2.imread(path, cv2.IMREAD_GRAYSCALE) for path in verdict["pictures"])
    assert expected.shape == (84, 4 * 84)  # the stack of four, side by side
    assert ((expected != found) == (difference > 0)).mean() > 0.99


def test_observations_that_are_no_pictures_are_not_written(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], tmp_path: Path
) -> None:
    _, (verdict,) = verify("-e", "CartPole", "-b", "liars:Stale", "--steps", "50", "--save-frames", "frames")
    assert (verdict["verdict"], verdict["pictures"], list((tmp_path / "frames").iterdir())) == ("different", [], [])


@pytest.mark.parametrize(("task", "frame_skip", "steps"), [("Klax", 4, 300), ("Hopper", 4, 100)])
def test_frames_really_simulated_are_counted_beside_those_claimed_across_ends_and_resets(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], task: str, frame_skip: int, steps: int
) -> None:
    backends = ("for-loop", "gym-sync", "gym-async")
    _, verdicts = verify("-e", task, "-b", ",".join(backends), "--steps", str(steps), "--num-envs", "2")
    for verdict in verdicts:
        claimed = (verdict["rows"] - 2 - verdict["ends"]) * frame_skip
        assert (verdict["verdict"], verdict["claimed"]) == ("identical", claimed)
        assert verdict["frames_from"] == "the simulator"
        assert verdict["ends"] > 0
        # A step in which a game ends may be cut short; physics is not.
        short = verdict["ends"] * (frame_skip - 1) if task == "Klax" else 0
        assert claimed - short <= verdict["simulated"] <= claimed


def test_envpool_differs_where_the_screen_is_taller_than_what_it_reads_and_declares_it_beforehand(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    pytest.importorskip("envpool")
    status, (verdict,) = verify("-e", "Carnival", "-b", "envpool-sync", "--steps", "5", "--num-envs", "2")
    assert (status, verdict["verdict"]) == (1, "different")
    assert verdict["fault"] == "shows the upper 210 of the screen's 214 rows"
    setup = Setup(BY_NAME["Carnival"], workers=1)
    with closing(EnvPoolSync(setup)) as backend:
        assert f"EnvPool {verdict['fault']}" in [difference.text for difference in backend.info.differences]


def test_the_games_known_to_have_a_tall_screen_are_those_that_the_emulator_says_have_one() -> None:
    ale_py = pytest.importorskip("ale_py")
    emulator = ale_py.ALEInterface()
    tall = {}
    others = [task.id for task in KNOWN if task.suite == "atari" and task.id not in TALL_SCREENS]
    for env in (*TALL_SCREENS, *others[::15]):
        emulator.loadROM(ale_py.roms.get_rom_path(gymnasium.spec(env).kwargs["game"]))
        rows, columns = emulator.getScreenDims()
        assert columns == 160
        if rows != SCREEN_ROWS:
            tall[env] = rows
    assert tall == TALL_SCREENS


def test_a_backend_that_resets_in_the_step_of_the_end_and_says_so_does_the_same_work(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    status, (verdict,) = verify("-e", "Hopper", "-b", "liars:ResetsAtOnceAndSaysSo", "--steps", "100")
    assert (status, verdict["verdict"]) == (0, "identical"), verdict
    assert verdict["ends"] > 0
    assert verdict["rows"] == 404


@pytest.mark.parametrize(
    ("env", "status", "verdict", "reason"),
    [
        ("Chancy", 3, "unverified", "the environment gives other results each time"),
        ("No-number", 0, "identical", None),
    ],
)
def test_odd_environments_are_judged_by_what_they_repeat(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]], env: str, status: int, verdict: str, reason: str | None
) -> None:
    code, answers = verify("-e", f"odd:odd/{env}-v0", "-b", "for-loop,gym-sync", "--steps", "30")
    assert code == status
    for answer in answers:
        assert answer["verdict"] == verdict, answer
        assert (answer["reason"] or "").startswith(reason or "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--num-envs", "0"], "--num-envs 0: must be"),
        (["-b", "ceiling,null", "--steps", "5"], "reference rows cannot be compared; name another backend"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(tmp_path: Path, arguments: list[str], text: str) -> None:
    command = [sys.executable, "-m", "vebench.cli", "verify", "-e", "Pong", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


def test_a_start_that_cannot_be_fixed_leaves_a_backend_unverified_with_the_reason(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    pytest.importorskip("envpool")
    status, (verdict,) = verify("-e", "CartPole", "-b", "envpool-sync", "--steps", "10")
    assert (status, verdict["verdict"]) == (3, "unverified")
    assert "draws the start" in verdict["reason"]


def test_a_backend_that_fails_is_unverified_with_its_reason(
    verify: Callable[..., tuple[int, list[dict[str, Any]]]],
) -> None:
    status, (verdict,) = verify("-e", "CartPole", "-b", "faulty:RaisesOnBuild", "--steps", "10")
    assert (status, verdict["verdict"], verdict["reason"]) == (1, "unverified", "OSError: no such game")
