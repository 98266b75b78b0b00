"""How often ``vebench bisect`` is right: a repository of 30 commits is made, one of which makes an environment slower.

``python tools/bisections.py [REPEATS [SLOWER [BUSY]]]``: by default 10 bisections of a step of 10 %, with one process
beside them that is busy half of the time. The environment works in Python. Candidates are not built by pip, but copied
into environments that see this one's packages: what is tried is how it measures and decides.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import sysconfig
import time
import venv
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from random import Random
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vebench.cli import invoke
from vebench.commands.session import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMITS, WORK = 30, 4000
PLAN = ("-e", "worked:Worked", "-b", "for-loop", "-w", "1", "--budget", "10m", "-f", "json")
ENVIRONMENT = """
import gymnasium
import numpy as np

class Worked(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        for _ in range(WORK):
            pass
        self.step_number += 1
        return np.zeros(1, np.float32), 0.0, False, self.step_number >= 1000, {}
"""
BUSY = """
import time
while True:
    until = time.monotonic() + SHARE * 0.2
    while time.monotonic() < until:
        pass
    time.sleep((1 - SHARE) * 0.2)
"""


def git(folder: Path, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, at: int, slower: float) -> list[str]:
    """Make a repository whose environment is slower from commit ``at`` on, and return the hashes."""
    folder.mkdir()
    git(folder, "init", "-q")
    hashes = []
    for number in range(COMMITS):
        work = round(WORK / (1 - slower)) if number >= at else WORK
        (folder / "worked.py").write_text(f"WORK = {work}  # {number}\n{ENVIRONMENT}")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        hashes.append(git(folder, "rev-parse", "HEAD"))
    return hashes


def copied(requirements: Sequence[str], folder: Path) -> str:
    """Lay a checkout into a new environment that has the packages of this one, and return its Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip())
    copytree(requirements[0], folder / "source")
    (packages / "all.pth").write_text(f"{folder / 'source'}\n{sysconfig.get_path('purelib')}\n")
    return str(python)


@contextmanager
def busy(share: float) -> Iterator[None]:
    """Keep a process busy for this share of the time."""
    process = subprocess.Popen([sys.executable, "-c", f"SHARE = {share}\n{BUSY}"]) if share else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def main(repeats: int = 10, slower: float = 0.1, share: float = 0.5) -> None:
    """Print a line for each bisection, and how many were right."""
    right = 0
    for number in range(repeats):
        at = Random(number).randrange(1, COMMITS)  # noqa: S311 - to repeat, no secret
        with TemporaryDirectory() as scratch, busy(share), redirect_stdout(io.StringIO()) as printed:
            hashes = repository(Path(scratch, "repository"), at, slower)
            ends = ("--good", hashes[0], "--bad", hashes[-1], "--repo", f"{scratch}/repository")
            begun = time.monotonic()
            steps = ("-o", f"{scratch}/steps.jsonl")
            status = invoke(["bisect", *ends, *PLAN, *steps], World(install=copied))
            took = time.monotonic() - begun
        answer = json.loads(printed.getvalue() or "{}")
        names = {hashes.index(answer[end]) for end in ("first", "last")} if answer else set()
        right += names == {at}
        count = sum(one["steps"] for one in answer.get("candidates", ()))
        print(f"change in {at}: status {status}, found {sorted(names)}, {count} steps, {took:.0f} s", flush=True)
    print(f"{right} of {repeats} right")


if __name__ == "__main__":
    arguments = [float(word) for word in sys.argv[1:]]
    main(*(int(value) if number == 0 else value for number, value in enumerate(arguments)))
