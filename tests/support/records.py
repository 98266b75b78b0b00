"""Runs to analyse and render, built from records as a run file would hold them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import msgspec

from vebench.child.answers import Cause, HostShare
from vebench.machine.host import flat
from vebench.plan.grammar import parse_pin
from vebench.plan.spec import RunSpec
from vebench.results.records import (
    SCHEMA,
    CellRecord,
    HostFactsRecord,
    HostRecord,
    Run,
    RunRecord,
    WindowRecord,
    encode,
    sealed,
    topology_record,
)

SECOND = 1_000_000_000
NOISE = (1.0, 1.012, 0.991)  # of three processes
CHECKSUM = re.compile(rb',\s*"crc32": ?"[^"]*"\}\Z')
FIRST_DAY = datetime(2026, 9, 1, 8, 15, tzinfo=UTC)


def make_header(usable_cpus: int = 2, *, pinning: bool = True, **spec: object) -> RunRecord:
    """Return the first line of a run on a machine with this many usable CPUs; other keywords go to its spec."""
    if isinstance(text := spec.get("pin"), str):  # as a user writes it
        spec["pin"] = asdict(parse_pin(text))
    asked = msgspec.convert({"envs": ["Pong"], "workers": [1, 2, 4], "proof": "off", **spec}, RunSpec)
    host = HostRecord(
        system="Linux",
        kernel="6.1.0",
        machine="x86_64",
        cpu_model="Test CPU",
        cpus_online=usable_cpus,
        cpus_allowed=tuple(range(usable_cpus)),
        usable_cpus=usable_cpus,
        topology=topology_record(flat(range(usable_cpus))),
        memory_bytes=24 * 2**30,
        python="3.11.9",
        pinning=pinning,
    )
    packages = {"gymnasium": "1.4.0"}
    return RunRecord(SCHEMA, asked, host, packages, "vebench run --env Pong", "2026-11-21T08:15:00+00:00")


def on_hosts(head: RunRecord, *cpus: int) -> RunRecord:
    """Return the same first line of a run on hosts that are called host-0, host-1 and so on, with so many CPUs."""
    hosts = {
        f"host-{number}": HostFactsRecord(msgspec.structs.replace(head.host, usable_cpus=count), {"numpy": "2"})
        for number, count in enumerate(cpus)
    }
    return msgspec.structs.replace(head, hosts=hosts)


def make_cell(backend: str = "for-loop", workers: int = 1, steps: tuple[int, ...] = (), **fields: object) -> CellRecord:
    """Return a cell of Pong on two CPUs, with a one-second window for each of ``steps``, the steps made in it."""
    windows = tuple(WindowRecord(ns=SECOND, rows=rows, resets=0, cpu_ns=SECOND) for rows in steps)
    known = CellRecord(
        env="ALE/Pong-v5",
        backend=backend,
        options={},
        workers=workers,
        envs_per_worker=1,
        num_envs=workers,
        batch_size=workers,
        processes=1,
        threads=1,
        cpus=tuple(range(min(workers, 2))),
        frame_skip=4,
        repeat=0,
        status="ok",
        startup_ns=SECOND // 2,
        peak_rss_bytes=100 * 2**20,
        windows=windows,
        verdict=None if backend in ("ceiling", "null") else "identical",
    )
    if fields.get("reason") == Cause.INTERRUPTED.reason:
        fields["cause"] = Cause.INTERRUPTED
    return replace(known, **fields)


def shares(*rates: float) -> tuple[HostShare, ...]:
    """Return what hosts did that were called host-0, host-1 and so on, with these steps per second."""
    return tuple(HostShare(f"host-{number}", rate, 0, 1000) for number, rate in enumerate(rates))


@cache
def make_sweep() -> Run:
    """Return a run of Pong on two CPUs with every outcome that a cell can have."""
    cells = [
        make_cell("null", 1, (2_500_000, 2_510_000, 2_490_000, 2_505_000)),
        make_cell("for-loop", 1, (2300, 2310, 2305, 2290, 2308, 2301)),
        make_cell("for-loop", 2, (2320, 2310, 2335, 2290, 2308, 2301)),
        make_cell("for-loop", 4, (2320, 2310, 2335, 2290, 2308, 2301)),
        make_cell("gym-async", 1, (1800, 1810, 1795, 1790, 1808, 1801)),
        make_cell("gym-async", 2, (2400, 2500, 2450, 2380, 2420, 2600)),
        make_cell("gym-async", 4, (), status="failed", reason="timed out after 300 s in recv | see log"),
        make_cell("envpool-sync", 1, (2500, 2510, 2495, 2490, 2508, 2501), differences=("rewards are float32",)),
        make_cell("envpool-sync", 2, (3600, 3610, 3595, 3590, 3608, 3601), differences=("rewards are float32",)),
        make_cell("envpool-sync", 4, (), status="skipped", reason="EnvPool has no ALE/Pong-v5"),
        make_cell("mine.adapters:Fast", 2, (3700,), options={"mode": "a|b"}),
        make_cell("ceiling", 1, (4700, 4710, 4690, 4700, 4705, 4712)),
        make_cell("ceiling", 2, (9400, 9410, 9390, 9400, 9405, 9412)),
        make_cell("ceiling", 4, (9400, 9410, 9390, 9400, 9405, 9412)),
    ]
    return Run(make_header(), tuple(cells))


def make_runs(
    rates: Mapping[tuple[str, int], Sequence[float | None]], header: RunRecord | None = None, first: int = 0
) -> list[tuple[str, Run]]:
    """Return runs of Pong, one a day, with their names, which begin with ``000.jsonl`` for the day ``first``.

    ``rates`` has what each run measured by backend and workers, in thousands of frames per second; None for no cell.
    """
    days = range(first, first + max(map(len, rates.values())))
    return [(f"{day:03}.jsonl", Run(_on(day, header), tuple(_cells(rates, day - first)))) for day in days]


def _on(day: int, header: RunRecord | None) -> RunRecord:
    started = (FIRST_DAY + timedelta(days=day)).isoformat(timespec="seconds")
    return msgspec.structs.replace(header or make_header(), started=started)


def _cells(rates: Mapping[tuple[str, int], Sequence[float | None]], run: int) -> Iterator[CellRecord]:
    for (backend, workers), measured in rates.items():
        if (rate := measured[run]) is not None:
            yield make_cell(backend, workers, (round(1000 * rate),) * 4, frame_skip=1)


def make_repeated(rates: Mapping[tuple[str, int], float], header: RunRecord | None = None, **fields: object) -> Run:
    """Return a run of Pong with three processes of each cell, whose levels are these steps per second by and by.

    ``rates`` are by backend and workers. Other keywords go to every cell.
    """
    cells = (
        make_cell(backend, workers, (round(rate * noise), round(rate * noise * 1.01)), repeat=repeat, **fields)
        for repeat, noise in enumerate(NOISE)
        for (backend, workers), rate in rates.items()
    )
    return Run(header or make_header(), tuple(cells))


def on_machine(header: RunRecord, **facts: object) -> RunRecord:
    """Return the first line of the same run on a machine with other facts."""
    return msgspec.structs.replace(header, host=msgspec.structs.replace(header.host, **facts))


def write_run(path: Path, run: Run) -> Path:
    """Write a run file as vebench does, notes apart. Returns its path."""
    return write_lines(path, [encode(line).decode().rstrip() for line in (run.header, *run.cells)])


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write a run file of these lines, each with a checksum that fits. Returns its path."""
    path.write_bytes(b"".join(sealed(CHECKSUM.sub(b"}", line.encode())) for line in lines))
    return path
