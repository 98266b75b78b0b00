"""Reports facts about the interpreter that runs it. Run as a script: ``python probe.py``.

The request is JSON on standard input, and the answer is JSON on standard output. What libraries print goes to standard
error. It needs Python 3.10, and Gymnasium for ``envs``; an older Python can still report its version. Every key of the
request is optional:

- ``packages`` and ``modules``, lists of names: ``packages`` of the answer has the versions of the installed packages,
  and ``modules`` the modules that can be imported.
- ``adapters``, ``[["module:Class", [option]]]``, ``functions``, ``["module:name"]``, and ``envs``,
  ``[["name", {argument: value}]]``: the answer has the facts of each, with an ``error`` if there is one. ``plugins``
  are modules that register environments; they are imported first if they are installed. ``scratch`` is a folder to work
  in, so that nothing is written into the user's folder. Where anything is named by its module, what is not found
  elsewhere is imported from the folder in which the script was started.

The answer also has the ``version`` of Python and, for ``envs``, all ids that are ``registered`` in the end.
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
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import Any

_SET_BY_VEBENCH = {"id", "disable_env_checker"}  # arguments of gymnasium.make
_METHODS = ("reset", "send", "recv", "close")
_A_VECTOR = "it makes a vector environment: name what makes a single one; vebench verify A B compares the two"
_ids_by_module: dict[str, list[str]] = {}


def main() -> None:
    """Answer the request."""
    # Libraries may print, even from C: their output goes to standard error, and only the answer to standard output.
    answer = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    # Read before the user's folder is on the path: a file there does not count as an installed package.
    reply: dict[str, Any] = {
        "version": sys.version_info[:3],
        "packages": versions(request.get("packages", ())),
        "modules": [name for name in request.get("modules", ()) if find_spec(name) is not None],
    }
    plugins = [name for name in request.get("plugins", ()) if find_spec(name) is not None]
    # Last in the path, because the user's folder must not shadow a library. Nothing may be written into it, either.
    named = [target for target, _ in (*request.get("adapters", ()), *request.get("envs", ()))]
    if any(":" in name for name in (*named, *request.get("functions", ()))):
        sys.path.append(os.getcwd())  # noqa: PTH109 - sys.path holds strings
    sys.dont_write_bytecode = True
    if "scratch" in request:
        os.chdir(request["scratch"])
    reply["adapters"] = [_answered(_check_adapter, *adapter) for adapter in request.get("adapters", ())]
    reply["functions"] = [_answered(_function, target) for target in request.get("functions", ())]
    if request.get("envs"):
        reply.update(_look_up(request["envs"], plugins))
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        json.dump(reply, file)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among ``names``, by name."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version_of(name)
    return found


def _look_up(envs: list[tuple[str, dict[str, Any]]], plugins: Iterable[str] = ()) -> dict[str, Any]:
    try:
        import gymnasium  # noqa: PLC0415 - imported on use
    except ImportError as error:
        return {"envs": [{"error": f"Gymnasium cannot be imported: {in_one_line(error)}"} for _ in envs]}
    for plugin in plugins:
        with contextlib.suppress(ImportError):
            gymnasium.register_envs(importlib.import_module(plugin))
    facts = [_answered(_env_facts, name, arguments) for name, arguments in envs]
    return {"envs": facts, "registered": sorted(gymnasium.registry)}


class RefusedError(Exception):
    """What was asked for cannot be used. ``facts`` are what is answered."""

    def __init__(self, error: str, **facts: Any) -> None:  # noqa: ANN401 - each fact has its type
        super().__init__(error)
        self.facts = {"error": error, **facts}


def _answered(look_up: Callable[..., Any], *asked: Any) -> dict[str, Any]:  # noqa: ANN401 - same reason
    try:
        facts = look_up(*asked)
    except RefusedError as refused:
        return refused.facts
    return facts if isinstance(facts, dict) else {}


def _imported(module: str) -> Any:  # noqa: ANN401 - a module has any names
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a module may raise anything; it is the answer
        raise RefusedError(f"module {module} cannot be imported: {in_one_line(error)}") from error


def _env_facts(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of one environment. Raises RefusedError if it cannot be stepped.

    The facts are its ``id``, its ``package``, the ``module`` to import first, its ``frame_skip``, whether it is
    ``called``: made by a callable of that module, and not by an id; and the ``problem`` with its spaces, None if there
    is none. ``name`` is what ``gymnasium.make`` takes, or ``module:callable``. The error is empty if no environment has
    this name; then ``names`` are the ids that its module registers, if it names a module.
    """
    module, _, local_name = name.rpartition(":")
    ids = ids_of(module) if module else []
    function = callable_of(module, local_name, ids)
    env = _made(local_name, function, arguments, ids)
    try:
        home = _home(env.spec.entry_point if env.spec else None)
        # Frames or sub-steps of one step; an environment may have no fixed number.
        frames = [getattr(env.unwrapped, name, None) for name in ("frame_skip", "_frameskip")]
        return {
            "id": name if function else env.spec.id if env.spec else local_name,
            "package": (module if function else home).partition(".")[0],
            "module": module or None,
            "frame_skip": next((count for count in frames if type(count) is int and count > 0), 1),
            "called": function is not None,
            "problem": _space_problem("its observations", env.observation_space)
            or _space_problem("its actions", env.action_space),
        }
    finally:
        with contextlib.suppress(Exception):
            env.close()


def callable_of(module: str, name: str, ids: Iterable[str]) -> Any:  # noqa: ANN401 - any callable
    """Return what makes environments under this name in a module that is imported; None if it means an id.

    An id that the module registers comes first, with its version or without. One that others register does not.
    """
    if not module or any(name in (known, re.sub(r"-v\d+$", "", known)) for known in ids):
        return None
    found = getattr(sys.modules[module], name, None)
    return found if callable(found) else None


def _made(env_id: str, function: Any, arguments: dict[str, Any], ids: list[str]) -> Any:  # noqa: ANN401 - Gymnasium is imported on use
    """Return what a callable makes, or Gymnasium by an id. Raises RefusedError, with ``ids`` if there is no such."""
    from gymnasium import Env, vector  # noqa: PLC0415 - imported on use
    from gymnasium import error as errors  # noqa: PLC0415 - imported on use
    from gymnasium.envs.registration import make, parse_env_id  # noqa: PLC0415 - imported on use

    if function is None:
        try:
            parse_env_id(env_id)
        except errors.Error:  # not a valid name of an environment
            raise RefusedError("", names=ids) from None
        if taken := sorted(_SET_BY_VEBENCH & arguments.keys()):
            raise RefusedError(f"vebench sets {taken[0]} itself, alike for all backends: leave it out")
    try:
        env = function(**arguments) if function else make(env_id, disable_env_checker=True, **arguments)
    except (Exception, SystemExit) as error:  # it may raise anything
        if isinstance(error, TypeError) and "'num_envs'" in str(error):
            raise RefusedError(_A_VECTOR) from None
        if function is None and isinstance(error, errors.UnregisteredEnv):
            raise RefusedError("", names=ids) from None
        raise RefusedError(f"it cannot be created: {in_one_line(error)}") from error
    if isinstance(env, vector.VectorEnv):
        raise RefusedError(_A_VECTOR)
    if not isinstance(env, Env):
        raise RefusedError(f"it returns a {type(env).__name__}, not a Gymnasium environment")
    return env


def ids_of(module: str) -> list[str]:
    """Import ``module`` and return the environments that it has registered, now or before."""
    from gymnasium import registry  # noqa: PLC0415 - imported on use

    if module in _ids_by_module:  # a second import registers nothing
        return _ids_by_module[module]
    before = set(registry)
    _imported(module)
    # A module that was imported before registers nothing now; entry points then show which environments are its own.
    _ids_by_module[module] = sorted(
        name
        for name, spec in registry.items()
        if name not in before or f"{_home(spec.entry_point)}.".startswith(f"{module}.")
    )
    return _ids_by_module[module]


def _space_problem(name: str, space: Any) -> str | None:  # noqa: ANN401 - Gymnasium is imported on use
    """Return in words what of a space is no array, and no dict or tuple of arrays; None if all is."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    arrays = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if isinstance(space, arrays):
        return None
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        names = ", ".join(kind.__name__ for kind in arrays)
        return f"{name} are {type(space).__name__}; they must be arrays ({names}), or Dict or Tuple of arrays"
    parts = dict(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))
    if isinstance(space, spaces.Dict) and (odd := [key for key in parts if not isinstance(key, str)]):
        return f"{name} have the key {odd[0]!r}; keys must be text"
    if not parts:
        return f"{name} are an empty {type(space).__name__}"
    return next(filter(None, (_space_problem(f"{name}/{key}", part) for key, part in parts.items())), None)


def _home(entry_point: object) -> str:
    function = getattr(entry_point, "func", entry_point)  # of a functools.partial
    module = function if isinstance(function, str) else getattr(function, "__module__", "")
    return str(module).partition(":")[0]


def _function(target: str) -> Any:  # noqa: ANN401 - any object of a module
    """Return what ``module:name`` is. Raises RefusedError, with the ``wanted`` name and others if it is not found."""
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
    """Raise RefusedError if ``module:Class`` is no adapter that can be built with these options."""
    factory = _function(target)
    lacking = [method for method in _METHODS if isinstance(factory, type) and not hasattr(factory, method)]
    if lacking:
        raise RefusedError(f"{target.partition(':')[2]} has no method {', '.join(lacking)}")
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C, without a signature
        return
    parameters = list(signature.parameters.values())
    known = [one.name for one in parameters[1:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    for option in options:
        if not takes_any and option not in known:
            has = f"known: {', '.join(known)}" if known else "it has none"
            raise RefusedError(f"no option {option}; {has}", wanted=option, names=known)
    try:
        signature.bind(None, **dict.fromkeys(options))
    except TypeError as error:
        raise RefusedError(f"it cannot be created: {error}") from error


def in_one_line(error: BaseException) -> str:
    """Return the error's type and text in one line of at most 300 characters."""
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001 - the same as ``vebench.errors.message_of``, which a script cannot import
        text = f"(its text cannot be read: {type(other).__name__})"
    return f"{type(error).__name__}: {' '.join(text.split())}"[:300].removesuffix(": ")


if __name__ == "__main__":
    # A script's own folder comes first in sys.path; the modules in it must not shadow others.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing else here needs pathlib
    sys.path[:] = [folder for folder in sys.path if folder != here]
    main()
