"""SharedMemoryVectorEnv against Gymnasium's SyncVectorEnv, element by element."""

import math
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from various import Sampler, Troubled

from vebench.backends.shared_memory import SharedMemoryVectorEnv

Build = Callable[..., SharedMemoryVectorEnv]
Value = Any  # what the constructor is given

pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array:UserWarning")

BOX = spaces.Box(-1.0, 2.0, (2, 3), np.float32)
SPACES: dict[str, spaces.Space[Any]] = {
    "box": BOX,
    "scalar-box": spaces.Box(-1.0, 1.0, (), np.float64),
    "half-box": spaces.Box(-1.0, 1.0, (3,), np.float16),
    "pixels": spaces.Box(0, 255, (64, 64), np.uint8),
    "discrete": spaces.Discrete(5),
    "discrete-from": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-discrete-2d": spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])),
    "multi-binary": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict({"z": BOX, "a": spaces.Discrete(3), "in": spaces.Dict({"b": spaces.MultiBinary(2)})}),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Tuple((BOX, spaces.Dict({"c": spaces.MultiDiscrete([2, 2])}))))),
}


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[SharedMemoryVectorEnv] = []

    def build_one(*args: Value, **options: Value) -> SharedMemoryVectorEnv:
        built.append(SharedMemoryVectorEnv(*args, **options))
        return built[-1]

    yield build_one
    for vector in built:
        vector.close()
    assert multiprocessing.active_children() == []


def samplers(space: str = "box", count: int = 5) -> list[Callable[[], Sampler]]:
    return [partial(Sampler, SPACES[space], length=5 + index) for index in range(count)]


def troubled(count: int = 4) -> list[Callable[[], Troubled]]:
    return [Troubled] * count


def agree(left: VectorEnv[Any, Any, Any], right: VectorEnv[Any, Any, Any], steps: int = 14, seed: int = 3) -> None:
    """Step both with the same actions and compare all that they return."""
    assert data_equivalence(left.reset(seed=seed), right.reset(seed=seed))
    left.action_space.seed(seed)
    for _ in range(steps):
        actions = left.action_space.sample()
        assert data_equivalence(left.step(actions), right.step(actions))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("space", SPACES)
def test_rows_and_infos_are_those_of_a_loop(build: Build, space: str, mode: str) -> None:
    ours = build(samplers(space), autoreset_mode=mode, num_processes=2)
    theirs = SyncVectorEnv(samplers(space), autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.metadata == theirs.metadata
    assert ours.render_mode == theirs.render_mode
    agree(ours, theirs)


@pytest.mark.parametrize(
    ("processes", "caller_steps", "context"),
    [(1, True, "fork"), (1, False, "fork"), (2, True, "spawn"), (5, True, "fork"), (9, False, "forkserver")],
)
def test_any_number_of_processes_does_the_same(build: Build, processes: int, caller_steps: bool, context: str) -> None:
    functions = [
        lambda length=length: Sampler(BOX, length=length) for length in range(5, 10)
    ]  # pickle cannot send them
    ours = build(functions, num_processes=processes, caller_steps=caller_steps, context=context)
    assert len(multiprocessing.active_children()) == min(processes, 5) - caller_steps
    agree(ours, SyncVectorEnv(samplers()))


def test_only_environments_in_the_mask_are_reset(build: Build) -> None:
    ours = build(samplers(), autoreset_mode=AutoresetMode.DISABLED, num_processes=2)
    theirs = SyncVectorEnv(samplers(), autoreset_mode=AutoresetMode.DISABLED)
    agree(ours, theirs, steps=4)
    mask = np.array([True, False, False, True, True])
    seeds = [5, 6, 7, None, 9]
    for vector in (ours, theirs):
        vector.step(vector.action_space.sample())
    after = [vector.reset(seed=seeds, options={"reset_mask": mask, "x": 1})[1] for vector in (ours, theirs)]
    assert data_equivalence(*after)
    kept = ours.observations[1].copy()
    ours.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(ours.observations[1], kept)
    for wrong in ([True] * 5, np.array([True]), np.zeros(5, np.bool_), np.ones(5, np.int64)):
        with pytest.raises((TypeError, ValueError), match="reset_mask"):
            ours.reset(options={"reset_mask": wrong})


def test_seeds_may_be_listed_or_left_out(build: Build) -> None:
    ours, theirs = build(samplers(), num_processes=2), SyncVectorEnv(samplers())
    for seed in ([1, None, 3, 4, 5], None, 7):
        assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed))  # type: ignore[arg-type]  # Gymnasium's own form
    assert ours.np_random_seed == theirs.np_random_seed
    with pytest.raises(ValueError, match="the length must match num_envs=5"):
        ours.reset(seed=[1, 2])
    for wrong in (-1, 2**70, 2**63 - 3, True, [0, 1, 2, 3, 2**70], [0, 1, 2, 3, 0.5]):
        with pytest.raises(ValueError, match=r"^seed must be a whole number from 0 to "):
            ours.reset(seed=wrong)  # type: ignore[arg-type]  # as some would


def test_methods_and_attributes_of_environments_can_be_used(build: Build) -> None:
    ours = build(samplers(), num_processes=2)
    ours.reset(seed=0)
    assert ours.call("add", 1, right=2) == (3,) * 5
    ours.set_attr("level", 9.0)
    assert ours.get_attr("level") == (9.0,) * 5
    ours.set_attr("level", [1.0, 2.0, 3.0, 4.0, 5.0])
    assert ours.get_attr("level") == (1.0, 2.0, 3.0, 4.0, 5.0)
    with pytest.raises(ValueError, match="one for each of 5 environments"):
        ours.set_attr("level", [1.0])
    with pytest.raises(ValueError, match="use `step` directly"):
        ours.call("step")
    ours.step(ours.action_space.sample())
    frames = ours.render()
    assert isinstance(frames, tuple)
    assert [frame.shape for frame in frames] == [(2, 2, 3)] * 5
    long = np.arange(1 << 19)
    ours.set_attr("level", [long] * 5)
    assert all(np.array_equal(level, long) for level in ours.get_attr("level"))
    ours.set_attr("level", 1.0)
    with pytest.raises(AttributeError):
        ours.get_attr("nothing")
    agree(ours, SyncVectorEnv(samplers()))  # after an error in a call, too


def test_observations_are_copies_only_if_asked_for(build: Build) -> None:
    for copy in (True, False):
        ours = build(samplers("dict"), copy=copy, num_processes=2)
        first, _ = ours.reset(seed=0)
        before = first["z"].copy()
        second = ours.step(ours.action_space.sample())[0]
        assert np.array_equal(first["z"], before) == copy
        assert np.shares_memory(first["z"], second["z"]) != copy


def test_environments_may_have_spaces_of_one_shape_and_different_bounds(build: Build) -> None:
    def functions() -> list[Callable[[], Sampler]]:
        return [partial(Sampler, spaces.Box(0.0, high, (2,), np.float32), BOX) for high in (1.0, 2.0, 3.0)]

    theirs = SyncVectorEnv(functions(), observation_mode="different")
    ours = build(functions(), observation_mode="different", num_processes=2)
    assert ours.observation_space == theirs.observation_space
    agree(ours, theirs)
    single, batched = ours.single_observation_space, ours.observation_space
    assert build(functions(), observation_mode=(batched, single)).observation_space == batched
    with pytest.raises(RuntimeError, match="different"):
        build(functions(), num_processes=2)


@pytest.mark.parametrize(
    "options",
    [
        {"worker": print},
        {"max_concurrency": 0},
        {"max_concurrency": 1.5},
        {"observation_mode": "odd"},
        {"autoreset_mode": "odd"},
        {"num_processes": 0},
        {"batch_size": 0},
        {"batch_size": 9},
        {"cpus": [0], "num_processes": 2},
        *({"spin": spin} for spin in (-1, math.nan, "1", 1e30)),
        *({"cpus": cpus} for cpus in ([1 << 20] * 5, [-1] * 5, ["0"] * 5, [True] * 5, 0)),
        *({"num_processes": count} for count in (10**9, 1.5, True)),
        {"context": "odd"},
        {"copy": "no"},
        {"caller_steps": 3},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        SharedMemoryVectorEnv(samplers(), **options)


def test_as_many_actions_as_environments_are_needed(build: Build) -> None:
    ours = build([partial(Sampler, BOX, spaces.Discrete(4))] * 4, num_processes=2)
    ours.reset(seed=0)
    ours.step([0, 1, 2, 3])
    for wrong in ([0], [0, 1, 2], [0, 1, 2, 3, 0], np.zeros((3, 1), np.int64)):
        with pytest.raises(ValueError, match="actions must be 4, one for each environment"):
            ours.step(wrong)
    with pytest.raises(TypeError, match="0"):
        ours.step(0)


def test_what_is_asked_for_is_waited_for_before_the_next(build: Build) -> None:
    ours = build(samplers(), num_processes=2)
    actions = ours.action_space.sample()
    for wait in (ours.reset_wait, ours.step_wait, ours.call_wait):
        with pytest.raises(NoAsyncCallError, match="without any prior call"):
            wait()
    ours.reset_async(seed=0)
    with pytest.raises(AlreadyPendingCallError, match="pending call to `reset`"):
        ours.step_async(actions)
    ours.reset_wait()
    ours.step_async(actions)
    for ask in (ours.reset_async, partial(ours.call_async, "render"), partial(ours.set_attr, "level", 1)):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `step`"):
            ask()
    with pytest.warns(UserWarning, match="pending call to `step`"):
        ours.close()
    ours.close()
    for ask in (ours.reset, ours.render, partial(ours.step, 0), ours.step_wait, partial(ours.set_attr, "level", 1)):
        with pytest.raises(ClosedEnvironmentError):
            ask()


def test_what_takes_too_long_can_be_waited_for_again(build: Build) -> None:
    ours = build(troubled(2), num_processes=2)
    ours.reset()
    ours.step_async(np.array([Troubled.FINE, Troubled.SLEEP]))
    with pytest.raises(multiprocessing.TimeoutError):
        ours.step_wait(timeout=0.01)
    assert ours.step_wait()[0].tolist() == [1, 1]
    assert ours.step(np.zeros(2, np.int64))[0].tolist() == [2, 2]


# Asynchronous use.


def test_environments_stepped_as_they_come_do_what_they_do_in_a_loop(build: Build) -> None:
    ours, theirs = build(samplers(count=6), batch_size=2, num_processes=2), SyncVectorEnv(samplers(count=6))
    theirs.action_space.seed(0)
    tape = [theirs.action_space.sample() for _ in range(12)]
    expected = [theirs.reset(seed=1)[0]] + [theirs.step(actions) for actions in tape]
    observations, _ = ours.reset(seed=1)
    np.testing.assert_array_equal(observations, expected[0])
    count = np.zeros(6, int)
    ours.send(tape[0])
    while count.min() < 11:
        rows = ours.recv()
        assert len(set(rows.env_ids.tolist())) == 2
        for row, env_id in enumerate(rows.env_ids):
            count[env_id] += 1
            observed, rewards, terminated, truncated, infos = expected[count[env_id]]
            np.testing.assert_array_equal(rows.observations[row], observed[env_id])
            assert rows.rewards[row] == rewards[env_id]
            assert rows.terminations[row] == terminated[env_id]
            assert rows.truncations[row] == truncated[env_id]
            there = "count" in rows.infos and rows.infos["_count"][row]
            assert ("_count" in infos and infos["_count"][env_id]) == there
            if rows.infos.get("_count", [False, False])[row]:
                assert rows.infos["count"][row] == infos["count"][env_id]
        ready = [env_id for env_id in rows.env_ids if count[env_id] < 11]
        if ready:
            ours.send(np.stack([tape[count[env_id]][env_id] for env_id in ready]), ready)
        if (11 - count).clip(0).sum() < 2:
            break


@pytest.mark.parametrize("caller_steps", [True, False])
def test_a_slow_environment_does_not_hold_up_the_others(build: Build, caller_steps: bool) -> None:
    ours = build(troubled(4), batch_size=2, num_processes=2, caller_steps=caller_steps)
    ours.reset()
    ours.send(np.array([0, 0, 0, Troubled.SLEEP]))
    first, second = ours.recv(), ours.recv(min_batch=1)
    assert 3 not in first.env_ids
    rest = {*range(4)} - {*first.env_ids.tolist(), *second.env_ids.tolist()}
    while rest:
        rest -= set(ours.recv(min_batch=1).env_ids.tolist())


def test_what_can_never_be_received_is_an_error_and_not_a_hang(build: Build) -> None:
    ours = build(samplers(), batch_size=2, num_processes=2)
    ours.reset(seed=0)
    with pytest.raises(RuntimeError, match="2 environments, but 0 were sent"):
        ours.recv()
    ours.send(ours.action_space.sample()[:1], [4])
    with pytest.raises(RuntimeError, match="2 environments, but 1 were sent"):
        ours.recv()
    with pytest.raises(ValueError, match="environment 4 already has"):
        ours.send(ours.action_space.sample()[:2], [3, 4])
    with pytest.raises(ValueError, match="environment 5 does not exist"):
        ours.send(ours.action_space.sample()[:1], [5])
    with pytest.raises(ValueError, match="min_batch"):
        ours.recv(min_batch=3)
    assert ours.recv(min_batch=1).env_ids.tolist() == [4]


def test_a_call_or_a_reset_waits_for_steps_on_their_way(build: Build) -> None:
    ours = build(troubled(4), batch_size=2, num_processes=2)
    ours.reset()
    ours.send(np.array([0, 0, 0, Troubled.SLEEP]))
    assert ours.get_attr("_steps") == (1, 1, 1, 1)
    received = [*ours.recv().env_ids.tolist(), *ours.recv().env_ids.tolist()]
    assert sorted(received) == [0, 1, 2, 3]
    ours.send(np.array([0, 0]))
    ours.reset()
    assert ours.get_attr("_steps") == (0, 0, 0, 0)
    ours.send(np.zeros(4, np.int64))
    assert ours.recv().observations.tolist() == [1, 1]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_without_infos_there_are_only_last_observations(build: Build, mode: str) -> None:
    ours = build(samplers(), infos=False, num_processes=2, autoreset_mode=mode)
    theirs = SyncVectorEnv(samplers(), autoreset_mode=mode)
    for vector in (ours, theirs):
        vector.reset(seed=0)
        vector.action_space.seed(0)
    for _ in range(12):
        infos, others = (vector.step(vector.action_space.sample())[4] for vector in (ours, theirs))
        assert infos.get("final_info", {}) == {}
        assert data_equivalence(infos.get("final_obs"), others.get("final_obs"))
        assert infos.keys() <= {"final_obs", "_final_obs", "final_info", "_final_info"}


@pytest.mark.parametrize("mode", ["same", "different"])
def test_spaces_that_do_not_fit_together_are_refused(build: Build, mode: str) -> None:
    shapes = [partial(Sampler, spaces.Box(0.0, 1.0, (size,), np.float32), BOX) for size in (2, 3)]
    with pytest.raises((RuntimeError, AssertionError, ValueError, TypeError)):
        build(shapes, observation_mode=mode)
    with pytest.raises(RuntimeError, match="action space"):
        build([partial(Sampler, BOX, spaces.Discrete(size)) for size in (2, 3)], observation_mode=mode)


def test_actions_that_are_sent_one_by_one_are_whole_numbers_as_long_as_they_fit(build: Build) -> None:
    ours = build([partial(Sampler, BOX, spaces.Box(0, 200, (), np.uint8))] * 3, num_processes=2, batch_size=2)
    ours.reset(seed=0)
    ours.send([0, 200], [0, 1])
    ours.recv()
    ours.send(np.array([7, 200], np.int32), [0, 1])
    for wrong in ([256], [-1], [0.5]):
        with pytest.raises(TypeError, match="uint8"):
            ours.send(wrong, [2])
    with pytest.raises(ValueError, match="shape"):
        ours.send([[1]], [2])


def test_the_two_ways_of_stepping_do_not_mix(build: Build) -> None:
    ours = build(samplers(), batch_size=2, num_processes=2)
    ours.reset(seed=0)
    with pytest.raises(RuntimeError, match="send"):
        ours.step(ours.action_space.sample())
    whole = build(samplers(), num_processes=2)
    with pytest.raises(RuntimeError, match="batch_size"):
        whole.send(whole.action_space.sample())
    with pytest.raises(RuntimeError, match="batch_size"):
        whole.recv()


def test_those_received_and_not_reset_are_sent_to_in_the_order_in_which_they_came(build: Build) -> None:
    ours = build(troubled(4), batch_size=3, num_processes=2, caller_steps=False)
    ours.reset()
    for env_id in (3, 0, 2):
        ours.send(np.zeros(1, np.int64), [env_id])
        ours.get_attr("_steps")  # waits for it, so that it is ready before the next
    assert ours.recv().env_ids.tolist() == [3, 0, 2]
    ours.reset(options={"reset_mask": np.arange(4) == 0})
    ours.send(np.array([0, Troubled.RAISE, 0]))  # to 3, 2, 0
    with pytest.raises(ValueError, match="boom") as raised:
        ours.get_attr("_steps")
    assert "environment 2" in str(raised.value.__cause__)
