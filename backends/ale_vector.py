"""ale-py's own vector environment, ``AtariVectorEnv``: threads in C++ that step games and make their pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vebench.backends.entry import BackendEntry, Library, Scope, alive_per_row
from vebench.backends.environments import simulators
from vebench.backends.environments.making import THE_SIMULATOR, read_spaces
from vebench.backends.environments.suites import SUITES, call, quoted
from vebench.backends.interface import Batch, Difference, NothingToReceiveError
from vebench.backends.lazy import np
from vebench.backends.packages import ALE_PY
from vebench.machine import pinning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.entry import Built
    from vebench.backends.interface import Setup, Task

_DIFFERENCES = (
    Difference(
        "frames before a reset are black, not the reset's own frame", "observations", "start", simulators.STACK - 1
    ),
    Difference("if an episode ends in the last two frames of a step, earlier ones are shown", "observations", "end"),
)


class AleVectorAsync:
    """A pool with ``ratio`` games for each row of a batch: a batch holds the games that finished first.

    With a ratio of 1 every batch has all of them, in the order of ids. Its rewards are whole numbers, which the adapter
    makes float64 of.
    """

    frames_from = THE_SIMULATOR

    def __init__(self, setup: Setup, *, ratio: int = 3) -> None:
        self._setup = setup
        self._num_envs = ratio * setup.batch_size
        self._threads = min(setup.workers, len(setup.cpus))
        self._vector = self._make()
        self._fresh = True
        self._first: Batch | None = None
        self._stepping = False
        self._facts: dict[str, Any] = {}
        self._frames = np.zeros(self._num_envs, np.int64)
        spaces = read_spaces(setup.task, self._vector.single_observation_space, self._vector.single_action_space)
        self._blank = spaces.rows(setup.batch_size)
        told = {"threads": self._threads, "in_order": ratio == 1, "differences": _DIFFERENCES}
        self.info = spaces.info(setup, num_envs=self._num_envs, **told)

    def _make(self) -> Any:
        from ale_py.vector_env import AtariVectorEnv

        task = self._setup.task
        before = pinning.own_threads()
        vector = AtariVectorEnv(
            simulators.game_of(task),
            num_envs=self._num_envs,
            batch_size=self._setup.batch_size,
            num_threads=self._threads,
            thread_affinity_offset=-1,  # it would count CPUs from 0 on, whichever the cell owns
            max_num_frames_per_episode=simulators.FRAME_LIMIT,
            repeat_action_probability=0.0,
            full_action_space=False,
            img_height=simulators.SCREEN_SIZE,
            img_width=simulators.SCREEN_SIZE,
            grayscale=True,
            stack_num=simulators.STACK,
            frameskip=task.frame_skip,
            maxpool=True,
            noop_max=simulators.noop_max(task),
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        if self._setup.pinned:
            pinning.pin_threads(sorted(pinning.own_threads() - before), self._setup.cpus)
        return vector

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``.

        After the first time, an asynchronous pool is rebuilt for that: rows from before the reset that were not
        received would come after it.
        """
        if not (self._fresh or self.info.in_order):
            self._vector = None  # the old pool's threads end before the new one's start
            self._vector = self._make()
        elif self._stepping:
            self._vector.recv()
        observations, self._facts = self._vector.reset(seed=seed)
        self._first = self._blank._replace(observations=observations, env_ids=self._facts["env_id"])
        self._fresh = self._stepping = False

    def send(self, actions: NDArray[np.generic]) -> None:
        """Queue an action for each environment of the last batch."""
        self._vector.send(actions)
        self._first = None
        self._stepping = True

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished and return their rows."""
        if self._stepping:
            observations, rewards, terminated, truncated, self._facts = self._vector.recv()
            self._stepping = False
            return Batch(observations, rewards.astype(np.float64), terminated, truncated, self._facts["env_id"])
        if self._first is None:
            raise NothingToReceiveError
        first, self._first = self._first, None
        return first

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames of each environment's episode by the emulator's own count, no-ops included."""
        self._frames[self._facts["env_id"]] = self._facts["episode_frame_number"]
        return self._frames

    def close(self) -> None:
        """End the pool's threads, which ale-py leaves to its destructor."""
        self._vector = self._first = None
        self._stepping = False


class AleVectorSync(AleVectorAsync):
    """A pool in which every environment is in each batch, in the order of ids."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, ratio=1)


def _chance(task: Task) -> str | None:
    return None if task.exact else "ale-py draws the no-ops of a reset with its own generator"


def _lines(built: Built, *settings: str) -> tuple[str, ...]:
    """Return lines that make it, with ``settings`` for one with more environments than a batch takes."""
    arguments = (
        quoted(built.task.id),
        f"num_envs={built.num_envs}",
        'vectorization_mode="vector_entry_point"',
        *settings,
        f"num_threads={built.threads}",
        # The only settings of the adapter that differ from the defaults.
        "repeat_action_probability=0.0",
        "use_fire_reset=False",
        "reward_clipping=False",
    )
    notes = ("# reset(), then send(actions) and recv() in turn",) if settings else ()
    lines = ("import ale_py", "import gymnasium", "", "gymnasium.register_envs(ale_py)", *notes)
    return (*lines, *call("envs = gymnasium.make_vec", arguments))


_SYNC = BackendEntry(
    "ale-vector-sync",
    "vebench.backends.ale_vector:AleVectorSync",
    "ale-py's own vector environment in C++, every environment in each batch",
    "threads",
    library=Library("ale-py's vector environment", (ALE_PY,), preloads=("gymnasium", "ale_py")),
    scope=Scope(
        frozenset({"atari"}),
        lambda task: task.id if task.id in SUITES["atari"].tasks else None,
        _chance,
        no_ops=0,  # it draws from 0 to noop_max - 1, Gymnasium's wrapper from 1 to noop_max: both can be asked for none
    ),
    steps_gymnasium=False,
    by_default=False,
    gymnasium_api=True,
    lines=_lines,
)
ENTRIES = (
    _SYNC,
    replace(
        _SYNC,
        name="ale-vector-async",
        target="vebench.backends.ale_vector:AleVectorAsync",
        summary="ale-py's own vector environment in C++, more environments than a batch takes",
        options=alive_per_row(3),
        asynchronous=True,
        lines=lambda built: _lines(built, f"batch_size={built.batch_size}"),
    ),
)
