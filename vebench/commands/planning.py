"""Makes a plan for this machine from a spec, for all commands that start cells."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING

from vebench.errors import NotComparableError, RunFileError, UsageError
from vebench.interpreters import Interpreter, with_ours
from vebench.plan.cells import expand, informed, interleaved, placement_of, without
from vebench.plan.spec import check_spec
from vebench.plan.tasks import check_policy, path_of, refuse_not_ours
from vebench.plan.verdicts import Knowledge
from vebench.reports import console
from vebench.results import records, store

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from vebench.backends.interface import Task
    from vebench.commands.session import World
    from vebench.hosts import HostFacts
    from vebench.machine.host import Placement
    from vebench.plan.cells import Cell, CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.results.records import Run, RunRecord

_MOST_REASONS = 3  # most reasons in one line


def known() -> Knowledge:
    """Return the known work verdicts of backends. If the user's file is damaged, print a note once."""
    knowledge = Knowledge.load()
    if knowledge.damage:
        _note(knowledge.damage)
    return knowledge


_note = cache(console.note)


def interpreters_of(spec: RunSpec, world: World) -> dict[str, Interpreter]:
    """Return, by label, the interpreters of the backends of ``spec`` that do not run in this interpreter.

    Raises UsageError if an interpreter cannot load its adapter, or if an interpreter that the user named is unusable.
    Unusable interpreters that vebench made are ignored.
    """
    found: dict[str, Interpreter] = {}
    examined: dict[str, Interpreter] = {}
    for choice in spec.backends:
        path = path_of(choice)
        if path is None:
            continue
        try:
            own = examined[path] = examined.get(path) or world.examine("--backend", path)
        except UsageError as error:
            if choice.python:
                raise UsageError(str(error).replace("--backend", f"--backend {choice.label}:", 1)) from None
            continue
        found[choice.label] = own
        if ":" in choice.name:
            world.resolve((), (replace(choice, python=""),), python=own.path)
    return found


def planned(
    spec: RunSpec,
    tasks: Sequence[Task],
    world: World,
    interpreter: Interpreter | None = None,
    interpreters: Mapping[str, Interpreter] = MappingProxyType({}),
) -> tuple[Plan, RunRecord]:
    """Return the plan, with the known work verdict of each backend, and the header of its run.

    Backends in ``interpreters``, by label, run there. Others run in ``interpreter``, by default this one. With several
    hosts, the header describes the first one.
    """
    found: Mapping[str, HostFacts] = {}
    if spec.hosts is None:
        host = world.read_host()
        placement = placement_of(spec, host)
        has = None if interpreter is None else interpreter.has
        plan = expand(spec, tasks, placement, world.memory_available(), has, interpreters)
    else:
        hosts = spec.hosts if spec.hosts.names else replace(spec.hosts, names=world.nodes_of_ray(spec.hosts.address))
        spec = replace(spec, hosts=hosts)
        found = world.read_hosts(spec)
        if not hosts.unlike and (difference := unlike(found)):
            raise UsageError(f"--hosts: {difference}: add [unlike=true] to measure them")
        first = next(iter(found.values()))
        host, modules = first.host, frozenset.intersection(*(frozenset(facts.modules) for facts in found.values()))
        interpreter = Interpreter(first.path, first.python, with_ours(first.packages), modules)
        placements = {name: _placement_there(spec, name, facts) for name, facts in found.items()}
        placement = next(iter(placements.values()))
        memory = [facts.memory_available for facts in found.values() if facts.memory_available is not None]
        plan = expand(spec, tasks, placement, min(memory, default=None), interpreter.has, interpreters, placements)
    plan = informed(plan, known(), None if interpreter is None else interpreter.packages)
    head = records.gather(plan, host, placement, world.command, world.now(), interpreter=interpreter, hosts=found)
    return plan, head


def _placement_there(spec: RunSpec, name: str, facts: HostFacts) -> Placement:
    try:
        return placement_of(spec, facts.host)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def unlike(found: Mapping[str, HostFacts]) -> str:
    """Return in words the first difference of two hosts in a fact that decides rates, empty if there is none.

    Facts that are unknown on one of the hosts are not compared.
    """
    names = sorted({name for facts in found.values() for name in facts.packages})
    hosts: dict[tuple[tuple[str, str], ...], str] = {}  # the first host with these facts
    for name, facts in found.items():
        known = {fact: getattr(facts.host, fact) for fact in records.DECISIVE_IF_KNOWN}
        decides = {
            "Python": facts.python.rpartition(".")[0],
            "CPU": facts.host.cpu_model,
            "CPUs": str(len(facts.host.cpus_allowed)),
            **{fact: str(value) for fact, value in known.items() if value is not None},
            "quota_cpus": str(facts.host.quota_cpus),  # None: no quota
            **{package: facts.packages.get(package, "none") for package in names},
        }
        hosts.setdefault(tuple(decides.items()), name)
    for (before, one), (after, other) in combinations(hosts.items(), 2):
        theirs = dict(after)
        if apart := [f"{fact} {theirs[fact]} instead of {own}" for fact, own in before if theirs.get(fact, own) != own]:
            return f"{other} differs from {one}: {'; '.join(apart)}"
    return ""


def refuse_idle(plan: Plan, whose: str = "") -> None:
    """Raise UsageError, with the reasons, if no cell of the plan can run. The message begins with ``whose``."""
    if plan.cells and all(cell.skip for cell in plan.cells):
        raise UsageError(f"{whose}no cell of this plan can run here: {reasons(contestants(plan) or plan.cells)}")


def refuse_useless(plan: Plan) -> None:
    """Raise UsageError, with the reasons, if no cell can run, or if only the reference rows of a larger plan can."""
    refuse_idle(plan)
    backends = contestants(plan)
    if backends and all(cell.skip for cell in backends):
        rows = " and ".join(sorted({cell.backend.name for cell in plan.cells if not cell.skip}))
        raise UsageError(f"nothing but {rows} can run here: {reasons(backends)}")


def contestants(plan: Plan) -> list[Cell]:
    """Return the cells that the user asked for, without reference rows."""
    asked = [cell for cell in plan.cells if plan.spec.asks_for(cell.backend.label, cell.workers)]
    return [cell for cell in asked if not cell.entry.reference_row]


def reasons(cells: Sequence[Cell]) -> str:
    """Return why cells are skipped: each reason once, at most ``_MOST_REASONS`` of them."""
    reasons = sorted({cell.skip for cell in cells if cell.skip})
    return "; ".join(reasons[:_MOST_REASONS]) + ("; ..." if len(reasons) > _MOST_REASONS else "")


def plan_here(spec: RunSpec, world: World) -> tuple[Plan, RunRecord]:
    """Return the plan of a run in this interpreter, its cells interleaved if the spec says so, and its header."""
    check_spec(spec)
    if spec.policy.target:
        check_policy(spec.policy.target)
    here = tuple(choice for choice in spec.backends if not choice.python)  # This interpreter loads their adapters.
    tasks = world.resolve(spec.envs, here)
    plan, head = planned(spec, tasks, world, interpreters=interpreters_of(spec, world))
    return (interleaved(plan, world.memory_available()) if spec.takes_turns else plan), head


def plan_to_finish(path: Path, world: World, *, allowed: bool, dry_run: bool) -> tuple[Plan, Plan]:
    """Return the plan of the run file ``path``, and a plan of its missing cells: those without a line, or failed.

    ``allowed``: see ``asked_in``, also for its errors. Without ``dry_run``, raises UsageError if no cell can run here.
    Raises NotComparableError if this machine or its packages differ from the run's.
    """
    run = store.read(path)
    records.refuse_foreign(run.header, path, "start that again")
    with asked_in(path, run.header.spec, allowed=allowed) as spec:
        plan, head = plan_here(spec, world)
    if not dry_run:
        refuse_idle(plan, f"{path}: ")
    if differences := records.what_differs(run.header, head):
        raise NotComparableError(f"{path} was measured elsewhere ({'; '.join(differences)}): start a new run here")
    return plan, without(plan, measured(plan, run))


@contextmanager
def asked_in(path: Path, spec: RunSpec, *, allowed: bool, named: Container[str] = ()) -> Iterator[RunSpec]:
    """Yield the spec in the first line of the run file ``path``, if it may be used here.

    Raises RunFileError if the spec is invalid, or if the body of the context raises UsageError. Unless ``allowed``,
    also raises it if the spec names code, Pythons or hosts that the user has not named. ``named``: options of the user,
    such as ``--env NAME``.
    """
    try:
        check_spec(spec)
        if not allowed:
            refuse_not_ours(spec, named)
        yield spec
    except UsageError as error:
        raise RunFileError(f"{path}, line 1: {error}") from None


def measured(plan: Plan, run: Run) -> set[CellKey]:
    """Return the keys of the cells that need no measurement: successful ones, and those skipped before and now."""
    before = {cell.key: cell for cell in run.cells}
    return {
        cell.key
        for cell in plan.cells
        if (known := before.get(cell.key)) and (known.status == "ok" or (known.status == "skipped" and cell.skip))
    }
