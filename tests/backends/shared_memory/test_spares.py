"""Spares that are reset ahead: rows are those without, and an environment whose rows would differ is refused."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.recipes import recipe
from support.waiting import eventually

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Setup, Task
from vebench.backends.shared_memory import ResetAhead, SharedMemoryVectorEnv
from vebench.backends.shared_memory.backend import ShmAsync, ShmSync

SETUP = Setup(Task("CartPole-v1", "classic", 1), workers=2, envs_per_worker=2, cpus=(0, 1))
STEPS = 150


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("resets")]


class Drawn(gymnasium.Env[Any, Any]):
    """Observes what its reset has drawn; an episode has two steps. Notes the thread of each reset."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, threads: list[str] | None = None, *, draws: bool = False, fails_from: float = np.inf) -> None:
        self._threads = [] if threads is None else threads
        self._draws, self._fails_from = draws, fails_from
        self._resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._threads.append(threading.current_thread().name)
        self._resets += 1
        if self._resets >= self._fails_from:
            raise OSError("no level is left")
        self._step = 0
        self._seen = self.np_random.random(1)
        return self._seen, {"options": options}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        if self._draws:
            self.np_random.random()
        return self._seen, 1.0, self._step == 2, False, {}


@pytest.mark.parametrize(
    "make",
    [
        partial(ShmSync, spares=1),
        partial(ShmSync, spares=3, caller_steps=False),
        partial(ShmSync, spares=1, context="spawn"),
        partial(ShmAsync, spares=1, ratio=1),
    ],
    ids=["sync", "three-spares", "spawn", "async"],
)
def test_rows_are_those_of_the_plain_loop_through_ends_and_resets(make: Callable[[Setup], ShmSync | ShmAsync]) -> None:
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, 4))
    ends = 0
    with closing(ForLoop(SETUP)) as loop, closing(make(SETUP)) as ours:
        for seed in (7, 0, 7):
            loop.reset(seed)
            ours.reset(seed)
            for step in range(STEPS):
                expected, found = loop.recv(), ours.recv()
                ids = found.env_ids.copy()
                assert sorted(ids.tolist()) == [0, 1, 2, 3]
                for field, theirs in zip(found[:4], expected[:4], strict=True):
                    np.testing.assert_array_equal(field, theirs[ids], strict=True)
                ends += np.count_nonzero(found.terminated)
                loop.send(actions[step])
                ours.send(actions[step][ids])
            loop.recv()
            ours.recv()
    assert ends > 3 * 4


def test_a_reset_is_made_ahead_by_another_thread_and_the_streams_of_numbers_go_on() -> None:
    threads: list[str] = []
    alone = Drawn()
    with closing(ResetAhead(partial(Drawn, threads), 2)) as ours:

        def compare(*seeds: int | None) -> None:
            for seed in seeds:
                first, _ = alone.reset(seed=seed)
                found, _ = ours.reset(seed=seed)
                np.testing.assert_array_equal(found, first)
                ours.step(0)

        compare(5, None, None, None)
        # The environment, then two spares with the seed and ahead, then one spare for each end.
        assert eventually(lambda: len(threads) == 1 + 2 + 2 + 3)
        assert threads.count(threading.current_thread().name) == 1
        compare(8, None, 5, None, None)


def test_options_reset_the_environment_itself() -> None:
    with closing(ResetAhead(Drawn)) as ours:
        ours.reset(seed=3)
        _, info = ours.reset(options={"level": 2})
        assert info == {"options": {"level": 2}}
        assert ours.reset()[1] == {"options": None}


def test_an_environment_whose_steps_draw_from_its_generator_is_refused_at_the_end() -> None:
    with closing(ResetAhead(partial(Drawn, draws=True))) as ours:
        ours.reset(seed=1)
        ours.step(0)
        with pytest.raises(RuntimeError, match="np_random"):
            ours.reset()
        ours.reset(seed=1)  # it can begin anew


@pytest.mark.parametrize("caller_steps", [True, False])
def test_the_refusal_reaches_the_caller_from_any_process(caller_steps: bool) -> None:
    setup = Setup(Task("odd:Nested", "callable", 1), workers=2, cpus=(0, 1))
    with closing(ShmSync(setup, spares=1, caller_steps=caller_steps)) as ours:
        actions = {
            "grip": np.zeros(2, np.int64),
            "move": np.zeros((2, 2), np.float32),
            "dials": (np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int64)),
        }
        ours.reset(1)
        ours.recv()
        with pytest.raises(RuntimeError, match=r"environment [01]: RuntimeError: a step drew from np_random"):
            for _ in range(10):
                ours.send(actions)
                ours.recv()


def test_a_reset_that_fails_ahead_is_raised_when_it_is_due() -> None:
    with closing(ResetAhead(partial(Drawn, fails_from=3))) as ours:
        ours.reset(seed=1)  # the spare is reset with the seed, and ahead
        ours.reset()
        with pytest.raises(OSError, match="no level is left"):
            for _ in range(4):
                ours.reset()


def test_it_is_an_environment_for_any_vector_environment() -> None:
    makers = [partial(ResetAhead, partial(gymnasium.make, "CartPole-v1"))] * 2
    plain = gymnasium.vector.SyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2)
    with closing(plain), closing(SharedMemoryVectorEnv(makers, num_processes=2)) as ours:
        np.testing.assert_array_equal(ours.reset(seed=4)[0], plain.reset(seed=4)[0])
        ends = 0
        for actions in np.random.default_rng(0).integers(0, 2, (100, 2)):
            expected, found = plain.step(actions), ours.step(actions)
            for theirs, field in zip(expected[:4], found[:4], strict=True):
                np.testing.assert_array_equal(field, theirs)
            ends += np.count_nonzero(found[2])
    assert ends > 2


def test_the_recipe_of_the_documents_steps() -> None:
    with closing(recipe("reset-ahead")["envs"]) as envs:
        envs.reset(seed=1)
        assert envs.step(envs.action_space.sample())[0].shape == (4, 4)
