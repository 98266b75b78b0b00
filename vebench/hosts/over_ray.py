"""Reaches the nodes of a Ray cluster. An actor on each node claims its CPUs, and is the other end of two pipes.

``python -m vebench.hosts.over_ray '{"address": ...}'`` prints the names of the nodes. With ``"hosts": {NAME: [READING,
WRITING]}`` it runs ``code`` in ``python`` on each of these nodes. It copies bytes from the first descriptor to that
program, and from the program to the second, until the first is closed. For a lost node it writes ``{"lost": "why"}``.

Ray only carries bytes and counts CPUs: it pins nothing. It is imported on use, in a process with nothing else to do.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from vebench.child.process import write_all

_STARTED_S = 30.0  # for an actor to start: it takes a second or two, unless others have claimed its CPUs
_ENDED_S = 5.0
_NODE = "ray.io/node-id"  # the label of a node, for which bundles of a group may ask since Ray 2.49
_CHUNK = 1 << 20


class Far:
    """An actor: a program on a node, with its pipes. ``say`` and ``hear`` may run at the same time.

    Ray sends the class by value, so that the node needs only Python.
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
        """Write to the program; an empty ``what`` hangs up."""
        if self._process.stdin is None:
            return
        if not what:
            self._process.stdin.close()
            return
        with suppress(BrokenPipeError):  # it has ended, which is heard
            self._process.stdin.write(what)
            self._process.stdin.flush()

    def hear(self) -> bytes:
        """Return what the program has said, as soon as it says something; empty once it has ended."""
        return b"" if self._process.stdout is None else os.read(self._process.stdout.fileno(), _CHUNK)

    def last_words(self) -> str:
        """Return the last line that the program printed as an error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDED_S)
        self._printed.seek(0)
        return self._printed.read().decode(errors="replace").strip().rpartition("\n")[2][:300]


def named(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the living nodes by the names of their hosts, numbered where a host has several."""
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


def connect(ray: Any, python: str, code: str, hosts: Mapping[str, tuple[int, int]]) -> None:
    """Carry bytes between descriptors and nodes, until all have hung up or are lost."""
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as InGroup

    nodes = named(ray.nodes())
    here = {name: node for name, node in nodes.items() if name in hosts}
    for name in hosts.keys() - here.keys():
        _lost(hosts[name][1], f"the cluster has no such node now; it has {', '.join(nodes)}")
    # All CPUs of all nodes or none: two runs that want the same nodes must not wait with half of them each.
    bundles = [{"CPU": node["Resources"]["CPU"]} for node in here.values()]
    labels = [{_NODE: node["NodeID"]} for node in here.values()]
    group = placement_group(bundles, strategy="STRICT_SPREAD", bundle_label_selector=labels) if here else None
    if group is not None and not group.wait(_STARTED_S):
        remove_placement_group(group)
        for name in here:
            why = f"Ray did not provide all CPUs of the nodes within {_STARTED_S:g} s"
            _lost(hosts[name][1], f"{why}: does another program use some of them?")
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


def _carry(ray: Any, actor: Any, reading: int, writing: int) -> None:
    """Carry both ways once the actor has started, and write why the node is lost in the end."""
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


def _carry_there(ray: Any, actor: Any, reading: int) -> None:
    """Carry what the runner says, until it hangs up."""
    with suppress(ray.exceptions.RayError):  # the node is lost, which ``_carry`` notices
        while said := os.read(reading, _CHUNK):
            ray.get(actor.say.remote(said))
        ray.get(actor.say.remote(b""))


def reason(error: Exception) -> str:
    """Return the line of a Ray error that has the reason: the last one that is not indented."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1][:300] if lines else type(error).__name__


def _lost(writing: int, why: str) -> None:
    write_all(writing, b"\n" + json.dumps({"lost": why}).encode() + b"\n")
    os.close(writing)


def main(asked: str) -> None:
    """Do what is asked for, as JSON."""
    import ray

    how: dict[str, Any] = json.loads(asked)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    ray.init(how.pop("address"), namespace="vebench", **quiet)
    try:
        if how:
            connect(ray, **how)
        else:
            sys.stdout.write(json.dumps(list(named(ray.nodes()))) + "\n")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
