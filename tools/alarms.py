"""How often ``compare`` calls the same code slower, or decides nothing, and how often it finds what is slower.

``python tools/alarms.py FILE [--planted environment|wrapper|backend] [--slower 0.1] [--count 50] [--busy 0.5]``: each
comparison is of two fresh interpreters with copies of a small project, and measures one backend on its environment,
in which a step works in Python for about 0.1 ms, or on CartPole. Without ``--planted`` both sides have the same code.
``--busy``: one process beside is busy for this share of the time. ``--pin``: as of ``compare --set pin``; so two of
these can run at the same time on two CPUs. FILE keeps the answers as JSON Lines; what is printed counts all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import gymnasium
from bisections import ENVIRONMENT, WORK, busy, copied

PLAN = ("-w", "1", "--effort", "low", "--tolerance", "5%", "--budget", "10m", "-f", "json")
BACKENDS = ("gym-sync", "for-loop")
WRAPPED = """
class Wrapped(gymnasium.Wrapper):
    def step(self, action):
        for _ in range(WRAPPER):
            pass
        return self.env.step(action)

def make():
    return Wrapped(Worked())
"""
BACKEND = """
_step = SyncVectorEnv.step

def _slower(self, actions):
    for _ in range({work} * self.num_envs):
        pass
    return _step(self, actions)

SyncVectorEnv.step = _slower
"""


def side(folder: Path, slower: float, planted: str) -> str:
    """Lay the project into an environment of its own, and return its Python. ``planted`` is what is slower in it."""
    source, more = folder / "source", round(WORK * slower / (1 - slower))
    source.mkdir(parents=True)
    work = {"WORK": WORK + more * (planted == "environment"), "WRAPPER": more * (planted == "wrapper")}
    heads = [f"{name} = {count}\n" for name, count in work.items()]
    (source / "project.py").write_text("".join(heads) + ENVIRONMENT + WRAPPED)
    if planted == "backend":
        copytree(Path(gymnasium.__file__).parent, source / "gymnasium")
        with (source / "gymnasium" / "vector" / "sync_vector_env.py").open("a") as file:
            file.write(BACKEND.format(work=more))
    return copied([str(source)], folder / "environment")


def compared(number: int, slower: float, planted: str, pin: str) -> dict[str, object]:
    """Return what one comparison has answered, in how many seconds."""
    env = "CartPole" if number % 4 == 0 and not planted else "project:make"
    backend = "gym-sync" if planted == "backend" else BACKENDS[number % 2]
    with TemporaryDirectory() as scratch:
        pythons = [side(Path(scratch, name), slower, what) for name, what in (("a", ""), ("b", planted))]
        command = [
            sys.executable,
            "-m",
            "vebench",
            "compare",
            *pythons,
            "-e",
            env,
            "-b",
            backend,
            "--set",
            f"pin={pin}",
            *PLAN,
        ]
        begun = time.monotonic()
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        took = time.monotonic() - begun
    groups = json.loads(done.stdout)["groups"] if done.stdout else []
    why = groups[0]["why"] if groups else done.stderr
    ratio = groups[0]["ratio"] if groups else None
    return {"env": env, "backend": backend, "status": done.returncode, "s": round(took), "ratio": ratio, "why": why}


def main() -> None:
    """Compare, and print how often each status was the answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--planted", choices=("environment", "wrapper", "backend"), default="")
    parser.add_argument("--slower", type=float, default=0.1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--busy", type=float, default=0.0)
    parser.add_argument("--pin", default="compact")
    asked = parser.parse_args()
    about = {"day": time.strftime("%F"), "planted": asked.planted, "slower": asked.slower, "busy": asked.busy}
    with busy(asked.busy):
        for number in range(asked.count):
            answer = compared(number, asked.slower, asked.planted, asked.pin)
            with asked.file.open("a") as file:
                file.write(json.dumps({**about, **answer}) + "\n")
    kinds: dict[tuple[str, float], list[dict[str, int]]] = {}
    for one in map(json.loads, asked.file.read_text().splitlines()):
        kinds.setdefault((one["planted"] and f"{one['planted']}, {one['slower']:.0%}", one["busy"]), []).append(one)
    print("| planted | busy | comparisons | status 0 | 1 | 3 | seconds, median | longest |\n" + "| --- " * 8 + "|")
    for (planted, share), answers in kinds.items():
        counts = Counter(one["status"] for one in answers)
        times = sorted(one["s"] for one in answers)
        each = [counts[status] for status in (0, 1, 3)]
        cells = (planted or "nothing", share, len(answers), *each, times[len(times) // 2], times[-1])
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
