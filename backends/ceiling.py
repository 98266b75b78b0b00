"""The bare simulator on every CPU owned: what no backend can beat.

An emulator's ``act`` or MuJoCo's ``mj_step``, once for each agent step with the frame skip inside, and nothing else: no
screen read, no observation, no reward looked at, no batch waited for. Each process steps a simulator of its own, the
caller among them, and adds up its steps in shared memory; a batch's rows stand for the steps that all of them made.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vebench.backends.environments.parity import ATARI_FRAME_LIMIT, action_space, make
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, NothingToReceiveError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup, Task

BURST = 64  # agent steps between two looks at anything else
TAPE = 1_000  # actions sampled beforehand
TRIAL_STEPS = 1_000  # steps of the real environment from which the length of its episodes is taken
CACHE_LINE = 8  # in counters of 8 bytes: no two processes write to the same line
MOST_ROWS = 64  # in bursts of every process: a batch has no more rows, the rest comes with the next


class Simulator(Protocol):
    """A bare simulator that can be seeded and stepped."""

    def seed(self, seed: int) -> None:
        """Start anew with actions sampled from ``seed``."""

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting over where an episode ends."""


class Emulator:
    """The Arcade Learning Environment with frame skip inside, no sticky actions and the minimal action set."""

    def __init__(self, task: Task) -> None:
        import ale_py  # noqa: PLC0415 - imported on use
        import gymnasium  # noqa: PLC0415 - imported on use
        from ale_py import roms  # noqa: PLC0415 - imported on use

        gymnasium.register_envs(ale_py)
        game = gymnasium.spec(task.id).kwargs["game"]
        rom = roms.get_rom_path(game)
        if rom is None:
            raise ValueError(f"ale-py has no ROM of {game}")
        self._rom = rom
        self.ale = ale_py.ALEInterface()
        self.ale.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale.setInt("frame_skip", task.frame_skip)
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", ATARI_FRAME_LIMIT)
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start a new game with actions sampled from ``seed``."""
        self.ale.setInt("random_seed", seed % 2**31)
        self.ale.loadROM(self._rom)  # a seed takes hold when the game is loaded
        actions = self.ale.getMinimalActionSet()
        choices = np.random.default_rng(seed).integers(len(actions), size=TAPE)
        self._tape = [actions[choice] for choice in choices]
        self._next = 0

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting a new game where one ends."""
        start, self._next = self._next, (self._next + BURST) % (TAPE - BURST)
        act, game_over = self.ale.act, self.ale.game_over
        for action in self._tape[start : start + BURST]:
            act(action)
            if game_over():
                self.ale.reset_game()


class Physics:
    """MuJoCo on the model of the Gymnasium environment, without the environment.

    It starts over after as many steps as the environment's own episodes last under random actions: a humanoid that
    stays lying on the ground has many more contacts to solve than one that has just begun to fall.
    """

    def __init__(self, task: Task) -> None:
        import mujoco  # noqa: PLC0415 - imported on use

        environment = make(task)
        self._actions = action_space(task, environment.action_space)
        self._episode_steps = _mean_episode_steps(environment, self._actions)
        self._model = environment.get_wrapper_attr("model")
        environment.close()
        self._frame_skip = task.frame_skip
        self._step, self._reset = mujoco.mj_step, mujoco.mj_resetData
        self.data = mujoco.MjData(self._model)
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start from the model's initial state, with actions sampled from ``seed``."""
        self._tape = list(self._actions.sample(np.random.default_rng(seed), TAPE))
        self._next = self._age = 0
        self._reset(self._model, self.data)

    def burst(self) -> None:
        """Make ``BURST`` agent steps, starting over when an episode has lasted long enough."""
        start, self._next = self._next, (self._next + BURST) % (TAPE - BURST)
        model, data, step, frame_skip = self._model, self.data, self._step, self._frame_skip
        control = data.ctrl
        for action in self._tape[start : start + BURST]:
            if self._age == self._episode_steps:
                self._reset(model, data)
                self._age = 0
            self._age += 1
            control[:] = action
            step(model, data, frame_skip)


def _mean_episode_steps(environment: gymnasium.Env[Any, Any], actions: ActionSpace) -> int:
    """Return how many steps an episode lasts on average under random actions, ``TRIAL_STEPS`` at most."""
    environment.reset(seed=0)
    episodes = 0
    for action in actions.sample(np.random.default_rng(0), TRIAL_STEPS):
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            episodes += 1
            environment.reset()
    return max(1, TRIAL_STEPS // max(1, episodes))


class Ceiling:
    """``min(workers, CPUs owned)`` simulators, each in a process of its own, the first in the caller's.

    A batch has no fixed size: it has a row for each step made since ``send``, all rows are zeros, and their ids too.
    Actions sent are not used. Steps made while the caller neither waits nor receives are not counted.
    """

    def __init__(self, setup: Setup) -> None:
        self._simulator: Simulator = Emulator(setup.task) if setup.task.suite == "atari" else Physics(setup.task)
        self._size = min(setup.workers, len(setup.cpus))
        counters = np.frombuffer(mmap.mmap(-1, self._size * CACHE_LINE * 8), np.int64)
        self._steps = counters[::CACHE_LINE]
        self._processes: list[BaseProcess] = []
        self._seen = 0
        self._left_over = 0
        self._pending = False
        most = MOST_ROWS * BURST * self._size
        self._rows = Batch(
            np.broadcast_to(np.float32(0.0), (most, 1)),
            np.broadcast_to(np.float64(0.0), most),
            np.zeros(most, np.bool_),
            np.zeros(most, np.bool_),
            np.zeros(most, np.int64),
        )
        self.info = BackendInfo(
            num_envs=self._size,
            batch_size=BURST * self._size,
            action_space=ActionSpace.discrete(1),
            frame_skip=setup.task.frame_skip,
            processes=self._size,
            reuses_buffers=True,
            differences=(Difference("the bare simulator: no observations, rewards, ends or batches"),),
        )

    def reset(self, seed: int) -> None:
        """Start every simulator anew, the one of process ``i`` with actions sampled from ``seed + i``."""
        self._end_processes()
        context = multiprocessing.get_context("fork")
        for index in range(1, self._size):
            arguments = (self._simulator, seed + index, self._steps[index : index + 1], os.getpid())
            process = context.Process(target=_run_free, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)
        self._simulator.seed(seed)
        self._left_over = 0
        self._begin()

    def send(self, actions: NDArray[np.generic]) -> None:  # noqa: ARG002 - every simulator has a tape of its own
        """Begin to count."""
        self._begin()

    def _begin(self) -> None:
        self._seen = int(self._steps.sum())
        self._pending = True

    def recv(self) -> Batch:
        """Step the caller's own simulator a burst and return a row for each step made by all since ``send``."""
        if not self._pending:
            raise NothingToReceiveError
        self._pending = False
        self._simulator.burst()
        self._steps[0] += BURST
        for process in self._processes:
            if not process.is_alive():
                raise RuntimeError(f"a simulator's process died (exit status {process.exitcode})")
        total = int(self._steps.sum()) - self._seen + self._left_over
        count = min(total, len(self._rows.env_ids))
        self._left_over = total - count
        return Batch._make(array[:count] for array in self._rows)

    def close(self) -> None:
        """End every process."""
        self._end_processes()
        self._pending = False

    def _end_processes(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        self._processes = []


def _run_free(simulator: Simulator, seed: int, steps: NDArray[np.int64], caller: int) -> None:
    """Step until the caller is gone; its ``close`` ends this process sooner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: it is the caller's to act on
    simulator.seed(seed)
    while os.getppid() == caller:
        simulator.burst()
        steps[0] += BURST
