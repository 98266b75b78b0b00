"""Resolves names: of environments to tasks, and of backends to Pythons. Checks the names in files.

Without the user's consent, a run file may name only vebench's own backends, and environments of packages that vebench
knows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vebench import interpreters
from vebench.backends import bracketed, registry
from vebench.backends.environments.suites import CALLED, OTHER, SUITES, VECTORS, Suite, known_as, library_of, short_name
from vebench.backends.interface import Engine, Task
from vebench.backends.packages import BASE, GYMNASIUM, how_to_install, importable
from vebench.errors import UsageError, did_you_mean, shown
from vebench.interpreters import PLUGINS, look_up, packages_here
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec

KNOWN = tuple(Task(name, suite.name, skip) for suite in SUITES.values() for name, skip in suite.tasks.items())
# By full id, by id without version, and by short name. These are the latest versions, which Gymnasium takes by default.
TASKS: Mapping[str, Task] = {
    name: task for task in KNOWN for name in (task.id, re.sub(r"-v\d+$", "", task.id), short_name(task.id))
}

ALLOW = "--allow-code"

# Environments that Gymnasium and the suites' plugins register besides the suites' tasks. Gymnasium's GymV21Environment
# and GymV26Environment are left out, because they make any environment of another library.
_OTHERS = (
    *("BipedalWalker", "BipedalWalkerHardcore", "Blackjack", "CarRacing", "CliffWalking", "CliffWalkingSlippery"),
    *("FrozenLake", "FrozenLake8x8", "LunarLander", "LunarLanderContinuous", "Taxi"),
)
_BEGIN = ("BabyAI-", "phys2d/", "tabular/", *(suite.namespace for suite in SUITES.values() if suite.namespace))


def resolve(
    names: Sequence[str], backends: Sequence[BackendChoice] = (), *, python: str = sys.executable
) -> tuple[Task, ...]:
    """Return the tasks that ``names`` mean, each once, in that order.

    Unknown names, names with arguments, and third parties' adapters in ``backends`` are looked up in ``python``.
    Raises UsageError for an environment or adapter that cannot be used.
    """
    names = [_full_name(name) for name in names]
    unknown = list(dict.fromkeys(name for name in names if name not in TASKS))
    adapters = list(dict.fromkeys((choice.name, tuple(choice.options)) for choice in backends if ":" in choice.name))
    found = dict(TASKS)
    homes = {name: (home_of(name) if python == sys.executable else None) or python for name in unknown}
    for home in dict.fromkeys((*homes.values(), *((python,) if adapters else ()))):
        asked, loaded = [name for name in unknown if homes[name] == home], adapters if home == python else []
        answer = look_up(home, envs=asked, adapters=loaded)
        for (target, _), facts in zip(loaded, answer.get("adapters", ()), strict=True):
            _check_loaded("--backend", target, facts)
        for name, of_env in zip(asked, answer.get("envs", ()), strict=True):
            found[name] = _task(name, of_env, answer.get("registered", ()))
    by_id: dict[str, Task] = {}
    for task in (found[name] for name in names):
        if by_id.setdefault(task.id, task) != task:
            raise UsageError(f"--env {task.id}: named twice, with different meanings; measure them in two runs")
    return tuple(by_id.values())


def _full_name(name: str) -> str:
    """Return the name, but with the full id for a known name with arguments. Raises UsageError for a file."""
    short, arguments = bracketed.name_and_values(name)
    file, _, function = short.partition(":")
    if file.endswith(".py"):
        module = file.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise UsageError(f"--env {shown(name)}: {file} is a file: write {module}:{function or 'FUNCTION'}")
    task = TASKS.get(short) if arguments else None
    if task is None:
        return name
    _check_arguments(name, SUITES[task.suite], arguments)
    return bracketed.written(task.id, arguments)


def _check_arguments(name: str, suite: Suite, arguments: Iterable[str]) -> None:
    if taken := sorted(suite.sets.intersection(arguments)):
        raise UsageError(f"--env {shown(name)}: vebench sets {taken[0]} itself, alike for all backends: leave it out")


def asked_as(env: str, names: Sequence[str]) -> str:
    """Return the first of the requested ``names`` that has a module and the full id ``env``; otherwise ``env``."""
    env_id, arguments = bracketed.cut(env)
    ids = (env, re.sub(r"-v\d+$", "", env_id) + arguments)
    for name in names:
        asked, given = bracketed.cut(name)
        module, _, asked_id = asked.rpartition(":")
        if module and library_of(name) is None and asked_id + given in ids:
            return name
    return env


def recorded_task(env: str, frame_skip: int, names: Sequence[str], *, batched: bool = False) -> Task:
    """Return the task of a cell in a run file, without a lookup. ``env`` is its full id, and ``names`` were requested.

    An environment of a user's module is never taken for a task of a suite. ``batched``: its callable makes batches.
    """
    env_id = bracketed.cut(env)[0]
    if (library := library_of(env)) is not None:
        return Task(env, library.name, frame_skip)
    if ":" in env_id:
        return Task(env, VECTORS.name if batched else CALLED.name, frame_skip)
    module = bracketed.cut(asked_as(env, names))[0].rpartition(":")[0]
    for suite in SUITES.values():
        package = suite.plugin or GYMNASIUM.module
        if suite.has(env_id, package) and module.partition(".")[0] in ("", package):
            return Task(env, suite.name, frame_skip)
    return Task(env, OTHER.name, frame_skip, module=module or None)


def check_policy(target: str) -> None:
    """Raise UsageError unless a user's policy, ``module:function``, can be loaded in this interpreter."""
    _check_loaded("--policy", target, look_up(sys.executable, functions=[target])["functions"][0])


def _check_loaded(option: str, target: str, facts: Mapping[str, Any]) -> None:
    if "error" in facts:
        near = did_you_mean(facts.get("wanted", ""), facts.get("names", ()))
        raise UsageError(f"{option} {shown(target)}: {facts['error']}{near}")


def _task(name: str, facts: Mapping[str, Any], registered: Sequence[str]) -> Task:
    if "error" in facts:
        raise UsageError(f"--env {shown(name)}: {facts['error'] or _missing(name, facts, registered)}")
    given, arguments = bracketed.name_and_values(name)
    if "drawn_together" in facts:
        return Task(bracketed.written(given, arguments), VECTORS.name, 1, drawn_together=facts["drawn_together"])
    env_id, package = facts["id"], facts["package"]
    label = bracketed.written(env_id, arguments)
    # A task of a suite must come from the suite's packages, because a user's module may have replaced the environment.
    for suite in SUITES.values():
        if suite.has(env_id, package) and not facts["called"]:
            _check_arguments(name, suite, arguments)
            return Task(label, suite.name, suite.tasks.get(env_id, facts["frame_skip"]))
    if facts["problem"] is not None:  # not for the suites above, which may leave out non-arrays
        raise UsageError(f"--env {shown(name)}: {facts['problem']}")
    if facts["called"]:
        return Task(label, (library_of(name) or CALLED).name, facts["frame_skip"])
    module = package if package in PLUGINS else facts["module"]
    return Task(label, OTHER.name, facts["frame_skip"], module=module, vectorised=facts["vectorised"])


def _missing(name: str, facts: Mapping[str, Any], registered: Sequence[str]) -> str:
    """Return an error text with the names that exist, or with names that the user may have intended."""
    name = bracketed.cut(name)[0]
    module, _, env_id = name.rpartition(":")
    if module:
        names = facts.get("names", ())
        some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")  # noqa: PLR2004 - enough to recognise them
        near = did_you_mean(env_id, names)
        return f"module {module} has no callable or environment {shown(env_id)}{near}; it registers {some or 'none'}"
    for suite in SUITES.values():
        space = suite.namespace
        if space and name.startswith(space) and not any(each.startswith(space) for each in registered):
            needed = [package for package in suite.packages if package is not GYMNASIUM]
            return f"{', '.join(package.name for package in needed)} not installed? ({how_to_install(needed)})"
    ours = {short_name(task.id).casefold(): short_name(task.id) for task in KNOWN}
    meant = known_as(name)  # an earlier id: PongDeterministic-v4
    same = short_name(meant) if meant else ours.get(short_name(name).casefold())
    near = f" (did you mean {same}?)" if same else did_you_mean(name, [*ours.values(), *registered])
    return (
        f"no such environment{near}; vebench list shows the known ones; "
        "if your own module registers it, write MODULE:ID; if a function creates it, MODULE:FUNCTION"
    )


def not_ours(spec: RunSpec) -> Iterator[str]:
    """Yield, in the user's notation, each value that names code, a program or a machine. A file may not name these.

    Call this before anything is looked up, imported, started or connected to.
    """
    yield from (f"--env {env}" for env in spec.envs if not _is_known(env))
    yield from (f"--backend {one.label}" for one in spec.backends if ":" in one.name or one.python)
    if spec.policy.target:
        yield f"--policy {spec.policy.label}"
    if spec.hosts is not None:
        yield f"--hosts {spec.hosts.label}"


def refuse_not_ours(spec: RunSpec, named: Container[str]) -> None:
    """Raise UsageError, with the option to allow it, for the first value of ``not_ours`` that is not in ``named``."""
    for value in not_ours(spec):
        if value not in named:
            raise UsageError(f"{shown(value)}: it comes from the file, not from you: add {ALLOW} if you trust the file")


def _is_known(env: str) -> bool:
    """Return whether a known package registers ``env``, without an argument that is a text, such as a path or code."""
    name, arguments = bracketed.name_and_values(env)
    if library_of(name) is not None:
        return env.isascii()
    if ":" in name or not env.isascii() or any(isinstance(value, str) for value in arguments.values()):
        return False
    known = name in TASKS or known_as(name) is not None or name.startswith(_BEGIN)
    return known or re.sub(r"-v\d+\Z", "", name) in _OTHERS


def home_of(env: str) -> str | None:
    """Return the path of the interpreter that has a task's library; None if vebench's own does.

    Raises UsageError if neither has it.
    """
    library = library_of(env)
    if library is None or all(importable(package.module) for package in library.packages):
        return None
    if (found := interpreters.python_of(library.installation)) is None:
        raise UsageError(f"--env {shown(env)}: not installed: vebench install {library.installation}")
    return found


def path_of(choice: BackendChoice) -> str | None:
    """Return the path of a backend's interpreter; None for vebench's own. Raises UsageError if there is none."""
    name, library = choice.python, choice.entry.library
    if os.sep in name:
        return str(Path(name).expanduser())
    if not name:
        here = library.installation is None or all(importable(package.module) for package in library.packages)
        return None if library.installation is None or here else interpreters.python_of(library.installation.name)
    about, known = f"--backend {shown(choice.label)}", [one.name for one in registry.INSTALLATIONS]
    if name not in known:
        near = did_you_mean(name, known)
        raise UsageError(f"{about}: no Python is called {shown(name)}{near}: name one by a path with a slash")
    if (found := interpreters.python_of(name)) is None:
        raise UsageError(f"{about}: create this Python with vebench install {name}")
    return found


def engines_in(packages: Mapping[str, str], suite: str, label: str) -> tuple[Engine, ...]:
    """Return the simulators whose versions in ``packages``, used by the backend ``label``, differ from those here."""
    here, where = packages_here(), f"the Python of {label}"
    return tuple(
        Engine(package.title, packages[name], here[name], f"{name}=={here[name]}", where, elsewhere=True)
        for package in dict.fromkeys((*BASE, *SUITES[suite].packages))
        for name in package.deciding_names
        if name in packages
        and name in here
        and package.deciding_part(packages[name]) != package.deciding_part(here[name])
    )
