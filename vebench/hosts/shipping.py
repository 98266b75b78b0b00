"""The ways to reach a host, and what is sent to it, so that it runs this code, whatever is installed there."""

from __future__ import annotations

import io
import json
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import vebench
import vebench.backends
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.interpreters.guarded import CHILD_SIDE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RAY = "ray"
# A host that does not answer must not hang a run, nor ask for a password in the middle of it. One that is lost is
# noticed after half a minute.
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
# Inside an allocation: one task on one node, beside others there.
_SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet")
# A process of its own: Ray starts threads, and takes seconds to import.
_OVER_RAY = (sys.executable, "-P", "-m", "vebench.hosts.over_ray")
_LENGTH = 10  # digits before each part
# Reads a part from standard input and runs it. It is a line of a shell on the way, and so it is short.
_FIRST = (
    "import os, sys\n"
    "sys.path[:]=filter(None, sys.path)\n"  # whatever folder a login is in: no module of it is meant
    "def part():\n"
    f" n=int(take({_LENGTH})); return take(n)\n"
    "def take(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c: raise SystemExit(1)\n"
    "  b+=c\n"
    " return b\n"
    "exec(part())\n"
)
# Unpacks the packages into a folder of its own, and goes on in the relay that is among them. All is read before: a
# runner that hangs up meanwhile leaves nothing behind.
_SECOND = f"""
import io, shutil, sys, tempfile, zipfile
packed, asked = part(), part().decode()
scratch = tempfile.mkdtemp(prefix={PREFIX!r})
try:
    zipfile.ZipFile(io.BytesIO(packed)).extractall(scratch + "/packages")
    sys.path.insert(0, scratch + "/packages")
    from vebench.child.relay import main
    main(scratch, asked)
finally:
    shutil.rmtree(scratch, ignore_errors=True)
"""


def command(python: str) -> str:
    """Return the line of a shell that starts the relay in a Python of the other host."""
    one_line = f"exec({_FIRST!r})"  # some shells take no other in quotes
    return f"exec {shlex.quote(python)} -c {shlex.quote(one_line)}"


@cache
def payload() -> bytes:
    """Return what the relay reads before anything else: the code, and of which packages it is to tell."""
    asked = {"packages": list(RECORDED), "modules": [package.module for package in PACKAGES]}
    return b"".join(map(_part, (_SECOND.encode(), _packed(), json.dumps(asked).encode())))


def _part(content: bytes) -> bytes:
    return str(len(content)).zfill(_LENGTH).encode() + content


def _packed() -> bytes:
    """Return the packages that the child may import, as a ZIP archive."""
    import zipfile  # noqa: PLC0415 - imported on use

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in _files():
            archive.write(path, name)
    return packed.getvalue()


def _files() -> Iterator[tuple[Path, str]]:
    """Yield the files with their names in the archive. Compiled parts name their Python and machine, and fit or not."""
    ours, backends = Path(vebench.__path__[0]), Path(vebench.backends.__path__[0])
    for source in (*(ours / name for name in CHILD_SIDE), backends):
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.suffix in {".py", ".so"}:
                yield (
                    path,
                    f"vebench/{source.name}/{path.relative_to(source)}" if source.is_dir() else f"vebench/{path.name}",
                )


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
    return [*_OVER_RAY, "deliver" if deliver else "connect", address, python, _FIRST, *named]


def nodes_of_ray(address: str) -> list[str]:
    """Return the words of the command that prints the names of a Ray cluster's nodes as JSON."""
    return [*_OVER_RAY, "nodes", address]
