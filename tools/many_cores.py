"""Measure a large machine in one go: scaling, placements, training, and what vebench itself costs there.

    python tools/many_cores.py -o many-cores                     # 12 minutes at most
    python tools/many_cores.py -o many-cores --minutes 2         # to try it
    python tools/many_cores.py -o many-cores --torch PYTHON      # a Python with vebench and torch, for PPO

It writes run files, and ``many-cores.md`` with a table of each, into a new folder. Each part gets a share of the time
that is left. A part that takes longer is interrupted, which keeps its run file. PPO is left out without torch.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from threading import Thread

import vebench
from vebench.machine.host import Host, memory_available, read_host

VEBENCH = (sys.executable, "-m", "vebench")
PPO = Path(__file__).parents[1] / "docs" / "examples" / "ppo.py"
BACKENDS = "for-loop,gym-async,shm-sync,shm-async,fast-sync,fast-async,envpool-sync,envpool-async"
FEW = "gym-async,shm-async,fast-async,envpool-async"
BATCH = 64 * 128  # steps of an update of PPO with 64 environments
PAGE_S, TO_END_S = 15.0, 8.0  # to write the page, and to end a command
PATIENCE = 1.15  # a part may take this much longer than its share
FIRST_LOOK = "first look"


@dataclass
class Part:
    """A command, and what became of it. Times are in seconds."""

    title: str
    command: list[str]
    weight: float  # its share of the time, relative to others'
    file: Path | None = None  # the run file
    cut: signal.Signals = signal.SIGINT  # what ends it if it takes too long
    took: float = 0.0
    status: int | None = None  # None: there was no time for it
    table_after: float | None = None  # the time to the first table
    memory: int = 0  # bytes that it took from the memory that was available, at most
    left: tuple[str, ...] = ()  # its processes, and its files in shared memory and in its scratch folder, afterwards
    out: str = ""


def parts(folder: Path, host: Host, torch: str) -> Iterator[Part]:
    """Yield what is measured, in order. All placements are the same on a machine with one memory node."""
    cpus = len(host.cpus_allowed)
    few = sorted({max(1, cpus // 4), max(1, cpus // 2), cpus})
    for env in ("Pong", "HalfCheetah"):
        asked = ["-e", env, "-w", f"1..{cpus}", "-b", BACKENDS]
        yield run(folder, f"{env} on 1 to {cpus} CPUs", f"{env}-scaling", 5, asked)
    placements = {"compact": "--pin compact", "scatter": "--pin scatter", "pool-per-node": "--replicas node"}
    several = sum(bool(node.cpus) for node in host.topology.nodes) > 1
    for name, how in placements.items() if several else ():
        asked = ["-e", "Pong", "-w", ",".join(map(str, few)), "-b", FEW, *how.split()]
        yield run(folder, f"Placement: {name}", f"Pong-{name}", 2, asked)
    for env, updates, weight in (("ALE/Pong-v5", 1, 1.0), ("HalfCheetah-v5", 2, 0.7)):
        for threads, more in product(few, ([], ["--gymnasium"])):
            sizes = ["--envs", "64", "--steps", str(updates * BATCH), "--threads", str(threads)]
            title = f"PPO, {env}, {'AsyncVectorEnv' if more else 'make_vec'}, {threads} torch threads"
            yield Part(title, [torch, str(PPO), env, *sizes, *more], weight, cut=signal.SIGKILL)
    for workers in [count for count in (64, 128, 256) if count <= 4 * cpus] or [4 * cpus]:
        asked = ["-e", "Pong", "-w", str(workers), "-b", f"for-loop,{FEW}"]
        yield run(folder, f"{workers} workers", f"limits-{workers}", 2, asked)


def run(folder: Path, title: str, name: str, weight: float, asked: list[str]) -> Part:
    """Return a part that is a run of vebench, without its budget."""
    file = folder / f"{name}.jsonl"
    return Part(title, [*VEBENCH, "run", *asked, "-o", str(file)], weight, file)


def measure(part: Part, seconds: float) -> None:
    """Run the part, for about so many seconds, and note what it took and what it left."""
    if part.file is not None:
        part.command += ["--budget", f"{seconds:.0f}s"]
    before, memory, start = shared_memory(), memory_available() or 0, time.monotonic()
    with TemporaryDirectory() as scratch:
        environment = os.environ | {"COLUMNS": "100", "TMPDIR": scratch}
        process = subprocess.Popen(
            part.command, text=True, stdout=PIPE, stderr=PIPE, start_new_session=True, env=environment
        )
        readers = [Thread(target=note_table, args=(part, process.stderr, start))]
        readers += [Thread(target=lambda: setattr(part, "out", process.stdout.read()))]
        for reader in readers:
            reader.start()
        signals = [(PATIENCE * seconds, part.cut), (PATIENCE * seconds + TO_END_S, signal.SIGKILL)]
        try:
            while process.poll() is None:
                part.memory = max(part.memory, memory - (memory_available() or memory))
                if signals and time.monotonic() - start > signals[0][0]:
                    _, number = signals.pop(0)
                    # vebench ends its cells when it is interrupted. Others are killed with their workers.
                    (os.kill if number == signal.SIGINT else os.killpg)(process.pid, number)
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        part.took, part.status = time.monotonic() - start, process.returncode
        for reader in readers:
            reader.join()
        part.left = (*with_scratch(scratch), *(shared_memory() - before), *map(str, Path(scratch).iterdir()))


def note_table(part: Part, errors: Iterable[str], start: float) -> None:
    """Read standard error to its end, and note when the first table came."""
    for line in errors:
        if FIRST_LOOK in line and part.table_after is None:
            part.table_after = time.monotonic() - start


def with_scratch(scratch: str) -> Iterator[str]:
    """Yield the processes whose scratch folder this is."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if scratch.encode() in (folder / "environ").read_bytes():
                yield f"process {folder.name}"


def shared_memory() -> set[str]:
    """Return the names of files in shared memory."""
    return {path.name for path in Path("/dev", "shm").glob("*")}


def page(done: list[Part]) -> Iterator[str]:
    """Yield the lines of a page: the machine, then each part with its command and its table."""
    yield "# Many cores\n\n## The machine\n"
    yield reported("doctor")
    yield "## Training with 64 environments\n\n| what | steps/s, learning included | command |\n| --- | ---: | --- |"
    for part in (part for part in done if part.file is None):
        found = re.search(r"(\d+) steps a second", part.out)
        yield f"| {part.title} | {found[1] if found else why(part)} | `{shlex.join(part.command[1:])}` |"
    yield "\n## What vebench itself takes\n"
    yield "| run | took | first table after | slowest start | memory | exit status | left behind |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    runs = [part for part in done if part.file is not None]
    for part in runs:
        starts = [0.0]
        if part.file.exists():
            starts += [cell.figures.startup_seconds or 0.0 for cell in vebench.load(part.file).cells]
        table = "-" if part.table_after is None else f"{part.table_after:.0f} s"
        gib, left = f"{part.memory / 2**30:.1f} GiB", ", ".join(part.left) or "nothing"
        yield f"| {part.title} | {part.took:.0f} s | {table} | {max(starts):.1f} s | {gib} | {why(part)} | {left} |"
    for part in runs:
        yield f"\n## {part.title}\n\n    vebench {shlex.join(part.command[3:])}\n"
        yield reported("report", str(part.file)) if part.file.exists() else why(part)


def why(part: Part) -> str:
    """Return the exit status, or why there is none."""
    if part.status is None:
        return "no time was left"
    return f"not done in {part.took:.0f} s" if part.status == -signal.SIGKILL else str(part.status)


def reported(*words: str) -> str:
    """Return the Markdown that a command of vebench prints, with headings one level lower."""
    printed = subprocess.run([*VEBENCH, *words, "-f", "markdown"], check=False, capture_output=True, text=True).stdout
    return re.sub(r"^#", "##", printed, flags=re.MULTILINE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--folder", type=Path, default=Path("many-cores"), help="new folder for all files")
    parser.add_argument("--minutes", type=float, default=12.0, help="longest time")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="Python with vebench and torch")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes - PAGE_S
    given.folder.mkdir(parents=True)
    planned = list(parts(given.folder, read_host(), given.torch))
    if subprocess.run([given.torch, "-c", "import torch"], check=False, capture_output=True).returncode:
        planned = [part for part in planned if part.file is not None]
        print(f"PPO is left out: {given.torch} has no torch", file=sys.stderr)
    for number, part in enumerate(planned):
        seconds = (end - time.monotonic()) * part.weight / sum(one.weight for one in planned[number:]) / PATIENCE
        print(f"{part.title}: {seconds:.0f} s", file=sys.stderr)
        if seconds > 1:
            measure(part, seconds)
    (given.folder / "many-cores.md").write_text("\n".join(page(planned)) + "\n")
