"""Runs side by side as a document: their differences, and how much faster each is than the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.cell import curves, in_report_order, is_base, of_key
from vebench.analysis.comparison import CELL_SPREAD, FPS_SPREAD, Names, best_of, compared_tasks
from vebench.analysis.findings import Code
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.answer import setting_of
from vebench.reports.curves import FEWEST_POINTS, curve_name, line_of
from vebench.reports.document import AnswerText, Chart, Document, Mark, Table, TableRow, Text
from vebench.reports.figures import sizes
from vebench.results.records import how_plans_differ, measured_in_turn, what_differs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.analysis.comparison import CellComparison, TaskComparison
    from vebench.analysis.findings import Finding
    from vebench.plan.cells import CellKey
    from vebench.reports.document import Tone
    from vebench.results.records import HostRecord, Run, RunRecord

    Fact = Callable[[HostRecord], str | None]
    Size = tuple[int, int]


@dataclass(frozen=True)
class Section:
    """One run file, analysed."""

    name: str
    """The file, as it was named."""
    letter: str
    run: Run
    cells: tuple[CellSummary, ...]
    findings: tuple[Finding, ...]
    """On the run as a whole."""

    @property
    def head(self) -> RunRecord:
        """The run's first line."""
        return self.run.header

    @property
    def notice(self) -> str:
        """Why none of its results should be used, in one line; empty if they can be."""
        found = (finding for finding in self.findings if finding.code is Code.UNUSABLE)
        return next((f"{finding.code}: {finding.message}; {finding.remedy}" for finding in found), "")


class OtherRun(NamedTuple):
    """A run that is compared with the first one, and the comparison on one task."""

    side: Section
    found: TaskComparison


_SWITCH: dict[bool | None, str] = {True: "on", False: "off"}
_TRUTH: dict[bool | None, str] = {True: "yes", False: "no"}
_HOST: tuple[tuple[str, Fact], ...] = (
    ("CPU model", lambda host: host.cpu_model),
    ("CPUs usable", lambda host: f"{host.usable_cpus} of {host.cpus_online}"),
    ("cores", lambda host: str(host.topology.cores)),
    ("second threads", lambda host: _SWITCH.get(host.smt)),
    ("memory nodes", lambda host: str(len(host.topology.nodes))),
    ("memory", lambda host: None if host.memory_bytes is None else figures.size(host.memory_bytes)),
    ("governor", lambda host: host.governor),
    ("boost", lambda host: _SWITCH.get(host.boost)),
    ("huge pages", lambda host: host.thp),
    ("CPU quota", lambda host: None if host.quota_cpus is None else f"{host.quota_cpus:g} CPUs"),
    ("virtual machine", lambda host: _TRUTH.get(host.virtual)),
    ("container", lambda host: _TRUTH.get(host.container)),
    ("cells pinned", lambda host: _TRUTH.get(host.pinning)),
    ("architecture", lambda host: host.machine),
    ("system", lambda host: f"{host.system} {host.kernel}"),
    ("microcode", lambda host: host.microcode),
    ("Python", lambda host: host.python or None),
)
_ALWAYS = ("CPU model", "CPUs usable")
_MOST_LINES = 4  # of two runs in a chart: two backends in each


def side_by_side(sides: Sequence[Section]) -> Document | None:
    """Return the runs compared with the first one, None if no other run has a task in common with it."""
    first, *others = sides
    in_turn = [measured_in_turn(first.head, other.head) for other in others]
    tasks: dict[str, list[OtherRun]] = {}
    for side, turns in zip(others, in_turn, strict=True):
        names = Names("report", first.letter, side.letter, "in either")
        for found in compared_tasks(first.cells, side.cells, names, in_turn=turns):
            tasks.setdefault(found.env, []).append(OtherRun(side, found))
    if not tasks:
        return None
    differing = _differing(sides)
    tables = [_differences(sides, differing)]
    charts: list[Chart] = []
    reasons = []
    for env, of_task in tasks.items():
        tables += _tables(env, first, of_task)
        charts += _charts(env, sides)
        reasons += [(place.verdict, place.why, place.key) for _, found in of_task for place in found.places]
    return Document(
        title=f"{figures.counted(len(sides), 'run')} side by side",
        facts=tuple(_facts(sides, tasks, all_in_turn=all(in_turn), alike=not differing)),
        tables=tuple(tables),
        legend=tuple(_legend(sides)),
        explanations=tuple(figures.explained(reasons)),
        notice="; ".join(f"{side.letter} is {side.notice}" for side in sides if side.notice),
        answers=tuple(_answer(env, first, of_task) for env, of_task in tasks.items()),
        charts=tuple(charts),
    )


def _differing(sides: Sequence[Section]) -> dict[str, list[str | None]]:
    """Return the facts in which runs differ, by name, with the value of each run.

    A fact that only some runs know is not a difference; a package that only some runs have is.
    """
    heads = [side.head for side in sides]
    plans = [head.spec.conditions() for head in heads]
    facts = {name: [fact(head.host) for head in heads] for name, fact in _HOST}
    for name in sorted({name for head in heads for name in head.packages}):
        facts[name] = [head.packages.get(name, "none") for head in heads]
    facts |= {f"--{name}": [plan[name] for plan in plans] for name in plans[0]}
    return {name: values for name, values in facts.items() if len({*values} - {None}) > 1}


def _differences(sides: Sequence[Section], differing: Mapping[str, list[str | None]]) -> Table:
    always = {name: [fact(side.head.host) for side in sides] for name, fact in _HOST if name in _ALWAYS}
    shown: dict[str, Sequence[str | None]] = {
        "file": [side.name for side in sides],
        "started": [side.head.started for side in sides],
        **always,
        **differing,
    }
    rows = []
    for name, values in shown.items():
        texts = tuple(Text((one_line(value or "") or figures.DASH,)) for value in values)
        rows.append(TableRow(one_line(name), texts))
    letters = tuple(side.letter for side in sides)
    return Table("The runs and their differences", letters, tuple(rows), "fact", numbers=False, further=True)


def _facts(
    sides: Sequence[Section], tasks: Mapping[str, object], *, all_in_turn: bool, alike: bool
) -> Iterator[tuple[str, str]]:
    spread = f"runs of the same code are assumed to differ by {FPS_SPREAD:.0%}, and each cell by {CELL_SPREAD:.0%}"
    cancels = "measured in turn, so disturbances affected both"
    yield "compared", f"frames/s; {cancels if all_in_turn else spread}"
    if alike:
        yield "differs", "nothing known: same machine, packages and plan"
    alone = figures.by_key((cell.env, side.letter) for side in sides for cell in side.cells if cell.env not in tasks)
    if alone:
        yield "not compared", one_line("; ".join(f"{env} (in {' and '.join(of)})" for env, of in alone.items()))


def _legend(sides: Sequence[Section]) -> Iterator[str]:
    first, *others = sides
    if len(others) == 1:
        yield f"Each cell: the rate of {others[0].letter} divided by the rate of {first.letter}, and both in frames/s."
    else:
        yield f"Each cell: the rate of each run divided by the rate of {first.letter}, and the latter in frames/s."
    yield "±: the 95 % confidence interval."
    if any(what_differs(first.head, other.head) for other in others):
        yield "Machines or packages differ: a ratio combines the effects of all differences."


def _answer(env: str, first: Section, others: Sequence[OtherRun]) -> AnswerText:
    verdicts = [_verdict(first, other) for other in others]
    sentences = [f"{one_line(short_name(env))}: {verdict}" for verdict, _ in verdicts]
    for side, found in others:
        if differ := how_plans_differ(first.head, side.head):
            plans = "; ".join(differ.values())
            sentences.append(one_line(f"{first.letter} and {side.letter} differ in their plans: {plans}."))
        if not (first.notice or side.notice):
            whose = f"{side.letter}, with" if len(others) > 1 else "With"
            sentences += [f"{whose} {text}" for text in _details(found)]
    return AnswerText(one_line(env), tuple(sentences), settled=any(settled for _, settled in verdicts))


def _verdict(first: Section, other: OtherRun) -> tuple[str, bool]:
    """Return how much faster the other run is, or why this is unknown, and whether the difference is significant."""
    side, found = other
    a, b = first.letter, side.letter
    for one in (first, side):
        if one.notice:
            return f"no verdict: {one.letter} is {one.notice}.", False
    if (best := found.best) is None:
        lacking = " and ".join((a, b)[run] for run in found.lacking)
        return f"no verdict: {lacking} has no cell with a rate to compare.", False
    mine, its = setting_of(best.one), setting_of(best.other)
    where = f"{mine} on both" if mine == its else f"{its} on {b}, {mine} on {a}"
    # Where one run has its best, the other may not have been measured at all.
    farther = ""
    for run, name, cell in ((1, b, best.one), (0, a, best.other)):
        most = max(own.workers for place in found.places if (own := place.cells[run]) is not None)
        if cell.workers > most:
            farther = f" {name} was measured with {figures.counted(most, 'worker')} at most."
    speed = f"{b} is {figures.in_sentence(best.ratio, 'x')} as fast"
    low, high = best.ratio.low, best.ratio.high
    if low is not None and high is not None and low <= 1 <= high:
        return f"{a} and {b}, each at its best, are not distinguishable: {speed}, {where}.{farther}", False
    return f"{speed} as {a}, each at its best: {where}.{farther}", True


def _details(found: TaskComparison) -> Iterator[str]:
    """Yield the mean ratio of matching cells, and the ratio of a plain loop, which uses one CPU."""
    if found.mean is None or len(found.counted) == 1:
        return
    ratios = {place.key: place.ratio for place in found.counted if place.ratio is not None}
    ends = []
    for pick in (min, max):
        key = pick(ratios, key=lambda key: ratios[key].median)
        ends.append(f"{figures.number(ratios[key].median)}x ({one_line(key.backend)} with {key.size})")
    mean = figures.in_sentence(found.mean, "x")
    cells = f"the geometric mean of {figures.counted(len(ratios), 'cell')}, from {ends[0]} to {ends[1]}"
    yield f"the same backend, workers and CPUs: {mean}, {cells}."
    loop = next((ratio for key, ratio in ratios.items() if is_base(key)), None)
    if loop is not None:
        yield f"{REFERENCE} and one worker: {figures.in_sentence(loop, 'x')}."


def _tables(env: str, first: Section, others: Sequence[OtherRun]) -> Iterator[Table]:
    """Yield the table of one task, with a column for each size that the first run has in common with another."""
    by_run = [{place.key: place for place in other.found.places} for other in others]
    heads = sorted({_size(key) for places in by_run for key, place in places.items() if None not in place.cells})
    if not heads:
        return
    keys = {(key.backend, _size(key)): key for places in by_run for key in places if _size(key) in heads}
    names = {size: key.size for (_, size), key in keys.items()}
    measured = [cell for places in by_run for place in places.values() for cell in place.cells if cell is not None]
    rows = []
    for label in dict.fromkeys(cell.label for cell in in_report_order(measured, first.head.spec)):
        texts = []
        for size in heads:
            key = keys.get((label, size))
            texts.append(_cell(first, others, [places.get(key) if key else None for places in by_run]))
        if any(text.lines != (figures.DASH,) for text in texts):
            rows.append(TableRow(one_line(label), tuple(texts), any(text.tone == "reference_row" for text in texts)))
    sides = [first, *(other.side for other in others)]
    cpus = figures.by_key(
        (side.head.usable_cpus, side.letter) for side in sides if heads[-1][0] > side.head.usable_cpus
    )
    notes = [f"! more workers than the {figures.counted(n, 'CPU')} of {' and '.join(of)}" for n, of in cpus.items()]
    columns = [f"{names[size]} !" if any(size[0] > usable for usable in cpus) else names[size] for size in heads]
    yield Table(
        title=f"{one_line(env)}: {others[0].side.letter if len(others) == 1 else 'each run'} over {first.letter}",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(*notes, *_left_out(first, others, heads)),
        group=one_line(env),
    )


def _size(key: CellKey) -> Size:
    return key.workers, key.envs_per_worker


def _left_out(first: Section, others: Sequence[OtherRun], heads: Collection[Size]) -> Iterator[str]:
    """Yield the sizes that only one run has, and that no column shows."""
    for side, index, found in [(first, 0, others[0].found), *((other.side, 1, other.found) for other in others)]:
        measured = [_size(place.key) for place in found.places if place.cells[index] is not None]
        alone = [size for size in measured if size not in heads]
        if alone:
            yield f"Only {side.letter} has {sizes(alone, measured)}"


def _cell(first: Section, others: Sequence[OtherRun], places: Sequence[CellComparison | None]) -> Text:
    """Return one cell in all runs: with both rates for two runs, with the first one's for more."""
    known = [(other.side, place) for other, place in zip(others, places, strict=True) if place is not None]
    if not known:
        return Text((figures.DASH,))
    alone = len(others) == 1
    lines = []
    for side, place in known:
        why = place.verdict if place.why else f"only {side.letter if place.cells[0] is None else first.letter}"
        ratio = why if place.ratio is None else figures.times(place.ratio)
        lines.append(ratio if alone else f"{side.letter} {ratio}")
    side, place = known[0]
    for name, cell in zip((first.letter, side.letter) if alone else (first.letter,), place.cells, strict=False):
        if cell is not None and cell.frames_per_second is not None:
            lines.append(f"{name} {figures.rate(cell.frames_per_second)}")
    cells = [cell for _, place in known for cell in place.cells if cell is not None]
    tone: Tone = "plain"
    if any(cell.reference_row for cell in cells):
        tone = "reference_row"
    elif all(place.ratio is None for _, place in known):
        tone = "missing"
    elif any(cell.excluded for cell in cells):
        tone = "struck"
    return Text(tuple(lines), tone, place.ratio if alone else None)


def _charts(env: str, sides: Sequence[Section]) -> Iterator[Chart]:
    """Yield the curves of one task: the best backends of both for two runs, the best of each for more."""
    curves_of = [_by_rate(env, side) for side in sides]
    shown = []
    if len(sides) > 2:  # noqa: PLR2004 - two are a pair
        shown = [(side, key) for side, found in zip(sides, curves_of, strict=True) for key in [*found][:1]]
    else:
        ranks = [key for pair in zip(*map(list, curves_of), strict=False) for key in pair]
        best = [*dict.fromkeys((*ranks, *(key for found in curves_of for key in found)))][: _MOST_LINES // 2]
        shown = [(side, key) for key in best for side, found in zip(sides, curves_of, strict=True) if key in found]
    several = len({key.envs_per_worker for _, key in shown}) > 1
    series = []
    for side, key in shown:
        curve = curves_of[sides.index(side)][key]
        name = f"{side.letter}: {curve_name(curve, several=several)}"
        line = line_of(curve, name, lambda cell: cell.frames_per_second)
        if line.points:
            series.append(line)
    if sum(len(line.points) for line in series) < FEWEST_POINTS:
        return
    most = max(x for line in series for x, _ in line.points)
    marks = []  # where workers begin to share CPUs in each run
    for cpus, of in sorted(figures.by_key((side.head.usable_cpus, side.letter) for side in sides).items()):
        if cpus < most:
            marks.append(Mark(float(cpus), "CPUs end" if len(of) == len(sides) else f"CPUs of {' and '.join(of)} end"))
    title = f"{one_line(short_name(env))}: frames/s of the best backends"
    yield Chart(one_line(env), "rate", title, "workers", "frames/s", tuple(series), tuple(marks))


def _by_rate(env: str, side: Section) -> dict[CellKey, Curve]:
    """Return the curves of a task that have a usable cell, the fastest first."""
    of_env = [cell for cell in side.cells if cell.env == env]
    known = [(best, curve) for curve in curves(of_env) if (best := best_of(curve))]
    known.sort(key=lambda item: item[0].sample.level, reverse=True)
    return {of_key(curve[0].key): curve for _, curve in known}
