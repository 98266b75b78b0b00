"""From analysis to neutral documents: facts, tables, legend and remarks, which each format writes in its syntax."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from vebench.analysis.findings import machine, rules
from vebench.analysis.statistics import PROCESS_SPREAD
from vebench.analysis.summary import CellSummary, summarise
from vebench.backends.registry import ENTRIES, NULL, REFERENCE
from vebench.errors import one_line
from vebench.plan.known_work import BEST_FIRST
from vebench.plan.spec import PER_NODE, BackendChoice
from vebench.plan.tasks import short_name
from vebench.reports import figures
from vebench.results.header import what_differs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vebench.plan.spec import RunSpec
    from vebench.results.records import HostRecord, Run

Tone = Literal["plain", "best", "reference", "missing", "struck"]
RANKS = {entry.name: (entry.reference_row, rank) for rank, entry in enumerate(ENTRIES)}
THIRD_PARTY = (False, len(RANKS))
GIB = 2**30
SAME_WORK = "same work"
NO_VERDICT = "-"
DOUBTFUL = ("unverified", "different")
DIFFERENCES = f"Not quite the same work as {REFERENCE}:"


@dataclass(frozen=True)
class Section:
    """One run file, analysed. ``name`` is the file's, as it was given.

    ``beside`` says whether its figures can be put beside those of the report's first run, empty for that itself.
    """

    name: str
    run: Run
    cells: tuple[CellSummary, ...]
    findings: tuple[rules.Finding, ...]
    beside: str = ""


@dataclass(frozen=True)
class Report:
    """What is to be rendered: run files in the order in which they were named, each a section of its own."""

    sections: tuple[Section, ...]

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Run]]) -> Self:
        """Return the report on ``runs``, each with the name of its file."""
        sections = [_section(name, run) for name, run in runs]
        return cls(tuple(replace(section, beside=_beside(section, sections[0])) for section in sections))


@dataclass(frozen=True)
class Text:
    """What stands in one place of a table: the first line is what counts, the others explain it."""

    lines: tuple[str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True)
class Row:
    """One line of a table. Reference rows come last and are set apart."""

    label: str
    texts: tuple[Text, ...]
    reference: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a column of labels, headed ``corner``, and one column for each of ``columns``.

    ``notes`` are footnotes; ``differences``, to be headed ``DIFFERENCES``, tell which rows did other work than others.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    numbers: bool = True


@dataclass(frozen=True)
class Remark:
    """A finding as it is told: its code, what is so, where (a line for each place), and what to do."""

    code: str
    text: str
    places: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Document:
    """Everything that is said of one run: facts by name, how to read tables, tables, and remarks last."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    legend: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()


def document(section: Section) -> Document:
    """Return what is to be said of one run."""
    envs = dict.fromkeys(cell.env for cell in section.cells)
    return Document(
        title=section.name,
        facts=(*_facts(section.run), *((("compared", section.beside),) if section.beside else ())),
        tables=tuple(_task(env, [cell for cell in section.cells if cell.env == env]) for env in envs),
        legend=(
            f"In each place: frames/s, steps/s, and the speedup over {REFERENCE} with one worker.",
            "±: the true median lies within this distance, with 95 % confidence.",
            *_allowance(section.cells),
        )
        if envs
        else ("No cell has been measured yet.",),
        remarks=_remarks(section),
    )


def _allowance(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield how far the interval of a single process can be trusted, where there is one."""
    if any(cell.sample.one_process for cell in cells):
        yield f"One process each: {PROCESS_SPREAD:.0%} allowed for what others would differ by; --repeats measures it."


def _section(name: str, run: Run) -> Section:
    spec = run.header.spec

    def key(cell: CellSummary) -> tuple[object, ...]:
        return *place(cell.env, BackendChoice(cell.backend, dict(cell.options)), spec), cell.workers

    file = one_line(name)
    of_run = (*machine.of_run(run.header.host), *rules.of_run(run, file))
    return Section(file, run, tuple(sorted(summarise(run, file), key=key)), of_run)


def _beside(section: Section, first: Section) -> str:
    if section is first:
        return ""
    differences = what_differs(first.run.header, section.run.header)
    if not differences:
        return f"comparable with {first.name}: the same machine and packages"
    return one_line(f"not comparable with {first.name}: {'; '.join(differences)}")


def place(env: str, backend: BackendChoice, spec: RunSpec) -> tuple[object, ...]:
    """Return a sort key: tasks as they were asked for, backends as in the registry, third parties, references last.

    Backends of one name follow each other as they were asked for.
    """
    asked = [short_name(name) for name in spec.envs]
    task = asked.index(short_name(env)) if short_name(env) in asked else len(asked)
    chosen = spec.backends.index(backend) if backend in spec.backends else len(spec.backends)
    return task, env, RANKS.get(backend.name, THIRD_PARTY), chosen, backend.label


def _task(env: str, cells: Sequence[CellSummary]) -> Table:
    columns = sorted({(cell.workers, cell.envs_per_worker) for cell in cells})
    marked = {cell.workers: cell.cpus_owned for cell in cells if cell.oversubscribed}
    best = max(filter(_may_be_best, cells), key=_speed, default=None)
    by_label: dict[str, dict[tuple[int, int], CellSummary]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, {})[cell.workers, cell.envs_per_worker] = cell
    skips = sorted({cell.frame_skip for cell in cells})
    return Table(
        title=f"{one_line(env)}: frames/s ({' or '.join(figures.counted(skip, 'frame') for skip in skips)} per step)",
        corner="backend",
        columns=(*(_column(*column, marked=column[0] in marked) for column in columns), SAME_WORK),
        rows=tuple(
            Row(
                one_line(label),
                (*(_text(row.get(column), best) for column in columns), _verdict(list(row.values()))),
                next(iter(row.values())).reference,
            )
            for label, row in by_label.items()
        ),
        notes=tuple(_notes(cells, marked)),
        differences=_differences(cells),
    )


def _notes(cells: Sequence[CellSummary], marked: Mapping[int, int]) -> Iterator[str]:
    """Yield the footnotes of a table; ``marked`` maps oversubscribed worker counts to the CPUs owned."""
    if marked:
        yield f"! more workers than the {figures.counted(max(marked.values()), 'CPU')} that they run on"
    if any(cell.loop_ns_per_batch for cell in cells):
        yield f"{NULL}: what the measuring loop itself costs"
    if any(cell.frames_per_second and not cell.reference for cell in cells) and not any(cell.speedup for cell in cells):
        yield _no_speedups(cells)


def _no_speedups(cells: Sequence[CellSummary]) -> str:
    what = f"no speedups: {REFERENCE} with one worker"
    if any(cell.backend == REFERENCE and cell.workers == 1 for cell in cells):
        return f"{what} has no rate"
    return f"{what} was not measured (add -b {REFERENCE} and 1 to --workers)"


def _may_be_best(cell: CellSummary) -> bool:
    """Return whether the cell's rate is one to recommend: of no reference, with an interval, and possible at all."""
    known = cell.frames_per_second is not None and cell.frames_per_second.low is not None
    possible = all(finding.code != "above-ceiling" for finding in cell.findings)
    return known and possible and not cell.reference and not cell.struck


def _speed(cell: CellSummary) -> float:
    return cell.frames_per_second.median if cell.frames_per_second else 0.0


def _column(workers: int, envs_per_worker: int, *, marked: bool) -> str:
    envs = f" x {figures.counted(envs_per_worker, 'env')}" if envs_per_worker > 1 else ""
    return f"{figures.counted(workers, 'worker')}{envs}{' !' if marked else ''}"


def _verdict(cells: Sequence[CellSummary]) -> Text:
    """Return whether the backend does the same work, by the worst verdict of its cells."""
    verdict = max((cell.verdict for cell in cells if cell.verdict), key=BEST_FIRST.index, default=None)
    return Text((verdict or NO_VERDICT,), "missing" if verdict in DOUBTFUL else "plain")


def _text(cell: CellSummary | None, best: CellSummary | None) -> Text:
    if cell is None:
        return Text(("not run",), "missing")
    if cell.frames_per_second is None or cell.steps_per_second is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if cell.loop_ns_per_batch is not None:
        return Text((figures.microseconds(cell.loop_ns_per_batch), "a batch"), "reference")
    if cell.struck:
        return Text((figures.rate(cell.frames_per_second), "other work"), "struck")
    lines = [figures.rate(cell.frames_per_second), f"{figures.number(cell.steps_per_second.median)} steps/s"]
    # A speedup of what no backend can beat would read as that of one.
    if cell.speedup is not None and not cell.reference:
        lines.append(figures.times(cell.speedup))
    tone: Tone = "best" if cell is best else "reference" if cell.reference else "plain"
    return Text(tuple(lines), tone)


def _differences(cells: Sequence[CellSummary]) -> tuple[str, ...]:
    labels_by_difference: dict[str, dict[str, None]] = {}
    for cell in cells:
        for difference in cell.differences:
            labels_by_difference.setdefault(one_line(difference), {})[one_line(cell.label)] = None
    return tuple(f"{', '.join(labels)}: {difference}" for difference, labels in labels_by_difference.items())


def _remarks(section: Section) -> tuple[Remark, ...]:
    of_cells = ((group.finding, group.places) for group in rules.grouped(section.cells))
    of_run = ((finding, ()) for finding in section.findings)
    return tuple(
        Remark(finding.code, one_line(finding.message), tuple(map(one_line, places)), one_line(finding.remedy))
        for finding, places in (*of_cells, *of_run)
    )


def _facts(run: Run) -> tuple[tuple[str, str], ...]:
    header, spec = run.header, run.header.spec
    windows = f"{figures.counted(spec.rounds, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"
    repeats = f", {spec.repeats} repeats" if spec.repeats > 1 else ""
    pools = {"1": "", PER_NODE: ", a pool for each memory node"}.get(spec.replicas, f", in {spec.replicas} pools")
    if spec.until is not None:
        repeats += f", repeated until ±{100 * spec.until:.3g}%"
    if spec.interleave:
        repeats += ", cells in turn"
    packages = ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))
    facts = (
        ("machine", _machine(header.host)),
        ("system", _system(header.host)),
        ("packages", packages),
        ("measured", f"{header.started}{', ' if header.started else ''}{windows}{repeats}{pools}"),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in facts if value)


def _machine(host: HostRecord) -> str:
    cpus = f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable"
    memory = f"{host.memory_bytes / GIB:.1f} GiB" if host.memory_bytes is not None else ""
    kind = "virtual machine" if host.virtual else ""
    return ", ".join(part for part in (host.cpu_model, cpus, memory, kind) if part)


def _system(host: HostRecord) -> str:
    python = f"Python {host.python}" if host.python else ""
    container = "in a container" if host.container else ""
    return ", ".join(part for part in (f"{host.system} {host.kernel} {host.machine}", python, container) if part)
