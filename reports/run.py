"""Run files as a page: for each file, the rates of tasks as tables, facts about the measurement, and findings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from string import ascii_uppercase
from typing import Self

from vebench.analysis.answer import TaskAnswer, answer_for, fastest_first
from vebench.analysis.cell import CellSummary, Code, Exclusion, Gravity, in_report_order
from vebench.analysis.comparison import CELL_SPREAD, FPS_SPREAD, CellComparison, Names, TaskComparison, compared_tasks
from vebench.analysis.rules import of_run, quota
from vebench.analysis.statistics import PROCESS_SPREAD
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK
from vebench.child.answers import Cause
from vebench.errors import one_line
from vebench.machine.host import grouped
from vebench.plan.spec import PER_NODE
from vebench.plan.tasks import asked_as
from vebench.plan.verdicts import BEST_FIRST, DISTRIBUTION
from vebench.reports import columns, figures
from vebench.reports.answer import ASIDE, Section, answers, kept_apart, setting_of, step_words
from vebench.reports.charts import forecast_tables, run_charts
from vebench.reports.document import DEFAULT, AnswerText, Document, Page, Remark, Table, TableRow, Text, Tone, View
from vebench.results.records import Run, RunRecord, how_plans_differ, measured_in_turn, what_differs

Place = Callable[[CellSummary], Text]

# Columns that are shown without a request if a cell has a value, by the beginnings of their paths.
_OF_POLICY = ("figures.acting.", "figures.rows_per_batch", "figures.learning.")
_FURTHER = (*_OF_POLICY, "hosts", "parts_of_startup", "figures.gpu_bytes_per_env", "figures.steps_per_joule")


@dataclass(frozen=True)
class RunPage(Page):
    """Run files in the order of the command line, each with a section. ``view`` selects the parts to show."""

    sections: tuple[Section, ...]
    view: View = DEFAULT
    kind = "run"
    title = "Throughput of vector-env backends"

    @classmethod
    def of(cls, runs: Iterable[tuple[str, Run]], view: View = DEFAULT) -> Self:
        """Return the page of ``runs``, each with its file name. Their letters are A to Z, then A2 and so on."""
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
        """A document for each run file. If several share a task, a document before them shows all side by side."""
        several = len(self.sections) > 1
        together = _side_by_side(self.sections) if several else None
        if together is not None and not self.view.each_run:
            return (replace(together, legend=(*together.legend, "--all shows each run alone, too.")),)
        alone = [_document(section, f"{section.letter}: " if several else "", self.view) for section in self.sections]
        return tuple(alone) if together is None else (together, *alone)

    @property
    def data(self) -> list[dict[str, object]]:
        """The cells of every section in one list, each with its identity and the value of every column."""
        records = []
        for section in self.sections:
            for cell in section.reported:
                record: dict[str, object] = {
                    "env": cell.env,
                    "backend": cell.backend,
                    "workers": cell.workers,
                    "options": dict(cell.built.choice.options),
                    "file": section.name,
                    "envs_per_worker": cell.envs_per_worker,
                }
                records.append(record | {column.name: column.value(cell) for column in columns.COLUMNS})
        return records


def _document(section: Section, letter: str, view: View) -> Document:
    """Return the document of one run. Titles begin with ``letter``."""
    head, cells = section.head, section.cells
    model = re.sub(r"\((?:R|TM)\)|\b(?:CPU|Processor|\d+-Cores?)\b|@.*", "", head.host.cpu_model)
    machine = f"{len(head.hosts)} hosts" if len(head.hosts) > 1 else " ".join(model.split())
    where = one_line(f"{machine}, {figures.counted(head.usable_cpus, 'CPU')}")
    shown = cells
    if not view.every_finding:  # leave out the cost of the loop if it affects no backend's rate
        backends = [cell for cell in cells if not cell.reference_row]
        slowed = {cell.env for cell in backends if any(finding.code is Code.LOOP_COST for finding in cell.findings)}
        others = {cell.env for cell in backends} - slowed
        shown = tuple(cell for cell in cells if cell.loop_ns_per_batch is None or cell.env not in others)
    found: dict[str, TaskAnswer] = {}
    tables: list[Table] = []
    for env in dict.fromkeys(cell.env for cell in cells):
        of_env = [cell for cell in cells if cell.env == env]
        found[env] = answer_for(of_env, head.spec, usable=not section.notice)
        best = None if view.early else found[env].winner
        tables += rate_tables(env, [cell for cell in shown if cell.env == env], head, view, best=best)
    marked = any(text.tone == "best" for table in tables for row in table.rows for text in row.texts)
    if view.forecast:
        tables += forecast_tables(cells, head, view.forecast)
    names = [one_line(short_name(env)) for env in found or head.spec.envs]
    if len(names) > 3:  # noqa: PLR2004 - longer titles are hard to read
        names[2:] = [f"{len(names) - 2} other tasks"]
    legend = ["No cell has been measured yet."]
    if shown:
        of_same = " and the same number of environments" if len({cell.envs_per_worker for cell in shown}) > 1 else ""
        over = f"{REFERENCE} with one worker{of_same}"
        legend = [f"In each cell: frames/s with its 95 % confidence interval (±), and the speedup over {over}."]
    if any(cell.sample.one_process for cell in shown):
        legend.append(
            f"One process each: intervals allow {PROCESS_SPREAD:.0%} for how processes differ; --passes measures it."
        )
    reached = {short_name(asked_as(env, head.spec.envs)) for env in found}
    lost = [one_line(name) for name in head.spec.envs if short_name(name) not in reached]
    if lost and len(found) + len(lost) == len(head.spec.envs) and head.chose_cells and not view.early:
        legend.append(f"Not measured: {', '.join(lost)}. Continue with: {head.resume_command(section.name)}")
    legend += kept_apart(head)
    facts = (("file", section.name), *run_facts(head, cells), ("time", time_of_run(section.run)))
    return Document(
        title=f"{letter}{', '.join(names)} on {where}",
        facts=() if view.early else tuple(fact for fact in facts if fact[1]),
        tables=tuple(tables),
        legend=tuple(legend),
        remarks=() if view.early else tuple(_findings(section, shown, view)),
        best="the winner" if marked else "",
        notice=section.notice,
        answers=tuple(_first_look(cells, found)) if view.early else answers(found, section),
        charts=run_charts(cells, head, found, letter, where),
        file=section.name,
        all_notes="" if view.every_finding else shlex.join(("vebench", "report", "--all", section.name)),
    )


def _first_look(cells: Sequence[CellSummary], found: Mapping[str, TaskAnswer]) -> Iterator[AnswerText]:
    """Yield the contestant that is ahead on each task of an unfinished run. A few windows do not decide on a winner.

    Rows are compared later, so a cell whose work is unverified may be ahead.
    """
    seen = set()
    for cell in fastest_first(cell for cell in cells if not cell.exclusion):
        may_win = cell.label in found[cell.env].contestants or cell.objection is Exclusion.UNVERIFIED
        if cell.env not in seen and may_win:
            seen.add(cell.env)
            sentence = f"{one_line(short_name(cell.env))}, first look: {setting_of(cell)} is ahead so far."
            yield AnswerText(one_line(cell.env), (sentence,), settled=False)


def _findings(section: Section, cells: Sequence[CellSummary], view: View) -> list[Remark]:
    """Return the findings, the gravest first, without findings that facts or the notice already report.

    Notes are left out unless the user requested everything.
    """
    found = [*figures.grouped(cells).items()]
    found += [(finding, ()) for finding in section.findings if finding.code is not Code.UNUSABLE]
    found.sort(key=lambda pair: tuple(Code).index(pair[0].code))
    if not view.every_finding:
        in_notice = {Code.DISTURBED, Code.THROTTLED} if section.notice else set[Code]()
        of_condition = {Code.THROTTLED, Code.UNPINNED, Code.VIRTUAL_MACHINE}  # the fact "condition" states these
        found = [(finding, places) for finding, places in found if finding.code.gravity is not Gravity.NOTE]
        found = [one for one in found if one[0].code not in (in_notice if one[1] else of_condition)]
    return [Remark.of(finding, places) for finding, places in found]


def run_facts(header: RunRecord, cells: Sequence[CellSummary]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of facts about a run, given its cells. Unknown facts are left out."""
    spec, host = header.spec, header.host
    hosts = ""
    if header.hosts and spec.hosts is not None:
        errors = [share.error_ns for cell in cells for share in cell.conditions.hosts]
        clocks = f"; clocks known to {figures.short_time(max(errors))}" if errors else ""
        hosts = f"{', '.join(header.hosts)} by {spec.hosts.via}, added up{clocks}"
    usable = f"{host.usable_cpus} of {figures.counted(host.cpus_online, 'CPU')} usable"
    memory = f"{host.memory_bytes / 2**30:.1f} GiB" if host.memory_bytes is not None else ""
    python = f"Python {host.python}" if host.python else ""
    system = f"{host.system} {host.kernel} {host.machine}", python, "in a container" if host.container else ""
    known = (
        ("machine", ", ".join(filter(None, (host.cpu_model, usable, memory)))),
        ("GPU", "; ".join(host.gpus or ())),
        ("condition", "; ".join(_condition(header, cells))),
        ("hosts", hosts),
        ("system", ", ".join(filter(None, system))),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(header.packages.items()))),
        ("measured", ", ".join(_measured(header))),
        ("policy", spec.policy.in_words),
        ("learner", "" if spec.learner is None else figures.learner_words(spec.learner)),
        ("command", header.command),
    )
    return tuple((name, one_line(value)) for name, value in known if value)


def _measured(header: RunRecord) -> Iterator[str]:
    spec = header.spec
    if header.started:
        yield header.started
    yield f"{figures.counted(spec.windows, 'window')} of {spec.duration:g} s after {spec.warmup:g} s of warm-up"
    if spec.passes > 1:
        yield f"{spec.passes} passes{' on average, more of the fastest' if spec.races else ''}"
    if spec.until is not None:
        yield f"repeated until ±{100 * spec.until:.3g}%"
    if spec.takes_turns:
        yield "cells interleaved"
    if spec.replicas != 1:
        yield "a replica for each memory node" if spec.replicas == PER_NODE else f"in {spec.replicas} replicas"


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


def time_of_run(run: Run) -> str:
    """Return the time that the cells of a run and their proofs took; empty if unknown."""
    times = [cell.took_ns for cell in run.cells if cell.took_ns is not None]
    proofs = [cell.proof.seconds or 0.0 for cell in run.cells if cell.proof is not None]
    if not times or len(times) < len(run.cells):
        return ""
    return figures.long_time(sum(times) / 1e9 + sum(proofs))


def rate_tables(
    env: str, cells: Sequence[CellSummary], head: RunRecord, view: View, *, best: CellSummary | None
) -> Iterator[Table]:
    """Yield the tables of one task: rates with ``best`` marked, and further tables that the run or ``view`` needs."""
    task = one_line(env)
    oversubscribed = [cell for cell in cells if any(one.code is Code.OVERSUBSCRIBED for one in cell.findings)]
    crowded = {cell.workers: cell.cpus_owned for cell in oversubscribed}
    swept = sorted({cell.envs_per_worker for cell in cells})
    parts = {task: cells}
    if len(swept) > 1 and len({cell.workers for cell in cells}) > 1:
        parts = {}
        for envs in swept:
            name = f"{task}, {figures.counted(envs, 'environment')} per worker"
            parts[name] = [cell for cell in cells if cell.envs_per_worker == envs]

    def tables(title: str, place: Place, *notes: str) -> Iterator[Table]:
        for name, part in parts.items():
            heads, rows = _grid(part, crowded, head, place)
            yield Table(f"{name}: {title}", heads, rows, notes=notes, group=task, further=True)

    skips = sorted({cell.built.frame_skip for cell in cells})
    unit = f"frames/s ({' or '.join(figures.counted(skip, 'frame') for skip in skips)} per step)"
    *others, last = (replace(table, further=False) for table in tables(unit, lambda cell: _rate(cell, best)))
    yield from others
    details: list[str] = []
    if timed := next((cell.built.timed for cell in cells if cell.built.timed), None):
        backends = [cell for cell in cells if cell.status == "ok" and not cell.reference_row] or cells
        details += step_words(timed, max(backends, key=lambda cell: cell.workers * cell.envs_per_worker))
    purposes = figures.by_key((ASIDE.get(cell.entry.role), one_line(cell.label)) for cell in cells)
    aside = [f"{purpose}: {', '.join(dict.fromkeys(labels))}" for purpose, labels in purposes.items() if purpose]
    notes = (*_notes(cells, crowded), *aside, *_left_out(cells, head, view), *details[1:])
    yield replace(last, notes=notes, details=(*details[:1], *_differences(cells)))
    further = [column for column in columns.COLUMNS if column.path.startswith(_FURTHER)]
    if not any(len(cell.conditions.host_rates) > 1 for cell in cells):
        further = [column for column in further if column.name != "hosts"]
    asked = [column.name for column in further if any(column.value(cell) not in (None, []) for cell in cells)]
    known = {column.name: column for column in columns.COLUMNS}
    for wanted in dict.fromkeys((*asked, *view.columns)):
        column = known[wanted]
        meaning = f"{column.name}: {column.meaning}{f' ({column.unit})' if column.unit else ''}"
        yield from tables(column.name, partial(columns.of_column, column), meaning)


def _grid(
    cells: Sequence[CellSummary], crowded: Container[int], head: RunRecord, place: Place
) -> tuple[tuple[str, ...], tuple[TableRow, ...]]:
    """Return the heads of sizes, and a row for each backend. ``place`` returns the text of a cell."""
    sizes = dict(sorted(((cell.workers, cell.envs_per_worker), cell.key.size) for cell in cells))
    by_label: dict[str, dict[tuple[int, int], CellSummary]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, {})[cell.workers, cell.envs_per_worker] = cell
    rows = []
    for label, row in by_label.items():
        texts = []
        for size in sizes:
            if size in row:
                texts.append(place(row[size]))
            elif not head.chose_cells and label != YARDSTICK and head.spec.asks_for(label, size[0]):
                texts.append(Text(("not run",), "missing"))
            else:
                texts.append(Text((figures.DASH,)))
        rows.append(TableRow(one_line(label), tuple(texts), next(iter(row.values())).reference_row))
    return tuple(f"{size} !" if workers in crowded else size for (workers, _), size in sizes.items()), tuple(rows)


def _rate(cell: CellSummary, best: CellSummary | None) -> Text:
    rate = cell.frames_per_second
    if rate is None or cell.figures.steps_per_second is None:
        if cell.built.cause is Cause.GIVEN_UP:
            return Text((figures.DASH,))
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:
        return Text((figures.time(loop), "a batch"), "reference_row", loop, short="a batch")
    shown = figures.with_spread(rate)
    if cell.exclusion is not None:
        return Text((shown, cell.exclusion), "struck", rate, short=cell.exclusion)
    tone: Tone = "best" if cell is best else "reference_row" if cell.reference_row else "plain"
    # Readers would take the speedup of a row with another purpose for a backend's.
    if cell.speedup is None or not cell.entry.candidate:
        return Text((shown,), tone, rate)
    short = f"{figures.number(cell.speedup.median)}x"
    return Text((shown, figures.with_spread(cell.speedup, "x")), tone, rate, short=short)


def _notes(cells: Sequence[CellSummary], crowded: Mapping[int, int]) -> Iterator[str]:
    """Yield notes on reading the table. ``crowded`` maps oversubscribed numbers of workers to the CPUs owned."""
    rated = any(cell.frames_per_second and not cell.reference_row for cell in cells)
    if rated and not any(cell.speedup for cell in cells):
        yield f"no speedups: {REFERENCE} with one worker has no rate"
    if crowded:
        cpus = figures.counted(max(crowded.values()), "CPU")
        yield f"! more workers than their {cpus}: they only enlarge batches"
    work = []
    for known in grouped((cell for cell in cells if cell.verdict), lambda cell: cell.label):
        # The worst verdict of the backend, in the longest words.
        worst = max(known, key=lambda cell: (BEST_FIRST.index(cell.verdict), len(cell.work_in_words)))
        work.append((worst.work_in_words, one_line(worst.label)))
    labels = figures.by_key(work)
    if labels:
        most = max(labels, key=lambda text: len(labels[text]))
        others = (f"{', '.join(names)}: {text}" for text, names in labels.items() if text != most)
        yield f"Same work: {'; '.join((most, *others))}"
    proofs = [cell.work.proof for cell in cells if cell.work.proof is not None]
    compared = [proof for proof in proofs if proof.rows or proof.verdict == "different"]
    if compared:
        differ = sum(proof.verdict == "different" for proof in compared)
        where = f"{len(compared)} of {figures.counted(len(proofs), 'cell')}"
        yield f"{sum(proof.rows for proof in compared):,} rows of {where} compared, {differ or 'none'} different"
    if any(cell.loop_ns_per_batch for cell in cells):
        yield f"{NULL}: what the measuring loop itself costs for a batch"
    if any(cell.verdict == DISTRIBUTION for cell in cells):
        yield f"{DISTRIBUTION}: it draws its own starts, so that episodes were compared, not rows"


def _left_out(cells: Sequence[CellSummary], head: RunRecord, view: View) -> Iterator[str]:
    """Yield notes on planned cells that the budget left out."""
    there = {(cell.label, cell.workers) for cell in cells}
    labels, workers = {label for label, _ in there} - {YARDSTICK}, {workers for _, workers in there}
    asked = {place for place in product(labels, workers) if head.spec.asks_for(*place)}
    if view.early or not head.chose_cells:
        return
    if asked - there:
        yield f"{figures.DASH}: left out, because it decides less than others, or the time was over (--budget)"
    largest = max(workers)
    above = [(workers, 1) for workers in head.spec.workers if workers > largest]
    if above:
        yield f"No backend was measured with {figures.sizes(above, above)}"


def _differences(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield the differences between backends and the reference. Reference rows differ by design, so leave them out."""
    differences = []
    for cell in cells:
        if not cell.reference_row:
            own = [] if cell.built.own_classes is None else [cell.built.own_classes.words]
            differences += [(one_line(text), one_line(cell.label)) for text in (*own, *cell.built.differences)]
    for text, labels in figures.by_key(differences).items():
        yield f"{', '.join(labels)} {'differ' if len(labels) > 1 else 'differs'} from {REFERENCE}: {text}"


def _side_by_side(sides: Sequence[Section]) -> Document | None:
    """Return the runs compared with the first run; None if no other run shares a task with it."""
    first, *others = sides
    in_turn = [measured_in_turn(first.head, other.head) for other in others]
    tasks: dict[str, list[tuple[Section, TaskComparison]]] = {}
    for side, turns in zip(others, in_turn, strict=True):
        names = Names("report", first.letter, side.letter)
        for found in compared_tasks(first.cells, side.cells, names, in_turn=turns):
            tasks.setdefault(found.env, []).append((side, found))
    if not tasks:
        return None
    facts = []
    for side in sides:
        facts.append((side.letter, f"{side.name}, on {one_line(side.head.host.cpu_model)}"))
        differences = [*what_differs(first.head, side.head), *how_plans_differ(first.head, side.head).values()]
        if side is not first:
            words = one_line("; ".join(differences)) or "nothing known: same machine and plan"
            facts.append((f"{side.letter} differs", words))
    spread = f"runs of the same code are assumed to differ by {FPS_SPREAD:.0%}, and each cell by {CELL_SPREAD:.0%}"
    cancels = "interleaved, so disturbances affected both"
    facts.append(("compared", f"frames/s; {cancels if all(in_turn) else spread}"))
    alone = figures.by_key((cell.env, side.letter) for side in sides for cell in side.cells if cell.env not in tasks)
    if alone:
        words = "; ".join(f"{env} (in {' and '.join(letters)})" for env, letters in alone.items())
        facts.append(("not compared", one_line(words)))
    legend = [f"Each cell: the rate of the other run divided by the rate of {first.letter}, and both in frames/s."]
    legend.append("±: the 95 % confidence interval.")
    if any(what_differs(first.head, other.head) for other in others):
        legend.append("Machines or packages differ: a ratio combines the effects of all differences.")
    tables: list[Table] = []
    reasons = []
    for of_task in tasks.values():
        for side, found in of_task:
            tables += _ratio_tables(first, side, found)
            reasons += [(place.verdict, place.why, place.key) for place in found.places]
    return Document(
        title=f"{figures.counted(len(sides), 'run')} side by side",
        facts=tuple(facts),
        tables=tuple(tables),
        legend=tuple(legend),
        remarks=tuple(figures.explained(reasons)),
        notice="; ".join(f"{side.letter} is {side.notice}" for side in sides if side.notice),
        answers=tuple(_answer(env, first, of_task) for env, of_task in tasks.items()),
    )


def _answer(env: str, first: Section, others: Sequence[tuple[Section, TaskComparison]]) -> AnswerText:
    verdicts = [_verdict(first, side, found) for side, found in others]
    sentences = [f"{one_line(short_name(env))}: {verdict}" for verdict, _ in verdicts]
    for side, found in others:
        if found.mean is not None and len(found.counted) > 1 and not (first.notice or side.notice):
            whose = f"{side.letter}, with" if len(others) > 1 else "With"
            mean = figures.in_sentence(found.mean, "x")
            cells = f"the geometric mean of {figures.counted(len(found.counted), 'cell')}"
            sentences.append(f"{whose} the same backend, workers and CPUs: {mean}, {cells}.")
    return AnswerText(one_line(env), tuple(sentences), settled=any(settled for _, settled in verdicts))


def _verdict(first: Section, side: Section, found: TaskComparison) -> tuple[str, bool]:
    """Return the ratio of the other run in words, or why it is unknown, and whether the difference is significant."""
    a, b = first.letter, side.letter
    for one in (first, side):
        if one.notice:
            return f"no verdict: {one.letter} is {one.notice}.", False
    if found.best is None:
        return "no verdict: no cell with a rate to compare in both runs.", False
    best, its_best, ratio = found.best
    mine, its = setting_of(best), setting_of(its_best)
    where = f"{mine} on both" if mine == its else f"{its} on {b}, {mine} on {a}"
    speed = f"{b} is {figures.in_sentence(ratio, 'x')} as fast"
    low, high = ratio.low, ratio.high
    if low is not None and high is not None and low <= 1 <= high:
        return f"{a} and {b}, each at its best, are not distinguishable: {speed}, {where}.", False
    return f"{speed} as {a}, each at its best: {where}.", True


def _ratio_tables(first: Section, side: Section, found: TaskComparison) -> Iterator[Table]:
    """Yield the table of one task and one other run, with a column for each size of both runs, if there is any."""
    places = {(one.key.backend, (one.key.workers, one.key.envs_per_worker)): one for one in found.places}
    heads = dict(sorted((size, one.key.size) for (_, size), one in places.items() if None not in one.cells))
    if not heads:
        return
    measured = [cell for one in found.places for cell in one.cells if cell is not None]
    rows = []
    for label in dict.fromkeys(cell.label for cell in in_report_order(measured, first.head.spec)):
        own = [places.get((label, size)) for size in heads]
        texts = tuple(Text((figures.DASH,)) if one is None else _ratio(one, first, side) for one in own)
        if any(own):
            rows.append(TableRow(one_line(label), texts, any(text.tone == "reference_row" for text in texts)))
    most = max(workers for workers, _ in heads)
    few = {one.letter: one.head.usable_cpus for one in (first, side) if most > one.head.usable_cpus}
    notes = [f"! more workers than the {figures.counted(cpus, 'CPU')} of {letter}" for letter, cpus in few.items()]
    for index, one in enumerate((first, side)):
        sizes = [size for (_, size), place in places.items() if place.cells[index] is not None]
        lonely = [size for size in sizes if size not in heads]
        if lonely:
            notes.append(f"Only {one.letter} has {figures.sizes(lonely, sizes)}")
    fewest = min(few.values(), default=most)
    yield Table(
        title=f"{one_line(found.env)}: {side.letter} over {first.letter}",
        columns=tuple(f"{head} !" if workers > fewest else head for (workers, _), head in heads.items()),
        rows=tuple(rows),
        notes=tuple(notes),
        group=one_line(found.env),
    )


def _ratio(place: CellComparison, first: Section, side: Section) -> Text:
    """Return the ratio of a cell, or why it has no ratio, and its rates."""
    letters = first.letter, side.letter
    why = place.verdict if place.why else f"only {letters[place.cells[0] is None]}"
    lines = [why if place.ratio is None else figures.with_spread(place.ratio, "x")]
    for letter, cell in zip(letters, place.cells, strict=True):
        if cell is not None and cell.frames_per_second is not None:
            lines.append(f"{letter} {figures.with_spread(cell.frames_per_second)}")
    cells = [cell for cell in place.cells if cell is not None]
    tone: Tone = "plain"
    if any(cell.reference_row for cell in cells):
        tone = "reference_row"
    elif place.ratio is None:
        tone = "missing"
    elif any(cell.exclusion for cell in cells):
        tone = "struck"
    return Text(tuple(lines), tone, place.ratio)
