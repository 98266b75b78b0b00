"""Steps one side of ``vebench verify A B`` for its parent: an environment, or a vector environment, by its name.

Run as a script, in the Python of that side. Requests come on standard input and answers go to standard output, each
as eight bytes of length and ``marshal``, whose values are plain objects and never code. What libraries print goes to
standard error. The first request names the subject, and its answer describes it; each other is a case, and its answer
has the rows of each environment:

    subject  {"name": "CartPole-v1", "values": {}, "plugins": ["ale_py"], "scratch": "/tmp/..."}
    case     {"full": bool, "policy": "module:function", "segments": [[seed, [[action, ...] of each environment]], ...]}
    rows     [segment, kind, observation, reward, terminated, truncated, infos, call] of each environment
    infos    [[name, type, shape, bytes, sure], ...], None if they are not given

Every case has a new environment. A segment begins with a reset, and has an action for each step of an episode: the
calls that only reset an environment take none, whatever the autoreset mode, so that rows are the same in all. The last
action is followed by no reset. With a ``policy``, which may be empty, its actions replace those of the segments, and
are in the answer as ``taken``. ``kind`` is 1 for a step, 0 for a reset. An array is ``[type, shape, bytes]``, with the
digest of long bytes if not ``full``; infos that are neither numbers nor text have no type. An info is ``sure`` if the
side says which environments have it. ``call`` is the place of the call that returned the row in the ``calls`` of the
answer. What the subject has ``raised`` ends a case, and is in the answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import marshal
import math
import os
import re
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import keep_opencv_to_one_thread, read_spaces
from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Task
from vebench.child.actions import make_policy
from vebench.child.policy import parse_policy
from vebench.child.probe import RefusedError, callable_of, ids_of, in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

RESET, STEP = 0, 1
NEXT_STEP, SAME_STEP, DISABLED = "next_step", "same_step", "disabled"
_LENGTH = 8  # bytes of a message's length
_SHORT, _SHORT_INFO = 64, 4096  # bytes: of an array that is sent as it is
_FINAL = ("final_obs", "final_observation")  # names of a terminal observation; the second of Gymnasium before 1.1
_OF_ENDS = "final_info/", "episode/"  # of a step that has also reset; wrappers put the second next to the first
_TASK = Task("", OTHER.name, 1)

Row = tuple[Any, ...]


def main() -> None:
    """Answer until there are no more requests."""
    asked, answered = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path.append(os.getcwd())  # noqa: PTH109 - sys.path holds strings
    sys.dont_write_bytecode = True
    subject: Subject | None = None
    while (request := read(asked)) is not None:
        try:
            if subject is None:
                os.chdir(request["scratch"])
                subject = Subject(request)
                answer = subject.about()
            else:
                answer = subject.rows(request["segments"], request["policy"], full=request["full"])
        except RefusedError as error:
            answer = {"error": str(error)}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything: that is what is found
            answer = {"error": in_one_line(error)}
        write(answered, answer)


def read(file: Any) -> Any:  # noqa: ANN401 - a file of bytes; plain objects
    """Return the next message, None if there are no more."""
    length = file.read(_LENGTH)
    return marshal.loads(file.read(int.from_bytes(length, "big"))) if len(length) == _LENGTH else None  # noqa: S302 - of our own


def write(file: Any, message: Any) -> None:  # noqa: ANN401 - same reason
    """Write a message."""
    data = marshal.dumps(message, 4)
    file.write(len(data).to_bytes(_LENGTH, "big") + data)
    file.flush()


class Subject:
    """What is stepped: ``make`` builds it anew, for a number of environments and a seed."""

    def __init__(self, request: dict[str, Any]) -> None:
        import gymnasium  # noqa: PLC0415 - imported on use

        for plugin in request["plugins"]:
            if find_spec(plugin) is not None:
                with contextlib.suppress(ImportError):
                    gymnasium.register_envs(importlib.import_module(plugin))
        name, self.values = request["name"], request["values"]
        module, _, attribute = name.rpartition(":")
        ids = ids_of(module) if module else []
        found = callable_of(module, attribute, ids)
        self.by_id = found is None
        if self.by_id and module and not ids and attribute not in gymnasium.registry:
            raise RefusedError(f"{module} has neither a callable {attribute} nor an environment of this id")
        self.function: Callable[..., Any] = gymnasium.make if found is None else found
        if self.by_id:
            self.values = {"id": name, **({} if module else {"disable_env_checker": True}), **self.values}
        self.takes = set() if self.by_id else _parameters(self.function) & {"num_envs", "seed"}

    def make(self, num_envs: int, seed: int) -> Any:  # noqa: ANN401 - anything that steps
        """Return an environment of its own, or a vector environment of ``num_envs``. Raises RefusedError."""
        given = {name: value for name, value in (("num_envs", num_envs), ("seed", seed)) if name in self.takes}
        env = self.function(**{**self.values, **given})
        keep_opencv_to_one_thread()
        if _is_vector(env) and "num_envs" in self.takes and env.num_envs != num_envs:
            raise RefusedError(f"it makes {env.num_envs} environments instead of {num_envs}")
        lacking = [name for name in ("reset", "step", "action_space", "observation_space") if not hasattr(env, name)]
        if lacking:
            raise RefusedError(f"it returns a {type(env).__name__}, which has no {lacking[0]}")
        return env

    def about(self) -> dict[str, Any]:
        """Return what the subject is: whether a vector, of how many environments, its mode, and its spaces."""
        env = self.make(2, 0)
        try:
            vector = _is_vector(env)
            observations = env.single_observation_space if vector else env.observation_space
            actions = env.single_action_space if vector else env.action_space
            try:
                spaces = read_spaces(_TASK, observations, actions)
            except ValueError as error:
                raise RefusedError(str(error)) from None
            self.actions = spaces.actions
            return {
                "vector": vector,
                "num_envs": None if not vector or "num_envs" in self.takes else int(env.num_envs),
                "mode": _mode_of(env) if vector else "",
                "observations": [
                    (name, space.dtype.str, space.shape) for name, space in trees.named_leaves(spaces.observations)
                ],
                "actions": [
                    (name, _plain(space.low), _plain(space.high)) for name, space in trees.named_leaves(spaces.actions)
                ],
                "action_form": trees.form(spaces.actions),
                "called": "" if self.by_id else f"{self.function.__module__}:{self.function.__qualname__}",
                "takes": sorted(self.takes),
                "values": self.values,
                "spec": _spec_of(env),
            }
        finally:
            with contextlib.suppress(Exception):
                env.close()

    def rows(self, segments: Sequence[tuple[int, Any]], policy: str, *, full: bool) -> dict[str, Any]:
        """Return the rows of each environment, the calls that were made, and the actions that were taken."""
        count = len(segments[0][1])
        found: list[list[Row]] = [[] for _ in range(count)]
        calls: list[Any] = []
        raised, environments, tapes = "", list[Any](), list[_Tape]()
        try:
            environments.append(self.make(count, segments[0][0]))
            vector = _is_vector(environments[0])
            environments += [] if vector else (self.make(1, segments[0][0]) for _ in range(count - 1))
            stepped = _of_vector if vector else _of_each
            for number, (seed, lanes) in enumerate(segments):
                tapes.append(tape := _Tape(lanes, partial(_chosen, policy, self.actions) if policy else None))
                for index, (kind, seen, *flags, infos, call) in stepped(environments, seed, tape, calls):
                    observation = None if seen is None else _encoded(seen, full=full)
                    given = None if infos is None else [_encoded_info(*each) for each in infos]
                    found[index].append((number, kind, observation, *flags, given, call))
        except RefusedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may raise anything: that is what is found
            raised = in_one_line(error)
        finally:
            for env in environments:
                with contextlib.suppress(Exception):
                    env.close()
        return {"rows": found, "calls": calls, "raised": raised, "taken": [tape.taken() for tape in tapes]}


class _Tape:
    """The actions of each environment, which are given, or chosen by a ``policy`` when what it sees is known."""

    def __init__(self, lanes: Sequence[Sequence[Any]], policy: Callable[[Any], Any] | None) -> None:
        self.length = len(lanes[0])
        self._policy = policy
        self.lanes = lanes if policy is None else [[] for _ in lanes]

    def batch(self, at: Sequence[int], observations: Callable[[], Any]) -> list[Any]:
        """Return the action of each environment after so many, or its last: a call may only reset it."""
        if self._policy is not None:
            chosen = self._policy(observations())
            for index, (lane, place) in enumerate(zip(self.lanes, at)):  # noqa: B905 - for each step
                if place < self.length:
                    action = trees.mapped(lambda leaf: list(_plain(leaf)), trees.part(chosen, index))
                    lane[place:] = [action]  # type: ignore[index] # a list, if there is a policy
        return [lane[min(place, self.length - 1)] for lane, place in zip(self.lanes, at)]  # noqa: B905 - same reason

    def taken(self) -> list[list[Any]]:
        """Return the actions, as many for each environment: what has raised had not taken all."""
        if self._policy is None:
            return []
        most = max(map(len, self.lanes))
        return [[*lane, *[*lane[-1:]] * (most - len(lane))] for lane in self.lanes]


def _chosen(policy: str, actions: Any, observations: Any) -> Any:  # noqa: ANN401 - trees
    """Return the actions of a user's function, checked. Raises RefusedError."""
    try:
        return make_policy(parse_policy(policy), actions, observations, 0, ()).infer(observations)
    except (Exception, SystemExit) as error:
        raise RefusedError(f"policy {policy}: {in_one_line(error)}") from error


def _parameters(function: Callable[..., Any]) -> set[str]:
    """Return the names of parameters, and ``**`` if it takes any others by name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return set()
    return {"**" if one.kind is one.VAR_KEYWORD else one.name for one in parameters}


def _is_vector(env: Any) -> bool:  # noqa: ANN401 - anything that steps
    """Return whether this steps several environments in one call."""
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def _spec_of(env: Any) -> dict[str, Any]:  # noqa: ANN401 - anything that steps
    """Return what ``env.spec`` declares, and the least limit of steps of all wrappers, as far as they are known."""
    layer, found, limits = next(iter(getattr(env, "envs", ())), env), dict[str, Any](), list[Any]()
    with contextlib.suppress(Exception):  # a user's property may raise anything
        limits.append(layer.spec.max_episode_steps)
        found["kwargs"] = re.sub(" at 0x[0-9a-f]+", "", str(sorted(layer.spec.kwargs.items())))
        found["additional_wrappers"] = ", ".join(each.name for each in layer.spec.additional_wrappers)
        found["reward_threshold"] = str(layer.spec.reward_threshold)
    while layer is not None:
        limits.append(getattr(layer, "_max_episode_steps", None))
        layer = getattr(layer, "__dict__", {}).get("env")
    known = [limit for limit in limits if isinstance(limit, int)]
    return {**found, **({"max_episode_steps": min(known)} if known else {})}


def _mode_of(env: Any) -> str:  # noqa: ANN401 - anything that steps
    """Return the autoreset mode that a vector environment declares; without one, the next step."""
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode", NEXT_STEP)
    words = str(getattr(mode, "value", mode)).lower()
    return next((name for name in (SAME_STEP, DISABLED) if name.replace("_", "") in words.replace("_", "")), NEXT_STEP)


def _reset(env: Any, seed: int | None, **more: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - anything that steps
    """Reset with a seed where that can be asked for. Some get theirs when they are made."""
    takes = _parameters(env.reset)
    seeded = {"seed": seed} if seed is not None and takes & {"seed", "**"} else {}
    observation, infos = env.reset(**seeded, **more)
    return observation, infos


def _of_each(environments: Sequence[Any], seed: int, tape: _Tape, calls: list[Any]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of single environments, in turn. One that has ended is reset, and its rows go on."""
    seen = list[Any]()
    for index, env in enumerate(environments):
        calls.append((index, "reset", seed + index))
        observation, infos = _reset(env, seed + index)
        seen.append(observation)
        yield index, (RESET, observation, 0.0, False, False, _infos(infos), len(calls) - 1)
    for step in range(tape.length):
        batch = tape.batch([step] * len(seen), lambda: _stacked(seen))
        for index, env in enumerate(environments):
            calls.append((index, "step", batch[index]))
            seen[index], reward, terminated, truncated, infos = env.step(_decoded(batch[index]))
            row = STEP, seen[index], float(reward), bool(terminated), bool(truncated)
            yield index, (*row, _infos(infos), len(calls) - 1)
            if (terminated or truncated) and step + 1 < tape.length:
                calls.append((index, "reset", None))
                seen[index], infos = _reset(env, None)
                yield index, (RESET, seen[index], 0.0, False, False, _infos(infos), len(calls) - 1)


def _of_vector(environments: Sequence[Any], seed: int, tape: _Tape, calls: list[Any]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a vector environment. What a call does to an environment depends on the autoreset mode."""
    env = environments[0]
    mode, count, length = _mode_of(env), len(tape.lanes), tape.length
    calls.append((None, "reset", seed))
    observations, infos = _reset(env, seed)
    yield from _after_reset(observations, infos, range(count), calls)
    taken, ended = [0] * count, [False] * count
    while min(taken) < length:
        batch = tape.batch(taken, lambda: observations)  # noqa: B023 - called at once
        calls.append((None, "step", batch))
        observations, rewards, terminated, truncated, infos = env.step(_stacked(list(map(_decoded, batch))))
        call, mask = len(calls) - 1, np.zeros(count, np.bool_)
        for index in range(count):
            end, cut = bool(terminated[index]), bool(truncated[index])
            row = (
                trees.part(observations, index),
                float(rewards[index]),
                end,
                cut,
                _infos(infos, index, sure=False),
                call,
            )
            if ended[index]:  # this call has only reset it
                ended[index] = False
                if taken[index] < length:
                    yield index, (RESET, *row)
                continue
            taken[index] += 1
            final = mode == SAME_STEP and (end or cut)
            if taken[index] <= length:
                if final:
                    seen = next((infos[name][index] for name in _FINAL if name in infos), None)
                    of_end = [
                        (name.removeprefix(_OF_ENDS[0]), *of) for name, *of in row[4] if name.startswith(_OF_ENDS)
                    ]
                    yield index, (STEP, seen, *row[1:4], of_end if "final_info" in infos else None, call)
                else:
                    yield index, (STEP, *row)
            if final and taken[index] < length:
                of_reset = [each for each in row[4] if not each[0].startswith(_OF_ENDS)]
                yield index, (RESET, row[0], 0.0, False, False, of_reset, call)
            ended[index] = mode == NEXT_STEP and (end or cut)
            mask[index] = mode == DISABLED and (end or cut)
        if mask.any():
            calls.append((None, "mask", mask.tolist()))
            observations, infos = env.reset(options={"reset_mask": mask})
            yield from _after_reset(observations, infos, np.flatnonzero(mask & (np.array(taken) < length)), calls)


def _after_reset(
    observations: Any,  # noqa: ANN401 - any tree
    infos: dict[str, Any],
    indices: Iterable[int],
    calls: Sequence[Any],
) -> Iterator[tuple[int, Row]]:
    for index in map(int, indices):
        row = trees.part(observations, index), 0.0, False, False, _infos(infos, index, sure=False), len(calls) - 1
        yield index, (RESET, *row)


def _infos(infos: dict[Any, Any], index: int | None = None, name: str = "", sure: bool = True) -> list[Any]:
    """Return name and value of what infos hold, with an ``index`` of one environment of a vector environment.

    It is ``sure`` that the environment has it if a mask says so. Without one, the value may be there for others.
    """
    found: list[Any] = []
    for key, value in infos.items():
        mask, inner, within = None if index is None else infos.get(f"_{key}"), value, index
        is_mask = index is not None and str(key).startswith("_") and str(key)[1:] in infos
        if key in _FINAL or is_mask or (mask is not None and not mask[index]):
            continue
        if index is not None and not isinstance(value, (dict, str, bytes)):
            with contextlib.suppress(IndexError, TypeError):  # one value for all
                inner, within = value[index], None
        place, known = f"{name}{key}", sure or mask is not None
        found += _infos(inner, within, f"{place}/", known) if isinstance(inner, dict) else [(place, inner, known)]
    return found


def _plain(array: Any) -> tuple[str, tuple[int, ...], bytes]:  # noqa: ANN401 - an array or its like
    array = np.asarray(array)
    if array.dtype == object:
        data = repr(array.tolist()).encode()
        return "object", (), data
    return array.dtype.str, array.shape, array.tobytes()


def _encoded(tree: Any, *, full: bool) -> Any:  # noqa: ANN401 - any tree
    """Return the leaves of a tree of arrays with their names."""
    return [(name, *_short(*_plain(leaf), math.inf if full else _SHORT)) for name, leaf in trees.named_leaves(tree)]


def _encoded_info(name: str, value: Any, sure: bool) -> tuple[Any, ...]:  # noqa: ANN401 - anything
    with contextlib.suppress(Exception):  # lists of several lengths, and objects that may raise anything
        array = np.asarray(value)
        if value is None or array.dtype.kind in "US":
            return name, *_plain(np.asarray(array, object)), sure
        if array.dtype.kind in "biuf":
            return name, *_short(*_plain(array), _SHORT_INFO), sure
    return name, "", (), b"", sure


def _short(kind: str, shape: tuple[int, ...], data: bytes, most: float) -> tuple[Any, ...]:
    return kind, shape, data if len(data) <= most else hashlib.blake2b(data, digest_size=16).digest()


def array_of(leaf: Sequence[Any]) -> NDArray[Any]:
    """Return an array that was sent as ``[type, shape, bytes]``; it cannot be written to."""
    kind, shape, data = leaf
    array: NDArray[Any] = np.frombuffer(data, kind).reshape(shape)
    return array


def _decoded(action: Any) -> Any:  # noqa: ANN401 - any tree
    """Return an action that was sent: a tree whose leaves are lists."""
    return trees.mapped(lambda leaf: array_of(leaf).copy()[()], action)


def _stacked(batch: Sequence[Any]) -> Any:  # noqa: ANN401 - any tree
    first, *others = batch
    return trees.mapped(lambda *leaves: np.stack(leaves), first, *others)


if __name__ == "__main__":
    # A script's own folder comes first in sys.path; the modules in it must not shadow others.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing else here needs pathlib
    sys.path[:] = [folder for folder in sys.path if folder != here]
    main()
