"""Ways to reach a host: the words of the command that runs a line of a shell there, its pipes being ours."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vebench.hosts import shipping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RAY = "ray"
# A host that does not answer must not hang a run, nor ask for a password in the middle of it. One that is lost is
# noticed after half a minute.
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
# Inside an allocation: one task on one node, beside others there.
_SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet")


def _ssh(host: str, line: str) -> list[str]:
    return [*_SSH, "--", host, line]


def _srun(host: str, line: str) -> list[str]:
    return [*_SRUN, f"--nodelist={host}", "sh", "-c", line]


_WAYS: dict[str, Callable[[str, str], list[str]]] = {"ssh": _ssh, "srun": _srun}


def words(via: str, host: str, line: str) -> list[str]:
    """Return the words of the command. ``via`` is one of ``_WAYS``, which the spec has been checked for."""
    return _WAYS[via](host, line)


def over_ray(address: str, hosts: Sequence[tuple[str, int, int]], python: str, *, deliver: bool) -> list[str]:
    """Return the words of the command that reaches all hosts of a Ray cluster.

    ``hosts`` are their names, each with the descriptors that the command reads and writes; ``python`` is the one to
    run there, Ray's own if empty. With ``deliver`` there is a consumer of what they measure.
    """
    named = [f"{name}={reading},{writing}" for name, reading, writing in hosts]
    return [*_OVER_RAY, "deliver" if deliver else "connect", address, python, shipping.FIRST, *named]


def nodes_of_ray(address: str) -> list[str]:
    """Return the words of the command that prints the names of a Ray cluster's nodes as JSON."""
    return [*_OVER_RAY, "nodes", address]


# A process of its own: Ray starts threads, and takes seconds to import.
_OVER_RAY = (sys.executable, "-P", "-m", "vebench.hosts.over_ray")
