"""Batches to one consumer on another machine, through Ray's object store: what a learner there could be fed with.

``vebench.hosts.over_ray`` starts the consumer, and says in the environment variable ``CONSUMER_VARIABLE`` how it is
found. Ray is imported on use, and runs threads of its own on the CPUs that the cell has.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vebench.backends.interface import Batch, VectorBackend

CONSUMER_VARIABLE = "VEBENCH_CONSUMER"
# A batch may be on its way while the next is made; more would only be kept waiting in memory.
_ON_THEIR_WAY = 2


class Delivering:
    """A backend whose every batch the consumer gets, before more than ``_ON_THEIR_WAY`` of them wait for it."""

    def __init__(self, backend: VectorBackend) -> None:
        import ray  # noqa: PLC0415 - imported on use

        self.info, self.reset, self.send = backend.info, backend.reset, backend.send
        self._backend, self._ray = backend, ray
        where = json.loads(os.environ[CONSUMER_VARIABLE])
        ray.init(
            address=where["address"],
            namespace=where["namespace"],
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
        self._consumer: Any = ray.get_actor(where["name"])
        self._on_their_way: list[Any] = []

    def recv(self) -> Batch:
        """Return the next batch, which is then on its way."""
        batch = self._backend.recv()
        while len(self._on_their_way) >= _ON_THEIR_WAY:
            there, self._on_their_way = self._ray.wait(self._on_their_way, num_returns=1)
            self._ray.get(there)  # raises what the consumer did
        self._on_their_way.append(self._consumer.take.remote(tuple(batch)))
        return batch

    def close(self) -> None:
        """Hang up."""
        self._backend.close()
        self._on_their_way = []
        self._ray.shutdown()
