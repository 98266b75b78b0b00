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
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_SET_BY_VEBENCH = {"id", "disable_env_checker"}  # arguments of gymnasium.make
_METHODS = ("reset", "send", "recv", "close")
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
    reply["adapters"] = [_adapter_facts(*adapter) for adapter in request.get("adapters", ())]
    reply["functions"] = [_function_facts(target)[1] for target in request.get("functions", ())]
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
    """Return the facts of each environment, and all ids that are registered afterwards."""
    try:
        import gymnasium  # noqa: PLC0415 - imported on use
    except ImportError as error:
        return {"envs": [{"error": f"Gymnasium cannot be imported: {_one_line(error)}"} for _ in envs]}
    for plugin in plugins:
        with contextlib.suppress(ImportError):
            gymnasium.register_envs(importlib.import_module(plugin))
    facts = [_env_facts(name, arguments) for name, arguments in envs]
    return {"envs": facts, "registered": sorted(gymnasium.registry)}


class RefusedError(Exception):
    """An environment cannot be stepped. ``facts`` are what is answered."""

    def __init__(self, error: str, **facts: Any) -> None:  # noqa: ANN401 - each fact has its type
        super().__init__(error)
        self.facts = {"error": error, **facts}


def _env_facts(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of one environment.

    The facts are its ``id``, its ``package``, the ``module`` to import first, its ``frame_skip``, whether it is
    ``called``: made by a callable of that module, and not by an id; and the ``problem`` with its spaces, None if there
    is none. ``name`` is what ``gymnasium.make`` takes, or
    ``module:callable``. An environment that cannot be stepped has an ``error`` instead. The error is empty if no
    environment has this name; then ``names`` are the ids that its module registers, if it names a module.
    """
    module, _, local_name = name.rpartition(":")
    try:
        ids = _known_ids(module)
        function = callable_of(module, local_name, ids)
        env = _made_by_id(local_name, arguments, ids) if function is None else _made_by(function, arguments)
    except RefusedError as refused:
        return refused.facts
    try:
        return {
            "id": name if function else env.spec.id if env.spec else local_name,
            "package": module.partition(".")[0] if function else _package_of(env),
            "module": module or None,
            "frame_skip": frame_skip(env.unwrapped),
            "called": function is not None,
            "problem": _spaces_problem(env),
        }
    finally:
        with contextlib.suppress(Exception):
            env.close()


def _known_ids(module: str) -> list[str]:
    """Import ``module`` and return the ids that it registers, none without a name. Raises RefusedError."""
    try:
        return _ids_of(module) if module else []
    except (Exception, SystemExit) as error:  # a module may raise anything; it is the answer
        raise RefusedError(f"module {module} cannot be imported: {_one_line(error)}") from error


def callable_of(module: str, name: str, ids: Iterable[str]) -> Any:  # noqa: ANN401 - any callable
    """Return what makes environments under this name in a module that is imported; None if it means an id.

    An id that the module registers comes first, with its version or without. One that others register does not.
    """
    if not module or any(name in (known, re.sub(r"-v\d+$", "", known)) for known in ids):
        return None
    found = getattr(sys.modules[module], name, None)
    return found if callable(found) else None


def _made_by_id(env_id: str, arguments: dict[str, Any], ids: list[str]) -> Any:  # noqa: ANN401 - Gymnasium is imported on use
    """Return the environment with this id. Raises RefusedError, with the ``ids`` of its module if there is none."""
    from gymnasium import error as errors  # noqa: PLC0415 - imported on use
    from gymnasium.envs.registration import make, parse_env_id  # noqa: PLC0415 - imported on use

    try:
        parse_env_id(env_id)
    except errors.Error:  # not a valid name of an environment
        raise RefusedError("", names=ids) from None
    if taken := sorted(_SET_BY_VEBENCH & arguments.keys()):
        raise RefusedError(f"{taken[0]} is set by vebench, alike for every backend: leave it out")
    try:
        return make(env_id, disable_env_checker=True, **arguments)
    except errors.UnregisteredEnv:
        raise RefusedError("", names=ids) from None
    except (Exception, SystemExit) as error:  # likewise
        raise RefusedError(f"it cannot be made: {_one_line(error)}") from error


def _made_by(function: Any, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - any callable
    """Return the environment that a callable returns. Raises RefusedError."""
    from gymnasium import Env  # noqa: PLC0415 - imported on use

    try:
        env = function(**arguments)
    except (Exception, SystemExit) as error:  # likewise
        raise RefusedError(f"it cannot be made: {_one_line(error)}") from error
    if not isinstance(env, Env):
        raise RefusedError(f"it returns a {type(env).__name__}, not an environment of Gymnasium's")
    return env


def _ids_of(module: str) -> list[str]:
    """Import ``module`` and return the environments that it has registered, now or before."""
    from gymnasium import registry  # noqa: PLC0415 - imported on use

    if module in _ids_by_module:  # a second import registers nothing
        return _ids_by_module[module]
    before = set(registry)
    importlib.import_module(module)
    # A module that was imported before registers nothing now; entry points then show which environments are its own.
    _ids_by_module[module] = sorted(
        name
        for name, spec in registry.items()
        if name not in before or f"{_home(spec.entry_point)}.".startswith(f"{module}.")
    )
    return _ids_by_module[module]


def _spaces_problem(env: Any) -> str | None:  # noqa: ANN401 - Gymnasium is imported on use
    """Return in words what of observations or actions is not made of arrays, None if all is."""
    spaces = (("its observations", env.observation_space), ("its actions", env.action_space))
    return next(filter(None, (_space_problem(*named) for named in spaces)), None)


def _space_problem(name: str, space: Any) -> str | None:  # noqa: ANN401 - likewise
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


def _package_of(env: Any) -> str:  # noqa: ANN401 - Gymnasium is imported on use
    """Return the name of the package that the environment's entry point is in."""
    return _home(env.spec.entry_point if env.spec else None).partition(".")[0]


def _home(entry_point: object) -> str:
    """Return the name of the module that an environment's entry point is in."""
    function = getattr(entry_point, "func", entry_point)  # of a functools.partial
    module = function if isinstance(function, str) else getattr(function, "__module__", "")
    return str(module).partition(":")[0]


def frame_skip(env: Any) -> int:  # noqa: ANN401 - Gymnasium is imported on use
    """Return how many frames or sub-steps one step of the unwrapped environment takes, 1 if it has no fixed number."""
    for name in ("frame_skip", "_frameskip"):
        value = getattr(env, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 1


def _function_facts(target: str) -> tuple[Any, dict[str, Any]]:
    """Return what ``module:name`` is, and an ``error`` if it cannot be imported or called, else an empty dictionary.

    If a name was not found, ``wanted`` is this name, and ``names`` are the existing ones, to suggest another.
    """
    module, _, name = target.partition(":")
    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything; it is the answer
        return None, {"error": f"module {module} cannot be imported: {_one_line(error)}"}
    function = getattr(loaded, name, None)
    if function is None:
        known = [other for other in vars(loaded) if not other.startswith("_")]
        return None, {"error": f"module {module} has no {name}", "wanted": name, "names": known}
    return function, {} if callable(function) else {"error": f"{name} is not a class or function"}


def _adapter_facts(target: str, options: list[str]) -> dict[str, Any]:
    """Return an ``error`` if ``module:Class`` cannot be loaded or is not an adapter, otherwise an empty dictionary.

    If a name was not found, ``wanted`` is this name, and ``names`` are the existing ones, to suggest another.
    """
    factory, facts = _function_facts(target)
    if facts:
        return facts
    lacking = [method for method in _METHODS if isinstance(factory, type) and not hasattr(factory, method)]
    if lacking:
        return {"error": f"{target.partition(':')[2]} has no method {', '.join(lacking)}"}
    return _options_error(factory, options)


def _options_error(factory: Any, options: list[str]) -> dict[str, Any]:  # noqa: ANN401 - any object of a module
    """Return an ``error`` if the adapter's signature shows that it cannot be built with exactly these options."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # written in C, without a signature
        return {}
    parameters = list(signature.parameters.values())
    known = [one.name for one in parameters[1:] if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    for option in options:
        if not takes_any and option not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            return {"error": f"no option {option}; {has}", "wanted": option, "names": known}
    try:
        signature.bind(None, **dict.fromkeys(options))
    except TypeError as error:
        return {"error": f"it cannot be built: {error}"}
    return {}


def _one_line(error: BaseException) -> str:
    """Return the error's type and text in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].removesuffix(": ")


if __name__ == "__main__":
    # A script's own folder comes first in sys.path; the modules in it must not shadow others.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing else here needs pathlib
    sys.path[:] = [folder for folder in sys.path if folder != here]
    main()
