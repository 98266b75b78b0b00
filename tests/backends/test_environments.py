"""The environments that all backends step: their settings, their spaces, and frames as the simulator counts them."""

from dataclasses import replace
from typing import Any

import cv2
import gymnasium
import numpy as np
import pytest
from numpy.typing import ArrayLike

from vebench.backends.environments.making import Spaces, make, read_spaces, sample
from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import ActionSpace, Setup, Task

PONG = Task("ALE/Pong-v5", "atari", 4)
CHEETAH = Task("HalfCheetah-v5", "mujoco", 5)


def spaces_of(environment: gymnasium.Env[Any, Any]) -> Spaces:
    return read_spaces(Task("Odd-v0", "gymnasium", 1), environment.observation_space, environment.action_space)


def test_atari_is_set_as_every_backend_sets_it() -> None:
    environment = make(PONG)
    spaces = spaces_of(environment)
    assert (spaces.observations.shape, spaces.observations.dtype) == ((4, 84, 84), np.dtype(np.uint8))
    assert [spaces.actions.low.item(), spaces.actions.high.item()] == [0, 5]
    emulator = environment.get_wrapper_attr("ale")
    assert emulator.getFloat("repeat_action_probability") == 0.0
    assert emulator.getInt("max_num_frames_per_episode") == 108_000
    assert environment.get_wrapper_attr("frame_skip") == 4
    assert environment.get_wrapper_attr("noop_max") == 30
    assert not environment.get_wrapper_attr("terminal_on_life_loss")
    observation, _ = environment.reset(seed=0)
    assert (observation == observation[0]).all()
    environment.close()


def test_no_environment_makes_opencv_start_threads() -> None:
    make(PONG).close()
    assert cv2.getNumThreads() == 1


def frames_at_reset(task: Task, seeds: int) -> set[int]:
    environment = make(task)
    frames = set()
    for seed in range(seeds):
        environment.reset(seed=seed)
        frames.add(environment.get_wrapper_attr("ale").getEpisodeFrameNumber())
    environment.close()
    return frames


def test_a_game_starts_with_a_number_of_no_ops_that_the_seed_decides_also_one_without_noop() -> None:
    task = Task("ALE/Backgammon-v5", "atari", 4)
    assert len(frames_at_reset(task, 3)) > 1
    (with_one,) = frames_at_reset(replace(task, exact=True), 2)
    assert frames_at_reset(replace(task, exact=True, no_ops=0), 1) == {with_one - 1}


@pytest.mark.parametrize(
    ("action", "low", "high", "dtype"),
    [
        ("discrete", 0, 6, np.int64),
        ("from-two", 2, 4, np.int64),
        ("box", np.full((2, 3), -1.0), np.full((2, 3), 2.0), np.float32),
        ("whole-box", [-3, -3], [4, 4], np.int32),
        ("multi-discrete", [0, 0], [1, 4], np.int64),
        ("multi-binary", [0] * 4, [1] * 4, np.int64),
    ],
)
def test_arrays_of_actions_become_a_box_of_numbers(action: str, low: ArrayLike, high: ArrayLike, dtype: type) -> None:
    environment = make(Task(f"odd/Acts-{action}-v0", "gymnasium", 1, module="odd"))
    space = spaces_of(environment).actions
    np.testing.assert_array_equal(space.low, low)
    np.testing.assert_array_equal(space.high, high)
    samples = sample(space, 0, 200)
    assert samples.dtype == dtype
    np.testing.assert_array_equal(samples, np.clip(samples, low, high))
    assert len(np.unique(samples)) > 1
    assert samples[0] in environment.action_space


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.3), (-np.inf, 0.125), (0.1, 0.1)])
def test_real_actions_are_numbers_of_float32_within_their_bounds(low: float, high: float) -> None:
    space = ActionSpace(np.full(3, low), np.full(3, high))
    samples = sample(space, 0, 1000)
    assert samples.dtype == np.float64
    np.testing.assert_array_equal(samples, np.clip(samples, low, high))
    if low < high:
        np.testing.assert_array_equal(samples, samples.astype(np.float32))
        assert len(np.unique(samples)) > 1


@pytest.mark.parametrize(
    ("task", "what"),
    [
        ("Observes-text", "observations are Text, not an array: make arrays of them"),
        ("Observes-dict-with-text", "observations/arm/1 are Text, not an array"),
        ("Acts-dict-with-text", "actions/arm/1 are Text, not an array"),
        ("Observes-sequence", "observations are Sequence, not an array"),
        ("Acts-graph", "actions are Graph, not an array"),
    ],
)
def test_spaces_that_are_not_made_of_arrays_are_refused_in_one_line(task: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as caught:
        ForLoop(Setup(Task(f"odd/{task}-v0", "gymnasium", 1, module="odd"), workers=1))
    assert "\n" not in str(caught.value)
