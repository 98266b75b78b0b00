"""What faulty and honest adapters are made from: a for-loop whose rows, once it is due, are altered.

``On`` says on which task and in which layout a fault can show, and in which words its name may be given.
``tools/faults.py`` reads it; the adapters themselves do not.

A fault that takes one expression is made by a function: ``altering`` rows, ``acting`` on other actions, ``seeding``
otherwise, or ``setting`` something in each environment. In these expressions ``it`` is the adapter.
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
    """Where an adapter is tried.

    ``named``: a pattern that finds a right name of the fault in what a user reads, empty if any is right. ``fraud``:
    it deceives on purpose, so that it may be a limit; the others are what bugs look like. ``measured``: the fault is
    only in the variant that is measured, so that ``verify``, which compares the exact one, may say nothing of it.
    ``harmless``: what it changes has no effect on rows and figures, so that nothing need be found.
    """

    named: str = ""
    task: str = "CartPole"
    envs: int = 4
    fraud: bool = False
    measured: bool = False
    harmless: bool = False


class Altered(ForLoop):
    """A for-loop that returns new arrays each time. Once it is ``due``, ``alter`` changes them.

    ``batches`` and ``resets`` count those since it was built, ``ends`` those of each environment.
    """

    tried: ClassVar[On] = On()

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, reuses_buffers=False)
        self.setup = setup
        self.batches = self.resets = 0
        self.ends = np.zeros(setup.batch_size, np.int64)
        self.ended = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is an end
        self.began = np.zeros(setup.batch_size, np.bool_)  # whose row in this batch is a reset's
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
        return self.alter(batch) if self.due() else batch

    def due(self) -> bool:
        """Return whether the fault shows by now."""
        return True

    def alter(self, batch: Batch) -> Batch:
        """Return the batch with its fault."""
        return batch


def altering(
    about: str, on: On, *, since: int = 0, claims: Mapping[str, Any] | None = None, **parts: Callable[[Any, Batch], Any]
) -> type[Altered]:
    """Return an adapter that shows something else in these fields, made of itself and the batch.

    ``since``: how many batches are right before. ``claims``: what it reports of itself.
    """

    def __init__(self: Altered, setup: Setup) -> None:  # noqa: N807 - that of the class
        Altered.__init__(self, setup)
        self.info = replace(self.info, **(claims or {}))

    def due(self: Altered) -> bool:
        return self.batches > since

    def alter(self: Altered, batch: Batch) -> Batch:
        return batch._replace(**{name: part(self, batch) for name, part in parts.items()})

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


def seeding(about: str, on: On, seed_of: Callable[[Any, int, int], int | None]) -> type[Altered]:
    """Return an adapter that seeds its environments otherwise: with what is made of itself, a seed and an index."""

    def reset(self: Altered, seed: int) -> None:
        Altered.reset(self, seed)
        for index, environment in enumerate(self.environments):
            self._batch.observations[index], _ = environment.reset(seed=seed_of(self, seed, index))

    return _made(about, on, reset=reset)


def setting(about: str, on: On, of: str, *, if_exact: bool = True, **values: Any) -> type[Altered]:
    """Return an adapter that sets these attributes in a wrapper of each environment, or ``of`` "unwrapped".

    A function is given the value before. ``if_exact``: whether that is done in the exact variant of a task, too.
    """

    def __init__(self: Altered, setup: Setup) -> None:  # noqa: N807 - that of the class
        Altered.__init__(self, setup)
        for environment in self.environments if if_exact or not setup.task.exact else ():
            place: Any = environment.unwrapped if of == "unwrapped" else wrapper(environment, of)
            for name, value in values.items():
                setattr(place, name, _of(value, place, name))

    return _made(about, on, __init__=__init__)


def _of(value: Any, place: object, name: str) -> Any:
    return value(getattr(place, name)) if callable(value) else value


def _made(about: str, on: On, **methods: object) -> type[Altered]:
    module = sys._getframe(2).f_globals["__name__"]  # that which has asked for it
    return type("Made", (Altered,), {"__doc__": about, "__module__": module, "tried": on, **methods})


def likewise(about: str, on: On, kind: type) -> type:
    """Return the same adapter, to be tried elsewhere."""
    module = sys._getframe(1).f_globals["__name__"]
    return type(kind.__name__, (kind,), {"__doc__": f"Likewise, {about}", "__module__": module, "tried": on})


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
