"""Run files as a page: for each a table per task, what they were measured with, and what was found."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Self

from vebench.analysis.answer import answer_for, fastest_first
from vebench.analysis.cell import in_report_order
from vebench.analysis.findings import Code, Gravity
from vebench.analysis.forecast import Spent, time_spent
from vebench.analysis.rules import of_run, quota
from vebench.analysis.statistics import PROCESS_SPREAD
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.plan.spec import PER_NODE, UNTIL_BUDGET
from vebench.reports import columns, figures
from vebench.reports.answer import RunFacts, answers, setting_of
from vebench.reports.curves import forecast_tables, predictions, run_charts
from vebench.reports.document import DEFAULT, AnswerText, DataPage, Document, Remark, Table, TableRow, Text, View
from vebench.reports.figures import grouped, learner_words
from vebench.reports.rates import rate_tables
from vebench.reports.side_by_side import Section, side_by_side
from vebench.results.records import what_differs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.analysis.cell import CellSummary
    from vebench.results.records import Run, RunRecord


# The first keys of a cell's data. The others follow in the order of COLUMNS.
_FIRST = (
    "env",
    "backend",
    "workers",
    "num_envs",
    "status",
    "steps_per_second",
    "frames_per_second",
    "speedup",
    "efficiency",
    "of_ceiling",
    "frames_per_cpu_second",
    "startup_seconds",
    "peak_rss_bytes",
    "findings",
)
# Findings on the run as a whole that its condition says, and findings on cells that the notice says about all.
_OF_CONDITION = frozenset({Code.THROTTLED, Code.UNPINNED, Code.VIRTUAL_MACHINE})
_TAKEN: frozenset[Code] = frozenset({Code.DISTURBED, Code.THROTTLED})
_MOST_NAMED = 3  # tasks in a title


@dataclass(frozen=True)
class RunPage(DataPage):
    """Run files in the order in which they were named, each a section of its own. ``view`` is what is shown of them."""

    sections: tuple[Section, ...]
    view: View = DEFAULT
    kind = "run"
    early = False
    title = "Throughput of vector-env backends"

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Run]], view: View = DEFAULT) -> Self:
        """Return the page of ``runs``, each with the name of its file. Their letters are A to Z, then A2 and so on."""
        sections = []
        for number, (name, run) in enumerate(runs):
            rounds, at = divmod(number, len(ascii_uppercase))
            letter = f"{ascii_uppercase[at]}{rounds + 1 if rounds else ''}"
            file = one_line(name)
            cells = summarise(run, file)
            ordered = in_report_order(cells, run.header.spec)
            sections.append(Section(file, letter, run, ordered, of_run(run, cells, file)))
        return cls(tuple(sections), view)

    @property
    def documents(self) -> tuple[Document, ...]:
        """A document for each run file; of several that have a task in common, one before with all side by side."""
        documents = []
        together = side_by_side(self.sections) if len(self.sections) > 1 else None
        if together is not None:
            cut_short = () if self.view.each_run else ("--all shows each run alone, too.",)
            documents.append(replace(together, legend=(*together.legend, *cut_short)))
        if together is None or self.view.each_run:
            documents += [_document(section, self.sections, self.view, early=self.early) for section in self.sections]
        return tuple(documents)

    @property
    def data(self) -> list[dict[str, object]]:
        """The cells of every section in one list, each with what identifies it and the value of every column."""
        records = []
        for section in self.sections:
            for cell in section.cells:
                reported = columns.with_findings(cell, section.findings)
                record: dict[str, object] = {
                    "env": cell.env,
                    "backend": cell.backend,
                    "workers": cell.workers,
                    "options": dict(cell.built.choice.options),
                    "file": section.name,
                    "envs_per_worker": cell.envs_per_worker,
                    **{column.name: column.value(reported) for column in columns.COLUMNS},
                }
                records.append({**{name: record[name] for name in _FIRST}, **record})
        return records


class EarlyPage(RunPage):
    """The tables of a run that goes on, and the cells that are ahead. A few windows of one process name no winner."""

    early = True

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents of a run, with the highest rate of each task in place of the answer."""
        (section,) = self.sections
        ahead: dict[str, AnswerText] = {}
        for cell in fastest_first(cell for cell in section.cells if not cell.excluded):
            sentence = f"{one_line(short_name(cell.env))}, first look: {setting_of(cell)} is ahead so far."
            ahead.setdefault(cell.env, AnswerText(one_line(cell.env), (sentence,), settled=False))
        return tuple(replace(one, facts=(), findings=(), answers=(*ahead.values(),)) for one in super().documents)


def _document(section: Section, sections: Sequence[Section], view: View, *, early: bool) -> Document:
    head, cells = section.head, section.cells
    letter, where = f"{section.letter}: " if len(sections) > 1 else "", _where(head)
    predicted = predictions(cells, head, view.forecast) if view.forecast else ()
    shown = cells if view.every_finding else _needed(cells)
    found: dict[str, TaskAnswer] = {}
    tables: list[Table] = []
    for env in dict.fromkeys(cell.env for cell in cells):
        of_env = [cell for cell in cells if cell.env == env]
        found[env] = answer_for(of_env, head.spec, head.usable_cpus, usable=not section.notice)
        best = None if early else found[env].winner
        tables += rate_tables(env, [cell for cell in shown if cell.env == env], head.spec, view, best=best)
    marked = any(text.tone == "best" for table in tables for row in table.rows for text in row.texts)
    tables += forecast_tables(predicted)
    if view.every_finding:
        tables += _times(section.run)
    facts = [("file", section.name), *run_facts(head, cells)]
    facts += [("time", time_of_run(section.run)), ("compared", _comparable(section, sections[0]))]
    return Document(
        title=f"{letter}{_tasks([*found] or head.spec.envs)} on {where}",
        facts=tuple(fact for fact in facts if fact[1]),
        tables=tuple(tables),
        legend=tuple(_legend(shown)),
        findings=tuple(_findings(section, shown, view)),
        best="the winner" if marked else "",
        notice=section.notice,
        answers=answers(found, RunFacts(head, section.name, section.findings)),
        charts=run_charts(cells, head, found, predicted, view, (letter, where)),
        file=section.name,
        all_notes="" if view.every_finding else shlex.join(("vebench", "report", "--all", section.name)),
    )


def _comparable(section: Section, first: Section) -> str:
    """Return whether the results of a run are comparable with the first one's; empty for the first itself."""
    if section is first:
        return ""
    mine, its = ({cell.env for cell in one.cells} for one in (section, first))
    if mine and its and mine.isdisjoint(its):
        return f"with no other run: it has no task in common with {first.name}"
    differences = what_differs(first.head, section.head)
    if not differences:
        return f"comparable with {first.name}: the same machine and packages"
    return one_line(f"under other conditions than {first.name}: {'; '.join(differences)}")


def _findings(section: Section, cells: Sequence[CellSummary], view: View) -> list[Remark]:
    """Return the findings, the gravest first, without the ones that title, facts or notice say already.

    Notes are left out unless everything was asked for.
    """
    said = _TAKEN if section.notice and not view.every_finding else frozenset()
    left = [replace(cell, findings=tuple(one for one in cell.findings if one.code not in said)) for cell in cells]
    pairs = [(group.finding, group.places) for group in grouped(left)]
    pairs += [(finding, ()) for finding in section.findings if finding.code is not Code.UNUSABLE]
    pairs.sort(key=lambda pair: tuple(Code).index(pair[0].code))
    remarks = [Remark.of(finding, places) for finding, places in pairs]
    if view.every_finding:
        return remarks
    matter = [one for one in remarks if one.gravity is not Gravity.NOTE]
    return [one for one in matter if one.places or one.label not in _OF_CONDITION]


def _where(head: RunRecord) -> str:
    """Return a machine in few words: ``AMD EPYC, 2 CPUs``."""
    model = re.sub(r"\((?:R|TM)\)|\b(?:CPU|Processor|\d+-Cores?)\b|@.*", "", head.host.cpu_model)
    name = f"{len(head.hosts)} hosts" if len(head.hosts) > 1 else " ".join(model.split())
    return one_line(f"{name}, {figures.counted(head.usable_cpus, 'CPU')}")


def _tasks(envs: Sequence[str]) -> str:
    names = [one_line(short_name(env)) for env in envs]
    return ", ".join(names if len(names) <= _MOST_NAMED else [*names[:2], f"{len(names) - 2} other tasks"])


def _needed(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the cells that a table needs: what the loop costs is left out if no backend's rate suffers from it."""
    suffers: dict[str, bool] = {}
    for cell in cells:
        if not cell.reference_row and not suffers.get(cell.env):
            suffers[cell.env] = any(finding.code is Code.LOOP_COST for finding in cell.findings)
    return [cell for cell in cells if cell.loop_ns_per_batch is None or suffers.get(cell.env, True)]


def _legend(cells: Sequence[CellSummary]) -> Iterator[str]:
    if not cells:
        yield "No cell has been measured yet."
        return
    as_many = " and as many environments" if len({cell.envs_per_worker for cell in cells}) > 1 else ""
    over = f"{REFERENCE} with one worker{as_many}"
    yield f"In each cell: frames/s with its 95 % confidence interval (±), and the speedup over {over}."
    if any(cell.sample.one_process for cell in cells):
        yield f"One process each: {PROCESS_SPREAD:.0%} allowed for what others would differ by; --passes measures it."


def run_facts(header: RunRecord, cells: Sequence[CellSummary]) -> tuple[tuple[str, str], ...]:
    """Return the facts about a run with these cells, each with its name and on one line. Unknown ones are left out."""
    spec, host, asked = header.spec, header.host, header.spec.hosts
    parts = [f"{figures.counted(spec.windows, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"]
    if header.started:
        parts.insert(0, header.started)
    if spec.passes > 1:
        parts.append(f"{spec.passes} passes{' on average, more of the fastest' if spec.races else ''}")
    if spec.until == UNTIL_BUDGET:
        parts.append(f"repeated for {figures.long_time(spec.budget)}")
    elif spec.until is not None:
        parts.append(f"repeated until ±{100 * spec.until:.3g}%")
    if spec.takes_turns:
        parts.append("cells taking turns")
    if spec.replicas != 1:
        parts.append("a replica for each memory node" if spec.replicas == PER_NODE else f"in {spec.replicas} replicas")
    hosts = ""
    if header.hosts and asked is not None:
        errors = [share.error_ns for cell in cells for share in cell.conditions.hosts]
        clocks = f"; clocks known to {figures.short_time(max(errors))}" if errors else ""
        hosts = f"{', '.join(header.hosts)} by {asked.via}, added up{clocks}"
    memory = f"{host.memory_bytes / 2**30:.1f} GiB" if host.memory_bytes is not None else ""
    python = f"Python {host.python}" if host.python else ""
    machine = host.cpu_model, f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable", memory
    system = f"{host.system} {host.kernel} {host.machine}", python, "in a container" if host.container else ""
    known = (
        ("machine", ", ".join(filter(None, machine))),
        ("condition", "; ".join(_condition(header, cells))),
        ("hosts", hosts),
        ("system", ", ".join(filter(None, system))),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))),
        ("measured", ", ".join(parts)),
        ("policy", spec.policy.in_words),
        ("learner", "" if spec.learner is None else learner_words(spec.learner)),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in known if value)


def time_of_run(run: Run) -> str:
    """Return how long the run took, and the shares of that; empty if unknown."""
    if (found := time_spent(run.cells)) is None:
        return ""
    whole = sum(found) or 1.0
    shares = (f"{name.replace('_', '-')} {part / whole:.0%}" for name, part in found._asdict().items())
    return f"{figures.long_time(whole)}: {', '.join(shares)}"


def _times(run: Run) -> Iterator[Table]:
    """Yield a table of where the time of the run went, by backend, if that is known."""
    labels = dict.fromkeys(cell.label for cell in run.cells)
    of_each = {label: time_spent(cell for cell in run.cells if cell.label == label) for label in labels}
    known = {label: (*found, sum(found)) for label, found in of_each.items() if found is not None}
    if len(known) < len(labels):
        return
    rows = []
    for label, parts in sorted(known.items(), key=lambda each: -each[1][-1]):
        rows.append(TableRow(one_line(label), tuple(Text((f"{part:.1f}",), value=part) for part in parts)))
    heads = (*(name.replace("_", "-") for name in Spent._fields), "sum")
    yield Table("Where the time went, in seconds", heads, tuple(rows), further=True)


def _condition(header: RunRecord, cells: Sequence[CellSummary]) -> Iterator[str]:
    host = header.host
    if host.virtual:
        yield "virtual machine"
    if any(quota(host)):
        yield f"a quota of {host.quota_cpus:g} CPUs"
    if not host.pinning or not header.spec.pin.pins:
        yield "cells not held to CPUs of their own"
    known = [cell.conditions for cell in cells if cell.conditions.taken_is_known]
    taken = [one.stolen_share + one.others_share for one in known]
    if taken:
        yield f"others took {sum(taken) / len(taken):.1%} of CPU time, up to {max(taken):.1%} in a cell"
