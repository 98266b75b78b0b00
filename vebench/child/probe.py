"""Reports facts about the interpreter that runs this script: ``python probe.py``.

The request is JSON on standard input, and the answer is JSON on standard output. Output of libraries goes to standard
error. Lookups need Python 3.10, and Gymnasium for ``envs``. All keys of a request are optional:

| key of the request | value | answer under the same key |
| --- | --- | --- |
| ``packages`` | names | versions of the installed packages |
| ``modules`` | names | the modules that can be imported |
| ``adapters`` | ``[["module:Class", [option]]]`` | facts of each, with an ``error`` if there is one |
| ``functions`` | ``["module:name"]`` | the same |
| ``envs`` | ``[["name", {argument: value}]]`` | the same; the key ``registered`` has all ids |
| ``plugins`` | modules that register environments, imported first if they are installed | |
| ``scratch`` | the working folder of the script, so that libraries write nothing into the user's folder | |

Modules that are not found elsewhere are imported from the folder in which the script was started. The answer always has
the ``version`` of Python.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import Any

_A_VECTOR = "it makes a vector environment: give the function an argument num_envs, or name one that makes a single one"


class RefusedError(Exception):
    """The requested adapter, function or environment cannot be used. ``facts`` are the answer."""

    def __init__(self, error: str, **facts: Any) -> None:
        super().__init__(error)
        self.facts = {"error": error, **facts}


def main() -> None:
    """Answer the request."""
    # Libraries may print, even from C. Redirect their output to standard error.
    answer = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    # Look packages up before the user's folder is on the path: a file there is not an installed package.
    reply: dict[str, Any] = {
        "version": sys.version_info[:3],
        "packages": versions(request.get("packages", ())),
        "modules": [name for name in request.get("modules", ()) if find_spec(name) is not None],
    }
    adapters, functions, envs = (request.get(kind, ()) for kind in ("adapters", "functions", "envs"))
    # Last in the path: the user's folder must not shadow a library. Nothing may be written into it, either.
    if any(":" in name for name in (*functions, *(target for target, _ in (*adapters, *envs)))):
        sys.path.append(os.getcwd())
    sys.dont_write_bytecode = True
    if "scratch" in request:
        os.chdir(request["scratch"])
    reply["adapters"] = [_answered(_check_adapter, *adapter) for adapter in adapters]
    reply["functions"] = [_answered(_function, target) for target in functions]
    if envs:
        try:
            import gymnasium
        except ImportError as error:
            reply["envs"] = [{"error": f"Gymnasium cannot be imported: {in_one_line(error)}"} for _ in envs]
        else:
            register(request.get("plugins", ()))
            reply["envs"] = [_answered(_env_facts, *env) for env in envs]
            reply["registered"] = sorted(gymnasium.registry)
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        json.dump(reply, file)


def register(plugins: Iterable[str]) -> None:
    """Import the modules that are installed, so that Gymnasium knows their environments."""
    for plugin in plugins:
        with contextlib.suppress(ImportError):
            importlib.import_module(plugin)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among ``names``, by name."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version_of(name)
    return found


def _answered(look_up: Callable[..., Any], *asked: Any) -> dict[str, Any]:
    try:
        facts = look_up(*asked)
    except RefusedError as refused:
        return refused.facts
    return facts if isinstance(facts, dict) else {}


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a module may raise anything
        # Modules of the user are found in the current folder.
        missing = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        where = "; run vebench in the folder of its file" if missing else ""
        raise RefusedError(f"module {module} cannot be imported: {in_one_line(error)}{where}") from error


def _env_facts(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of one environment; ``name`` is for ``gymnasium.make``, or ``module:callable``.

    Raises RefusedError. If no environment has the name, the error is empty, and ``names`` are the ids of the module.
    """
    from vebench.backends.bracketed import written
    from vebench.backends.environments.making import make, parameters_of, read_spaces
    from vebench.backends.environments.suites import OTHER, VECTORS, library_of
    from vebench.backends.interface import Task

    module, _, local_name = name.rpartition(":")
    library = library_of(name)
    batched = Task(written(name, arguments), (library or VECTORS).name, 1)
    if library is not None:
        function: Any = partial(make, batched)
        ids, arguments = [], {}
    else:
        ids = ids_of(module) if module else []
        function = callable_of(module, local_name, ids)
        if "num_envs" in parameters_of(function):
            return _fact_of_batch(batched)
    env = _made(local_name, function, arguments, ids)
    problem = None
    try:
        read_spaces(Task(name, OTHER.name, 1), env.observation_space, env.action_space)
    except ValueError as error:
        problem = str(error)
    home = _home(env.spec.entry_point if env.spec else None)
    # Some environments have no fixed number of frames per step.
    frames = [getattr(env.unwrapped, name, None) for name in ("frame_skip", "_frameskip")]
    env_id = env.spec.id if env.spec else local_name
    facts = {
        "id": name if function else env_id,
        "package": (module if function else home).partition(".")[0],  # the top-level package of its code
        "module": module or None,  # the module to import first
        "frame_skip": next((count for count in frames if type(count) is int and count > 0), 1),
        "vectorised": bool(env.spec and env.spec.vector_entry_point),
        "called": function is not None,  # whether a callable of the module makes it
        "problem": problem,  # why its spaces cannot be used
    }
    with contextlib.suppress(Exception):
        env.close()
    return facts


def _fact_of_batch(task: Any) -> dict[str, Any]:
    """Return the only fact of a task whose callable makes vector environments. Raises RefusedError."""
    from vebench.backends.environments.suites import VECTORS, load_target

    if taken := sorted(VECTORS.sets.intersection(task.arguments)):
        raise RefusedError(f"vebench sets {taken[0]} itself, alike for all backends: leave it out")
    try:
        return {"drawn_together": load_target(VECTORS.drawn_together)(task)}
    except (Exception, SystemExit) as raised:  # a simulator may raise anything
        raise RefusedError(f"it cannot be created: {in_one_line(raised)}") from raised


@cache  # a second import registers nothing
def ids_of(module: str) -> list[str]:
    """Import ``module``, and return the ids of the environments that it registers, or has registered before."""
    from gymnasium import registry

    before = set(registry)
    _imported(module)
    # If another module has imported it before, it registers nothing now. Then entry points show its environments.
    return sorted(
        name
        for name, spec in registry.items()
        if name not in before or f"{_home(spec.entry_point)}.".startswith(f"{module}.")
    )


def callable_of(module: str, name: str, ids: Iterable[str]) -> Any:
    """Return the callable of this name in an imported module, None if there is none, or if ``ids`` have the name."""
    if not module or any(name in (known, re.sub(r"-v\d+$", "", known)) for known in ids):
        return None
    found = getattr(sys.modules[module], name, None)
    return found if callable(found) else None


def _made(env_id: str, function: Any, arguments: dict[str, Any], ids: list[str]) -> Any:
    """Make an environment by a callable or an id. Raises RefusedError, with ``ids`` as names if the id is unknown."""
    from gymnasium import Env, error, make, vector

    if function is None and (taken := sorted({"id", "disable_env_checker"} & arguments.keys())):
        raise RefusedError(f"vebench sets {taken[0]} itself, alike for all backends: leave it out")
    try:
        env = function(**arguments) if function else make(env_id, disable_env_checker=True, **arguments)
    except (Exception, SystemExit) as raised:  # an environment may raise anything
        if function is None and (isinstance(raised, error.UnregisteredEnv) or type(raised) is error.Error):
            raise RefusedError("", names=ids) from None  # the id is unknown or malformed
        raise RefusedError(f"it cannot be created: {in_one_line(raised)}") from raised
    if isinstance(env, vector.VectorEnv):
        raise RefusedError(_A_VECTOR)
    if not isinstance(env, Env):
        raise RefusedError(f"it returns a {type(env).__name__}, not a Gymnasium environment")
    return env


def _home(entry_point: object) -> str:
    function = getattr(entry_point, "func", entry_point)  # unwrap a functools.partial
    module = function if isinstance(function, str) else getattr(function, "__module__", "")
    return str(module).partition(":")[0]


def _function(target: str) -> Any:
    """Return the callable ``module:name``. Raises RefusedError, with the module's other ``names`` if it is missing."""
    module, _, name = target.partition(":")
    loaded = _imported(module)
    found = getattr(loaded, name, None)
    if found is None:
        known = [other for other in vars(loaded) if not other.startswith("_")]
        raise RefusedError(f"module {module} has no {name}", wanted=name, names=known)
    if not callable(found):
        raise RefusedError(f"{name} is not a class or function")
    return found


def _check_adapter(target: str, options: list[str]) -> None:
    """Raise RefusedError unless ``module:Class`` is an adapter that can be built with these options."""
    factory = _function(target)
    lacking = [name for name in ("reset", "send", "recv", "close") if not hasattr(factory, name)]
    if lacking and isinstance(factory, type):
        adapter = "write an adapter such as docs/examples/threads.py"
        raise RefusedError(f"{target.partition(':')[2]} has no method {', '.join(lacking)}: {adapter}")
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # a class written in C may have no signature
        return
    parameters = [*signature.parameters.values()][1:]
    known = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    unknown = [] if takes_any else [option for option in options if option not in known]
    if unknown:
        has = f"known: {', '.join(known)}" if known else "it has none"
        raise RefusedError(f"no option {unknown[0]}; {has}", wanted=unknown[0], names=known)
    try:
        signature.bind(None, **dict.fromkeys(options))
    except TypeError as error:
        raise RefusedError(f"it cannot be created: {error}") from error


def in_one_line(error: BaseException) -> str:
    """Return the error's type and text in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].removesuffix(": ")


if __name__ == "__main__":
    # A script's own folder comes first in sys.path. The modules in it must not shadow others.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != here]
    main()
