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

from vebench.child import windows
from vebench.machine import cgroups, counters, memory_policy, pinning

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import BackendInfo, Batch, Setup, VectorBackend
    from vebench.child.loop import Count


def main(request_file: str, result_fd: int) -> int:
    """Do what ``request_file`` asks for: measure a cell, or compare a backend. Returns the exit status."""
    started = time.perf_counter_ns()
    with open(request_file, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not needed here otherwise
        request = json.load(file)
    os.set_inheritable(request["words"], False)
    affinity = pinning.restrict(request["cpus"]) if request["pin"] else pinning.allowed()
    unbound = memory_policy.apply(request["membind"], request["nodes"])
    # The last place: the user's folder must not shadow a library.
    sys.path.append(request["folder"])

    def tell(kind: str, body: dict[str, Any]) -> None:
        os.write(result_fd, json.dumps({kind: body}).encode() + b"\n")

    try:
        setup = read_setup(request)
        if request["job"] == "prove":
            from vebench.child.proof.prove import prove  # noqa: PLC0415 - heavy: only after pinning

            prove(request, setup, tell)
            return 0
        backend = build(request, setup)
        measure(backend, request, {"affinity": affinity, "unbound": unbound}, started, tell)
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
    place: dict[str, Any],
    started: int,
    tell: Callable[[str, dict[str, Any]], None],
) -> None:
    """Warm up, measure the windows, and tell of each as soon as it is over.

    ``place`` is what came of the place that the process was to take.
    """
    from vebench.child.loop import Loop, action_tape  # noqa: PLC0415 - heavy: only after pinning
    from vebench.child.warmup import warm_up  # noqa: PLC0415 - likewise

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
        **place,
        "memory_policy": memory_policy.read_back(),
        "engines": [vars(engine) for engine in info.engines],
    }
    tell("ready", {"startup_ns": time.perf_counter_ns() - started, "layout": layout})
    memory = counters.proportional_memory(counters.process_tree(os.getpid()))

    loop = Loop(backend, tape, time.perf_counter_ns)
    duration, rounds = request["duration_ns"], request["rounds"]
    warmup = warm_up(loop, request["warmup_ns"], request["warmup_most_ns"], duration, info.batch_size)
    processes = counters.process_tree(os.getpid())
    seats = counters.seats(processes)
    groups = cgroups.groups("cpu")

    def step(span: int, batches: int = 1) -> Count:
        return loop.run_for(span, max(warmup.pace, batches))

    turns = windows.Turns(request["words"] if request["in_turn"] else None, step, time.perf_counter_ns)

    def prepare() -> None:
        turns.begin(duration, 2 * info.num_envs // info.batch_size)

    def may_repeat() -> bool:
        """Return whether there is time for another try of one window, and for all of the others."""
        spent = time.perf_counter_ns() - started - turns.rested_ns
        return bool(spent + (rounds + 1) * duration < request["timeout_ns"])

    def read() -> dict[str, int | None]:
        return windows.read_counters(processes, request["cpus"], groups)

    if request["one_of_several"] or request["in_turn"]:
        turns.leave()
        tell("warm", {})
    if request["one_of_several"]:
        stretches = windows.Stretches(step, read, time.perf_counter_ns)
        for lap in stretches.in_step(rounds, duration, windows.told(request["words"])):
            tell("lap", lap)
    else:
        for window in windows.measured(lambda: step(duration), read, rounds, may_repeat, prepare):
            turns.leave()
            tell("window", window)
        turns.take()  # what comes now, and the end, would disturb others
    # Looked at twice only: between windows it would give environments that run ahead the time to do so.
    memory_now = counters.proportional_memory(counters.process_tree(os.getpid()))
    done = {
        "peak_rss_bytes": max(filter(None, (memory, memory_now)), default=None),
        "seats": seats,
        "memory_by_node": memory_policy.bytes_by_node(processes),
        "warmup_ns": warmup.ns,
        "settled": warmup.settled,
    }
    tell("done", done)


def one_line(error: BaseException) -> str:
    """Return the error's type and the first line of its text, of bounded length; the log has the rest."""
    text = " ".join(str(error).strip().partition("\n")[0].split())
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name


if __name__ == "__main__":
    # A number of its own, kept from children that a backend starts by exec; forked ones are ended with the group.
    os.set_inheritable(int(sys.argv[2]), False)
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
