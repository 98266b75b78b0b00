"""One cell, in an interpreter of its own. Run as a script: ``python child.py REQUEST RESULT_FD``.

REQUEST is a JSON file. Results go as JSON lines to the descriptor RESULT_FD; standard output and error belong to what
the libraries print. The interpreter needs neither vebench nor its dependencies: it gets the two packages that it loads
(``vebench`` and ``vebench.backends``, of which only modules that need numpy and Python 3.10) as folders in the request.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.backends.interface import VectorBackend


def main(request_file: str, result_fd: int) -> int:
    """Measure the cell that ``request_file`` describes. Returns the exit status: 0, or 1 if it failed."""
    started = time.perf_counter_ns()
    with open(request_file, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not needed here otherwise
        request = json.load(file)
    graft(request["packages"])
    from vebench.machine import pinning  # noqa: PLC0415 - the packages are there only now

    affinity = pinning.restrict(request["cpus"]) if request["pin"] else pinning.allowed()
    # The last place: the user's folder must not shadow a library.
    sys.path.append(request["folder"])

    def tell(kind: str, body: dict[str, Any]) -> None:
        os.write(result_fd, json.dumps({kind: body}).encode() + b"\n")

    try:
        backend = build(request)
        measure(backend, request, affinity, started, tell)
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is this cell's reason
        traceback.print_exc()
        tell("error", {"reason": one_line(error)})
        return 1
    backend.close()
    return 0


def graft(packages: dict[str, str]) -> None:
    """Make each package importable from its folder, whether or not this interpreter has it installed, parents first."""
    for name, folder in packages.items():
        init = f"{folder}/__init__.py"
        spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[folder])
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is no package")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def build(request: dict[str, Any]) -> VectorBackend:
    """Return the request's backend, reset, its first batch received: ready for the first ``send``."""
    from vebench.backends.interface import Setup, Task  # noqa: PLC0415 - heavy: only after pinning

    setup = Setup(
        task=Task(**request["task"]),
        workers=request["workers"],
        envs_per_worker=request["envs_per_worker"],
        cpus=tuple(request["cpus"]),
        seed=request["seed"],
    )
    module, _, name = request["target"].partition(":")
    factory = getattr(importlib.import_module(module), name)
    backend: VectorBackend = factory(setup, **request["options"])
    backend.reset(setup.seed)
    backend.recv()
    return backend


def measure(
    backend: VectorBackend,
    request: dict[str, Any],
    affinity: tuple[int, ...] | None,
    started: int,
    tell: Callable[[str, dict[str, Any]], None],
) -> None:
    """Warm up, measure the windows, and tell of each as soon as it is over."""
    from vebench.engine.measure import Loop, action_tape  # noqa: PLC0415 - heavy: only after pinning
    from vebench.machine import counters  # noqa: PLC0415 - the package is there only now

    info = backend.info
    tape = action_tape(info.action_space, request["seed"], info.batch_size)
    layout = {
        "num_envs": info.num_envs,
        "batch_size": info.batch_size,
        "processes": info.processes,
        "threads": info.threads,
        "frame_skip": info.frame_skip,
        "autoreset": info.autoreset,
        "differences": info.differences,
        "affinity": affinity,
    }
    tell("ready", {"startup_ns": time.perf_counter_ns() - started, "layout": layout})

    loop = Loop(backend, tape, time.perf_counter_ns)
    pace = loop.warm_up(request["warmup_ns"], request["duration_ns"])
    processes = counters.process_tree(os.getpid())

    def read() -> dict[str, int | None]:
        return {
            "cpu_ns": counters.cpu_time_ns(processes),
            "throttled_ns": counters.throttled_ns(),
            "steal_ns": counters.steal_ns(request["cpus"]),
        }

    for _ in range(request["rounds"]):
        before = read()
        count = loop.run_for(request["duration_ns"], pace)
        tell("window", {**count._asdict(), **difference(before, read())})
    tell("done", {"peak_rss_bytes": counters.proportional_memory(counters.process_tree(os.getpid()))})


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
    # A script's own folder is its first place to import from; modules here must not shadow anybody's.
    sys.path.pop(0)
    # A number of its own, kept from children that a backend starts by exec; forked ones are ended with the group.
    os.set_inheritable(int(sys.argv[2]), False)
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
