"""As much of Ray as reaching nodes takes: actors are threads of the process that asks for them.

``FAKE_RAY_NODES`` has the nodes' names; of one that begins with ``busy``, all CPUs are claimed by others.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ray import exceptions

__all__ = ["exceptions", "get", "init", "nodes", "remote", "shutdown"]


def init(address: str, **_how: object) -> None:
    """Connect to a cluster. There is one at ``auto`` only."""
    if address != "auto":
        raise ConnectionError(f"Could not connect to {address}")


def shutdown() -> None:
    """Hang up."""


def nodes() -> list[dict[str, Any]]:
    """Return what Ray tells of its nodes."""
    names = os.environ["FAKE_RAY_NODES"].split(",")
    return [
        {
            "NodeID": f"{number}-{name}",
            "Alive": not name.startswith("dead"),
            "NodeManagerHostname": name,
            "Resources": {} if name.startswith("head") else {"CPU": 2.0},
        }
        for number, name in enumerate(names)
    ]


class _Method:
    def __init__(self, actor: _Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *arguments: object) -> Future[Any] | None:
        if self._actor.itself is None:
            return None
        ready = self._name == "__ray_ready__"  # Ray adds this method to every actor
        return self._actor.threads.submit(bool if ready else getattr(self._actor.itself, self._name), *arguments)


class _Actor:
    def __init__(self, itself: object, threads: int) -> None:
        self.itself = itself
        self.threads = ThreadPoolExecutor(threads)

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)


class _Remote:
    def __init__(self, kind: type, how: dict[str, Any]) -> None:
        self._kind, self._how = kind, how

    def options(self, **how: object) -> _Remote:
        assert how["num_cpus"] == 2.0
        return _Remote(self._kind, how)

    def remote(self, *arguments: object) -> _Actor:
        busy = "-busy" in self._how["scheduling_strategy"].node_id
        return _Actor(None if busy else self._kind(*arguments), self._how["max_concurrency"])


def remote(kind: type) -> _Remote:
    """Return what makes actors of a class."""
    return _Remote(kind, {})


def get(future: Future[Any] | None, timeout: float | None = None) -> Any:
    """Return what a method has returned. Nobody wants to wait for what never starts."""
    if future is None:
        raise exceptions.GetTimeoutError
    return future.result(timeout)
