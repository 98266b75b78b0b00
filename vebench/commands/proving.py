"""Compares backends with the reference for ``verify``, ``run`` and ``tune``, and keeps the verdicts for later runs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from vebench.backends import bracketed, registry
from vebench.backends.environments.suites import OTHER
from vebench.child.answers import Proof
from vebench.child.request import Stepping
from vebench.commands.session import World, interpreters_of
from vebench.engine.runner import verified
from vebench.errors import one_line
from vebench.interpreters import Interpreter
from vebench.plan import verdicts
from vebench.plan.cells import Cell, Where, expand, placement_of, python_name, report_order
from vebench.plan.spec import FORK, RunSpec
from vebench.plan.verdicts import Knowledge, concluded
from vebench.process_guard import Interrupts
from vebench.reports import console
from vebench.reports.console import Screen
from vebench.reports.figures import counted
from vebench.results import store

# A comparison before a run takes seconds for each backend. Some environments go on until an episode ends. MuJoCo's
# episodes have 1,000 steps, and episodes of most games have about 1,000.
SHORT_STEPS = 400
_LIMIT = "max_episode_steps"  # the argument of gymnasium.make that limits episodes


def learn(
    spec: RunSpec, knowledge: Knowledge, world: World, *, steps: int = SHORT_STEPS, episode: int | None = None
) -> None:
    """Briefly compare the backends that ``spec`` will measure, and add the verdicts to ``knowledge``.

    With ``episode``, episodes of environments unknown to vebench are cut to this many steps. Otherwise, no episode of a
    slow environment would end, and backends differ most at resets.
    """
    others = tuple(choice for choice in spec.backends if choice.label != registry.REFERENCE)
    if spec.backends and not others:
        return
    short = replace(
        spec,
        backends=others,
        workers=(2,),
        envs_per_worker=(min(spec.envs_per_worker[-1], 4),),
        passes=1,
        replicas=1,
        base=False,
        seed=drawn_seed(),
    )
    for cell, proof in prove(short, steps, knowledge, world, in_full=True, episode=episode):
        arguments = cell.task.arguments
        if episode is None or proof.failed or arguments.pop(_LIMIT, None) != episode:
            continue
        found = concluded(proof, steps, cell.workers)
        why = f"{found.reason}{'; ' if found.reason else ''}episodes were cut to {episode} steps"
        whole = replace(cell.task, id=bracketed.written(cell.task.name, arguments))
        knowledge.add(whole, cell.backend, replace(found, reason=why))


def prove(
    spec: RunSpec, steps: int, knowledge: Knowledge, world: World, *, in_full: bool, episode: int | None = None
) -> list[tuple[Cell, Proof]]:
    """Compare every backend on every task, report each on standard error, and keep the verdicts.

    Each environment of the first layout makes at least ``steps`` steps. The spec's seed determines the layouts. With
    ``in_full``, also report the seed and the reasons of verdicts, because no page shows them. ``episode``: see
    ``learn``.
    """
    interpreters = interpreters_of(spec, world)
    cells = _cells(spec, Stepping(steps, spec.seed), world, interpreters, episode)
    proofs: list[tuple[Cell, Proof]] = []
    with (
        Screen(console.for_progress()) as screen,
        Interrupts() as interrupts,
        world.start(replace(spec, isolation=FORK), interrupts) as launch,
        closing(verified(cells, launch)) as answers,
    ):
        drawn = f", drawn from --seed {spec.seed}" if in_full else ""
        count = counted(cells[0].workers if cells else 0, "environment")
        screen.say(f"comparing {steps:,} steps of {count} or more for each backend{drawn}")
        for cell, proof, printed in answers:
            heading = f"{cell.task.id}, {cell.backend.label}, {counted(cell.workers, 'environment')}"
            path = store.LOG_OF_COMPARISONS
            kept = store.keep_log(path, f"{heading}, --seed {spec.seed}", printed)
            engines = *proof.engines, *cell.interpreter.engines
            reported = replace(proof, log=str(path) if kept else None, engines=engines)
            proofs.append((cell, reported))
            found = concluded(proof, steps, cell.workers)
            # Pages show ``proof.verdict``. ``found`` is the verdict for later runs, which also need ends of episodes.
            words = f"{found.verdict} ({found.reason})" if found.reason else found.verdict
            words += f"; log: {reported.log}" if reported.log else ""
            number, verdict = f"[{len(proofs)}/{len(cells)}]", words if in_full else proof.verdict
            screen.say(f"{number} {cell.task.id}, {cell.backend.label}: {verdict}")
            if len(proofs) < len(cells):
                coming = cells[len(proofs)]
                screen.draw(len(proofs), len(cells), one_line(f"{coming.backend.label} on {coming.task.id}"))
            # If the backend fell back to another class, the verdict does not hold for its own class.
            stepped = verdicts.as_stepped(cell.task, cell.backend, proof.own_classes)
            fell_back = proof.own_classes is not None and bool(proof.own_classes.refused)
            own = interpreters.get(python_name(cell.task, cell.backend))
            versions = None if own is None else own.packages
            if not proof.failed and knowledge.add(cell.task, stepped, found, versions) and not fell_back:
                try:
                    verdicts.keep(verdicts.key(cell.task, stepped, versions), found)
                except OSError as error:
                    screen.say(f"work status not kept for later runs: {verdicts.kept_file()}: {error.strerror}")
    return proofs


def drawn_seed() -> int:
    """Return a random seed of at most six digits, which is easy to type."""
    return secrets.randbelow(1_000_000)


def _cells(
    spec: RunSpec, proving: Stepping, world: World, interpreters: Mapping[str, Interpreter], episode: int | None
) -> tuple[Cell, ...]:
    """Return a cell for each task and backend, in the order of reports. The reference has a cell only if it is named.

    Episodes of Gymnasium's environments are cut to ``episode`` steps, unless an argument limits them.
    """
    tasks = []
    for task in world.resolve(spec.envs, tuple(choice for choice in spec.backends if not choice.python)):
        name = task.id
        if episode is not None and task.suite == OTHER.name and _LIMIT not in task.arguments:
            name = bracketed.written(task.name, {**task.arguments, _LIMIT: episode})
        tasks.append(replace(task, id=name, exact=True))
    placement = placement_of(spec, world.read_host())
    plan = expand(spec, tasks, Where(placement, world.memory_available(), interpreters=interpreters))
    named = any(choice.name == registry.REFERENCE for choice in spec.backends)
    cells = [
        replace(cell, job=proving)
        for cell in plan.cells
        if not cell.entry.reference_row and (named or cell.backend.name != registry.REFERENCE)
    ]
    return tuple(sorted(cells, key=lambda cell: report_order(cell.task.id, cell.backend, spec)))
