"""``vebench study``: measure the runs that a question needs, and answer it in a sentence."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.commands import knowing, planning
from vebench.commands.session import session
from vebench.errors import InterruptedRunError, UsageError, one_line
from vebench.plan.cells import placement_of
from vebench.plan.trust import ALLOW, not_ours
from vebench.reports import console
from vebench.reports.conclusion import Conclusion
from vebench.reports.output import save, show
from vebench.reports.pages.plan import PlanPage
from vebench.reports.pages.run import RunPage
from vebench.reports.pages.study import StudiesPage, StudyPage
from vebench.results import paths, store
from vebench.results.current_verdicts import informed
from vebench.studies import table
from vebench.studies.study import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from vebench.commands.target import Target
    from vebench.commands.world import World
    from vebench.plan.cells import Plan
    from vebench.plan.spec import RunSpec
    from vebench.reports.pages.run import Section
    from vebench.results.records import RunRecord
    from vebench.studies.study import Study

DONE, FAILED, UNDECIDED = 0, 1, 3
NOT_MEASURED = "it has no run file here"


@dataclass(frozen=True)
class PartOfStudy:
    """A part whose run file is there: its plan, and what of it is still to be measured."""

    name: str
    path: Path
    plan: Plan
    left: Plan


def show_studies() -> int:
    """Print the studies that come with vebench. Returns the exit status."""
    show(StudiesPage([(study.name, study.question) for study in table.studies()]))
    return DONE


def start(  # noqa: PLR0913 - one parameter for each decision
    name: str,
    changes: Mapping[str, object],
    folder: Path | None,
    target: Target,
    world: World,
    *,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Measure a study with the user's ``changes`` to its plan, fields of a spec by name. Returns the exit status.

    Run files go to ``folder``, by default a new one in ``.vebench/``. All are begun before anything is measured, so
    that the folder says what is to be done. A part that cannot run here is left out. Raises UsageError if none can.
    """
    study = table.find(name)
    planned, left_out = _planned(study, changes, world)
    if dry_run:
        for part, (plan, _) in planned.items():
            show(PlanPage(plan, part))
        _tell(left_out)
        return DONE
    folder = folder or paths.study_folder(world.now(), study.name)
    _begin(folder, {part: head for part, (_, head) in planned.items()})
    _tell(left_out)
    parts = [PartOfStudy(part, _file(folder, part), plan, plan) for part, (plan, _) in planned.items()]
    _measure(parts, _again(name, folder, [head for _, head in planned.values()]), world, quiet=quiet)
    return _answer(name, study, folder, left_out, target)


def resume(  # noqa: PLR0913 - one parameter for each decision
    name: str, folder: Path, target: Target, world: World, *, dry_run: bool, allowed: bool, quiet: bool
) -> int:
    """Measure what is missing of a study in ``folder``, and answer. Returns the exit status.

    ``allowed``: see ``planning.plan_to_finish``, also for what it raises.
    """
    study = table.find(name)
    files = _files(study, folder)
    heads = [store.read(path).header for path in files.values()]
    parts = [
        PartOfStudy(part, path, *planning.plan_to_finish(path, world, allowed=allowed, dry_run=dry_run))
        for part, path in files.items()
    ]
    if dry_run:
        for part in parts:
            show(PlanPage(part.left, part.name))
        return DONE
    _measure(parts, _again(name, folder, heads), world, quiet=quiet)
    return _answer(name, study, folder, _not_in(study, files), target)


def conclude(name: str, folder: Path, target: Target) -> int:
    """Answer a study from what was measured for it in ``folder``. Returns the exit status."""
    study = table.find(name)
    return _answer(name, study, folder, _not_in(study, _files(study, folder)), target)


def _planned(
    study: Study, changes: Mapping[str, object], world: World
) -> tuple[dict[str, tuple[Plan, RunRecord]], dict[str, str]]:
    """Return the plan of each part with the header of its run, and why other parts are left out.

    Of parts that the ``changes`` make the same, the first is enough. Raises UsageError, with the first of these
    reasons, if all are left out.
    """
    planned: dict[str, tuple[Plan, RunRecord]] = {}
    errors: dict[str, UsageError] = {}
    for part in study.parts:
        try:
            plan, head = planning.plan_here(part.asked(changes, lambda spec: _cpus(spec, world)), world)
            planning.refuse_useless(plan)
        except UsageError as error:
            errors[part.name] = error
            continue
        same = next((name for name, (other, _) in planned.items() if other.spec == plan.spec), None)
        if same is None:
            planned[part.name] = plan, head
        else:
            console.note(f"part {part.name} is not measured: what was asked for makes it the same as part {same}")
    if not planned:
        raise next(iter(errors.values()))
    return planned, {name: str(error) for name, error in errors.items()}


def _cpus(spec: RunSpec, world: World) -> int:
    """Return how many CPUs the cells of ``spec`` may use here."""
    return placement_of(spec, world.read_host()).usable


def _tell(left_out: Mapping[str, str]) -> None:
    for part, why in left_out.items():
        console.note(f"part {part} is left out: {why}")


def _begin(folder: Path, heads: Mapping[str, RunRecord]) -> None:
    """Begin the run files of all parts in a new folder. Raises UsageError if it has files, or cannot be made."""
    try:
        if folder.parent == paths.DEFAULT_FOLDER:
            folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} has files already: --resume finishes a study there, or name another --folder")
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}: name another --folder") from None
    for part, head in heads.items():
        with store.RunWriter.create(_file(folder, part), head):
            pass


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}{paths.SUFFIX}"


def _files(study: Study, folder: Path) -> dict[str, Path]:
    """Return the run file of each part that has one. Raises UsageError if none has."""
    files = {part.name: path for part in study.parts if (path := _file(folder, part.name)).exists()}
    if not files:
        wanted = ", ".join(_file(folder, part.name).name for part in study.parts)
        raise UsageError(f"{folder} has no run of the study {study.name}, which are {wanted}: name the study's folder")
    return files


def _not_in(study: Study, files: Mapping[str, Path]) -> dict[str, str]:
    return {part.name: NOT_MEASURED for part in study.parts if part.name not in files}


def _again(name: str, folder: Path, heads: Sequence[RunRecord]) -> str:
    """Return the command that finishes the study."""
    allow = [ALLOW] * any(value for head in heads for value in not_ours(head.spec))
    return shlex.join(["vebench", "study", name, "--resume", str(folder), *allow])


def _measure(parts: Sequence[PartOfStudy], go_on: str, world: World, *, quiet: bool) -> None:
    """Measure what is left of each part. Raises InterruptedRunError, which names ``go_on``, if the user interrupts."""
    try:
        for number, part in enumerate(parts, 1):
            if not part.left.cells:
                continue
            if not quiet:
                console.note(f"part {part.name}, {number} of {len(parts)}: {part.path}")
            with session(store.RunWriter.resume(part.path), world, quiet=quiet, go_on=go_on) as measuring:
                measuring.measure(part.plan, part.left)
    except KeyboardInterrupt:  # between two parts
        raise InterruptedRunError(f"interrupted: to go on: {go_on}") from None


def _answer(name: str, study: Study, folder: Path, left_out: Mapping[str, str], target: Target) -> int:
    """Conclude from the study's run files, and show it. Returns the exit status."""
    knowledge = knowing.known()
    files = _files(study, folder)
    page = RunPage.of((str(path), informed(store.read(path), knowledge)) for path in files.values())
    runs = [(part, section) for part, section in zip(files, page.sections, strict=True) if section.cells]
    if not runs:
        raise UsageError(f"{folder}: no cell was measured yet: vebench study {name} --resume {folder} measures them")
    # One whose cells did not have their CPUs says what else the machine did, and nothing else.
    sound = [(part, section) for part, section in runs if not section.notice]
    if sound:
        conclusion = _conclusion(name, study, [Measured(part, one.run.header.spec, one.cells) for part, one in sound])
        left_out = {**left_out, **{part: section.notice for part, section in runs if section.notice}}
    else:
        conclusion = Conclusion(f"Not decided: {runs[0][1].notice}", decided=False)
    sections = tuple(section for _, section in runs)
    shown = StudyPage(
        name=study.name,
        question=study.question,
        conclusion=conclusion,
        runs=sections,
        left_out=left_out,
        command=sections[0].run.header.command,
        again=shlex.join(["vebench", "study", name, "--from", str(folder)]),
        status=_status(conclusion, sections),
    )
    if target.file is None:
        show(shown, target.form)
    else:
        save(shown, target.form, target.file)
    return shown.status


def _conclusion(name: str, study: Study, measured: Sequence[Measured]) -> Conclusion:
    """Return what a study concludes. Raises UsageError if a user's own fails to."""
    if ":" not in name:
        return study.conclude(measured)
    try:
        found = study.conclude(measured)
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        raise UsageError(one_line(f"{name}: its conclusion raised {type(error).__name__}: {error}")) from None
    if not isinstance(found, Conclusion):
        raise UsageError(f"{name}: it concluded {type(found).__name__}, not a vebench.reports.conclusion.Conclusion")
    return found


def _status(conclusion: Conclusion, sections: Sequence[Section]) -> int:
    """Return 3 if nothing could be concluded, 1 if a cell failed or was found to do other work, else 0."""
    if not conclusion.decided:
        return UNDECIDED
    cells = [cell for section in sections for cell in section.cells]
    return FAILED if any(cell.faulty_repeats or cell.found_to_differ for cell in cells) else DONE
