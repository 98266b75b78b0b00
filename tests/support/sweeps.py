"""Sweeps over workers on machines with more CPUs than a test has, as run files hold them."""

from collections.abc import Mapping, Sequence

from msgspec import structs
from support.records import make_cell, make_header

from vebench.machine.host import format_cpu_list
from vebench.results.records import CellRecord, RunRecord, TopologyRecord


def header_of(cores: int, threads: int = 1, packages: int = 1, **spec: object) -> RunRecord:
    """Return the first line of a run on a machine with so many cores, threads in each core, and packages.

    Second threads are numbered after all first ones. Other keywords go to the spec.
    """
    count = cores * threads
    header = make_header(count, **spec)
    share = cores // packages
    of_package = {
        str(package): format_cpu_list(cpu for cpu in range(count) if cpu % cores // share == package)
        for package in range(packages)
    }
    topology = TopologyRecord(
        cores=cores,
        threads_per_core=threads,
        packages=of_package,
        nodes=of_package,
        last_level=tuple(of_package.values()),
        kinds=(format_cpu_list(range(count)),),
        core_cpus=tuple(format_cpu_list(range(core, count, cores)) for core in range(cores)),
    )
    return structs.replace(header, host=structs.replace(header.host, topology=topology))


def sweep_of(
    rates: Mapping[int, float], backend: str = "shm-async", cpus: Sequence[int] = range(64), **fields: object
) -> list[CellRecord]:
    """Return cells with these rates in frames per second by workers; intervals are of about 4 %.

    Workers take ``cpus`` one after the other. A batch waits for half of the environments, unless ``fields`` differ.
    """
    counts = {"backend": backend, "frame_skip": 1}
    return [
        make_cell(
            workers=workers,
            steps=(round(rate),) * 4,
            cpus=tuple(cpus[:workers]),
            **{"processes": workers, "num_envs": 2 * workers, "batch_size": workers, **counts, **fields},
        )
        for workers, rate in rates.items()
    ]
