"""The checks of a submission, each with a reason and a remedy, and the figures that a submission states.

The checks find mistakes: lines of two runs, another machine, another plan, work that was not proven, another task's
frame skip, another backend's label, counts that no machine can have. They do not find a run that was forged
consistently: checksums show that files are as they were submitted, not that they were measured.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from math import isclose
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vebench import __version__
from vebench.analysis import rules
from vebench.analysis.cell import is_base
from vebench.analysis.findings import Code
from vebench.analysis.summary import summarise, why_not_same
from vebench.backends.registry import BY_NAME, REFERENCE, YARDSTICK
from vebench.errors import UsageError, VebenchError, harmless, one_line, shown
from vebench.machine.placement import format_cpu_list, place
from vebench.plan.cells import CellKey
from vebench.plan.known_work import DISTRIBUTION, SAME
from vebench.plan.spec import PASSES_OF_ALL
from vebench.plan.suites import FROZEN, FrozenSuite
from vebench.plan.tasks import TASKS, recorded_task
from vebench.results.header import machine_fingerprint, topology_of
from vebench.share.folder import FILES, RUN, SUBMISSION_SCHEMA, Interval, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.plan.spec import RunSpec
    from vebench.results.records import CellRecord, Run, RunRecord
    from vebench.share.folder import Division, Submission

_LONGEST_TEXT = 2000
_MOST_PLACES = 3
_RELEASE = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
# Of a window: how much CPU time its CPUs seem to have given beyond the whole.
_MOST_CPU_TIME, _TICKS_NS = 1.02, 30_000_000
_LEAST_BATCH_NS = 100  # the calls of ``send`` and ``recv`` alone take longer
_MOST_DISTURBED = 0.1  # of all cells, and of all windows those that a quota throttled
# What a submitted figure must not have; ``imprecise`` and ``disturbed`` have rules of their own.
_REFUSED = (
    *(Code.FAILED, Code.DIFFERENT_WORK, Code.ABOVE_CEILING, Code.BELOW_SIMULATOR, Code.INCOMPLETE),
    *(Code.OTHER_PACKAGES, Code.FALLBACK, Code.UNPINNED, Code.PRIORITY),
)


@dataclass(frozen=True)
class Refusal:
    """Why a submission is not accepted: the name of the check, what is wrong, with ``places``, and what to do."""

    check: str
    reason: str
    remedy: str
    places: tuple[str, ...] = ()


class _Examined:
    """A submission with what several checks need of it."""

    def __init__(self, submission: Submission) -> None:
        self.submission, self.manifest = submission, submission.manifest
        self.header: RunRecord = submission.run.header
        self.cells: tuple[CellRecord, ...] = submission.run.cells

    @cached_property
    def suite(self) -> FrozenSuite | None:
        return FROZEN.get(self.manifest.suite)

    @cached_property
    def summaries(self) -> tuple[CellSummary, ...]:
        return summarise(self.submission.run, self.submission.name)

    @property
    def well(self) -> Iterator[CellRecord]:
        return (cell for cell in self.cells if cell.status == "ok")

    @property
    def competing(self) -> Iterator[CellRecord]:
        """The cells whose rows are to be proven."""
        return (cell for cell in self.well if not cell.entry.reference_row and cell.label != REFERENCE)


Found: TypeAlias = Iterator[str | tuple[str, str]]  # what is wrong, with its place if it has one
_Check: TypeAlias = Callable[[_Examined], Found]


def refusals(submission: Submission) -> tuple[Refusal, ...]:
    """Return all reasons not to accept a submission, each once; none if it is accepted."""
    found: list[Refusal] = []
    try:
        examined = _Examined(submission)
        submission.machine, submission.packages  # noqa: B018 - they are decoded here
    except VebenchError as error:
        return (Refusal("files", str(error), AS_WRITTEN),)
    for name, remedy, check in _CHECKS:
        if any(one.check == "plan" for one in found):  # the others would take it for granted
            break
        places: dict[str, list[str]] = {}
        try:
            for one in check(examined):
                reason, place = (one, "") if isinstance(one, str) else one
                places.setdefault(reason, []).append(place)
        except (VebenchError, ValueError, KeyError, IndexError, ArithmeticError) as error:  # of values that do not fit
            places.setdefault(f"cannot be checked: {one_line(str(error))}", [])
        found += [Refusal(name, reason, remedy, _few(where)) for reason, where in places.items()]
    return tuple(found)


def _few(places: Sequence[str]) -> tuple[str, ...]:
    named = [place for place in places if place]
    rest = len(named) - _MOST_PLACES
    return (*named[:_MOST_PLACES], *([f"and {rest} more"] if rest > 0 else []))


def _place(cell: CellRecord) -> str:
    return f"{_cell(cell.key)}, repeat {cell.repeat}"


def _cell(key: CellKey) -> str:
    return f"{key.env}, {key.backend}, {key.size}"


def _files(it: _Examined) -> Found:
    yield from (f"{name} is not the file that was submitted" for name in it.submission.damaged)
    lines = 1 + len(it.cells) + sum(cell.proof is not None for cell in it.cells)
    if it.submission.contents[RUN].count(b"\n") != lines or it.submission.run.notes:
        yield f"{RUN} has other lines than its cells and their proofs, once each"
    if it.manifest.schema != SUBMISSION_SCHEMA:
        yield f"schema {it.manifest.schema} is not known here"


def _names(it: _Examined) -> Found:
    contents = it.submission.contents
    for part in (*(contents[name] for name in FILES if name != RUN), *contents[RUN].splitlines()):
        for text in _texts(msgspec.json.decode(part)):  # as it is in the file
            if len(text) > _LONGEST_TEXT or harmless(text) != text:
                yield f"a text is too long, or not printable: {shown(text)}"


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - as JSON has it
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _release(it: _Examined) -> Found:
    version = it.manifest.vebench
    if version != it.header.packages.get("vebench"):
        yield f"it is said to be of vebench {version}, the run is of {it.header.packages.get('vebench')}"
    if not _RELEASE.fullmatch(version):
        yield f"vebench {version} is no release"
    elif tuple(map(int, version.split("."))) > tuple(map(int, __version__.split(".")[:3])):
        yield f"vebench {version} is later than this one, {__version__}"


def _plan(it: _Examined) -> Found:
    spec, suite = it.header.spec, it.suite
    if suite is None or spec.suite != it.manifest.suite:
        yield f"{shown(it.manifest.suite)} is not the suite of the run, or none: {shown(spec.suite)}"
        return
    if it.manifest.plan != suite.digest:
        yield f"the plan of {suite.id} is {suite.digest}, not {it.manifest.plan}"
    planned = suite.spec(it.header.host.usable_cpus, spec.backends)
    for item in fields(planned):
        is_, was = (getattr(one, item.name) for one in (spec, planned))
        if is_ != was:
            yield f"{item.name} is {shown(str(is_))}, not {shown(str(was))}"
    if it.header.interpreter is not None or it.header.hosts:
        yield "it was measured by another command than vebench run on one machine"


def _stated(it: _Examined) -> Found:
    run, manifest = it.submission.run, it.manifest
    if manifest.division != division_of(run.header.spec):
        yield f"its division is {division_of(run.header.spec)}, not {manifest.division}"
    if (manifest.started, manifest.command) != (run.header.started, run.header.command):
        yield "its start or command is not that of the run"
    if manifest.command != command_of(run.header.spec):
        yield f"its command is not {command_of(run.header.spec)}"
    if not datetime.fromisoformat(manifest.started).astimezone(UTC) < datetime.now(UTC) + timedelta(days=1):
        yield "it starts in the future"
    ours = {(one.env, one.backend, one.workers): one for one in results_of(it.summaries)}
    for one in manifest.results:
        found = ours.pop((one.env, one.backend, one.workers), None)
        if found is None or not _alike(one, found):
            yield "figures are not those of the run", _cell(CellKey(one.env, one.backend, one.workers, 1))
    if ours:
        yield f"figures of {len(ours)} cells are missing"


def _alike(one: Result, other: Result) -> bool:
    """Return whether two results are the same but for words and rounding, which may change with versions."""
    figures = [(each.frames_per_second, each.speedup) for each in (one, other)]
    numbers = [
        [bound for found in both if found for bound in (found.median, found.low, found.high)] for both in figures
    ]
    same = [(each.num_envs, each.verdict, each.reference_row, bool(each.note)) for each in (one, other)]
    return (
        same[0] == same[1]
        and len(numbers[0]) == len(numbers[1])
        and all(
            first == second or (first and second and isclose(first, second, rel_tol=0.01))
            for first, second in zip(*numbers, strict=True)
        )
    )


def _complete(it: _Examined) -> Found:
    spec = it.header.spec
    labels = {cell.label for cell in it.cells if not cell.entry.reference_row}
    asked = {one.label for one in spec.backends} or labels
    passes: dict[CellKey, set[int]] = {}
    for cell in it.cells:
        passes.setdefault(cell.key.without_repeat, set()).add(cell.repeat)
    planned = {CellKey(env, label, workers, 1) for env in spec.envs for label in asked for workers in spec.workers}
    planned |= {CellKey(env, name, 1, 1) for env in spec.envs for name in (REFERENCE, YARDSTICK)}
    for key in sorted(planned | passes.keys()):
        if passes.get(key) != {*range(spec.passes)}:
            yield "cells of the plan are missing", _cell(key)
    if it.header.cells != len(it.cells):
        yield f"there are {len(it.cells)} cells, and {it.header.cells} were planned"
    if not asked & {cell.label for cell in it.competing}:
        yield "no backend was measured"
    for cell in it.well:
        if len(cell.windows) < spec.windows:
            yield f"there are fewer than {spec.windows} windows", _place(cell)


def _one_run(it: _Examined) -> Found:
    digest = it.header.digest
    for cell in it.cells:
        if cell.run != digest:
            yield "cells are of another run, machine, plan or packages", _place(cell)
    order = [key for key, _ in groupby((cell.repeat, cell.env) for cell in it.cells)]
    if len(order) != len(set(order)) or [repeat for repeat, _ in order] != sorted(repeat for repeat, _ in order):
        yield "passes are not in the order in which they are measured"


def _work(it: _Examined) -> Found:
    seeds = Counter(cell.proof.seed for cell in it.cells if cell.proof is not None and cell.proof.rows)
    for cell in it.competing:
        proof = cell.proof
        if proof is None:
            if cell.repeat < PASSES_OF_ALL:
                yield "rows were not compared with those of a plain loop", _place(cell)
            continue
        if proof.impossible and proof.verdict == "unverified" and cell.verdict in (DISTRIBUTION, "unverified"):
            continue  # it has no place, or one by its episodes
        if proof.verdict not in SAME:
            yield f"its work is not proven: {why_not_same(proof)}", _place(cell)
        elif not (proof.rows > 0 and 0 < proof.steps <= proof.of_steps) or not (
            0 < proof.environments <= proof.num_envs == cell.num_envs
        ):
            yield "a proof does not fit its cell", _place(cell)
        elif seeds[proof.seed] > 1:
            yield "a proof is that of another cell, too", _place(cell)
        elif sum(window.rows for window in cell.windows) != proof.timed_rows:
            yield "windows have other rows than were seen while they were measured", _place(cell)


def _layout(it: _Examined) -> Found:
    for cell in it.well:
        entry = cell.entry
        if entry.reference_row or entry.name not in BY_NAME:
            continue
        task = recorded_task(cell.env, cell.frame_skip, it.header.spec.envs)
        if (known := TASKS.get(cell.env)) and cell.frame_skip != known.frame_skip:
            yield f"a step of {cell.env} has {known.frame_skip} frames, not {cell.frame_skip}", _place(cell)
        planned = entry.shape_of(cell.workers, cell.envs_per_worker, len(cell.cpus), cell.options)
        names = ("num_envs", "batch_size") if entry.installation else ("num_envs", "batch_size", "processes", "threads")
        fell_back = cell.own_classes is not None and bool(cell.own_classes.refused)
        another_shape = any(getattr(cell, name) != getattr(planned, name) for name in names)
        if (cell.own_classes is None) != (entry.own_classes is None) or (another_shape and not fell_back):
            yield f"its environments, processes, threads or classes are not those of {cell.label}", _place(cell)
        if cell.proof is not None and cell.proof.verdict in SAME and entry.chance(replace(task, exact=True)):
            yield (
                f"{cell.label} cannot be compared with {REFERENCE} on this task, and this says that it was",
                _place(cell),
            )


def _counts(it: _Examined) -> Found:
    for cell in it.well:
        for window in cell.windows:
            whole = len(cell.cpus) * window.ns
            if window.ns < int(it.header.spec.duration * 1e9):
                yield "a window is shorter than it was to be", _place(cell)
            if window.batches is None and window.rows % cell.batch_size:
                yield "a window has no whole number of batches", _place(cell)
            batches = window.rows / cell.batch_size if window.batches is None else window.batches
            if batches * _LEAST_BATCH_NS > window.ns:
                yield "a window has more batches than any loop can step", _place(cell)
            if window.cpu_ns is not None and window.cpu_ns > _MOST_CPU_TIME * whole + _TICKS_NS * len(cell.cpus):
                yield "a window has more CPU time than its CPUs have", _place(cell)
        if cell.took_ns is not None and sum(window.ns for window in cell.windows) > cell.took_ns:
            yield "windows are longer than the whole cell", _place(cell)


def _findings(it: _Examined) -> Found:
    for group in rules.grouped([cell for cell in it.summaries if not cell.reference_row]):
        if group.finding.code in _REFUSED:
            for place in group.places:
                yield f"{group.finding.code}: {group.finding.message}", place


def _undisturbed(it: _Examined) -> Found:
    disturbed = [cell for cell in it.summaries if cell.disturbed]
    if len(disturbed) > _MOST_DISTURBED * len(it.summaries):
        yield f"other processes disturbed {len(disturbed)} of {len(it.summaries)} cells"
    throttled, windows = (
        sum(getattr(cell, name) for cell in it.summaries) for name in ("throttled_windows", "windows")
    )
    if throttled > _MOST_DISTURBED * windows:
        yield f"a CPU quota throttled {throttled} of {windows} windows"


def _intervals(it: _Examined) -> Found:
    widest = it.suite.widest if it.suite else 0.0
    for cell in it.summaries:
        half = None if cell.speedup is None else cell.speedup.half_width
        compared = cell.status == "ok" and not cell.reference_row and not is_base(cell.key)
        if compared and (half is None or half > widest):
            yield f"speedups have intervals wider than ±{widest:.0%}", _cell(cell.key)


def _pinning(it: _Examined) -> Found:
    host, pin = it.header.host, it.header.spec.pin
    if not (host.pinning and pin.pins):
        yield "it was measured without pinning"
        return
    allowed, topology = frozenset(host.cpus_allowed), topology_of(host.topology)
    placed = place(pin.cpus, allowed, host.quota_cpus, topology=topology, smt=pin.smt, nodes=host.nodes_allowed)
    if placed.usable != host.usable_cpus:
        yield f"{placed.usable} CPUs can be used, not {host.usable_cpus}"
    for cell in it.cells:
        if cell.cpus != placed.owned(cell.workers):
            yield f"CPUs are not those of --pin {pin.label}: {format_cpu_list(cell.cpus)}", _place(cell)


def _machine(it: _Examined) -> Found:
    machine, host = it.submission.machine, it.header.host
    if machine.host != host or machine.id != machine_fingerprint(it.header):
        yield "machine.json is not the machine of the run"
    cores = topology_of(host.topology)
    if not (len(cores.online) == host.cpus_online and set(host.cpus_allowed) <= set(cores.online)):
        yield "its CPUs are not those of its cores"
    if len(cores.cores) != host.topology.cores:
        yield f"it has {len(cores.cores)} cores, not {host.topology.cores}"
    node_names = {*host.topology.nodes}
    for cell in it.well:
        if cell.memory_by_node and not set(cell.memory_by_node) <= node_names:
            yield "a cell has memory on nodes that the machine has not", _place(cell)


def _packages(it: _Examined) -> Found:
    stated = {name: package.version for name, package in it.submission.packages.items()}
    for name in sorted(stated.keys() | it.header.packages.keys()):
        if stated.get(name) != it.header.packages.get(name):
            yield f"{name} is {stated.get(name)} in packages.json, {it.header.packages.get(name)} in the run"
    yield from (
        f"{name} has no digest" for name, one in it.submission.packages.items() if not one.sha256 and name != "vebench"
    )


AS_WRITTEN = "submit the folder as vebench share make wrote it"
_AGAIN = "measure again with vebench run --suite, and submit that run"
_CHECKS: tuple[tuple[str, str, _Check], ...] = (
    ("files", AS_WRITTEN, _files),
    ("names", AS_WRITTEN, _names),
    ("release", "measure and submit with a released version, and check with the same or a later one", _release),
    ("plan", "measure with vebench run --suite, without changing its plan", _plan),
    ("stated", AS_WRITTEN, _stated),
    (
        "complete",
        "finish the run with vebench run --resume, or measure again if it was interrupted amid a pass",
        _complete,
    ),
    ("one-run", _AGAIN, _one_run),
    ("work", "leave the backend out with -b, or measure again", _work),
    ("layout", _AGAIN, _layout),
    ("counts", _AGAIN, _counts),
    ("findings", "see vebench report, do what it says, or leave the backend out with -b", _findings),
    ("undisturbed", "measure on an idle machine", _undisturbed),
    ("intervals", "measure on an idle machine", _intervals),
    ("pinning", "measure on Linux, with the plan's --pin compact", _pinning),
    ("machine", AS_WRITTEN, _machine),
    ("packages", "submit from the environment that measured, with packages that pip or uv has installed", _packages),
)


def command_of(spec: RunSpec) -> str:
    """Return the command that measures the suite of ``spec`` with its backends."""
    backends = ",".join(one.label for one in spec.backends)
    named = ("-b", backends) if backends else ()
    return shlex.join(("vebench", "run", "--suite", spec.suite.partition("/")[0], *named))


def division_of(spec: RunSpec) -> Division:
    """Return what figures of ``spec`` are compared with: those of default settings, of named settings, or any."""
    if any(choice.python or choice.name not in BY_NAME for choice in spec.backends):
        return "open"
    return "tuned" if any(choice.options for choice in spec.backends) else "reference"


def results_of(cells: Sequence[CellSummary]) -> tuple[Result, ...]:
    """Return the figures of these cells, as a submission states them."""
    return tuple(
        Result(
            env=cell.env,
            backend=cell.label,
            workers=cell.workers,
            num_envs=cell.num_envs,
            frames_per_second=_interval(cell.frames_per_second),
            speedup=_interval(cell.speedup),
            verdict=cell.verdict,
            reference_row=cell.reference_row,
            note=one_line(cell.reason or cell.why_struck)[:500],
        )
        for cell in sorted(cells, key=lambda cell: cell.key[:-1])
    )


def _interval(found: Estimate | None) -> Interval | None:
    if found is None:
        return None
    low, high = (None if bound is None else _rounded(bound) for bound in (found.low, found.high))
    return Interval(_rounded(found.median), low, high)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def suite_of(run: Run) -> FrozenSuite:
    """Return the suite that a run measured. Raises UsageError if it is of none."""
    suite = FROZEN.get(run.header.spec.suite)
    if suite is None:
        names = ", ".join(dict.fromkeys(one.name for one in FROZEN.values()))
        raise UsageError(f"the run has no fixed plan: measure with vebench run --suite NAME, one of {names}")
    return suite
