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
    pass


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

    def remote(self, *arguments: object) -> Future[Any]:
        return self._actor.threads.submit(getattr(self._actor.itself, self._name), *arguments)


class _Actor:
    def __init__(self, itself: object, threads: int) -> None:
        self.itself = itself
        self.threads = ThreadPoolExecutor(threads)

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)


class remote:  # noqa: N801 - as Ray calls what makes actors of a class
    def __init__(self, kind: type, **how: Any) -> None:
        self._kind, self._how = kind, how

    def options(self, **how: object) -> remote:
        return remote(self._kind, **how)

    def remote(self, *arguments: object) -> _Actor:
        return _Actor(self._kind(*arguments), self._how["max_concurrency"])


def get(future: Future[Any], timeout: float | None = None) -> Any:
    """Return what a method has returned."""
    return future.result(timeout)
