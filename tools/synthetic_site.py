"""Make submissions that nobody measured, to try ``vebench site`` with as many as it may get one day.

``python tools/synthetic_site.py FOLDER [SUBMISSIONS] [MACHINES]``: by default 500 submissions of 125 machines, in turn.
Rates follow a simple model with noise; the same numbers give the same files.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random

import msgspec

from vebench import __version__
from vebench.machine.topology import flat
from vebench.plan.suites import FROZEN
from vebench.results.header import topology_record
from vebench.results.records import HostRecord
from vebench.share import folder as submission
from vebench.share.folder import InstalledPackage, Interval, MachineRecord, Manifest, Result

CPUS = ("Model A 16-Core Processor", "Model B @ 2.40GHz", "Model C", "Model D 96-Core Processor")
# How fast each backend is with one worker, relative to a loop, and how much of a worker each further one adds.
BACKENDS = (
    "for-loop 1 0,gym-sync .97 0,gym-async .7 .75,shm-sync .95 .9,shm-async .9 .95,envpool-sync 1.2 .85,ceiling 2 1"
)


def make(folder: Path, number: int, machine: int) -> None:
    """Write one submission."""
    of_machine, of_run = Random(machine), Random(f"{number} {machine}")  # noqa: S311 - figures, no secrets
    cpus, level = of_machine.choice((4, 8, 16, 64, 128)), of_machine.uniform(4000, 12000)
    suite = list(FROZEN.values())[machine % len(FROZEN)]
    host = HostRecord(
        *("Linux", f"6.{of_run.randrange(1, 15)}.0", "x86_64", of_machine.choice(CPUS), cpus, tuple(range(cpus)), cpus),
        topology_record(flat(range(cpus))),
        memory_bytes=cpus * 2**31,
        python="3.12.9",
    )
    results = []
    for env in suite.envs:
        ease = Random(env).uniform(0.5, 4)  # noqa: S311 - as above
        for backend, first, further in (line.split() for line in BACKENDS.split(",")):
            for workers in [1 << power for power in range(cpus.bit_length())]:
                ratio = float(first) * (1 + float(further) * (workers - 1)) * of_run.gauss(1, 0.03)
                half = abs(of_run.gauss(0.01, 0.02)) + 0.003
                parts = (1.0, 1 - half, 1 + half)
                rates = [Interval(*(round(one * part, 4) for part in parts)) for one in (level * ease * ratio, ratio)]
                note = "other processes disturbed it" if of_run.random() < 0.02 else ""
                reference = backend == "ceiling"
                verdict = None if reference else "identical"
                results.append(Result(env, backend, workers, workers, *rates, verdict, reference, note))
    identity = sha256(f"{machine}".encode()).hexdigest()[:12]
    contents = {
        submission.RUN: b"".join(of_run.randbytes(60).hex().encode() + b"\n" for _ in range(2000)),
        submission.MACHINE: msgspec.json.encode(MachineRecord(identity, host)),
        submission.PACKAGES: msgspec.json.encode({"numpy": InstalledPackage("2.3.1", sha256(b"").hexdigest())}),
    }
    started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number // 3 + of_run.random())
    digests = {name: sha256(content).hexdigest() for name, content in contents.items()}
    named = (
        suite.id,
        suite.digest,
        "reference",
        started.isoformat(timespec="seconds"),
        f"vebench run --suite {suite.name}",
    )
    manifest = Manifest(submission.SUBMISSION_SCHEMA, __version__, *named, tuple(results), digests)
    contents[submission.MANIFEST] = msgspec.json.encode(manifest)
    target = folder / f"machine-{machine:03}-{number:03}"
    target.mkdir(parents=True)
    for name, content in contents.items():
        (target / name).write_bytes(content)


if __name__ == "__main__":
    count, machines = (int(text) for text in (*sys.argv[2:4], *("500", "125")[len(sys.argv) - 2 :]))
    for each in range(count):
        make(Path(sys.argv[1]), each, each % machines)
