"""Runs side by side as a document: what differs between them, and by how much each is faster than the first."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.beside import beside, best_of
from vebench.analysis.cell import curves, in_report_order, is_base, of_key
from vebench.analysis.comparison import CELL_SPREAD, RUN_SPREAD
from vebench.analysis.pairing import Names
from vebench.analysis.rules import sizes
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import AnswerText, Chart, Document, Explanation, Mark, Table, TableRow, Text
from vebench.reports.pages.check import MEASURE_AGAIN, cell_name
from vebench.reports.pages.curves import FEWEST_FOR_CURVE, curve_name, line_of
from vebench.results.header import measured_in_turn, what_differs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.beside import Best, Place, TaskBeside
    from vebench.analysis.cell import CellSummary, Curve
    from vebench.plan.cells import CellKey
    from vebench.reports.document import ChartLine, Tone, Value
    from vebench.results.records import HostRecord, RunRecord

    Fact = Callable[[HostRecord], str | None]
    Curves = Mapping[CellKey, Curve]
    Size = tuple[int, int]
    Tasks = Mapping[str, Sequence["OtherRun"]]


@dataclass(frozen=True)
class RunSide:
    """One of the runs: its short name, such as B, its file, header and cells, and why it is unusable, if it is."""

    name: str
    file: str
    head: RunRecord
    cells: tuple[CellSummary, ...]
    notice: str = ""


class OtherRun(NamedTuple):
    """A run that is set beside the first one, and what is found of one task in both."""

    side: RunSide
    found: TaskBeside


def short_names(count: int) -> list[str]:
    """Return a short name for each of so many runs: A, B, and so on; A2 comes after Z."""
    rounds, letters = 1 + count // len(ascii_uppercase), ascii_uppercase
    return [f"{letter}{number if number > 1 else ''}" for number in range(1, rounds + 1) for letter in letters][:count]


_HOST: tuple[tuple[str, Fact], ...] = (
    ("CPU model", lambda host: host.cpu_model),
    ("CPUs usable", lambda host: f"{host.usable_cpus} of {host.cpus_online}"),
    ("cores", lambda host: str(host.topology.cores)),
    ("second threads", lambda host: _switch(host.smt)),
    ("memory nodes", lambda host: str(len(host.topology.nodes))),
    ("memory", lambda host: None if host.memory_bytes is None else figures.size(host.memory_bytes)),
    ("governor", lambda host: host.governor),
    ("boost", lambda host: _switch(host.boost)),
    ("huge pages", lambda host: host.thp),
    ("CPU quota", lambda host: None if host.quota_cpus is None else f"{host.quota_cpus:g} CPUs"),
    ("virtual machine", lambda host: _truth(host.virtual)),
    ("container", lambda host: _truth(host.container)),
    ("cells pinned", lambda host: _truth(host.pinning)),
    ("architecture", lambda host: host.machine),
    ("system", lambda host: f"{host.system} {host.kernel}"),
    ("microcode", lambda host: host.microcode),
    ("Python", lambda host: host.python or None),
)
_PLAN = ("pin", "replicas", "repeats", "rounds", "duration", "warmup")
_ALWAYS = ("CPU model", "CPUs usable")
_UNKNOWN = "-"
_TITLE = "The runs, and what differs between them"


def _differences(sides: Sequence[RunSide]) -> tuple[Table, bool]:
    """Return which runs these are and in what they differ, as a table, and whether they differ in anything at all.

    What only some of them know makes no difference; a package that only some of them have does.
    """
    heads = [side.head for side in sides]
    named = {
        "file": [side.file for side in sides],
        "started": [head.started for head in heads],
    }
    facts: dict[str, Sequence[str | None]] = {
        **{name: [fact(head.host) for head in heads] for name, fact in _HOST},
        **{name: [head.packages.get(name, "none") for head in heads] for name in _packages(heads)},
        **{f"--{name}": [_option(head, name) for head in heads] for name in _PLAN},
        "cells take turns": [_truth(head.spec.takes_turns) for head in heads],
    }
    differing = [name for name, values in facts.items() if len({value for value in values if value is not None}) > 1]
    shown = {**named, **{name: facts[name] for name in dict.fromkeys((*_ALWAYS, *differing))}}
    rows = (
        TableRow(one_line(name), tuple(Text((one_line(value or "") or _UNKNOWN,)) for value in values))
        for name, values in shown.items()
    )
    names = tuple(side.name for side in sides)
    return Table(_TITLE, "fact", names, tuple(rows), numbers=False, about="run"), bool(differing)


def _packages(heads: Sequence[RunRecord]) -> list[str]:
    return sorted({name for head in heads for name in head.packages})


def _option(head: RunRecord, name: str) -> str:
    value = getattr(head.spec, name)
    return f"{value:g}" if isinstance(value, float) else getattr(value, "label", str(value))


def _switch(on: bool | None) -> str | None:
    return None if on is None else "on" if on else "off"


def _truth(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _answer(env: str, first: RunSide, others: Sequence[OtherRun]) -> AnswerText:
    """Return what is found of one task: by how much each of the other runs is faster than the first."""
    sentences = [f"{one_line(short_name(env))}: {_verdict(first, other)}" for other in others]
    for side, found in others:
        if not (first.notice or side.notice):
            whose = f"{side.name}, with" if len(others) > 1 else "With"
            sentences += [f"{whose} {text}" for text in _details(found)]
    return AnswerText(one_line(env), tuple(sentences), settled=any(_settled(first, other) for other in others))


def _settled(first: RunSide, other: OtherRun) -> bool:
    """Return whether the other run is known to be faster, or slower."""
    side, found = other
    return not (first.notice or side.notice or found.best is None or _may_be_alike(found.best))


def _may_be_alike(best: Best) -> bool:
    low, high = best.ratio.low, best.ratio.high
    return low is not None and high is not None and low <= 1 <= high


def _verdict(first: RunSide, other: OtherRun) -> str:
    """Return by how much the other run is faster, or why nobody can say."""
    side, found = other
    for one in (first, side):
        if one.notice:
            return f"no verdict: {one.name} is {one.notice}."
    if found.best is None:
        lacking = " and ".join((first.name, side.name)[run] for run in found.lacking)
        return f"no verdict: no cell of {lacking} has a rate that can be compared."
    ratio, where, farther = found.best.ratio, _where(found.best, first, side), _farther(found, found.best, first, side)
    if _may_be_alike(found.best):
        speed = f"{side.name} is {figures.in_sentence(ratio, 'x')} as fast"
        return f"each at its best, {first.name} and {side.name} cannot be told apart: {speed}, {where}.{farther}"
    return (
        f"{side.name} is {figures.in_sentence(ratio, 'x')} as fast as {first.name}, each at its best: {where}.{farther}"
    )


def _where(best: Best, first: RunSide, side: RunSide) -> str:
    one, other = (f"{one_line(cell.label)} with {cell.key.size}" for cell in (best.one, best.other))
    return f"{one} on both" if one == other else f"{other} on {side.name}, {one} on {first.name}"


def _farther(found: TaskBeside, best: Best, first: RunSide, side: RunSide) -> str:
    """Return that one run has its best where the other was not measured at all, after a blank; empty if neither has."""
    for run, name, cell in ((0, first.name, best.other), (1, side.name, best.one)):
        most = max(own.workers for place in found.places if (own := place.cells[run]) is not None)
        if cell.workers > most:
            return f" {name} was measured with {figures.counted(most, 'worker')} at most."
    return ""


def _details(found: TaskBeside) -> Iterator[str]:
    """Yield what the ratio is of cells alike: the mean of all, and that of a plain loop, which uses one CPU."""
    if found.mean is None or len(found.counted) == 1:
        return
    ratios = {place.key: place.ratio for place in found.counted if place.ratio is not None}
    ends = [pick(ratios, key=lambda key: ratios[key].median) for pick in (min, max)]
    smallest, largest = (
        f"{figures.number(ratios[key].median)}x ({one_line(key.backend)} with {key.size})" for key in ends
    )
    cells = f"the geometric mean of {figures.counted(len(ratios), 'cell')}, from {smallest} to {largest}"
    yield f"the same backend, workers and CPUs: {figures.in_sentence(found.mean, 'x')}, {cells}."
    for ratio in [ratio for key, ratio in ratios.items() if is_base(key)][:1]:
        yield f"{REFERENCE} and one worker: {figures.in_sentence(ratio, 'x')}."


_MOST_LINES = 4  # of two runs: two backends in each


def _charts(env: str, sides: Sequence[RunSide]) -> Iterator[Chart]:
    """Yield the curves of one task: of two runs those of the best backends in both, of more the best of each."""
    of_sides = [_by_rate(env, side) for side in sides]
    wanted = _wanted(of_sides)
    several = len({key.envs_per_worker for keys in wanted for key in keys}) > 1
    chosen = [
        (list(keys).index(key), index, _line(sides[index], of_sides[index][key], several=several))
        for index, keys in enumerate(wanted)
        for key in keys
        if key in of_sides[index]
    ]
    series = tuple(line for _, _, line in sorted(chosen, key=lambda item: item[:2]) if line.points)
    if any(len(line.points) >= FEWEST_FOR_CURVE for line in series):
        most = max(x for line in series for x, _ in line.points)
        title = f"{one_line(env)}: frames/s of the best backends"
        yield Chart(one_line(env), "beside", title, "workers", "frames/s", series, tuple(_marks(sides, most)))


def _by_rate(env: str, side: RunSide) -> Curves:
    """Return the curves of a task that have a cell to choose, the one with the fastest first."""
    known = [(best, curve) for curve in curves(c for c in side.cells if c.env == env) if (best := best_of(curve.cells))]
    ordered = sorted(known, key=lambda item: item[0].sample.level, reverse=True)
    return {of_key(curve.cells[0].key): curve for _, curve in ordered}


def _wanted(of_sides: Sequence[Curves]) -> list[tuple[CellKey, ...]]:
    """Return which curves are drawn of each run, in the order of the key."""
    if len(of_sides) > 2:  # noqa: PLR2004 - two are a pair
        return [tuple(found)[:1] for found in of_sides]
    ranks = [key for found in zip(*map(list, of_sides), strict=False) for key in found]
    rest = [key for found in of_sides for key in found]
    both = tuple(dict.fromkeys((*ranks, *rest)))[: _MOST_LINES // 2]
    return [both for _ in of_sides]


def _line(side: RunSide, curve: Curve, *, several: bool) -> ChartLine:
    """Return the line of a backend in one run."""
    return line_of(curve, f"{side.name}: {curve_name(curve, several=several)}", lambda cell: cell.frames_per_second)


def _marks(sides: Sequence[RunSide], most: float) -> Iterator[Mark]:
    """Yield where workers begin to share CPUs in each run, if its sweep goes that far."""
    names: dict[int, list[str]] = {}
    for side in sides:
        names.setdefault(side.head.usable_cpus, []).append(side.name)
    for cpus, of in sorted(names.items()):
        if cpus < most:
            yield Mark(float(cpus), "CPUs end" if len(of) == len(sides) else f"CPUs of {' and '.join(of)} end")


def side_by_side(sides: Sequence[RunSide]) -> Document | None:
    """Return the runs beside the first one, None if no other has a task in common with it."""
    first, *others = sides
    in_turn = [measured_in_turn(first.head, other.head) for other in others]
    tasks: dict[str, list[OtherRun]] = {}
    for side, turns in zip(others, in_turn, strict=True):
        names = Names("report", first.name, side.name, "in either")
        for found in beside(first.cells, side.cells, names, in_turn=turns):
            tasks.setdefault(found.env, []).append(OtherRun(side, found))
    if not tasks:
        return None
    runs, differ = _differences(sides)
    tables = [table for env, of_task in tasks.items() for table in _tables(env, first, of_task)]
    return Document(
        title=f"{figures.counted(len(sides), 'run')} side by side",
        facts=tuple(_facts(sides, tasks, in_turn, alike=not differ)),
        tables=(runs, *tables),
        legend=tuple(_legend(sides)),
        explanations=tuple(_explanations(tasks)),
        notice="; ".join(f"{side.name} is {side.notice}" for side in sides if side.notice),
        answers=tuple(_answer(env, first, of_task) for env, of_task in tasks.items()),
        charts=tuple(chart for env in tasks for chart in _charts(env, sides)),
    )


def _facts(
    sides: Sequence[RunSide], tasks: Tasks, in_turn: Iterable[bool], *, alike: bool
) -> Iterator[tuple[str, str]]:
    spread = f"two runs as a whole are taken to differ by {RUN_SPREAD:.0%}, and each cell by {CELL_SPREAD:.0%}"
    cancels = "measured in turn, so that what slowed one slowed the other"
    yield "compared", f"frames/s; {cancels if all(in_turn) else spread}"
    if alike:
        yield "differs", "nothing that is known: the same machine, packages and plan"
    alone: dict[str, list[str]] = {}
    for side in sides:
        for env in dict.fromkeys(cell.env for cell in side.cells if cell.env not in tasks):
            alone.setdefault(env, []).append(side.name)
    if alone:
        yield "not compared", one_line("; ".join(f"{env} (in {' and '.join(of)})" for env, of in alone.items()))


def _legend(sides: Sequence[RunSide]) -> Iterator[str]:
    first, *others = sides
    if len(others) == 1:
        yield f"In each cell: the rate of {others[0].name} over that of {first.name}, and both in frames/s."
    else:
        yield f"In each cell: the rate of each run over that of {first.name}, and that of {first.name} in frames/s."
    yield "±: the true value lies within this distance, with 95 % confidence."
    if any(what_differs(first.head, other.head) for other in others):
        yield "Machines or packages differ: a ratio is of all that differs together."


def _tables(env: str, first: RunSide, others: Sequence[OtherRun]) -> Iterator[Table]:
    """Yield the table of one task, with a column for each size that the first run has in common with another.

    Without such a size there is none.
    """
    by_run = [{place.key: place for place in other.found.places} for other in others]
    heads = sorted({_size(key) for places in by_run for key, place in places.items() if None not in place.cells})
    keys = {(key.backend, _size(key)): key for places in by_run for key in places if _size(key) in heads}
    if not heads:
        return
    names = {size: key.size for (_, size), key in keys.items()}
    sides = (first, *(other.side for other in others))
    crowded = [side for side in sides if heads[-1][0] > side.head.usable_cpus]
    swept = len({workers for workers, _ in heads}) > 1
    rows = []
    for label in _labels(first, by_run):
        texts = [_cell(first, others, _of_all(by_run, keys.get((label, size)))) for size in heads]
        if any(text.lines != (figures.DASH,) for text in texts):
            rows.append(TableRow(one_line(label), tuple(texts), any(text.tone == "reference_row" for text in texts)))
    yield Table(
        title=f"{one_line(env)}: {others[0].side.name if len(others) == 1 else 'each run'} over {first.name}",
        corner="backend",
        columns=tuple(
            f"{names[size]}{' !' * any(size[0] > side.head.usable_cpus for side in crowded)}" for size in heads
        ),
        axis=tuple(envs if len(heads) > 1 and not swept else workers for workers, envs in heads),
        rows=tuple(rows),
        notes=(*_crowded(crowded), *_left_out(first, others, heads)),
        group=one_line(env),
    )


def _labels(first: RunSide, by_run: Iterable[Mapping[CellKey, Place]]) -> list[str]:
    """Return the backends of all runs in the order in which the first would list them."""
    cells = [cell for places in by_run for place in places.values() for cell in place.cells if cell is not None]
    return list(dict.fromkeys(cell.label for cell in in_report_order(cells, first.head.spec)))


def _of_all(by_run: Iterable[Mapping[CellKey, Place]], key: CellKey | None) -> list[Place | None]:
    return [None if key is None else places.get(key) for places in by_run]


def _size(key: CellKey) -> Size:
    return key.workers, key.envs_per_worker


def _crowded(sides: Sequence[RunSide]) -> Iterator[str]:
    """Yield which runs had fewer CPUs than workers in some columns."""
    names: dict[int, list[str]] = {}
    for side in sides:
        names.setdefault(side.head.usable_cpus, []).append(side.name)
    for cpus, of in names.items():
        yield f"! more workers than the {figures.counted(cpus, 'CPU')} of {' and '.join(of)}"


def _left_out(first: RunSide, others: Sequence[OtherRun], heads: Collection[Size]) -> Iterator[str]:
    """Yield which sizes a run has that no column shows, because no other has them."""
    runs = [(first, 0, others[0].found), *((other.side, 1, other.found) for other in others)]
    for side, index, found in runs:
        measured = [_size(place.key) for place in found.places if place.cells[index] is not None]
        alone = [size for size in measured if size not in heads]
        if alone:
            yield f"Only {side.name} has {sizes(alone, measured)}"


def _cell(first: RunSide, others: Sequence[OtherRun], places: Sequence[Place | None]) -> Text:
    """Return one cell in all runs: of two with both rates, of more with that of the first alone."""
    known = [(other.side, place) for other, place in zip(others, places, strict=True) if place is not None]
    if not known:
        return Text((figures.DASH,))
    alone = len(others) == 1
    lines = [f"{'' if alone else f'{side.name} '}{_ratio(first, side, place)}" for side, place in known]
    side, place = known[0]
    rates = [(first.name, place.cells[0]), *([(side.name, place.cells[1])] if alone else [])]
    lines += [
        f"{name} {figures.rate(cell.frames_per_second)}"
        for name, cell in rates
        if cell is not None and cell.frames_per_second is not None
    ]
    values: dict[str, Value] = {f"ratio_{side.name}": place.ratio for side, place in known if place.ratio is not None}
    return Text(tuple(lines), _tone([place for _, place in known]), place.ratio if alone else None, values)


def _ratio(first: RunSide, side: RunSide, place: Place) -> str:
    """Return the ratio, or in a word why there is none."""
    if place.ratio is not None:
        return figures.times(place.ratio)
    return place.lack or f"only {side.name if place.cells[0] is None else first.name}"


def _tone(places: Sequence[Place]) -> Tone:
    cells = [cell for place in places for cell in place.cells if cell is not None]
    if any(cell.reference_row for cell in cells):
        return "reference_row"
    if all(place.ratio is None for place in places):
        return "missing"
    return "struck" if any(cell.struck for cell in cells) else "plain"


def _explanations(tasks: Tasks) -> Iterator[Explanation]:
    """Yield each reason why cells of two runs have no ratio once, with these cells."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for _, found in (other for of_task in tasks.values() for other in of_task):
        for place in found.places:
            if place.lack is not None:
                groups.setdefault((place.lack, one_line(place.why)), {})[cell_name(place.key)] = None
    for (lack, why), names in groups.items():
        text, _, remedy = why.partition("; ")
        yield Explanation(lack, text, tuple(names), remedy or MEASURE_AGAIN)
