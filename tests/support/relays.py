"""What replicas on other hosts are made of, as seen on this machine: their relays, and the processes that measure.

Where a test has set ``TMPDIR``, as ``scoped`` does, they are those of that test: other tests, or runs, may be at work.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

# A run's own scratch folder has links to the code, another host's has the code itself.
LINKED = "packages/vebench/child"
PATIENCE_S = 5.0


def scoped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give what this test starts a folder of its own for temporary files."""
    there = folder / "temporary"
    there.mkdir()
    monkeypatch.setenv("TMPDIR", str(there))


def _root() -> str:
    return os.environ.get("TMPDIR") or tempfile.gettempdir()


def relays() -> list[int]:
    """Return the processes that run the far side of a connection."""
    return [
        pid
        for pid, words in _processes()
        if b"python" in words[0] and any(b"os.read(0," in word for word in words) and _ours(pid)
    ]


def _ours(pid: int) -> bool:
    if "TMPDIR" not in os.environ:
        return True
    try:
        return f"TMPDIR={_root()}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False


def measuring() -> dict[int, dict[str, Any]]:
    """Return the processes that measure on a host, each with what it was asked."""
    found = {}
    for pid, words in _processes():
        asks = os.fsdecode(words[-3]) if b"vebench.child.main" in words else ""
        if "/cell-" in asks and asks.startswith(_root()):
            try:
                found[pid] = json.loads(Path(asks).read_text(encoding="utf-8"))
            except (OSError, ValueError):  # it has ended, or just begins
                continue
    return found


def left() -> list[str]:
    """Return what is left of connections: processes, and folders of theirs. What others just make or end is none."""
    until = time.monotonic() + PATIENCE_S
    while (found := _found()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _found() -> list[str]:
    folders = [path for path in Path(_root()).glob("vebench-????????") if path.is_dir()]
    theirs = [path for path in folders if not any(path.glob("*lock")) and not (path / LINKED).is_symlink()]
    return [*map(str, relays()), *map(str, measuring()), *map(str, theirs)]


def _processes() -> list[tuple[int, list[bytes]]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                found.append((int(folder.name), (folder / "cmdline").read_bytes().split(b"\0")))
            except OSError:
                continue
    return found
