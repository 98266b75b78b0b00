"""Run files as a page: for each a table per task, what they were measured with, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from vebench.analysis.answer import answer
from vebench.analysis.cell import is_base
from vebench.analysis.finding_codes import GRAVEST_FIRST, Code, Gravity
from vebench.analysis.findings.grouping import grouped
from vebench.analysis.findings.run import of_run
from vebench.analysis.report_order import in_report_order
from vebench.analysis.statistics import PROCESS_SPREAD
from vebench.analysis.summary import summarise
from vebench.backends.registry import NULL, REFERENCE
from vebench.errors import one_line
from vebench.plan.known_work import BEST_FIRST
from vebench.plan.spec import PER_NODE
from vebench.reports import columns, figures
from vebench.reports.document import Document, FindingText, Listing, Table, TableRow, Text
from vebench.reports.pages import published
from vebench.reports.pages.answer import Told, answers
from vebench.reports.pages.beside import document as side_by_side
from vebench.reports.pages.charts import charts
from vebench.reports.pages.conditions import CONDITION, OF_CONDITION, condition
from vebench.reports.pages.forecasts import predictions
from vebench.reports.pages.forecasts import tables as forecasts
from vebench.reports.pages.on_demand import of_column
from vebench.reports.pages.sides import Side, short_names
from vebench.reports.view import DEFAULT, View
from vebench.results.header import what_differs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary, Finding
    from vebench.plan.spec import RunSpec
    from vebench.reports.document import Tone, Value
    from vebench.reports.page import Kind
    from vebench.results.records import HostRecord, Run

GIB = 2**30
DOUBTFUL = ("unverified", "different")
# Of a cell's data, in the order in which users have always met them; the others follow.
FIRST = (
    *("env", "backend", "workers", "num_envs", "status", "steps_per_second", "frames_per_second", "speedup"),
    *("efficiency", "of_ceiling", "frames_per_cpu_second", "startup_seconds", "peak_rss_bytes", "findings"),
)
DIFFERENCES = f"Not quite the same work as {REFERENCE}:"
KEY_FACTS = ("machine", CONDITION, "compared")


@dataclass(frozen=True)
class Section:
    """One run file, analysed. ``name`` is the file's, as it was given; ``findings`` are those of the run as a whole.

    ``beside`` says whether its figures are comparable with those of the page's first run, or that no task is in both;
    it is empty for that run itself.
    """

    name: str
    run: Run
    cells: tuple[CellSummary, ...]
    findings: tuple[Finding, ...]
    beside: str = ""

    @property
    def notice(self) -> str:
        """Why none of its figures should be used, in one line; empty if they may be."""
        found = (finding for finding in self.findings if finding.code is Code.UNUSABLE)
        return next((f"{finding.code}: {finding.message}; {finding.remedy}" for finding in found), "")


@dataclass(frozen=True)
class RunPage:
    """Run files in the order in which they were named, each a section of its own. ``view`` is what is shown of them."""

    sections: tuple[Section, ...]
    view: View = DEFAULT
    kind: ClassVar[Kind] = "run"
    title: ClassVar[str] = "Throughput of vector-env backends"

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Run]], view: View = DEFAULT) -> Self:
        """Return the page of ``runs``, each with the name of its file."""
        sections = [_section(name, run) for name, run in runs]
        return cls(tuple(replace(section, beside=_beside(section, sections[0])) for section in sections), view)

    @property
    def documents(self) -> tuple[Document, ...]:
        """A document for each run file; of several that have a task in common, one before with all side by side."""
        together = _together(self.sections)
        shown = self.sections if together is None or self.view.each_run else ()
        alone = [_document(section, self.view) for section in shown]
        first, *others = alone if together is None else (together if alone else _cut_short(together), *alone)
        return (_with_published(first, self.sections) if self.view.published else first, *others)

    @property
    def data(self) -> list[dict[str, object]]:
        """The cells of every section in one list, each with what identifies it and the value of every column."""
        return [
            _record(section.name, columns.with_findings(cell, section.findings))
            for section in self.sections
            for cell in section.cells
        ]


def _section(name: str, run: Run) -> Section:
    file = one_line(name)
    cells = summarise(run, file)
    return Section(file, run, in_report_order(cells, run.header.spec), of_run(run, cells, file))


def _record(file: str, cell: CellSummary) -> dict[str, object]:
    record: dict[str, object] = {
        "env": cell.env,
        "backend": cell.backend,
        "workers": cell.workers,
        "options": dict(cell.options),
        "file": file,
        "envs_per_worker": cell.envs_per_worker,
        **{column.name: column.value(cell) for column in columns.COLUMNS},
    }
    return {**{name: record[name] for name in FIRST}, **record}


def _together(sections: Sequence[Section]) -> Document | None:
    """Return several runs side by side; None for a single one, or if no other has a task in common with the first."""
    if len(sections) == 1:
        return None
    names = short_names(len(sections))
    return side_by_side(
        [
            Side(name, section.name, section.run.header, section.cells, section.notice)
            for name, section in zip(names, sections, strict=True)
        ]
    )


def _cut_short(together: Document) -> Document:
    return replace(together, legend=(*together.legend, "--all shows each run alone, too."))


def _with_published(document: Document, sections: Sequence[Section]) -> Document:
    """Return ``document`` with what others have published for the tasks of all sections, or that nothing is known."""
    envs = dict.fromkeys(cell.env for section in sections for cell in section.cells)
    tables = published.tables(envs)
    if not tables:
        return replace(document, legend=(*document.legend, "No published figure is known for these tasks."))
    return replace(document, tables=(*document.tables, *tables))


def _beside(section: Section, first: Section) -> str:
    if section is first:
        return ""
    if _nothing_in_common(section, first):
        return f"with nothing, for it has no task in common with {first.name}"
    differences = what_differs(first.run.header, section.run.header)
    if not differences:
        return f"comparable with {first.name}: the same machine and packages"
    return one_line(f"under other conditions than {first.name}: {'; '.join(differences)}")


def _nothing_in_common(section: Section, first: Section) -> bool:
    """Return whether tasks were measured in both runs, but none of them in both."""
    of_each = [{cell.env for cell in one.cells} for one in (section, first)]
    return all(of_each) and not set.intersection(*of_each)


def _document(section: Section, view: View) -> Document:
    head, cells = section.run.header, section.cells
    predicted = predictions(cells, head, view.forecast) if view.forecast else ()
    envs = dict.fromkeys(cell.env for cell in cells)
    found = {
        env: answer(
            [cell for cell in cells if cell.env == env], head.spec, head.host.usable_cpus, usable=not section.notice
        )
        for env in envs
    }
    matters = [cell for cell in cells if view.every_finding or _matters(cell, cells)]
    tables = tuple(
        table
        for env in envs
        for table in _task(env, [cell for cell in matters if cell.env == env], head.spec, view, best=found[env].winner)
    )
    marked = any(text.tone == "best" for table in tables for row in table.rows for text in row.texts)
    findings = _findings(section, matters)
    shown = [one for one in findings if view.every_finding or _is_news(one)]
    return Document(
        title=section.name,
        facts=(*_facts(section), *((("compared", section.beside),) if section.beside else ())),
        tables=(*tables, *forecasts(predicted)),
        legend=tuple(_legend(matters)),
        findings=tuple(shown),
        best="the winner" if marked else "",
        notice=section.notice,
        answers=answers(found, Told(head, section.name, section.findings)),
        charts=charts(cells, head, predicted),
        notes_left_out=len({one.code for one in findings if one.gravity is Gravity.NOTE} - {one.code for one in shown}),
        key_facts=KEY_FACTS,
        in_full=view.every_finding,
    )


def _matters(cell: CellSummary, cells: Sequence[CellSummary]) -> bool:
    """Return whether a table needs the cell: what the loop costs is left out if no backend's rate suffers from it."""
    if cell.loop_ns_per_batch is None:
        return True
    beside = [other for other in cells if other.env == cell.env and not other.reference_row]
    return not beside or any(finding.code is Code.LOOP_COST for other in beside for finding in other.findings)


def _is_news(finding: FindingText) -> bool:
    """Return whether a reader has to know it, and the condition of the run does not say it."""
    return finding.gravity is not Gravity.NOTE and (finding.places != () or finding.code not in OF_CONDITION)


def _legend(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield how to read the tables."""
    if not cells:
        yield "No cell has been measured yet."
        return
    as_many = " and as many environments" if len({cell.envs_per_worker for cell in cells}) > 1 else ""
    yield f"In each cell: frames/s, and the speedup over {REFERENCE} with one worker{as_many}."
    yield "±: the true rate lies within this distance, with 95 % confidence."
    if any(cell.sample.one_process for cell in cells):
        yield f"One process each: {PROCESS_SPREAD:.0%} allowed for what others would differ by; --repeats measures it."


def _task(
    env: str, cells: Sequence[CellSummary], spec: RunSpec, view: View, *, best: CellSummary | None
) -> Iterator[Table]:
    """Yield the table of one task, or one for each number of environments per worker if workers vary, too.

    Footnotes are below the last one. Tables of further columns follow. The place of ``best`` is marked, None if there
    is no winner.
    """
    marked = {cell.workers: cell.cpus_owned for cell in cells if cell.oversubscribed}
    skips = sorted({cell.frame_skip for cell in cells})
    unit = f"frames/s ({' or '.join(figures.counted(skip, 'frame') for skip in skips)} per step)"
    parts = {f"{one_line(env)}{name}": part for name, part in _parts(cells).items()}
    for name, part in parts.items():
        grid = _grid(part, marked, spec, lambda cell: _figure(cell, best), _work_verdict)
        table = replace(grid, title=f"{name}: {unit}", group=one_line(env))
        last = name == [*parts][-1]
        yield (
            replace(table, notes=tuple(_notes(cells, marked, spec)), listing=_differences(cells, view))
            if last
            else table
        )
    for wanted in view.columns:
        column = columns.named(wanted)
        for name, part in parts.items():
            grid = _grid(part, marked, spec, partial(of_column, column))
            notes = (columns.words(column),)
            yield replace(grid, title=f"{name}: {column.name}", group=one_line(env), notes=notes, about="run")


def _parts(cells: Sequence[CellSummary]) -> Mapping[str, Sequence[CellSummary]]:
    """Return the cells of one task as its tables have them, with what each adds to the title."""
    swept = sorted({cell.envs_per_worker for cell in cells})
    if len(swept) == 1 or len({cell.workers for cell in cells}) == 1:
        return {"": cells}
    return {
        f", {figures.counted(envs, 'environment')} per worker": [cell for cell in cells if cell.envs_per_worker == envs]
        for envs in swept
    }


def _grid(
    cells: Sequence[CellSummary],
    marked: Container[int],
    spec: RunSpec,
    place: Callable[[CellSummary], Text],
    aside: Callable[[Sequence[CellSummary]], Text] | None = None,
) -> Table:
    """Return a table with a row for each backend and a column for each size, those of ``marked`` workers with a !.

    ``place`` makes the text of a cell. ``aside``, if there is one, makes that of all cells of a backend, beside them.
    """
    heads = sorted({(cell.workers, cell.envs_per_worker) for cell in cells})
    sizes = {(cell.workers, cell.envs_per_worker): cell.key.size for cell in cells}
    swept = len({workers for workers, _ in heads}) > 1
    by_label: dict[str, dict[tuple[int, int], CellSummary]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, {})[cell.workers, cell.envs_per_worker] = cell
    return Table(
        title="",
        corner="backend",
        columns=(
            *(f"{sizes[head]}{' !' * (head[0] in marked)}" for head in heads),
            *((figures.SAME_WORK,) if aside else ()),
        ),
        axis=(
            *(workers if swept or len(heads) == 1 else envs for workers, envs in heads),
            *((None,) if aside else ()),
        ),
        rows=tuple(
            TableRow(
                one_line(label),
                (
                    *(place(row[head]) if head in row else _absent(label, head[0], spec) for head in heads),
                    *((aside(list(row.values())),) if aside else ()),
                ),
                next(iter(row.values())).reference_row,
            )
            for label, row in by_label.items()
        ),
    )


def _absent(label: str, workers: int, spec: RunSpec) -> Text:
    """Return the place of a cell that is not in the file: it was not measured yet, or never asked for."""
    return Text(("not run",), "missing") if spec.asks_for(label, workers) else Text((figures.NOTHING,))


def _notes(cells: Sequence[CellSummary], marked: Mapping[int, int], spec: RunSpec) -> Iterator[str]:
    """Yield the footnotes of a table; ``marked`` maps oversubscribed worker counts to the CPUs owned."""
    if marked:
        yield f"! more workers than the {figures.counted(max(marked.values()), 'CPU')} that they run on"
    if any(cell.loop_ns_per_batch for cell in cells):
        yield f"{NULL}: what the measuring loop itself costs"
    if any(cell.frames_per_second and not cell.reference_row for cell in cells) and not any(
        cell.speedup for cell in cells
    ):
        yield _no_speedups(cells, spec)


def _no_speedups(cells: Sequence[CellSummary], spec: RunSpec) -> str:
    what = f"no speedups: {REFERENCE} with one worker"
    if any(is_base(cell.key) for cell in cells):
        return f"{what} has no rate"
    if spec.base:
        return f"{what} was not measured yet"
    return f"{what} was not measured (leave out --no-base, or add -b {REFERENCE} and 1 to --workers)"


def _work_verdict(cells: Sequence[CellSummary]) -> Text:
    """Return whether the backend does the same work, by the worst verdict of its cells."""
    verdict = max((cell.verdict for cell in cells if cell.verdict), key=BEST_FIRST.index, default=None)
    return Text((verdict or figures.NOTHING,), "missing" if verdict in DOUBTFUL else "plain", verdict)


def _figure(cell: CellSummary, best: CellSummary | None) -> Text:
    """Return the place of a cell, with its rate as the value, and all its figures as the values."""
    rate = cell.frames_per_second
    if rate is None or cell.steps_per_second is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:
        return Text((figures.microseconds(loop), "a batch"), "reference_row", loop)
    values: dict[str, Value] = {"frames_per_second": rate, "steps_per_second": cell.steps_per_second}
    if cell.struck:
        return Text((figures.rate(rate), "other work"), "struck", rate, values)
    lines = [figures.rate(rate)]
    # No backend can beat a reference row: its speedup would read as that of a backend.
    if cell.speedup is not None and not cell.reference_row:
        lines.append(figures.times(cell.speedup))
        values["speedup"] = cell.speedup
    tone: Tone = "best" if cell is best else "reference_row" if cell.reference_row else "plain"
    return Text(tuple(lines), tone, rate, values)


def _differences(cells: Sequence[CellSummary], view: View) -> Listing | None:
    """Return what backends do differently. That a reference row does is what it is there for."""
    labels_by_difference: dict[str, dict[str, None]] = {}
    for cell in (cell for cell in cells if view.every_finding or not cell.reference_row):
        for difference in cell.differences:
            labels_by_difference.setdefault(one_line(difference), {})[one_line(cell.label)] = None
    lines = tuple(f"{', '.join(labels)}: {difference}" for difference, labels in labels_by_difference.items())
    return Listing(DIFFERENCES, lines) if lines else None


def _findings(section: Section, cells: Sequence[CellSummary]) -> list[FindingText]:
    """Return all findings about the run and about these cells of it, the gravest first."""
    of_cells = ((group.finding, group.places) for group in grouped(cells))
    of_run = ((finding, ()) for finding in section.findings if finding.code is not Code.UNUSABLE)  # that is the notice
    found = [
        FindingText(finding.code, one_line(finding.message), tuple(map(one_line, places)), one_line(finding.remedy))
        for finding, places in (*of_cells, *of_run)
    ]
    return sorted(found, key=lambda finding: GRAVEST_FIRST.index(finding.code))


def _facts(section: Section) -> tuple[tuple[str, str], ...]:
    header, spec = section.run.header, section.run.header.spec
    windows = f"{figures.counted(spec.rounds, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"
    repeats = f", {spec.repeats} repeats" if spec.repeats > 1 else ""
    if spec.until is not None:
        repeats += f", repeated until ±{100 * spec.until:.3g}%"
    if spec.takes_turns:
        repeats += ", cells taking turns"
    replicas = {"1": "", PER_NODE: ", a replica for each memory node"}.get(
        spec.replicas, f", in {spec.replicas} replicas"
    )
    packages = ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))
    facts = (
        ("machine", _machine(header.host)),
        (CONDITION, condition(header, section.cells)),
        ("system", _system(header.host)),
        ("packages", packages),
        ("measured", f"{header.started}{', ' if header.started else ''}{windows}{repeats}{replicas}"),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in facts if value)


def _machine(host: HostRecord) -> str:
    cpus = f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable"
    memory = f"{host.memory_bytes / GIB:.1f} GiB" if host.memory_bytes is not None else ""
    return ", ".join(part for part in (host.cpu_model, cpus, memory) if part)


def _system(host: HostRecord) -> str:
    python = f"Python {host.python}" if host.python else ""
    container = "in a container" if host.container else ""
    return ", ".join(part for part in (f"{host.system} {host.kernel} {host.machine}", python, container) if part)
