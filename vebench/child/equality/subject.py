"""One side of a comparison, as a script in its own Python: an environment, a vector environment or an adapter.

Requests come on standard input. Answers go to standard output. Each is a line of JSON. Output of libraries goes to
standard error. The first request names the subject, and the answer describes it. Each later request is a case, and the
answer has the rows of each environment:

    subject  {"name": "CartPole-v1", "values": {}, "plugins": ["ale_py"], "scratch": "/tmp/..."}
    adapter  {"adapter": "module:Class", "values": {}, "task": {...}, "scratch": "/tmp/..."}
    case     {"policy": "module:function", "segments": [[seed, [[action, ...] of each environment]], ...]}
    action   [[type, shape, data] of each leaf, ...]
    rows     [segment, kind, observation, reward, terminated, truncated, infos, call] of each environment
    infos    [[name, type, shape, data, sure], ...], null if there are none to compare

Every case has new environments. A segment begins with a reset, and has an action for each step of each environment.
A call that only resets an environment uses up no action in any autoreset mode, so that rows are the same in all modes.
No reset follows the last action. A ``policy``, which may be empty, replaces the actions of the segments. The answer has
the policy's actions as ``taken``.

``kind`` is 1 for a step and 0 for a reset. An info that is neither a number nor text has no type. An info is ``sure``
if the side says which environments have it. ``call`` is the index in ``calls`` of the call that returned the row. An
exception of the subject ends the case, and the answer has it as ``raised``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import bracketed, trees
from vebench.backends.batched import arrays
from vebench.backends.environments import making
from vebench.backends.environments.suites import OTHER, library_of, load_target
from vebench.backends.interface import ActionSpaceTree, ArrayTree, Setup, Task
from vebench.child.actions import make_policy, parse_policy, uploaded
from vebench.child.equality.recording import on_host
from vebench.child.probe import RefusedError, callable_of, ids_of, in_one_line, register, versions

RESET, STEP = 0, 1
_SHORT = 64  # arrays of more bytes are compressed
_FINAL = ("final_obs", "final_observation")  # names of a terminal observation, the second before Gymnasium 1.1
_OF_ENDS = "final_info/", "episode/"  # infos of the end in a step that has also reset. Wrappers add the second.

_Row = tuple[Any, ...]
_Batch = tuple[Any, ...]  # the fields of ``Batch``, then infos or None


def serve() -> None:
    """Answer requests until standard input ends."""
    answered = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.append(os.getcwd())
    sys.dont_write_bytecode = True
    subject: _Subject | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if subject is None:
                os.chdir(request["scratch"])
                subject = _Adapter(request) if "adapter" in request else _Named(request)
                answer = {**subject.about(), "packages": versions(request.get("packages", ()))}
            else:
                answer = subject.rows(request["segments"], request["policy"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a subject may raise anything, which is reported
            answer = {"error": str(error) if isinstance(error, RefusedError) else in_one_line(error)}
        answered.write(f"{json.dumps(answer)}\n")
        answered.flush()


class _Subject:
    """An environment that is stepped. Subclasses make it anew for each case."""

    actions: ActionSpaceTree  # the space of one action, known after ``about``
    # For a number of environments and a seed, one object that steps all environments, or one for each:
    make: Callable[[int, int], list[Any]]
    about: Callable[[], dict[str, Any]]  # the answer to the first request
    # The rows of one segment, each with the number of its environment:
    stepped: Callable[[list[Any], int, _Lanes, list[Any]], Iterator[tuple[int, _Row]]]

    def rows(self, segments: Sequence[tuple[int, Any]], policy: str) -> dict[str, Any]:
        """Return the rows of each environment, the calls that were made, and the actions that were taken."""
        count = len(segments[0][1])
        found: list[list[_Row]] = [[] for _ in range(count)]
        raised, made, calls, taken = "", list[Any](), list[Any](), list[list[list[Any]]]()
        try:
            made = self.make(count, segments[0][0])
            for number, (seed, actions) in enumerate(segments):
                lanes = _Lanes(actions, self.actions, policy)
                taken.append(lanes.lanes if policy else [])
                for index, (kind, seen, *flags, infos, call) in self.stepped(made, seed, lanes, calls):
                    observation = (
                        None if seen is None else [(name, *plain(leaf)) for name, leaf in trees.named_leaves(seen)]
                    )
                    given = None if infos is None else [_encoded_info(*each) for each in infos]
                    found[index].append((number, kind, observation, *flags, given, call))
        except RefusedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a subject may raise anything, which is reported
            raised = in_one_line(error)
        for each in made:
            with contextlib.suppress(Exception):
                each.close()
        for lanes_taken in taken:  # shorter lanes repeat their last action
            most = max(map(len, lanes_taken), default=0)
            for lane in lanes_taken:
                lane.extend(lane[-1:] * (most - len(lane)))
        return {"rows": found, "calls": calls, "raised": raised, "taken": taken}

    def described(self, observed: trees.Tree, **facts: Any) -> dict[str, Any]:
        """Return the answer of ``about``. ``observed``: the arrays or spaces of one environment's observation."""
        return {
            "adapter": "",
            "observations": [(name, leaf.dtype.str, leaf.shape) for name, leaf in trees.named_leaves(observed)],
            "actions": [(name, plain(box.low), plain(box.high)) for name, box in trees.named_leaves(self.actions)],
            "action_form": trees.form(self.actions),
            "spec": {},
            **facts,
        }


class _Adapter(_Subject):
    """An adapter of a backend on one task, with one worker for each environment."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._target, self._options, self._task = request["adapter"], request["values"], Task(**request["task"])
        self._factory = load_target(self._target)

    def make(self, num_envs: int, seed: int) -> list[Any]:
        return [self._factory(Setup(self._task, num_envs, seed=seed), **self._options)]

    def about(self) -> dict[str, Any]:
        (backend,) = self.make(2, 0)
        try:
            backend.reset(0)
            observed = trees.part(on_host(backend.recv(), backend.info)[0], 0)
            self.actions = backend.info.action_space
            what = {"adapter": self._target, "task": vars(self._task), "options": self._options}
            return self.described(observed, **what, vector=True, num_envs=None, mode=backend.info.autoreset)
        finally:
            backend.close()

    def stepped(self, made: list[Any], seed: int, lanes: _Lanes, calls: list[Any]) -> Iterator[tuple[int, _Row]]:
        (backend,) = made

        def received() -> _Batch:
            return (*on_host(backend.recv(), backend.info), None)

        def step(actions: ArrayTree) -> _Batch:
            backend.send(*uploaded([actions], backend))
            return received()

        calls.append((None, "reset", seed))
        backend.reset(seed)
        return _of_batches(backend.info.autoreset, received(), step, lanes, calls)


class _Named(_Subject):
    """An environment or a vector environment, named by Gymnasium's id or as ``module:callable``."""

    def __init__(self, request: dict[str, Any]) -> None:
        import gymnasium

        register(request["plugins"])
        name, self.values = request["name"], request["values"]
        module, _, attribute = name.rpartition(":")
        found: Any = making.make_of_library
        if library_of(name) is not None:
            self.values = {"name": bracketed.written(name, self.values)}
        else:
            ids = ids_of(module) if module else []
            found = callable_of(module, attribute, ids)
        self.called, self.takes, self.function = "", set[str](), found or gymnasium.make
        if found is not None:
            self.called = f"{found.__module__}:{found.__qualname__}"
            self.takes = making.parameters_of(found) & {"num_envs", "seed"}
            return
        if module and not ids and attribute not in gymnasium.registry:
            raise RefusedError(f"{module} has neither a callable {attribute} nor an environment of this id")
        self.values = {"id": name, **({} if module else {"disable_env_checker": True}), **self.values}

    def make(self, num_envs: int, seed: int) -> list[Any]:
        first = self._made(num_envs, seed)
        return [first] if _is_vector(first) else [first, *(self._made(1, seed) for _ in range(num_envs - 1))]

    def _made(self, num_envs: int, seed: int) -> Any:
        given = {name: value for name, value in (("num_envs", num_envs), ("seed", seed)) if name in self.takes}
        env: Any = self.function(**{**self.values, **given})
        making.keep_opencv_to_one_thread()
        if _is_vector(env) and "num_envs" in self.takes and getattr(env, "num_envs", num_envs) != num_envs:
            raise RefusedError(f"it makes {env.num_envs} environments instead of {num_envs}")
        single = "single_" if _is_vector(env) else ""
        names = "reset", "step", f"{single}action_space", f"{single}observation_space"
        lacking = [name for name in names if not hasattr(env, name)]
        if lacking:
            raise RefusedError(f"it returns a {type(env).__name__}, which has no {lacking[0]}")
        return env

    def about(self) -> dict[str, Any]:
        env = self._made(2, 0)
        vector = _is_vector(env)
        single = "single_" if vector else ""
        try:
            observed, taken = (getattr(env, f"{single}{kind}_space") for kind in ("observation", "action"))
            spaces = making.read_spaces(Task("", OTHER.name, 1), observed, taken)
            self.actions = spaces.actions
            count = None if not vector or "num_envs" in self.takes else int(env.num_envs)
            how = {"called": self.called, "takes": sorted(self.takes), "values": self.values, "spec": _spec_of(env)}
            mode = making.mode_of(env) if vector else ""
            return self.described(spaces.observations, vector=vector, num_envs=count, mode=mode, **how)
        except ValueError as error:  # vebench does not support the spaces
            raise RefusedError(str(error)) from None
        finally:
            with contextlib.suppress(Exception):
                env.close()

    def stepped(self, made: list[Any], seed: int, lanes: _Lanes, calls: list[Any]) -> Iterator[tuple[int, _Row]]:
        env = made[0]
        if not _is_vector(env):
            return _of_each(made, seed, lanes, calls)
        env_ids = np.arange(len(lanes.lanes))
        example: Any = None  # observations, which show the library and device of its arrays

        def reset(ends: NDArray[np.bool_] | None = None) -> _Batch:
            nonlocal example
            example, infos = _reset(env, seed) if ends is None else env.reset(options={"reset_mask": ends})
            none = np.zeros(len(env_ids), np.bool_)
            return arrays.to_host(example), np.zeros(len(env_ids)), none, none, env_ids, infos

        def step(actions: ArrayTree) -> _Batch:
            *row, infos = env.step(arrays.to_device(actions, example))
            return (*arrays.to_host(tuple(row)), env_ids, infos)

        calls.append((None, "reset", seed))
        return _of_batches(making.mode_of(env), reset(), step, lanes, calls, reset)


class _Lanes:
    """The actions of each environment, given by the case or chosen by a user's function ``policy``."""

    def __init__(self, lanes: Sequence[Sequence[Any]], space: ActionSpaceTree, policy: str = "") -> None:
        self.length = len(lanes[0])
        self.lanes: list[list[Any]] = [[] if policy else list(lane) for lane in lanes]
        self._space, self._form, self._policy = space, trees.form(space), policy

    def batch(self, at: Sequence[int], observations: Callable[[], ArrayTree]) -> list[Any]:
        """Return the next action of each environment, or its last action if no more are left.

        ``at``: the number of actions that each environment has taken.
        """
        if self._policy:
            seen = observations()
            try:
                chosen = make_policy(parse_policy(self._policy), self._space, seen, 0, ()).infer(seen)
            except (Exception, SystemExit) as error:
                raise RefusedError(f"policy {self._policy}: {in_one_line(error)}") from error
            for index, place in enumerate(at):
                if place < self.length:
                    self.lanes[index][place:] = [[plain(leaf) for leaf in trees.leaves(trees.part(chosen, index))]]
        return [lane[min(place, self.length - 1)] for lane, place in zip(self.lanes, at)]  # noqa: B905 - for each step

    def decoded(self, action: Sequence[Any]) -> Any:
        """Return an action in the form for ``step`` of one environment."""
        return trees.filled(self._form, [array_of(leaf).copy()[()] for leaf in action])

    def stacked(self, batch: Sequence[Any]) -> Any:
        """Return actions in the form for ``step`` of a vector environment."""
        return trees.filled(self._form, [np.stack(leaf) for leaf in leaves_of_all(batch)])


def _is_vector(env: Any) -> bool:
    """Return whether ``env`` is a vector environment."""
    return hasattr(env, "single_action_space")


def _spec_of(env: Any) -> dict[str, Any]:
    """Return the known fields of ``env.spec``, with the least limit of steps of all wrappers."""
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


def _reset(env: Any, seed: int | None) -> tuple[Any, dict[str, Any]]:
    """Reset, with the seed if ``reset`` takes one. Some environments take their seed in the constructor."""
    takes = making.parameters_of(env.reset)
    observation, infos = env.reset(**({"seed": seed} if seed is not None and takes & {"seed", "**"} else {}))
    return observation, infos


def _of_each(environments: Sequence[Any], seed: int, lanes: _Lanes, calls: list[Any]) -> Iterator[tuple[int, _Row]]:
    """Yield the rows of single environments, interleaved. An environment is reset after an end."""
    seen = list[Any]()
    for index, env in enumerate(environments):
        calls.append((index, "reset", seed + index))
        observation, infos = _reset(env, seed + index)
        seen.append(observation)
        yield index, (RESET, observation, 0.0, False, False, _infos(infos), len(calls) - 1)
    for step in range(lanes.length):
        batch = lanes.batch([step] * len(seen), lambda: trees.mapped(lambda *leaves: np.stack(leaves), *seen))
        for index, env in enumerate(environments):
            calls.append((index, "step", batch[index]))
            seen[index], reward, terminated, truncated, infos = env.step(lanes.decoded(batch[index]))
            row = STEP, seen[index], float(reward), bool(terminated), bool(truncated)
            yield index, (*row, _infos(infos), len(calls) - 1)
            if (terminated or truncated) and step + 1 < lanes.length:
                calls.append((index, "reset", None))
                seen[index], infos = _reset(env, None)
                yield index, (RESET, seen[index], 0.0, False, False, _infos(infos), len(calls) - 1)


def _of_batches(
    mode: str,
    batch: _Batch,
    step: Callable[[ArrayTree], _Batch],
    lanes: _Lanes,
    calls: list[Any],
    reset: Callable[[NDArray[np.bool_]], _Batch] | None = None,
) -> Iterator[tuple[int, _Row]]:
    """Yield the rows of a vector environment or adapter in any autoreset mode, from the ``batch`` of a reset on.

    In mode ``disabled``, ``reset`` resets the environments of a mask. An adapter's batches may have some environments.
    """
    count, length = len(lanes.lanes), lanes.length
    taken, resets = [0] * count, [True] * count  # each one's number of actions, and whether its next row is a reset's
    while True:
        observations, rewards, terminated, truncated, env_ids, infos = batch
        ends = terminated | truncated
        for place, index in enumerate(env_ids.tolist()):
            given = None if infos is None else _infos(infos, index, sure=False)
            seen = trees.part(observations, place)
            row = seen, float(rewards[place]), bool(terminated[place]), bool(truncated[place]), given, len(calls) - 1
            if resets[index]:
                resets[index] = False
                if not taken[index] or taken[index] < length:
                    yield index, (RESET, *row)
                continue
            taken[index] += 1
            resets[index] = mode == making.NEXT_STEP and bool(ends[place])
            found = _of_end(row, infos, index) if mode == making.SAME_STEP and ends[place] else [(STEP, *row)]
            # No reset follows the last action.
            yield from ((index, each) for each in found[: max(0, length + 1 - taken[index])])
        if min(taken) >= length:
            return
        if reset is not None and mode == making.DISABLED and ends.any():
            calls.append((None, "mask", ends.tolist()))
            observations, *_, infos = reset(ends)
            for index in np.flatnonzero(ends & (np.array(taken) < length)).tolist():
                given, call = _infos(infos, index, sure=False), len(calls) - 1
                yield index, (RESET, trees.part(observations, index), 0.0, False, False, given, call)
        actions = lanes.batch(taken, lambda: observations)  # noqa: B023 - called at once
        chosen = [actions[index] for index in env_ids.tolist()]
        calls.append((None, "step", chosen))
        batch = step(lanes.stacked(chosen))


def _of_end(row: _Row, infos: dict[str, Any] | None, index: int) -> list[_Row]:
    """Return the two rows of a step that has also reset: the end, then the reset. Adapters give no infos."""
    seen, *flags, given, call = row
    final, of_end = None, None
    if infos is not None:
        final = next((infos[name][index] for name in _FINAL if name in infos), None)
        if "final_info" in infos:
            ours = [each for each in given if each[0].startswith(_OF_ENDS)]
            of_end = [(name.removeprefix(_OF_ENDS[0]), *more) for name, *more in ours]
        given = [each for each in given if not each[0].startswith(_OF_ENDS)]
    return [(STEP, final, *flags, of_end, call), (RESET, seen, 0.0, False, False, given, call)]


def _infos(infos: dict[Any, Any], index: int | None = None, name: str = "", sure: bool = True) -> list[Any]:
    """Return the name, value and ``sure`` of each info. ``index``: the number in a vector environment."""
    found: list[Any] = []
    for key, value in infos.items():
        mask = None if index is None else infos.get(f"_{key}")
        is_mask = index is not None and str(key).startswith("_") and str(key)[1:] in infos
        if key in _FINAL or is_mask or (mask is not None and not mask[index]):
            continue
        inner, within = value, index
        if index is not None and not isinstance(value, (dict, str, bytes)):
            with contextlib.suppress(IndexError, TypeError):  # one value for all environments
                inner, within = value[index], None
        place, known = f"{name}{key}", sure or mask is not None
        found += _infos(inner, within, f"{place}/", known) if isinstance(inner, dict) else [(place, inner, known)]
    return found


def plain(array: Any) -> list[Any]:
    """Return an array in a form for JSON."""
    array = np.asarray(array)
    data = array.tobytes()
    data = zlib.compress(data, 1) if len(data) > _SHORT else data
    return [array.dtype.str, list(array.shape), base64.b64encode(data).decode()]


def array_of(leaf: Sequence[Any]) -> NDArray[Any]:
    """Return a read-only array from ``[type, shape, data]``."""
    kind, shape, text = leaf
    data, size = base64.b64decode(text), np.dtype(kind).itemsize * int(np.prod(shape))
    array: NDArray[Any] = np.frombuffer(zlib.decompress(data) if size > _SHORT else data, kind).reshape(shape)
    return array


def _encoded_info(name: str, value: Any, sure: bool) -> tuple[Any, ...]:
    with contextlib.suppress(Exception):  # lists of several lengths, and objects that may raise anything
        array = np.asarray(value)
        if value is None or array.dtype.kind in "US":
            return name, "object", (), repr(array.tolist()), sure
        if array.dtype.kind in "biuf":
            return name, *plain(array), sure
    return name, "", (), "", sure


def leaves_of_all(batch: Sequence[Any]) -> list[list[NDArray[Any]]]:
    """Return a list for each leaf of the space, with the leaf's arrays in all actions of a batch."""
    return [[array_of(leaf) for leaf in leaves] for leaves in zip(*batch)]  # noqa: B905 - for each step


if __name__ == "__main__":
    # Python puts the script's folder first in sys.path. Modules in this folder must not shadow others.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != here]
    serve()
