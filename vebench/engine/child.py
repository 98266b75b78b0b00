"""One cell, in an interpreter of its own: ``python -m vebench.engine.child REQUEST RESULT_FD``.

REQUEST is a JSON file. Results go as JSON lines to the descriptor RESULT_FD; standard output and error belong to what
the libraries print. The interpreter needs neither vebench nor its dependencies: the launcher puts what is loaded here,
modules that need numpy and Python 3.10, on its path.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from vebench.machine import counters, pinning

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import BackendInfo, Batch, Setup, VectorBackend


def main(request_file: str, result_fd: int) -> int:
    """Do what ``request_file`` asks for: measure a cell, or compare a backend. Returns the exit status."""
    started = time.perf_counter_ns()
    with open(request_file, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not needed here otherwise
        request = json.load(file)
    affinity = pinning.restrict(request["cpus"]) if request["pin"] else pinning.allowed()
    # The last place: the user's folder must not shadow a library.
    sys.path.append(request["folder"])

    def tell(kind: str, body: dict[str, Any]) -> None:
        os.write(result_fd, json.dumps({kind: body}).encode() + b"\n")

    try:
        setup = read_setup(request)
        if request["job"] == "prove":
            from vebench.engine.prove import prove  # noqa: PLC0415 - heavy: only after pinning

            prove(request, setup, tell)
            return 0
        backend = build(request, setup)
        measure(backend, request, affinity, started, tell)
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is this cell's reason
        traceback.print_exc()
        tell("error", {"reason": one_line(error)})
        return 1
    backend.close()
    return 0


def read_setup(request: dict[str, Any]) -> Setup:
    """Return what the request asks of an adapter."""
    from vebench.backends.interface import Setup, Task  # noqa: PLC0415 - heavy: only after pinning

    return Setup(
        task=Task(**request["task"]),
        workers=request["workers"],
        envs_per_worker=request["envs_per_worker"],
        cpus=tuple(request["cpus"]),
        seed=request["seed"],
        pinned=request["pin"] and pinning.SUPPORTED,
    )


def build(request: dict[str, Any], setup: Setup) -> VectorBackend:
    """Return the request's backend, reset, its first batch received: ready for the first ``send``."""
    module, _, name = request["target"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    backend: VectorBackend = factory(setup, **request["options"])
    backend.reset(setup.seed)
    check(backend.recv(), backend.info)
    return backend


def check(batch: Batch, info: BackendInfo) -> None:
    """Raise ValueError if a batch is not what the interface says, before the timed loop stumbles over it."""
    count = len(batch.env_ids)
    if {len(batch.observations), len(batch.rewards), len(batch.terminated), len(batch.truncated)} != {count}:
        raise ValueError(f"recv() returned arrays of unequal length: {[len(array) for array in batch]}")
    if batch.terminated.dtype != bool or batch.truncated.dtype != bool:
        raise ValueError(f"terminated and truncated must be bool, not {batch.terminated.dtype}")
    ids = set(batch.env_ids.tolist())
    if not ids <= set(range(info.num_envs)):
        raise ValueError(f"recv() returned env_ids {sorted(ids)}, which must lie in 0..{info.num_envs - 1}")


def measure(
    backend: VectorBackend,
    request: dict[str, Any],
    affinity: tuple[int, ...] | None,
    started: int,
    tell: Callable[[str, dict[str, Any]], None],
) -> None:
    """Warm up, measure the windows, and tell of each as soon as it is over."""
    from vebench.engine.measure import Loop, action_tape  # noqa: PLC0415 - heavy: only after pinning
    from vebench.engine.settling import warm_up  # noqa: PLC0415 - likewise

    info = backend.info
    tape = action_tape(info.action_space, request["seed"], info.batch_size)
    layout = {
        "num_envs": info.num_envs,
        "batch_size": info.batch_size,
        "processes": info.processes,
        "threads": info.threads,
        "frame_skip": info.frame_skip,
        "autoreset": info.autoreset,
        "differences": [difference.text for difference in info.differences],
        "affinity": affinity,
    }
    tell("ready", {"startup_ns": time.perf_counter_ns() - started, "layout": layout})
    memory = counters.proportional_memory(counters.process_tree(os.getpid()))

    loop = Loop(backend, tape, time.perf_counter_ns)
    warmup = warm_up(loop, request["warmup_ns"], request["warmup_most_ns"], request["duration_ns"], info.batch_size)
    processes = counters.process_tree(os.getpid())

    def read() -> dict[str, int | None]:
        return {
            "cpu_ns": counters.cpu_time_ns(processes),
            "throttled_ns": counters.throttled_ns(),
            "steal_ns": counters.steal_ns(request["cpus"]),
        }

    for _ in range(request["rounds"]):
        before = read()
        count = loop.run_for(request["duration_ns"], warmup.pace)
        tell("window", {**count._asdict(), **difference(before, read())})
    # Looked at twice only: between windows it would give environments that run ahead the time to do so.
    memory_now = counters.proportional_memory(counters.process_tree(os.getpid()))
    peak = max(filter(None, (memory, memory_now)), default=None)
    tell("done", {"peak_rss_bytes": peak, "warmup_ns": warmup.ns, "settled": warmup.settled})


def difference(before: dict[str, int | None], after: dict[str, int | None]) -> dict[str, int | None]:
    """Return how far each counter has gone, None where it could not be read both times."""
    gone: dict[str, int | None] = {}
    for name, first in before.items():
        second = after[name]
        gone[name] = None if first is None or second is None else max(0, second - first)
    return gone


def one_line(error: BaseException) -> str:
    """Return the error's type and the first line of its text, of bounded length; the log has the rest."""
    text = " ".join(str(error).strip().partition("\n")[0].split())
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name


if __name__ == "__main__":
    # A number of its own, kept from children that a backend starts by exec; forked ones are ended with the group.
    os.set_inheritable(int(sys.argv[2]), False)
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
