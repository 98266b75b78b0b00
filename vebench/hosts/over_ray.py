"""Reaches the nodes of a Ray cluster: an actor on each claims its CPUs, and is the other end of two pipes.

``python -m vebench.hosts.over_ray '{"address": ...}'`` prints the names of the nodes. With ``"hosts": {NAME: [READING,
WRITING]}`` it runs ``code`` in ``python`` on each of these nodes, and carries what comes over the first descriptor to
it, and what it says to the second, until that is closed. A node that is lost says why: ``{"lost": "..."}``.

Ray only carries bytes and counts CPUs: it pins nothing. It is imported on use, in a process that has nothing else to
do.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from vebench.child.process import write_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# An actor is there in a second or two, unless its CPUs are claimed by others.
_STARTED_S = 30.0
# To find out whose CPUs are claimed by others, once that has not come.
_ASKED_S = 5.0
_NAMESPACE = "vebench"
# What Ray calls a node by itself; a group's bundles may ask for it since Ray 2.49.
_NODE = "ray.io/node-id"
_CHUNK = 1 << 20
_ENDED_S = 5.0


class Far:
    """Runs on a node: a program and its pipes. Two of its methods may run at the same time: one each way.

    It is sent by value, and so it needs nothing there but Python.
    """

    def __init__(self, python: str, code: str) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the actor
        self._process = subprocess.Popen(
            [python or sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            start_new_session=True,
        )

    def there(self) -> None:
        """Return once the actor has been started."""

    def say(self, what: bytes) -> None:
        """Write to the program. Nothing hangs up."""
        if self._process.stdin is None:
            return
        if not what:
            self._process.stdin.close()
            return
        with suppress(BrokenPipeError):  # it has ended, which is heard
            self._process.stdin.write(what)
            self._process.stdin.flush()

    def hear(self) -> bytes:
        """Return what the program has said, as soon as there is something; nothing once it has ended."""
        return b"" if self._process.stdout is None else os.read(self._process.stdout.fileno(), _CHUNK)

    def last_words(self) -> str:
        """Return the last line that the program printed as an error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDED_S)
        self._printed.seek(0)
        return self._printed.read().decode(errors="replace").strip().rpartition("\n")[2][:300]


def named(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the nodes that are alive by their hosts' names, with a number where a host has several."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]
    found: dict[str, Mapping[str, Any]] = {}
    for node in sorted(alive, key=lambda node: (node["NodeManagerHostname"], node["NodeID"])):
        host = name = node["NodeManagerHostname"]
        number = 1
        while name in found:
            number += 1
            name = f"{host}:{number}"
        found[name] = node
    return found


def connect(ray: Any, python: str, code: str, hosts: Mapping[str, tuple[int, int]]) -> None:  # noqa: ANN401
    """Carry what is said between descriptors and nodes, until all have hung up or are lost."""
    from ray.util.placement_group import placement_group, remove_placement_group  # noqa: PLC0415 - imported on use
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as InGroup  # noqa: PLC0415 - on use

    nodes = named(ray.nodes())
    here = {name: node for name, node in nodes.items() if name in hosts}
    for name in hosts.keys() - here.keys():
        _lost(hosts[name][1], f"the cluster has no such node now; it has {', '.join(nodes)}")
    # All CPUs of all nodes or none: two that want the same ones must not have a half each and wait.
    bundles = [{"CPU": node["Resources"]["CPU"]} for node in here.values()]
    labels = [{_NODE: node["NodeID"]} for node in here.values()]
    group = placement_group(bundles, strategy="STRICT_SPREAD", bundle_label_selector=labels) if here else None
    if group is not None and not group.wait(_STARTED_S):
        remove_placement_group(group)
        whose = f"does another program use those of {' and '.join(_busy(ray, here)) or 'some of them'}?"
        for name in here:
            _lost(hosts[name][1], f"Ray did not provide all CPUs of the nodes within {_STARTED_S:g} s: {whose}")
        return
    threads = []
    for index, (name, node) in enumerate(here.items()):
        at = InGroup(group, index)
        far = ray.remote(Far).options(num_cpus=node["Resources"]["CPU"], scheduling_strategy=at, max_concurrency=3)
        threads.append(Thread(target=_carry, args=(ray, far.remote(python, code), *hosts[name])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _busy(ray: Any, nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:  # noqa: ANN401 - Ray's
    """Return the names of the nodes on which nothing is started that needs all their CPUs."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode  # noqa: PLC0415 - on use

    asked = {
        name: ray.remote(lambda: None)
        .options(num_cpus=node["Resources"]["CPU"], scheduling_strategy=OnNode(node["NodeID"], soft=False))
        .remote()
        for name, node in nodes.items()
    }
    _, waiting = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ASKED_S)
    return [name for name, one in asked.items() if one in waiting]


def _carry(ray: Any, actor: Any, reading: int, writing: int) -> None:  # noqa: ANN401 - Ray's
    """Carry both ways once the actor is there. In the end the runner reads that it is over."""
    try:
        ray.get(actor.there.remote(), timeout=_STARTED_S)
        Thread(target=_carry_there, args=(ray, actor, reading), daemon=True).start()
        while said := ray.get(actor.hear.remote()):
            write_all(writing, said)
        _lost(writing, ray.get(actor.last_words.remote()) or "its program has ended")
    except ray.exceptions.GetTimeoutError:
        _lost(writing, f"Ray started nothing there within {_STARTED_S:g} s")
    except ray.exceptions.RayError as error:
        _lost(writing, reason(error))


def _carry_there(ray: Any, actor: Any, reading: int) -> None:  # noqa: ANN401 - Ray's
    """Carry what the runner says, until it hangs up; what comes once the node is lost goes nowhere."""
    with suppress(ray.exceptions.RayError):  # which the other way notices
        while said := os.read(reading, _CHUNK):
            ray.get(actor.say.remote(said))
        ray.get(actor.say.remote(b""))


def reason(error: Exception) -> str:
    """Return the line of an error of Ray that has the reason: the first says what failed, and details are indented."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1][:300] if lines else type(error).__name__


def _lost(writing: int, why: str) -> None:
    write_all(writing, b"\n" + json.dumps({"lost": why}).encode() + b"\n")
    os.close(writing)


def main(asked: str) -> None:
    """Do what is asked for, as JSON; see above."""
    import ray  # noqa: PLC0415 - imported on use

    how: dict[str, Any] = json.loads(asked)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    ray.init(how.pop("address"), namespace=_NAMESPACE, **quiet)
    try:
        if how:
            connect(ray, **how)
        else:
            sys.stdout.write(json.dumps(list(named(ray.nodes()))) + "\n")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
