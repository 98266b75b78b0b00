"""Run files as a page: for each a table per task, what they were measured with, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from vebench.analysis.answer import answer
from vebench.analysis.cell import in_report_order
from vebench.analysis.findings import GRAVEST_FIRST, Code, Gravity, quota
from vebench.analysis.rules import grouped, of_run
from vebench.analysis.statistics import PROCESS_SPREAD
from vebench.analysis.summary import summarise
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.plan.spec import PER_NODE
from vebench.reports import columns, figures
from vebench.reports.document import DEFAULT, Document, Remark, View
from vebench.reports.pages import published, rates
from vebench.reports.pages.answer import Commands, answers
from vebench.reports.pages.curves import forecast_tables, predictions, run_charts
from vebench.reports.pages.rates import learner_words
from vebench.reports.pages.side_by_side import RunSide, short_names, side_by_side
from vebench.results.header import what_differs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding
    from vebench.reports.document import PageKind
    from vebench.results.records import HostRecord, Run, RunRecord


# Of a cell's data, in the order in which users have always met them; the others follow.
_FIRST = (
    *("env", "backend", "workers", "num_envs", "status", "steps_per_second", "frames_per_second", "speedup"),
    *("efficiency", "of_ceiling", "frames_per_cpu_second", "startup_seconds", "peak_rss_bytes", "findings"),
)


# What others took of most cells is the notice, and need not be said of each.
_TAKEN = frozenset({Code.DISTURBED, Code.THROTTLED})


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
    kind: ClassVar[PageKind] = "run"
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
    return {**{name: record[name] for name in _FIRST}, **record}


def _together(sections: Sequence[Section]) -> Document | None:
    """Return several runs side by side; None for a single one, or if no other has a task in common with the first."""
    if len(sections) == 1:
        return None
    names = short_names(len(sections))
    return side_by_side(
        [
            RunSide(name, section.name, section.run.header, section.cells, section.notice)
            for name, section in zip(names, sections, strict=True)
        ]
    )


def _cut_short(together: Document) -> Document:
    return replace(together, legend=(*together.legend, "--all shows each run alone, too."))


def _with_published(document: Document, sections: Sequence[Section]) -> Document:
    """Return ``document`` with what others have published for the tasks of all sections, or that nothing is known."""
    envs = dict.fromkeys(cell.env for section in sections for cell in section.cells)
    tables = published.published_tables(envs)
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
        env: answer([cell for cell in cells if cell.env == env], head.spec, head.usable_cpus, usable=not section.notice)
        for env in envs
    }
    matters = [cell for cell in cells if view.every_finding or _matters(cell, cells)]
    tables = tuple(
        table
        for env in envs
        for table in rates.rate_tables(
            env, [cell for cell in matters if cell.env == env], head.spec, view, best=found[env].winner
        )
    )
    marked = any(text.tone == "best" for table in tables for row in table.rows for text in row.texts)
    findings = _findings(section, matters if view.every_finding else [_said_once(cell, section) for cell in matters])
    shown = [one for one in findings if view.every_finding or _is_news(one)]
    return Document(
        title=section.name,
        facts=(*run_facts(head, cells), *((("compared", section.beside),) if section.beside else ())),
        tables=(*tables, *forecast_tables(predicted)),
        legend=tuple(_legend(matters)),
        findings=tuple(shown),
        best="the winner" if marked else "",
        notice=section.notice,
        answers=answers(found, Commands(head, section.name, section.findings)),
        charts=run_charts(cells, head, predicted),
        notes_left_out=len(
            {one.label for one in findings if one.gravity is Gravity.NOTE} - {one.label for one in shown}
        ),
    )


def _matters(cell: CellSummary, cells: Sequence[CellSummary]) -> bool:
    """Return whether a table needs the cell: what the loop costs is left out if no backend's rate suffers from it."""
    if cell.loop_ns_per_batch is None:
        return True
    beside = [other for other in cells if other.env == cell.env and not other.reference_row]
    return not beside or any(finding.code is Code.LOOP_COST for other in beside for finding in other.findings)


def _is_news(finding: Remark) -> bool:
    """Return whether a reader has to know it, and the condition of the run does not say it."""
    return finding.gravity is not Gravity.NOTE and (finding.places != () or finding.label not in _OF_CONDITION)


def _said_once(cell: CellSummary, section: Section) -> CellSummary:
    """Return ``cell`` without findings that the notice says of all."""
    if not section.notice:
        return cell
    return replace(cell, findings=tuple(finding for finding in cell.findings if finding.code not in _TAKEN))


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


def _findings(section: Section, cells: Sequence[CellSummary]) -> list[Remark]:
    """Return all findings about the run and about these cells of it, the gravest first."""
    of_cells = ((group.finding, group.places) for group in grouped(cells))
    of_run = ((finding, ()) for finding in section.findings if finding.code is not Code.UNUSABLE)  # that is the notice
    found = sorted((*of_cells, *of_run), key=lambda pair: GRAVEST_FIRST.index(pair[0].code))
    return [Remark.of(finding, places) for finding, places in found]


_CONDITION = "condition"  # the name of this fact
# Findings on the run as a whole that it says.
_OF_CONDITION = frozenset({Code.THROTTLED, Code.UNPINNED, Code.VIRTUAL_MACHINE})


def condition(header: RunRecord, cells: Sequence[CellSummary]) -> str:
    """Return it in one line, empty if nothing is worth saying."""
    return one_line("; ".join(_parts(header, cells)))


def _parts(header: RunRecord, cells: Sequence[CellSummary]) -> Iterator[str]:
    host = header.host
    if host.virtual:
        yield "virtual machine"
    if any(quota(host)):
        yield f"a quota of {host.quota_cpus:g} CPUs"
    if not host.pinning or not header.spec.pin.pins:
        yield "cells not held to CPUs of their own"
    taken = [cell.stolen_share + cell.others_share for cell in cells if _known(cell)]
    if taken:
        mean, most = sum(taken) / len(taken), max(taken)
        yield f"others took {mean:.1%} of CPU time, up to {most:.1%} in a cell"


def _known(cell: CellSummary) -> bool:
    """Return whether the kernel said for each window what others took, and there are windows."""
    return cell.windows > 0 and any(cell.totals.get(name) is not None for name in ("steal_ns", "others_ns"))


_GIB = 2**30


def run_facts(header: RunRecord, cells: Sequence[CellSummary]) -> tuple[tuple[str, str], ...]:
    """Return the facts about a run with these cells, each with its name and on one line. Unknown ones are left out."""
    spec = header.spec
    windows = f"{figures.counted(spec.rounds, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"
    repeats = f", {spec.repeats} repeats" if spec.repeats > 1 else ""
    if spec.until is not None:
        repeats += f", repeated until ±{100 * spec.until:.3g}%"
    if spec.takes_turns:
        repeats += ", cells taking turns"
    replicas = {1: "", PER_NODE: ", a replica for each memory node"}.get(
        spec.replicas, f", in {spec.replicas} replicas"
    )
    packages = ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))
    known = (
        ("machine", _machine(header.host)),
        (_CONDITION, condition(header, cells)),
        ("hosts", _hosts(header, cells)),
        ("system", _system(header.host)),
        ("packages", packages),
        ("measured", f"{header.started}{', ' if header.started else ''}{windows}{repeats}{replicas}"),
        ("policy", spec.policy.in_words),
        ("learner", "" if spec.learner is None else learner_words(spec.learner)),
        ("proof", _proof(cells)),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in known if value)


def _hosts(header: RunRecord, cells: Sequence[CellSummary]) -> str:
    """Return in words on which hosts replicas ran, and how well their clocks are known."""
    asked = header.spec.hosts
    if not header.hosts or asked is None:
        return ""
    errors = [share.error_ns for cell in cells for share in cell.hosts]
    clocks = f"; clocks known to {figures.short_time(max(errors))}" if errors else ""
    kept = "delivered to one consumer" if asked.deliver else "nothing delivered"
    return f"{', '.join(header.hosts)} by {asked.via}, added up; {kept}{clocks}"


def _proof(cells: Sequence[CellSummary]) -> str:
    """Return in words what was compared of what the measured cells returned."""
    proofs = [cell.proof for cell in cells if cell.proof is not None and cell.proof.rows]
    if not proofs:
        return ""
    rows, made = sum(proof.rows for proof in proofs), sum(proof.of_steps for proof in proofs)
    far = sum(proof.steps for proof in proofs) / max(1, made)
    backends = sum(not cell.reference_row for cell in cells)
    return (
        f"in {len(proofs)} of {figures.counted(backends, 'cell')}, {rows:,} rows of the measured steps compared with "
        f"{REFERENCE}, on the way through {far:.0%} of them"
    )


def _machine(host: HostRecord) -> str:
    cpus = f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable"
    memory = f"{host.memory_bytes / _GIB:.1f} GiB" if host.memory_bytes is not None else ""
    return ", ".join(part for part in (host.cpu_model, cpus, memory) if part)


def _system(host: HostRecord) -> str:
    python = f"Python {host.python}" if host.python else ""
    container = "in a container" if host.container else ""
    return ", ".join(part for part in (f"{host.system} {host.kernel} {host.machine}", python, container) if part)
