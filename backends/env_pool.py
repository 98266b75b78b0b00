"""EnvPool, through its documented ``send`` and ``recv``. Its ``step`` calls these two."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vebench.backends.entry import BackendEntry, Library, Scope, alive_per_row
from vebench.backends.environments import simulators
from vebench.backends.environments.making import Spaces, action_space
from vebench.backends.environments.suites import ALWAYS_DRAWN, MIB, SUITES, call, quoted
from vebench.backends.interface import Batch, Difference, Engine, NothingToReceiveError
from vebench.backends.lazy import np
from vebench.backends.packages import ENVPOOL
from vebench.machine import pinning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.entry import Built
    from vebench.backends.interface import Setup, Task


STEPPED = frozenset({"atari", "mujoco", "classic", "dm_control"})  # suites

# The one game that EnvPool spells otherwise; it gives the same bytes.
SPELLINGS = {"ALE/TicTacToe3D-v5": "TicTacToe3d-v5"}


# Arrays that only EnvPool observes: there, all tasks of one body have one space.
_BALL, _TARGET, _RANGES = ("ball_state",), ("target_position",), ("origin", "rangefinder")
_BESIDES = {
    **dict.fromkeys(("dog-stand", "dog-walk", "dog-trot", "dog-run"), (*_BALL, *_TARGET)),
    "finger-spin": ("dist_to_target", *_TARGET),
    "fish-upright": ("target",),
    **dict.fromkeys(("humanoid-stand", "humanoid-walk", "humanoid-run"), ("position",)),
    "humanoid-run_pure_state": ("com_velocity", "extremities", "head_height", "joint_angles", "torso_vertical"),
    **dict.fromkeys(("quadruped-walk", "quadruped-run"), (*_BALL, *_RANGES, *_TARGET)),
    "quadruped-escape": (*_BALL, *_TARGET),
    "quadruped-fetch": _RANGES,
}


def envpool_name(task: Task) -> str | None:
    """Return EnvPool's name for a task, None if EnvPool does not have it."""
    if task.suite not in STEPPED or task.id not in SUITES[task.suite].tasks:
        return None
    if task.suite == "dm_control":  # CheetahRun-v1 for dm_control/cheetah-run-v0
        return "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", _short(task))) + "-v1"
    return SPELLINGS.get(task.id, task.id.removeprefix("ALE/"))


def _short(task: Task) -> str:
    return task.id.removeprefix("dm_control/").removesuffix("-v0")


def observed_besides(task: Task) -> tuple[str, ...]:
    """Return the arrays that EnvPool alone observes on a task."""
    return _BESIDES.get(_short(task), ()) if task.suite == "dm_control" else ()


def chance(task: Task) -> str | None:
    """Return why EnvPool's rows differ from the reference's on a task by chance alone, None if they must not."""
    if task.suite in ("classic", "dm_control") or task.id in ALWAYS_DRAWN:
        more = f"; it also observes {', '.join(found)}" if (found := observed_besides(task)) else ""
        return f"EnvPool draws the start with its own generator, and has no setting for it{more}"
    return None if task.exact else "EnvPool draws the start with its own generator"


# Engines inside EnvPool: name, package, library, and the place of the version in the library.
# MuJoCo's is the only string of three numbers there. ALE prints "(version X+COMMIT)" at its start: one string, or two
# in a row, depending on the compiler.
_MUJOCO_VERSION = re.compile(rb"\0(\d+\.\d+\.\d+)\0")
_ALE_VERSION = re.compile(rb"\(version \0?(\d+\.\d+\.\d+)\0?\+")
_ENGINES = {
    "mujoco": ("MuJoCo", "mujoco", "mujoco/mujoco_gym_envpool.so", _MUJOCO_VERSION),
    "dm_control": ("MuJoCo", "mujoco", "mujoco/mujoco_dmc_envpool.so", _MUJOCO_VERSION),
    "atari": ("ALE", "ale-py", "atari/atari_envpool.so", _ALE_VERSION),
}


def inside_envpool(suite: str) -> tuple[Engine, ...]:
    """Return the engine inside EnvPool that steps a suite's tasks, or none if one of the versions is unknown."""
    from importlib import metadata

    envpool = find_spec("envpool")
    if suite not in _ENGINES or envpool is None or envpool.origin is None:
        return ()
    name, package, library, pattern = _ENGINES[suite]
    try:
        inside = version_inside((Path(envpool.origin).parent / library).read_bytes(), pattern)
        installed = metadata.version(package)
    except (OSError, metadata.PackageNotFoundError):
        return ()
    return () if inside is None else (Engine(name, inside, installed, f"{package}=={inside}"),)


def version_inside(library: bytes, pattern: re.Pattern[bytes]) -> str | None:
    """Return the version that a library contains, None if it contains none or several."""
    found = set(pattern.findall(library))
    return found.pop().decode() if len(found) == 1 else None


def envpool_settings(task: Task) -> dict[str, Any]:
    """Return the settings with which EnvPool steps a task as every backend does."""
    if task.suite == "mujoco" and task.exact:
        import envpool

        settings = envpool.make_spec(str(envpool_name(task))).config._fields
        return {name: 0.0 for name in settings if name.startswith("reset_") and name.endswith("_scale")}  # of noise
    if task.suite != "atari":
        return {}
    return {
        "frame_skip": task.frame_skip,
        "stack_num": simulators.STACK,
        "img_height": simulators.SCREEN_SIZE,
        "img_width": simulators.SCREEN_SIZE,
        "gray_scale": True,
        "use_inter_area_resize": True,
        "noop_max": simulators.noop_max(task),
        "use_fire_reset": False,
        "repeat_action_probability": 0.0,
        "full_action_space": False,
        "episodic_life": False,
        "reward_clip": False,
        "max_episode_steps": simulators.FRAME_LIMIT // task.frame_skip,
    }


def _differences(task: Task, engines: tuple[Engine, ...]) -> tuple[Difference, ...]:
    found = [Difference("rewards are float32")]
    if task.suite == "dm_control":
        found.append(Difference("rewards in the row of a reset are not set", "rewards", "start"))
    if besides := observed_besides(task):
        found.append(Difference(f"EnvPool also observes {', '.join(besides)}", "observations"))
    if rows := simulators.TALL_SCREENS.get(task.id):
        # Its source has the size of the raw screen as a constant; no setting changes that.
        shown = f"EnvPool shows the upper {simulators.SCREEN_ROWS} of the screen's {rows} rows"
        found.append(Difference(shown, "observations"))
    found += [Difference(engine.words) for engine in engines if engine.unlike]
    return tuple(found)


class EnvPoolAsync:
    """A pool with ``ratio`` environments for each row of a batch: a batch holds the environments that finished first.

    Rewards are float32. EnvPool converts actions to the type that it wants.
    """

    frames_from = "EnvPool's count of steps"

    def __init__(self, setup: Setup, *, ratio: int = 3) -> None:
        self._setup = setup
        self._num_envs = ratio * setup.batch_size
        self._threads = min(setup.workers, len(setup.cpus))
        self._pool = self._make(setup.seed)
        self._seed, self._fresh = setup.seed, True
        self._waiting = False
        self._answered: NDArray[np.int32] | None = None  # who gets the next actions, None for all
        self._facts: dict[str, Any] = {}
        self._frames = np.zeros(self._num_envs, np.int64)
        engines = inside_envpool(setup.task.suite)
        spaces = Spaces(None, action_space(setup.task, self._pool.action_space))
        self.info = spaces.info(
            setup,
            num_envs=self._num_envs,
            threads=self._threads,
            in_order=ratio == 1,
            differences=_differences(setup.task, engines),
            engines=engines,
            chance=chance(replace(setup.task, exact=True)),
        )

    def _make(self, seed: int) -> Any:
        import envpool

        before = pinning.own_threads()
        pool = envpool.make(
            str(envpool_name(self._setup.task)),
            env_type="gymnasium",
            num_envs=self._num_envs,
            batch_size=self._setup.batch_size,
            num_threads=self._threads,
            thread_affinity_offset=-1,  # it would count CPUs from 0 on, whichever the cell owns
            seed=seed,
            **envpool_settings(self._setup.task),
        )
        if self._setup.pinned:
            # The pool's last threads step the environments.
            pinning.pin_threads(sorted(pinning.own_threads() - before)[-self._threads :], self._setup.cpus)
        return pool

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``.

        EnvPool takes seeds at construction only, so every call builds the pool again. The exception is the first call,
        if its seed equals the setup's seed.
        """
        if not (self._fresh and seed == self._seed):
            self._pool = None  # the old pool's threads end before the new one's start
            self._pool = self._make(seed)
        self._seed, self._fresh = seed, False
        self._pool.async_reset()
        self._waiting = True

    def send(self, actions: NDArray[np.generic]) -> None:
        """Queue an action for each environment of the last batch."""
        self._pool.send(actions, self._answered)
        self._waiting = True

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished and return their rows."""
        if not self._waiting:
            raise NothingToReceiveError
        self._waiting = False
        observations, rewards, terminated, truncated, self._facts = self._pool.recv()
        env_ids = self._facts["env_id"]
        if not self.info.in_order:
            self._answered = env_ids
        return Batch(observations, rewards, terminated, truncated, env_ids)

    def frames(self) -> NDArray[np.int64] | None:
        """Return the steps that each environment has made in its episode, times the frame skip that it was built with.

        EnvPool reports no more: neither ALE's frame number nor MuJoCo's time. None for tasks without frame skip.
        """
        frame_skip = self._pool.config.get("frame_skip")
        if frame_skip is None:
            return None
        self._frames[self._facts["env_id"]] = self._facts["elapsed_step"] * frame_skip
        return self._frames

    def close(self) -> None:
        """End the pool's threads, which EnvPool's own ``close`` leaves to its destructor."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._waiting = False


class EnvPoolSync(EnvPoolAsync):
    """A pool in which every environment is in each batch, in the order of ids."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, ratio=1)


def _lines(built: Built, *settings: str) -> tuple[str, ...]:
    """Return lines that make an EnvPool, with ``settings`` for one with more environments than a batch takes."""
    name = envpool_name(built.task)
    if name is None:
        return ()
    arguments = (
        quoted(name),
        f"num_envs={built.num_envs}",
        *settings,
        f"num_threads={built.threads}",
        # Of all that the adapter sets, this alone is no default of EnvPool's.
        *(("use_fire_reset=False",) if built.task.suite == "atari" else ()),
    )
    note = "# async_reset(), then recv() and send(actions, ids) in turn"
    return ("import envpool", "", *((note,) if settings else ()), *call("envs = envpool.make_gymnasium", arguments))


_SYNC = BackendEntry(
    "envpool-sync",
    "vebench.backends.env_pool:EnvPoolSync",
    "EnvPool, every environment in each batch",
    "threads",
    # It maps its library and starts its threads even for one environment: 150 MiB instead of 61 with Atari.
    library=Library("EnvPool", (ENVPOOL,), preloads=("envpool",), import_bytes=96 * MIB),
    scope=Scope(STEPPED, envpool_name, chance),
    steps_gymnasium=False,
    lines=_lines,
)
ENTRIES = (
    _SYNC,
    replace(
        _SYNC,
        name="envpool-async",
        target="vebench.backends.env_pool:EnvPoolAsync",
        summary="EnvPool, more environments than a batch takes",
        options=alive_per_row(3),
        asynchronous=True,
        worth_trying=({"ratio": 2},),
        lines=lambda built: _lines(built, f"batch_size={built.batch_size}"),
    ),
)
