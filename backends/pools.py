"""Pools of threads in C++: EnvPool, and ale-py's ``AtariVectorEnv``. Each has its own environments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vebench.backends.entry import BackendEntry, Built, Library, Options, Scope, alive_per_row
from vebench.backends.environments.suites import ALWAYS_DRAWN, FRAME_LIMIT, MIB, STACK, SUITES, call, quoted
from vebench.backends.interface import Batch, Difference, Engine, Setup, Task
from vebench.backends.packages import ALE_PY, ENVPOOL
from vebench.machine import kernel

STEPPED = frozenset({"atari", "mujoco", "classic", "dm_control"})  # suites of EnvPool

# Games with a screen of more than 210 rows. EnvPool's source assumes 210.
_TALL_SCREENS = (
    *("Adventure", "AirRaid", "Carnival", "JourneyEscape", "KeystoneKapers", "KingKong", "Klax", "LaserGates"),
    *("MrDo", "Pacman", "Pooyan", "SirLancelot", "SpaceWar"),
)


def envpool_name(task: Task) -> str | None:
    """Return EnvPool's name for a task, None if EnvPool does not have it."""
    if task.suite not in STEPPED or task.id not in SUITES[task.suite].tasks:
        return None
    if task.suite == "dm_control":  # CheetahRun-v1 for dm_control/cheetah-run-v0
        name = task.id.removeprefix("dm_control/").removesuffix("-v0")
        return "".join(word[:1].upper() + word[1:] for word in re.split("[-_]", name)) + "-v1"
    return task.id.removeprefix("ALE/").replace("TicTacToe3D", "TicTacToe3d")


def chance(task: Task) -> str | None:
    """Return why EnvPool's rows differ from the reference's on a task by chance alone, None if they must be equal."""
    if task.suite in ("classic", "dm_control") or task.id in ALWAYS_DRAWN:
        return "EnvPool draws the start with its own generator, and has no setting for it"
    return None if task.exact else "EnvPool draws the start with its own generator"


def inside_envpool(suite: str) -> tuple[Engine, ...]:
    """Return the engine inside EnvPool that steps a suite's tasks, or none if one of the versions is unknown."""
    from importlib import metadata

    # MuJoCo's version is the only string of three numbers in its library. ALE's is in the text "(version X+COMMIT)",
    # which is one string or two in a row, depending on the compiler.
    of_mujoco = rb"\0(\d+\.\d+\.\d+)\0"
    engines = {
        "mujoco": ("MuJoCo", "mujoco", "mujoco/mujoco_gym_envpool.so", of_mujoco),
        "dm_control": ("MuJoCo", "mujoco", "mujoco/mujoco_dmc_envpool.so", of_mujoco),
        "atari": ("ALE", "ale-py", "atari/atari_envpool.so", rb"\(version \0?(\d+\.\d+\.\d+)\0?\+"),
    }
    envpool = find_spec("envpool")
    if suite not in engines or envpool is None or envpool.origin is None:
        return ()
    name, package, library, pattern = engines[suite]
    try:
        inside = set(re.findall(pattern, (Path(envpool.origin).parent / library).read_bytes()))
        installed = metadata.version(package)
    except (OSError, metadata.PackageNotFoundError):
        return ()
    if len(inside) != 1:
        return ()
    version = inside.pop().decode()
    return (Engine(name, version, installed, f"{package}=={version}"),)


def envpool_settings(task: Task) -> dict[str, Any]:
    """Return the settings, except defaults, with which EnvPool steps the same task as every backend."""
    if task.suite == "mujoco" and task.exact:
        import envpool

        settings = envpool.make_spec(str(envpool_name(task))).config._fields
        noises = [name for name in settings if name.startswith("reset_") and name.endswith("_scale")]
        return dict.fromkeys(noises, 0.0)
    if task.suite != "atari":
        return {}
    return {
        "frame_skip": task.frame_skip,
        "noop_max": task.noop_max,
        "use_fire_reset": False,
        "max_episode_steps": FRAME_LIMIT // task.frame_skip,
    }


class _Pool:
    """A pool with ``ratio`` environments for each row of a batch. A batch holds the rows that are ready first."""

    def __init__(self, setup: Setup, ratio: int, make: Callable[..., Any]) -> None:
        self._setup, self._in_order, self._make = setup, ratio == 1, make
        num_envs, threads = ratio * setup.batch_size, min(setup.workers, len(setup.cpus))
        self._counts = {
            "num_envs": num_envs,
            "batch_size": setup.batch_size,
            "num_threads": threads,
            "thread_affinity_offset": -1,  # no affinity: EnvPool would count CPUs from 0 on, not those owned
        }
        self._reported = {"num_envs": num_envs, "threads": threads, "in_order": self._in_order}
        self._facts: dict[str, Any] = {}
        self._fresh = True
        self._pool: Any = None

    def _start(self, **further: int) -> None:
        """Start the pool with ``further`` settings. In a pinned cell, restrict its threads to the CPUs owned."""
        self._pool = None  # the old pool's threads end before the new one's start
        before = kernel.own_threads()
        self._pool = self._make(**self._counts, **further)
        if self._setup.pinned:
            # The last threads step the environments.
            started = [thread for thread in kernel.own_threads() if thread not in before]
            kernel.pin_threads(started[-self._counts["num_threads"] :], self._setup.cpus)

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished and return their rows."""
        observations, rewards, terminated, truncated, self._facts = self._pool.recv()
        return Batch(observations, rewards, terminated, truncated, self._facts["env_id"])

    def close(self) -> None:
        """End the pool's threads: the libraries' destructors do it."""
        self._pool = None


class EnvPoolAsync(_Pool):
    """EnvPool, by its documented ``send`` and ``recv``, which its ``step`` calls, too. Rewards are float32."""

    def __init__(self, setup: Setup, *, ratio: int = 3) -> None:
        import envpool

        from vebench.backends.environments.making import Spaces, action_space

        task, engines = setup.task, inside_envpool(setup.task.suite)
        make = partial(envpool.make, str(envpool_name(task)), env_type="gymnasium", **envpool_settings(task))
        super().__init__(setup, ratio, make)
        self._start(seed=setup.seed)
        differences = [Difference("rewards are float32")]
        if task.suite == "dm_control":
            differences.append(Difference("rewards in the row of a reset are not set", "rewards", "start"))
            differences.append(Difference("on some tasks EnvPool also observes other arrays", "observations"))
        if envpool_name(task) in {f"{game}-v5" for game in _TALL_SCREENS}:
            differences.append(Difference("EnvPool shows only the upper 210 rows of the screen", "observations"))
        differences += [Difference(engine.words) for engine in engines if engine.unlike]
        self.info = Spaces(None, action_space(setup.task, self._pool.action_space)).info(
            setup,
            **self._reported,
            differences=tuple(differences),
            engines=engines,
            chance=chance(replace(task, exact=True)),
        )

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        # EnvPool takes seeds at construction only.
        if not (self._fresh and seed == self._setup.seed):
            self._start(seed=seed)
        self._fresh = False
        self._pool.async_reset()

    def send(self, actions: Any) -> None:
        """Queue an action for each environment of the last batch. EnvPool converts actions to its own type."""
        self._pool.send(actions, None if self._in_order else self._facts["env_id"])


EnvPoolSync = partial(EnvPoolAsync, ratio=1)  # every environment in each batch, in the order of ids


class AleVectorAsync(_Pool):
    """ale-py's pool of games. The adapter converts its rewards from whole numbers to float64."""

    def __init__(self, setup: Setup, *, ratio: int = 3) -> None:
        from ale_py.vector_env import AtariVectorEnv

        from vebench.backends.environments.making import read_spaces
        from vebench.backends.environments.simulators import game_of

        task = setup.task
        fixed: dict[str, Any] = {"reward_clipping": False, "use_fire_reset": False}
        make = partial(AtariVectorEnv, game_of(task), frameskip=task.frame_skip, noop_max=task.noop_max, **fixed)
        super().__init__(setup, ratio, make)
        self._start()
        spaces = read_spaces(setup.task, self._pool.single_observation_space, self._pool.single_action_space)
        self._blank = spaces.rows(setup.batch_size)
        self._first: Batch | None = None  # the rows of a reset, until ``recv`` returns them
        differences = (
            Difference("frames before a reset are black", "observations", "start", STACK - 1),
            Difference("an end in the last two frames of a step shows earlier frames", "observations", "end"),
        )
        self.info = spaces.info(setup, **self._reported, differences=differences)

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        # After a reset, an asynchronous pool would still return rows of earlier steps.
        if not self._fresh:
            self._start()
        observations, self._facts = self._pool.reset(seed=seed)
        self._first = self._blank._replace(observations=observations, env_ids=self._facts["env_id"])
        self._fresh = False

    def send(self, actions: Any) -> None:
        """Queue an action for each environment of the last batch."""
        self._pool.send(actions)

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished and return their rows."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        batch = super().recv()
        return batch._replace(rewards=batch.rewards.astype(float))


AleVectorSync = partial(AleVectorAsync, ratio=1)


def _envpool_lines(built: Built) -> tuple[str, ...]:
    name, is_async = envpool_name(built.task), built.num_envs > built.batch_size
    if name is None:
        return ()
    arguments = (
        quoted(name),
        f"num_envs={built.num_envs}",
        *((f"batch_size={built.batch_size}",) if is_async else ()),
        f"num_threads={built.threads}",
        # The adapter's other settings are EnvPool's defaults.
        *(("use_fire_reset=False",) if built.task.suite == "atari" else ()),
    )
    notes = ("# async_reset(), then repeat recv() and send(actions, ids)",) if is_async else ()
    return ("import envpool", "", *notes, *call("envs = envpool.make_gymnasium", arguments), *built.then)


def _pools(
    family: str, adapter: str, title: str, *, tries: tuple[Options, ...] = (), **facts: Any
) -> Iterator[BackendEntry]:
    """Yield the synchronous and the asynchronous entry of a pool. ``tune`` tries the latter with options ``tries``."""
    for style in ("sync", "async"):
        is_async = style == "async"
        yield BackendEntry(
            f"{family}-{style}",
            f"vebench.backends.pools:{adapter}{style.title()}",
            f"{title}, {'more environments than a batch takes' if is_async else 'every environment in each batch'}",
            "threads",
            steps_gymnasium=False,
            options=alive_per_row(3) if is_async else {},
            asynchronous=is_async,
            worth_trying=tries if is_async else (),
            **facts,
        )


POOLS = (
    *_pools(
        "envpool",
        "EnvPool",
        "EnvPool",
        tries=({"ratio": 2},),
        # EnvPool maps its library and starts its threads even for one environment: 150 MiB instead of 61 with Atari.
        library=Library("EnvPool", (ENVPOOL,), preloads=("envpool",), import_bytes=96 * MIB),
        scope=Scope(STEPPED, envpool_name, chance),
        environment_seconds={"atari": 0.09, "mujoco": 0.0017},
        lines=_envpool_lines,
    ),
    *_pools(
        "ale-vector",
        "AleVector",
        "ale-py's own vector environment in C++",
        library=Library("ale-py's vector environment", (ALE_PY,), preloads=("gymnasium", "ale_py")),
        scope=Scope(
            frozenset({"atari"}),
            lambda task: task.id if task.id in SUITES["atari"].tasks else None,
            lambda task: None if task.exact else "ale-py draws the no-ops of a reset with its own generator",
            # ale-py makes 0 to noop_max - 1 no-ops, Gymnasium's wrapper 1 to noop_max. They agree only without no-ops.
            no_ops=0,
        ),
        by_default=False,
        gymnasium_api=True,
    ),
)
