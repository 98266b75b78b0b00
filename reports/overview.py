"""Pages that need no measurement: the machine, the backends and tasks that it can measure, and a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise

from vebench.analysis.cell import Code, Finding
from vebench.analysis.rules import own_classes
from vebench.backends.entry import BackendEntry
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.interface import Task
from vebench.backends.packages import how_to_install, importable
from vebench.backends.registry import ENTRIES, INSTALLATIONS, REFERENCE, YARDSTICK, Standing, standings
from vebench.errors import one_line
from vebench.interpreters import python_of
from vebench.machine import kernel
from vebench.machine.host import Host, Placement, Topology, format_cpu_list
from vebench.machine.kernel import Cpus
from vebench.plan.cells import Cell, Plan, most_at_once, report_order, time_planned
from vebench.plan.spec import RunSpec
from vebench.reports import figures
from vebench.reports.document import AnswerText, Document, Remark, SimplePage, Table, TableRow, Text
from vebench.reports.figures import DASH, SAME_WORK, by_key, byte_size, counted, long_time


def _words_table(title: str, corner: str, columns: Iterable[str], rows: Iterable[TableRow], *notes: str) -> Table:
    return Table(title, tuple(columns), tuple(rows), corner, notes, numbers=False)


def _row(label: str, *texts: str) -> TableRow:
    return TableRow(label, tuple(Text((text,)) for text in texts))


@dataclass(frozen=True)
class Machine:
    """The facts about a machine that its page shows."""

    host: Host
    placement: Placement
    orders: Mapping[str, Cpus]  # for each policy, all allowed CPUs in its order, with second threads last
    workers: int | None  # the number of workers to show on CPUs; None: show no workers
    versions: Mapping[str, str]  # installed packages; empty for a copy of another machine's files
    memory_available: int | None  # bytes
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()  # the tasks that backends with their own environment classes step here

    @property
    def owned(self) -> Cpus:
        """The CPUs of the workers."""
        return () if self.workers is None else self.placement.owned(self.workers)


def machine_page(machine: Machine) -> SimplePage:
    """Return the page of a machine: its parts, facts and findings."""
    facts = tuple((name, one_line(text)) for name, text in _machine_facts(machine) if text)
    findings = tuple(map(Remark.of, machine.findings))
    document = Document(one_line(machine.host.cpu_model), facts, (_parts(machine),), remarks=findings)
    return SimplePage("machine", (document,), _machine_data(machine))


def _machine_data(machine: Machine) -> dict[str, object]:
    """Return facts by name. CPU sets are Linux lists, and unknown facts are None."""
    host, topology = machine.host, machine.host.topology
    without_node = set(topology.online).difference(*(node.cpus for node in topology.nodes))
    third = [format_cpu_list(cache.cpus) for cache in topology.caches if cache.level == 3]  # noqa: PLR2004 - L3
    facts: dict[str, object] = {
        "online": format_cpu_list(topology.online),
        "allowed": format_cpu_list(host.cpus_allowed),
        "cores": [format_cpu_list(core) for core in topology.cores],
        "packages": {label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        "nodes": {str(node.id): format_cpu_list(node.cpus) for node in topology.nodes if node.cpus},
        "cpuless_nodes": [node.id for node in topology.nodes if not node.cpus],
        "l3_groups": third or None,
        "kinds_slow_to_fast": [format_cpu_list(kind) for kind in topology.kinds],
        "quota_cpus": host.quota_cpus,
        "usable_cpus": machine.placement.usable,
        "order": {policy: list(order) for policy, order in machine.orders.items()},
        "cpus_without_node": format_cpu_list(without_node),
        "distances": {str(node.id): {str(to): far for to, far in node.distances.items()} for node in topology.nodes},
        "node_memory_bytes": {str(node.id): node.memory_bytes for node in topology.nodes},
        "last_level": [format_cpu_list(cache.cpus) for cache in topology.last_level],
        "allowed_nodes": None if host.nodes_allowed is None else format_cpu_list(host.nodes_allowed),
        "quota_source": host.quota_source,
        "memory_bytes": host.memory_bytes,
        "memory_available_bytes": machine.memory_available,
        **{name: getattr(host, name) for name in ("cpu_model", "microcode", "kernel", "smt", "governor", "boost")},
        "transparent_huge_pages": host.thp,
        "isolated": format_cpu_list(host.isolated),
        "gpus": host.gpus,
        "container": host.container,
        "virtual": host.virtual,
        "versions": dict(machine.versions),
        "own_classes": [{"backends": it.backends, "tasks": it.tasks, **asdict(it.own)} for it in machine.standings],
        "findings": machine.findings,
    }
    if machine.workers is not None:
        facts["workers"] = [machine.owned[worker % len(machine.owned)] for worker in range(machine.workers)]
    return facts


def _machine_facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of facts for readers. The text of an unknown fact is empty."""
    host, topology = machine.host, machine.host.topology
    parts = {"package": topology.packages, "memory node": topology.nodes, "core": topology.cores}
    counts = [counted(len(found), noun) for noun, found in parts.items() if found]
    threads = [f"{topology.threads_per_core} threads a core"] if topology.threads_per_core > 1 else []
    yield "CPUs", ", ".join((f"{format_cpu_list(topology.online)} online", *counts, *threads))
    caches = Counter(_cache(cache.level, cache.size_bytes) for cache in topology.caches)
    yield "caches", ", ".join(f"{name} x {many}" if many > 1 else name for name, many in caches.items())
    memory = [byte_size(host.memory_bytes)] if host.memory_bytes else []
    if machine.memory_available:
        memory.append(f"{byte_size(machine.memory_available)} available")
    if host.nodes_allowed is not None and len(topology.nodes) > 1:
        memory.append(f"nodes {format_cpu_list(host.nodes_allowed)} allowed")
    yield "memory", ", ".join(memory)
    allowed = "all" if host.cpus_allowed == topology.online else _brief(host.cpus_allowed)
    quota = f"quota of {host.quota_cpus:g} ({host.quota_source})" if host.quota_cpus else "no quota"
    cpus = counted(len(topology.online), "CPU")
    yield "usable", f"{machine.placement.usable} of {cpus}: {allowed} may be used, {quota}"
    for policy, order in machine.orders.items():
        yield policy, _first(order)
    if machine.workers is not None:
        workers, owned = counted(machine.workers, "worker"), _first(machine.owned)
        how = "share CPU" if machine.workers > len(machine.owned) else "in this order on CPU"
        yield "workers", f"{workers} {how if machine.placement.pinned else 'on any of CPUs'} {owned}"
    on: dict[bool | None, str] = {True: "on", False: "off"}
    settings = {
        "governor": host.governor,
        "boost": on.get(host.boost),
        "SMT": on.get(host.smt),
        "transparent huge pages": host.thp,
        "microcode": host.microcode,
        "isolated CPUs": _brief(host.isolated) if host.isolated else None,
    }
    yield "settings", ", ".join(f"{name} {value}" for name, value in settings.items() if value)
    where = ["virtual machine"] if host.virtual else []
    where += ["in a container"] if host.container else []
    yield "GPU", "; ".join(host.gpus or ())
    yield "system", ", ".join((f"{host.system} {host.kernel} {host.machine}".strip(), *where))
    yield "versions", ", ".join(f"{name} {version}" for name, version in sorted(machine.versions.items()))
    kinds = []
    for one in machine.standings:
        every = len(one.tasks) == len(one.suite.tasks)
        tasks = "" if every else f" ({', '.join(map(short_name, one.tasks))})"
        words = one.own.words.replace(" for this task", "")
        kinds.append(((", ".join(one.backends), words), f"{one.suite.title}{tasks}"))
    for (backends, words), suites in by_key(kinds).items():
        yield backends, f"{', '.join(suites)}: {words}"


def _cache(level: int, size_bytes: int | None) -> str:
    return f"L{level} {byte_size(size_bytes)}" if size_bytes else f"L{level}"


def _first(cpus: Sequence[int]) -> str:
    shown = ", ".join(map(str, cpus[:32]))
    return shown if len(cpus) <= 32 else f"{shown}, ... ({len(cpus)} in all)"  # noqa: PLR2004 - about two lines


def _brief(cpus: Collection[int]) -> str:
    """Return a set of CPUs in short form: a Linux list, or ``1,3..79`` for a series with a wider step."""
    ordered = sorted(cpus)
    steps = {after - before for before, after in pairwise(ordered)}
    few = 3  # shorter series are written as a list
    if len(ordered) > few and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]},{ordered[1]}..{ordered[-1]}"
    return format_cpu_list(ordered)


def _parts(machine: Machine) -> Table:
    """Return a table of the machine's parts, each indented below its container. Similar parts share a line."""
    topology = machine.host.topology
    barred = frozenset(topology.online).difference(machine.host.cpus_allowed)
    marks = {"with workers": frozenset(machine.owned), "not allowed": barred}
    marks = {head: cpus for head, cpus in marks.items() if cpus}
    rows = []
    for label, alike in groupby(_nested(topology), key=lambda part: part[0]):
        sets = [cpus for _, cpus in alike]
        whole = frozenset[int]().union(*sets)
        marked = (_brief(cpus & whole) or DASH for cpus in marks.values())
        times = f" x {len(sets)}" if len(sets) > 1 else ""
        rows.append(_row(f"{label}{times}", "; ".join(map(_brief, sets)), *marked))
    return _words_table("Its CPUs", "part", ("CPUs", *marks), rows)


def _nested(topology: Topology) -> list[tuple[str, frozenset[int]]]:
    """Return the names and CPUs of parts. A part follows the part that contains it, and its name is indented."""
    parts = [(f"package {label}", frozenset(cpus)) for label, cpus in topology.packages.items()]
    for node in topology.nodes:
        if node.cpus:
            memory = f" ({byte_size(node.memory_bytes)})" if node.memory_bytes else ""
            parts.append((f"node {node.id}{memory}", frozenset(node.cpus)))
    fastest_first = topology.kinds[::-1] if len(topology.kinds) > 1 else ()
    for rank, kind in enumerate(fastest_first, 1):
        parts.append((f"cores of kind {rank}{' (fastest)' if rank == 1 else ''}", frozenset(kind)))
    # Leave out a cache of a single core, which groups no cores. The facts list it.
    cores = {frozenset(core) for core in topology.cores}
    caches = [(_cache(one.level, one.size_bytes), frozenset(one.cpus)) for one in topology.last_level]
    parts += [cache for cache in caches if cache[1] not in cores]
    parts.sort(key=lambda part: (-len(part[1]), min(part[1])))
    found = []
    for index, (name, cpus) in enumerate(parts):
        around = [min(other) for _, other in parts[:index] if cpus <= other]
        found.append(((*around, min(cpus)), f"{'  ' * len(around)}{name}", cpus))
    return [(label, cpus) for _, label, cpus in sorted(found, key=lambda one: one[0])]


def list_page() -> SimplePage:
    """Return the page of backends with the tasks that they can step here, options, and all tasks."""
    backends = []
    for entry in sorted(ENTRIES, key=lambda entry: (entry.reference_row, not entry.by_default)):
        if entry.library.installation is None:
            named = "" if entry.by_default or entry.name == YARDSTICK else " (named)"
            texts = _steps(entry), Text((f"{entry.summary}{named}",))
            backends.append(TableRow(entry.name, texts, entry.reference_row))
    options = [_row(f"{entry.name}[{key}]", one.meaning) for entry in ENTRIES for key, one in entry.options.items()]
    tasks = []
    for suite in SUITES.values():
        names = [*map(short_name, suite.tasks), *([suite.otherwise] if suite.otherwise else [])]
        tasks.append(_row(suite.title, ", ".join(names)))
    peers = []
    for one in INSTALLATIONS:
        entries = [entry for entry in ENTRIES if entry.library.installation == one]
        suites = [suite for suite in SUITES.values() if suite.installation == one.name]
        packages = {package for entry in entries for package in entry.library.packages}
        packages.update(package for suite in suites for package in suite.packages)
        here = Text((f"vebench install {one.name}",), "missing")
        if packages and all(importable(package.module) for package in packages):
            here = Text(("installed",))
        elif python_of(one.name) is not None:
            here = Text(("set up",))
        steppers = ", ".join([*(entry.name for entry in entries), *(f"-e {suite.name}:ID" for suite in suites)])
        peers.append(TableRow(one.name, (Text((steppers,)), Text((one.title,)), here)))
    only_with_b = "Backends marked (named) are measured only with -b."
    of_peers = (
        "vebench install NAME makes an interpreter that has it; -b BACKEND or -e LIBRARY:ID then runs there.",
        "vebench run -b all-peers measures all but samplers, with the usual backends.",
        *(f"{one.name}: {one.note}" for one in INSTALLATIONS if one.note),
    )
    tables = (
        _words_table("Backends", "backend", ("steps", "what it is"), backends, only_with_b),
        _words_table("Their options", "option", ("meaning",), options),
        _words_table("Tasks (full ids such as ALE/Pong-v5 work, too)", "kind", ("names",), tasks),
        _words_table("Backends of other projects", "name", ("backends", "what it is", "here"), peers, *of_peers),
    )
    findings = (*_missing(), *map(Remark.of, own_classes(standings())))
    return SimplePage("list", (Document("What can be measured here", (), tables, remarks=findings),))


def _steps(entry: BackendEntry) -> Text:
    """Return the suites that a backend steps here, each with ``2 of 5`` if it steps only some of its tasks."""
    able = []
    for suite in SUITES.values():
        tasks = [Task(name, suite.name, skip) for name, skip in suite.tasks.items()]
        tasks = tasks or [Task("any other", suite.name, 1)]
        named = [task for task in tasks if entry.scope.name_of(task) is not None]
        if named and entry.why_not(named[0]) is None:
            able.append(suite.title if len(named) == len(tasks) else f"{len(named)} of {len(tasks)} {suite.title}")
    if able == [suite.title for suite in SUITES.values()]:
        return Text(("all",))
    return Text((", ".join(able),)) if able else Text(("nothing here",), "missing")


def _missing() -> Iterator[Remark]:
    every = [(suite.title, suite.packages) for suite in SUITES.values() if suite.usual]
    every += [(entry.name, entry.library.packages) for entry in ENTRIES if entry.library.installation is None]
    lacking = ((tuple(one for one in packages if not importable(one.module)), name) for name, packages in every)
    for missing, names in by_key((missing, name) for missing, name in lacking if missing).items():
        text = f"not installed: {', '.join(package.name for package in missing)}"
        places = (f"needed for {', '.join(names)}",)
        yield Remark(Code.SKIPPED, text, places, how_to_install(missing), gravity=Code.SKIPPED.gravity)


def plan_page(plan: Plan) -> SimplePage:
    """Return the page of a plan: a table of the cells of each task, and the estimated time."""
    spec = plan.spec
    once = {cell.key.without_repeat: cell for cell in plan.cells}
    cells = sorted(once.values(), key=lambda cell: report_order(cell.task.id, cell.backend, spec))
    envs = dict.fromkeys(cell.task.id for cell in cells)
    tables = tuple(_cells_table(env, [cell for cell in cells if cell.task.id == env], spec) for env in envs)
    answer = AnswerText("", tuple(_plan_needs(plan)))
    return SimplePage("plan", (Document("Plan", tuple(_plan_facts(plan)), tables, answers=(answer,)),))


def _plan_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    spec = plan.spec
    cells = [cell for cell in plan.cells if cell.skip is None]
    passes = len({cell.repeat for cell in cells})
    skipped = len({cell.key.without_repeat for cell in plan.cells if cell.skip is not None})
    number = f"{counted(len(cells), 'cell')}{f' in {passes} passes' if passes > 1 else ''}"
    yield "cells", f"{number}, {skipped} skipped" if skipped else number
    further = plan.race_passes
    if spec.races and (further or spec.until):
        rest = f", with the cells of {further} such pass{'es' if further > 1 else ''}" if further else ""
        yield "race", f"then the fastest backends alone{rest}"
    turns = ", interleaved with the others of its pass" if spec.takes_turns else ""
    windows = f"{counted(spec.windows, 'window')} of {spec.duration:g} s"
    yield "each", f"{spec.warmup:g} s of warm-up, {windows}{turns}"
    replicas = "" if spec.replicas == 1 else f", --replicas {spec.replicas}"
    placed = f"--pin {spec.pin.label}{replicas}" if spec.pin.pins else "not pinned (--pin none)"
    yield "CPUs", placed if kernel.SUPPORTED else "not pinned: this system cannot pin processes"
    if spec.policy.in_words:
        yield "policy", spec.policy.in_words


def _plan_needs(plan: Plan) -> Iterator[str]:
    """Yield the time, the memory and the processes of a plan, in sentences."""
    spec, planned = plan.spec, time_planned(plan.cells, plan.spec)
    whole, budget = long_time(plan.seconds), long_time(spec.budget)
    if plan.fits:
        time = f"about {whole}, with {long_time(planned.starts)} to start cells"
        if planned.proofs:
            time += f", and {long_time(planned.proofs)} to compare a sample of rows (--proof off leaves that out)"
        yield f"Time: {time}."
    else:
        yield f"Time: {budget} (--budget). All cells would take about {whole} (--budget none)."
        yield "The cells that decide most come first; others may be left out."
    if spec.until is not None:
        limit = f", at most until {budget} after the start" if spec.budget else ""
        yield f"Passes are added until intervals are within ±{100 * spec.until:.3g}%{limit}."
    processes, memory = most_at_once(plan)
    yield f"Memory: up to {byte_size(memory)}, in {counted(processes, 'process')} at the same time."
    sizes = {(cell.workers, 1) for cell in plan.cells if cell.workers > len(cell.cpus)}
    if sizes:
        cpus = counted(max(len(cell.cpus) for cell in plan.cells), "CPU")
        known = all(SUITES[cell.task.suite].ours for cell in plan.cells)  # their steps do not wait
        unless = "" if known else ", unless steps wait"
        yield f"{figures.sizes(sizes, sizes)} share {cpus}: they only enlarge batches{unless}."


def _cells_table(env: str, cells: Sequence[Cell], spec: RunSpec) -> Table:
    labels = list(dict.fromkeys(cell.backend.label for cell in cells))
    by_row = sorted(cells, key=lambda cell: (labels.index(cell.backend.label), cell.workers, cell.envs_per_worker))
    notes = []
    if any(cell.skip is None and not spec.asks_for(cell.backend.label, cell.workers) for cell in cells):
        notes.append(f"added to compare with: {REFERENCE} and {YARDSTICK} with one worker; --no-base leaves them out")
    swept = [(cell.workers, cell.envs_per_worker) for cell in by_row]
    skipped = [(cell.skip, (cell.backend.label, size)) for cell, size in zip(by_row, swept, strict=True) if cell.skip]
    for reason, of_reason in by_key(skipped).items():
        where = by_key((figures.sizes(own, swept), label) for label, own in by_key(of_reason).items())
        places = "; ".join(f"{', '.join(names)} at {words}" for words, names in where.items())
        notes.append(one_line(f"skipped: {places}: {reason}"))
    rows = []
    widest = 15  # wider tables do not fit in 80 columns; ``vebench doctor --workers`` lists the CPUs
    for cell in (one for one in by_row if one.skip is None):
        shape = cell.shape
        ahead = f" ({shape.batch_size} a batch)" if shape.batch_size < shape.num_envs else ""
        size = f"{cell.workers}{figures.times_envs(cell.envs_per_worker)}"
        cpus = " | ".join(_brief(replica.cpus) for replica in cell.all_replicas)
        if len(cpus) > widest:
            cpus = counted(len(cell.cpus), "CPU")
        verdict = cell.known.verdict if cell.known else DASH
        layout = f"{shape.num_envs}{ahead}", f"{shape.processes} x {shape.threads}"
        rows.append(_row(one_line(cell.backend.label), size, *layout, cpus, verdict))
    columns = ("workers", "environments", "processes x threads", "CPUs", SAME_WORK)
    return _words_table(one_line(env), "backend", columns, rows, *notes)
