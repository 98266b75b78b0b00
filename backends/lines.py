"""Lines of Python that build what a backend was measured with, for people to paste: standard library only.

Each function takes what a cell built and returns lines whose last statement binds ``envs``. They fit 80 columns if the
task's name is not long. Settings that are the library's own defaults are left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends.env_pool_tasks import name_of
from vebench.backends.environments import recipes
from vebench.backends.environments.recipes import call, literal, quoted
from vebench.backends.environments.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vebench.backends.entry import Built

_OVERWRITTEN = "# copy=False: each step overwrites the observations of the last"
_OVERWRITTEN_AND_READ_ONLY = "# copy=False: observations are read-only; each step overwrites them"
_IN_TURN = "# reset(), then send() an action for each; after that recv() and send() in turn"
_HALVES = "# in turn: step_async() on one, while the other gets its actions"
_WITHOUT_INFOS = "# infos=False: as it was measured; leave it out if you need infos"


def for_loop(built: Built) -> tuple[str, ...]:
    """Return lines that make the environments of a plain loop, in a list."""
    return _with_environment(built, (), (f"envs = [make_env() for _ in range({built.num_envs})]",))


def gym_sync(built: Built) -> tuple[str, ...]:
    """Return lines that make Gymnasium's ``SyncVectorEnv``."""
    line = f"envs = SyncVectorEnv([make_env] * {built.num_envs}, copy=False)"
    return _with_environment(built, ("from gymnasium.vector import SyncVectorEnv",), (_OVERWRITTEN, line))


def gym_async(built: Built) -> tuple[str, ...]:
    """Return lines that make Gymnasium's ``AsyncVectorEnv``."""
    arguments = (f"[make_env] * {built.num_envs}", "copy=False", *_given(built, "max_concurrency", "context"))
    lines = (_OVERWRITTEN, *call("envs = AsyncVectorEnv", arguments))
    return _with_environment(built, ("from gymnasium.vector import AsyncVectorEnv",), _guarded(built, lines))


def shm_sync(built: Built) -> tuple[str, ...]:
    """Return lines that make our own vector environment, every environment in each batch."""
    return _shared_memory(built, ("copy=False",), (_OVERWRITTEN, _WITHOUT_INFOS))


def shm_async(built: Built) -> tuple[str, ...]:
    """Return lines that make our own vector environment, with more environments than a batch takes.

    There are none where batches may have fewer rows.
    """
    if "recv_timeout" in built.options:
        return ()
    notes = (_IN_TURN, _WITHOUT_INFOS)
    return _shared_memory(built, (f"batch_size={built.batch_size}",), notes)


def shm_half(built: Built) -> tuple[str, ...]:
    """Return lines that make two of our own vector environments, in a list, which step in turn."""
    return _in_halves(built, shm_sync)


def fast_half(built: Built) -> tuple[str, ...]:
    """Return lines that make two of them on our own classes."""
    return _in_halves(built, fast_sync)


def _in_halves(built: Built, half: Callable[[Built], tuple[str, ...]]) -> tuple[str, ...]:
    options = {"spin": 0, **built.options, "caller_steps": False}
    one = half(replace(built, num_envs=built.num_envs // 2, processes=built.processes // 2, options=options))
    *before, last = (line.replace("envs = ", "envs = [", 1) for line in one)
    return (_HALVES, *before, f"{last} for _ in range(2)]")


def _shared_memory(built: Built, settings: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    arguments = (
        f"[make_env] * {built.num_envs}",
        *settings,
        f"num_processes={built.processes}",
        f"caller_steps={literal(built.options.get('caller_steps', True))}",
        "infos=False",
        *_given(built, "spin", "context"),
    )
    lines = (*notes, *call("envs = SharedMemoryVectorEnv", arguments))
    imported = ("from vebench.backends.shared_memory import SharedMemoryVectorEnv",)
    return _with_environment(built, imported, _guarded(built, lines))


def fast_sync(built: Built) -> tuple[str, ...]:
    """Return lines that make our own vector environment on our own classes, every environment in each batch."""
    return _fast(built, ("copy=False",), (_OVERWRITTEN_AND_READ_ONLY,))


def fast_async(built: Built) -> tuple[str, ...]:
    """Return lines that make it with more environments than a batch takes; none where batches may have fewer rows."""
    if "recv_timeout" in built.options:
        return ()
    return _fast(built, (f"batch_size={built.batch_size}",), (_IN_TURN,))


def _fast(built: Built, settings: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    arguments = (
        quoted(recipes.name_of(built.task)),
        str(built.num_envs),
        *settings,
        f"num_processes={built.processes}",
        *_given(built, "spin", "caller_steps", "context", "compiled"),
        *(f"{name}={literal(value)}" for name, value in recipes.settings_of(built.task).items()),
    )
    lines = (*notes, *call("envs = make_vec", arguments))
    return ("from vebench.backends.fast import make_vec", *_guarded(built, lines))


def envpool_sync(built: Built) -> tuple[str, ...]:
    """Return lines that make an EnvPool with every environment in each batch."""
    return _pool(built, (), ())


def envpool_async(built: Built) -> tuple[str, ...]:
    """Return lines that make an EnvPool with more environments than a batch takes."""
    note = "# envs.async_reset(), then in turn envs.recv() and envs.send(actions, env_ids)"
    return _pool(built, (f"batch_size={built.batch_size}",), (note,))


def _pool(built: Built, settings: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    name = name_of(built.task)
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
    return ("import envpool", *notes, *call("envs = envpool.make_gymnasium", arguments))


def ale_vector_sync(built: Built) -> tuple[str, ...]:
    """Return lines that make ale-py's vector environment, every environment in each batch."""
    return _ale_vector(built, (), ())


def ale_vector_async(built: Built) -> tuple[str, ...]:
    """Return lines that make ale-py's vector environment, with more environments than a batch takes."""
    note = "# envs.reset(), then in turn envs.send(actions) and envs.recv()"
    return _ale_vector(built, (f"batch_size={built.batch_size}",), (note,))


def _ale_vector(built: Built, settings: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    arguments = (
        quoted(built.task.id),
        f"num_envs={built.num_envs}",
        'vectorization_mode="vector_entry_point"',
        *settings,
        f"num_threads={built.threads}",
        # Of all that the adapter sets, these alone are no defaults.
        "repeat_action_probability=0.0",
        "use_fire_reset=False",
        "reward_clipping=False",
    )
    lines = ("import ale_py", "import gymnasium", "", "gymnasium.register_envs(ale_py)")
    return (*lines, *notes, *call("envs = gymnasium.make_vec", arguments))


def sb3_dummy(built: Built) -> tuple[str, ...]:
    """Return lines that make Stable-Baselines3's ``DummyVecEnv``."""
    return _listed(built, "stable_baselines3.common.vec_env", "DummyVecEnv")


def sb3_subproc(built: Built) -> tuple[str, ...]:
    """Return lines that make Stable-Baselines3's ``SubprocVecEnv``, whose processes do not fork by default."""
    return _listed(built, "stable_baselines3.common.vec_env", "SubprocVecEnv", guarded=True)


def tianshou_dummy(built: Built) -> tuple[str, ...]:
    """Return lines that make tianshou's ``DummyVectorEnv``."""
    return _listed(built, "tianshou.env", "DummyVectorEnv")


def tianshou_subproc(built: Built) -> tuple[str, ...]:
    """Return lines that make tianshou's ``SubprocVectorEnv``."""
    return _listed(built, "tianshou.env", "SubprocVectorEnv")


def tianshou_shmem(built: Built) -> tuple[str, ...]:
    """Return lines that make tianshou's ``ShmemVectorEnv``."""
    return _listed(built, "tianshou.env", "ShmemVectorEnv")


def _listed(built: Built, module: str, name: str, *, guarded: bool = False) -> tuple[str, ...]:
    """Return lines for a class that takes a list of functions; ``guarded`` if its processes import the script."""
    line = f"envs = {name}([make_env] * {built.num_envs})"
    lines = ('if __name__ == "__main__":', f"    {line}") if guarded else (line,)
    return _with_environment(built, (f"from {module} import {name}",), lines)


def _with_environment(built: Built, imports: Iterable[str], lines: Iterable[str]) -> tuple[str, ...]:
    recipe = SUITES[built.task.suite].recipe(built.task)
    if not recipe.function:
        return ()
    imported = sorted((*recipe.imports, *imports), key=lambda line: (line.startswith("from"), line))
    return (*imported, *recipe.function, *lines)


def _given(built: Built, *names: str) -> list[str]:
    """Return the options among ``names`` that the user has set, as arguments of the same names."""
    return [f"{name}={literal(built.options[name])}" for name in names if name in built.options]


def _guarded(built: Built, lines: Sequence[str]) -> tuple[str, ...]:
    """Return ``lines`` as a script needs them whose processes do not fork: each of these imports the script again."""
    if built.options.get("context", "fork") == "fork":
        return tuple(lines)
    return ('if __name__ == "__main__":', *(f"    {line}" for line in lines))
