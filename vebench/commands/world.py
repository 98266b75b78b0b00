"""What commands that start cells ask of the machine and of other processes, in one place, so that tests can replace it.

Files are not part of it. ``doctor`` starts no cell and reads the machine itself.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from vebench.engine.launcher import Launcher
from vebench.hosts import site
from vebench.interpreters import interpreter
from vebench.machine import host
from vebench.plan import tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from vebench.backends.interface import Task
    from vebench.engine.interface import Launch
    from vebench.hosts.site import HostFacts
    from vebench.interpreters.interpreter import Interpreter
    from vebench.interpreters.waiting import Interrupts
    from vebench.machine.host import Host
    from vebench.plan.spec import BackendChoice, RunSpec


class _Start(Protocol):
    """Returns a context manager whose value starts cells in ``python``. On exit, no process of them is left."""

    def __call__(
        self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable
    ) -> AbstractContextManager[Launch]: ...


class _Resolve(Protocol):
    """Returns the tasks of these names. Tasks that vebench does not know are looked up in ``python``."""

    def __call__(
        self, names: tuple[str, ...], backends: tuple[BackendChoice, ...], *, python: str = sys.executable
    ) -> tuple[Task, ...]: ...


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class World:
    """How cells are started, and where tasks, other Pythons, the machine, its free memory and the time are read.

    ``arguments`` are those of the command line. ``memory_available`` returns bytes, None if unknown, ``now`` returns
    the date and time, ``clock`` returns seconds.
    """

    arguments: tuple[str, ...] = ()
    start: _Start = Launcher
    examine: Callable[[str, str], Interpreter] = interpreter.examine_python
    resolve: _Resolve = tasks.resolve
    read_host: Callable[[], Host] = host.read_host
    read_hosts: Callable[[RunSpec], Mapping[str, HostFacts]] = site.read_hosts
    nodes_of_ray: Callable[[str], tuple[str, ...]] = site.nodes_of_ray
    memory_available: Callable[[], int | None] = host.memory_available
    now: Callable[[], datetime] = _now
    clock: Callable[[], float] = time.monotonic

    @property
    def command(self) -> str:
        """The command line, quoted so that a user can repeat it."""
        return shlex.join(("vebench", *self.arguments))
