"""What faulty and honest adapters are made from: a for-loop whose rows, once it is due, are altered.

A fault that takes one expression is made by a function: ``altering`` rows, ``acting`` on other actions, ``ending``
other episodes, ``seeding`` otherwise, ``reporting`` something else, ``setting`` or ``patching`` something in each
environment. In these expressions ``it`` is the adapter. ``tools/faults.py`` reads ``On``; the adapters do not.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Batch, Setup


@dataclass(frozen=True)
class On:
    """Where an adapter is tried."""

    named: str = ""  # a pattern that finds a right name of the fault in what a user reads, empty if any is right
    task: str = "CartPole"
    envs: int = 4
    measured: bool = False  # the fault is only in the variant that is measured: ``verify`` may say nothing of it


class Altered(ForLoop):
    """A for-loop that returns new arrays each time. Once it is ``due``, ``alter`` changes them."""

    tried: ClassVar[On] = On()

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, reuses_buffers=False)
        self.setup = setup
        self.batches = self.resets = 0  # since it was built
        self.ends = np.zeros(setup.batch_size, np.int64)  # of each environment
        self.ended = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is an end
        self.began = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is a reset's
        self.ages = np.full(setup.batch_size, -1)  # rows since the first of an episode
        self.built = time.monotonic()

    def reset(self, seed: int) -> None:
        self.resets += 1
        self.ended[:] = False
        super().reset(seed)

    def recv(self) -> Batch:
        batch = Batch._make(array.copy() for array in super().recv())
        self.batches += 1
        self.began = self.ended
        self.ended = batch.terminated | batch.truncated
        self.ends += self.ended
        self.ages = np.where(self.began | (self.batches == 1), 0, self.ages + 1)
        return self.alter(batch) if self.due() else batch

    def due(self) -> bool:
        """Return whether the fault shows by now."""
        return True

    def alter(self, batch: Batch) -> Batch:
        """Return the batch with its fault."""
        return batch


def altering(
    about: str,
    on: On,
    whole: Callable[[Any, Batch], Batch] | None = None,
    *,
    since: int = 0,
    claims: Mapping[str, Any] | None = None,
    **parts: Callable[[Any, Batch], Any],
) -> type[Altered]:
    """Return an adapter that shows something else after ``since`` batches, as a whole or in these fields.

    ``claims``: what it reports of itself.
    """

    def __init__(self: Altered, setup: Setup) -> None:  # noqa: N807 - that of the class
        Altered.__init__(self, setup)
        self.info = replace(self.info, **(claims or {}))

    def due(self: Altered) -> bool:
        return self.batches > since

    def alter(self: Altered, batch: Batch) -> Batch:
        return (
            whole(self, batch) if whole else batch._replace(**{name: part(self, batch) for name, part in parts.items()})
        )

    return _made(about, on, __init__=__init__, due=due, alter=alter)


def reporting(about: str, on: On, *, after: int = 0, if_exact: bool = True, **claims: Any) -> type[Altered]:
    """Return an adapter that reports something else of itself, from the start or after so many batches.

    A function is given the true value. ``if_exact``: whether it does so in the exact variant of a task, too.
    """

    def claim(self: Altered) -> None:
        self.info = replace(self.info, **{name: _of(value, self.info, name) for name, value in claims.items()})

    def __init__(self: Altered, setup: Setup) -> None:  # noqa: N807 - that of the class
        Altered.__init__(self, setup)
        if not after and (if_exact or not setup.task.exact):
            claim(self)

    def due(self: Altered) -> bool:
        if self.batches == after:
            claim(self)
        return False

    return _made(about, on, __init__=__init__, due=due)


def acting(about: str, on: On, taken: Callable[[Any, NDArray[Any]], NDArray[Any]]) -> type[Altered]:
    """Return an adapter that takes other actions, made of itself and those that it was sent."""

    def send(self: Altered, actions: NDArray[np.generic]) -> None:
        ForLoop.send(self, taken(self, actions))

    return _made(about, on, send=send)


def ending(about: str, on: On, over: Callable[[Any, list[bool]], list[bool]]) -> type[Altered]:
    """Return an adapter that computes which episodes are over from the episodes that really are."""

    def recv(self: Altered) -> Batch:
        self._loop._ended = over(self, [*map(bool, self._loop._ended)])
        return Altered.recv(self)

    return _made(about, on, recv=recv)


def seeding(about: str, on: On, seed_of: Callable[[Any, int, int], int | None]) -> type[Altered]:
    """Return an adapter that seeds its environments otherwise: with what is made of itself, a seed and an index."""

    def reset(self: Altered, seed: int) -> None:
        Altered.reset(self, seed)
        for index, environment in enumerate(self.environments):
            self._batch.observations[index], _ = environment.reset(seed=seed_of(self, seed, index))

    return _made(about, on, reset=reset)


def patching(about: str, on: On, patch: Callable[[Any, int, Any], object], *, if_exact: bool = True) -> type[Altered]:
    """Return an adapter that changes each environment, by a function of itself, an index and the environment.

    ``if_exact``: whether that is done in the exact variant of a task, too.
    """

    def __init__(self: Altered, setup: Setup) -> None:  # noqa: N807 - that of the class
        Altered.__init__(self, setup)
        for index, environment in enumerate(self.environments if if_exact or not setup.task.exact else ()):
            patch(self, index, environment)

    return _made(about, on, __init__=__init__)


def setting(about: str, on: On, of: str, *, if_exact: bool = True, **values: Any) -> type[Altered]:
    """Return an adapter that sets these attributes in a wrapper of each environment, or ``of`` "unwrapped".

    A function is given the value before.
    """

    def put(_it: Altered, _index: int, environment: Any) -> None:
        place = environment.unwrapped if of == "unwrapped" else wrapper(environment, of)
        for name, value in values.items():
            setattr(place, name, _of(value, place, name))

    made = patching(about, on, put, if_exact=if_exact)
    made.__module__ = sys._getframe(1).f_globals["__name__"]
    return made


def _of(value: Any, place: object, name: str) -> Any:
    return value(getattr(place, name)) if callable(value) else value


def _made(about: str, on: On, **methods: object) -> type[Altered]:
    module = sys._getframe(2).f_globals["__name__"]  # that which has asked for it
    return type("Made", (Altered,), {"__doc__": about, "__module__": module, "tried": on, **methods})


def elsewhere(about: str, on: On, kind: type) -> type:
    """Return the same adapter, to be tried elsewhere."""
    module = sys._getframe(1).f_globals["__name__"]
    return type(kind.__name__, (kind,), {"__doc__": f"The same, {about}", "__module__": module, "tried": on})


def wrapper(environment: Any, name: str) -> Any:
    """Return the wrapper of this class name that the environment has."""
    while type(environment).__name__ != name:
        environment = environment.env
    return environment


def before(it: Any, now: Any, first: Any = None) -> Any:
    """Return what an adapter was given here the last time, and keep this; at first ``first``, or this."""
    last = getattr(it, "_before", now if first is None else first)
    it._before = now
    return last


def row_zero(rows: NDArray[Any]) -> NDArray[Any]:
    """Return as many rows, each of them the first."""
    return rows[np.zeros(len(rows), np.intp)]


def without_last(batch: Batch) -> Batch:
    """Return all rows but the last."""
    return Batch._make(array[:-1] for array in batch)
