"""The Python interface: measures and compares as the command line does (docs/reference/python.md).

Functions only print progress, and only if asked to. Bad input raises a ``VebenchError`` with one line. Ctrl-C raises
``KeyboardInterrupt``, whose text names the run file and the command that finishes the run. No process is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from vebench.analysis.cell import CellSummary
from vebench.analysis.comparison import CellComparison, GroupComparison, SpeedVerdict
from vebench.analysis.statistics import SIDE_LEVEL, Estimate, power_product, rejected
from vebench.child.answers import Proof
from vebench.commands.session import Session, World, known, plan_for_waiting, plan_here, refuse_useless
from vebench.equality import diff
from vebench.equality import verify as verifying
from vebench.equality.diff import PairPage
from vebench.equality.verify import VerifyPage
from vebench.errors import InterruptedRunError, UsageError, VebenchError, did_you_mean, one_line, shown
from vebench.gates import check as checking
from vebench.gates.gate import CheckPage
from vebench.plan.grammar import seconds
from vebench.plan.spec import FIELDS, METRICS, MOST_WORSE, OPTIONS, TOLERANCE, RunSpec, asked
from vebench.reports import console, figures, formats
from vebench.reports.document import Page
from vebench.reports.run import RunPage
from vebench.results import store
from vebench.results.records import with_current_verdicts
from vebench.results.store import RunWriter

Texts = str | Sequence[str]
Subject = str | Callable[..., object]
_BUDGET = replace(OPTIONS["budget"], kind=seconds())  # unlike a run, a gate always has a limit
AnyPage = TypeVar("AnyPage", bound=Page)
JudgedPage = TypeVar("JudgedPage", CheckPage, VerifyPage, PairPage)


@dataclass(frozen=True, repr=False)
class Result(Generic[AnyPage]):
    """A result, which can be written in any format."""

    page: AnyPage

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.page.documents[0].title}>"

    def report(self, form: str = "markdown") -> formats.Content:
        """Return the result in a format of the command's ``-f``: ``"markdown"``, ``"json"``, ``"html"``, ``"csv"`` ...

        ``"png"`` and ``"pdf"`` are bytes. ``"terminal"`` is an object for Rich to print. All other formats are text.
        """
        return formats.format_for(form, None, self.page.kind).render(self.page)


@dataclass(frozen=True)
class Ratio:
    """The rate of one cell relative to another cell's rate.

    Attributes
    ----------
    cell, base
        The two cells. The rate of ``cell`` is divided by the rate of ``base``.
    ratio
        The ratio of the rates with its 95 % interval, over the passes of both cells. None if not comparable.
    verdict
        Whether ``cell`` is faster than ``base``. All ratios of one call are tested together (Holm) at 5 %.
    why
        Why the two are not comparable; empty if they are.
    """

    cell: CellSummary
    base: CellSummary
    ratio: Estimate | None
    verdict: SpeedVerdict
    why: str = ""

    def __str__(self) -> str:
        if self.ratio is None:
            return f"{self.verdict}: {self.why}"
        return f"{figures.with_spread(self.ratio, 'x')}, {self.verdict}"


@dataclass(frozen=True, repr=False)
class Run(Result[RunPage]):
    """A run, and the ``path`` of its run file, for ``vebench report``, ``check`` and ``run --resume``."""

    path: Path

    @property
    def cells(self) -> tuple[CellSummary, ...]:
        """Each cell over all its passes, in the order of reports.

        ``cell.frames_per_second``, ``cell.speedup`` and other estimates have a ``median``, and a 95 % interval from
        ``low`` to ``high``. ``cell.findings`` are faults, warnings and notes. ``cell.verdict`` compares its work with
        the plain loop's.
        """
        return self.page.sections[0].cells

    @property
    def notice(self) -> str:
        """Why no rate of the run should be used, such as other processes on its CPUs; otherwise empty."""
        return self.page.sections[0].notice

    def ratios(self, pairs: Iterable[tuple[CellSummary, CellSummary]]) -> tuple[Ratio, ...]:
        """Return the rate of the first cell of each pair relative to the rate of the second, both of this run."""
        found: list[Ratio] = []
        contrasts = {}
        for cell, base in pairs:
            why = self.notice or _why_not(cell) or _why_not(base)
            if not why:
                contrasts[len(found)] = power_product([(1.0, cell.sample), (-1.0, base.sample)])
            found.append(Ratio(cell, base, None, "not comparable", why))
        chances = {number: min(one.chance_above(1.0), one.chance_below(1.0)) for number, one in contrasts.items()}
        unequal = rejected(chances, SIDE_LEVEL)
        for number, one in contrasts.items():
            verdict: SpeedVerdict = "inconclusive"
            if number in unequal:
                verdict = "slower" if one.log < 0 else "faster"
            found[number] = replace(found[number], ratio=one.estimate, verdict=verdict, why="")
        return tuple(found)


def _why_not(cell: CellSummary) -> str:
    """Return why a cell has no rate that can be compared, empty if it has one."""
    if cell.exclusion:
        return one_line(f"{cell.label}: {cell.exclusion}")
    if not cell.sample.rates:
        return one_line(f"{cell.label} {cell.status}{f': {cell.reason}' if cell.reason else ''}")
    return "" if cell.sample.measurable else f"{one_line(cell.label)}: too few windows"


class Judgement(Result[JudgedPage]):
    """A result with the exit ``status`` of its command: 0 for yes, 1 for no, 3 if undecided."""

    @property
    def status(self) -> int:
        """The exit status of the command that does the same."""
        return self.page.status


class Comparison(Judgement[CheckPage]):
    """A run judged against a baseline."""

    @property
    def groups(self) -> tuple[GroupComparison, ...]:
        """A ``verdict`` for each backend on each task (``key``) and metric, over all its cells.

        ``ratio`` is the candidate's rate, startup time or memory over the baseline's, with a 95 % interval. ``why`` is
        the reason. A longer startup and a larger memory are ``"slower"``.
        """
        return self.page.comparison.groups

    @property
    def cells(self) -> tuple[CellComparison, ...]:
        """A ``verdict``, ``ratio`` and ``why`` for each cell."""
        return self.page.comparison.cells


class Verification(Judgement[VerifyPage]):
    """Whether backends do the same work as a plain loop."""

    @property
    def proofs(self) -> Mapping[tuple[str, str], Proof]:
        """The ``verdict``, the number of ``rows`` compared and the ``fault``, if any, by task and backend."""
        return {(cell.task.id, cell.backend.label): proof for cell, proof in self.page.proofs}


class PairVerification(Judgement[PairPage]):
    """The verdict on whether two implementations do the same work, and the first difference."""

    @property
    def verdict(self) -> str:
        """``identical``, ``equal``, ``within limits``, ``same distribution``, ``different`` or ``unverified``."""
        return self.page.verdict.word

    @property
    def script(self) -> str:
        """The smallest example as Python code that fails where the two differ, empty without an example."""
        example = self.page.verdict.example
        return "" if example is None else example.script


def measure(
    envs: Texts, *, output: str | Path | None = None, progress: bool = False, world: World | None = None, **plan: Any
) -> Run:
    """Measure the throughput of backends, as ``vebench run`` does.

    Parameters
    ----------
    envs
        Environments: ``"Pong"``, ``["HalfCheetah", "mymodule:MyEnv-v0"]``.
    output
        The new run file, by default in ``.vebench/``.
    progress
        Whether to show progress on standard error.
    world
        Access to the machine and to other processes, which tests replace.
    **plan
        Options of ``vebench run``, with underscores; see ``vebench run --help-all``. A value is Python's, or the
        text that the option takes: ``workers=[1, 2]`` or ``"1..4"``, ``duration=0.5`` or ``"500ms"``, ``base=False``.

    Raises
    ------
    VebenchError
        For bad input, and if nothing can be measured here. A cell that fails raises nothing.
    KeyboardInterrupt
        If Ctrl-C interrupts the measurement. The text names the run file with the cells measured so far.
    """
    words = ["run", *_typed({"envs": envs, **plan})]
    world = replace(world or World(), arguments=tuple(words))
    with _quietly(progress=progress):
        spec = spec_of("run", {"envs": envs, **plan})
        planned, head = plan_here(spec, world)
        refuse_useless(planned)
        planned, head = plan_for_waiting(planned, head, world)
        path = store.default_path(world.now(), spec.envs) if output is None else store.output_path(str(output))
        with Session(RunWriter.create(path, head), world, quiet=not progress) as measuring:
            measuring.measure(planned, planned)
    return load(path)


def load(path: str | Path) -> Run:
    """Read a run file. Verdicts on the work of its backends are the latest known ones."""
    with _quietly():
        run = with_current_verdicts(store.read(Path(path)), known())
    return Run(RunPage.of([(str(path), run)]), Path(path))


def check(  # noqa: PLR0913 - as ``vebench check`` has them
    a: Run | str | Path,
    b: Run | str | Path | None = None,
    *,
    tolerance: float | str = TOLERANCE,
    metric: Texts = "rate",
    envs: Texts = (),
    backends: Texts = (),
    history: str | Path | None = None,
    budget: float | str = 600.0,
    output: str | Path | None = None,
    world: World | None = None,
) -> Comparison:
    """Judge run ``b`` against run ``a``, as ``vebench check`` does: slower, faster, the same or inconclusive.

    Parameters
    ----------
    a
        The baseline: a run, or the path of a run file.
    b
        The candidate: a run, or the path of a run file. Without it, the plan of ``a`` is measured again here.
    tolerance
        How much worse a backend may be, as a fraction, or by task: ``"10%,Pong=5%,Ant=off"``. With ``off``, a task is
        shown and never fails.
    metric
        The metrics to judge: ``"rate"``, ``"startup"``, ``"memory"``, or several. A rate is relative to the yardstick
        of the same run. Instead of ``"rate"``: ``"speedup"``, relative to its plain loop, or ``"fps"``, the rates.
    envs, backends
        Compare only these, by default all of ``a``.
    history
        A folder of earlier runs, from which the variance between runs is estimated.
    budget, output, world
        Used without ``b``. ``budget`` is the longest time to measure. The others are as for ``measure``.
    """
    with _quietly():
        request = checking.CheckRequest(
            a.path if isinstance(a, Run) else Path(a),
            b.path if isinstance(b, Run) else None if b is None else Path(b),
            None if output is None else store.output_path(str(output)),
            tolerance=MOST_WORSE.value(tolerance),
            metrics=METRICS.value(metric),
            envs=OPTIONS["envs"].value(envs) if envs else (),
            backends=OPTIONS["backends"].value(backends) if backends else (),
            history=None if history is None else Path(history),
            budget=_BUDGET.value(budget),
        )
        return Comparison(checking.checked(request, world or World()))


def compare(
    a: str | Path,
    b: str | Path,
    envs: Texts,
    *,
    tolerance: float | str = TOLERANCE,
    metric: Texts = "rate",
    output: str | Path | None = None,
    world: World | None = None,
    **plan: Any,
) -> Comparison:
    """Measure the Pythons ``a`` and ``b``, interleaved, and judge whether ``b`` is slower (``vebench compare``).

    Parameters
    ----------
    a, b
        The paths of two Pythons.
    envs, output, world
        As for ``measure``. ``output`` gets ``-a`` and ``-b`` added.
    tolerance, metric
        As for ``check``. Rates are compared in each pass.
    **plan
        ``backends``, ``workers``, ``passes``, ``effort``, ``budget`` and other options of the command.
    """
    budget = plan.pop("budget", None)
    given = {"envs": envs, **plan}
    words = ["compare", str(a), str(b), *_typed({**given, "budget": budget})]
    world = replace(world or World(), arguments=tuple(words))
    with _quietly():
        spec = spec_of("compare", given)
        path = None if output is None else store.output_path(str(output))
        longest = None if budget is None else _BUDGET.value(budget)
        how = {"tolerance": MOST_WORSE.value(tolerance), "metrics": METRICS.value(metric), "budget": longest}
        return Comparison(checking.compared((str(a), str(b)), (spec, spec), path, world, **how))


@overload
def verify(envs: Texts, b: None = None, **how: Any) -> Verification: ...


@overload
def verify(envs: Subject, b: Subject, **how: Any) -> PairVerification: ...


def verify(  # type: ignore[misc]  # noqa: PLR0913 - as ``vebench verify`` has them
    envs: Texts | Subject,
    b: Subject | None = None,
    *,
    backends: Texts = (),
    steps: int = 400,
    num_envs: int = 2,
    seed: int | None = None,
    timeout: float | str = 300.0,
    within: Texts = (),
    policy: Subject | None = None,
    progress: bool = False,
    world: World | None = None,
) -> Verification | PairVerification:
    """Compare the rows of backends with a plain loop's, or compare two implementations, as ``vebench verify`` does.

    Parameters
    ----------
    envs
        Environments, as for ``measure``. With ``b``, the first implementation, A.
    b
        The second implementation: a name, as on the command line (``"CartPole-v1@other/bin/python"``,
        ``"mymodule:make"``), or a function of a module. The smallest example is written to ``.vebench/example.py``.
    within
        Limits for the differences of two implementations: ``["observations=1e-6"]``, or ``"distribution"``.
    policy
        A function from observations to actions. For two implementations also ``"hold"``, ``"sweep"``, or
        ``"actions.npy"``, a file with an array ``(steps, *action_shape)`` or ``(steps, num_envs, *action_shape)``.
    backends
        The backends to compare, by default all that can run here.
    steps
        Least number of steps of each environment. Each backend is built three times, with different numbers of
        environments. This counts for the first.
    num_envs
        Least number of environments of the first build.
    seed
        The seed of layouts, lengths, resets and actions, by default a random one.
    timeout
        Seconds after which a backend is ended.
    progress, world
        As for ``measure``.
    """
    with _quietly(progress=progress):
        acting = None if policy is None else _name_of(policy)
        if b is not None:
            waits = OPTIONS["timeout"].value(timeout)
            names, limits = [_name_of(envs), _name_of(b)], [within] if isinstance(within, str) else within
            request = diff.PairRequest(names, steps, num_envs, seed, waits, limits, acting)
            return PairVerification(diff.compare_two(request))
        spec = spec_of("verify", {"envs": envs, "backends": backends or None, "timeout": timeout})
        how: dict[str, Any] = {"num_envs": num_envs, "steps": steps, "policy": acting}
        return Verification(verifying.compare_backends(spec, seed, world or World(), **how))


def _name_of(subject: Texts | Subject) -> str:
    """Return the command line's name of a subject. Raises UsageError for a function that cannot be imported."""
    if isinstance(subject, str):
        return subject
    module, name = (str(getattr(subject, of, "")) for of in ("__module__", "__qualname__"))
    if not name or "<" in name or module == "__main__":
        raise UsageError(f"{shown(repr(subject))}: give a function of a module, or its name, such as mymodule:make")
    return f"{module}:{name}"


@contextmanager
def _quietly(*, progress: bool = False) -> Iterator[None]:
    """Print nothing without ``progress``, and turn an interrupted run into KeyboardInterrupt."""
    try:
        with nullcontext() if progress else console.without_progress():
            yield
    except InterruptedRunError as error:
        raise KeyboardInterrupt(one_line(str(error))) from None
    except VebenchError as error:
        error.args = (one_line(str(error)),)
        raise


def spec_of(command: str, plan: Mapping[str, Any], effort: str = "normal") -> RunSpec:
    """Return the spec for the keyword arguments of a command's function. None means the default.

    ``effort`` is the level if ``plan`` has none. Raises UsageError for an unknown argument or an invalid value.
    """
    values = {}
    fields = [name for name in FIELDS[command] if name != "suite"]  # a suite has a plan of its own
    for name, given in plan.items():
        if name in fields:
            if given is not None:
                values[name] = OPTIONS[name].value(given)
        elif name != "effort" or command == "verify":
            raise UsageError(f"{shown(name)}: no such argument{did_you_mean(name, fields)}")
    return asked(command, values, plan.get("effort", effort))


def _typed(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of the equivalent command line, which reports show."""
    for name, given in plan.items():
        if name == "effort":
            yield from ("--effort", str(given))
        elif name in OPTIONS and given is not None:
            yield from OPTIONS[name].typed(given)
