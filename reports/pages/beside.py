"""Runs side by side as a document: what differs between them, and by how much each is faster than the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.beside import beside
from vebench.analysis.cell import in_report_order
from vebench.analysis.comparison import CELL_SPREAD, RUN_SPREAD
from vebench.analysis.pairing import Names
from vebench.analysis.rules import sizes
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Document, Explanation, Table, TableRow, Text
from vebench.reports.pages.check import MEASURE_AGAIN, cell_name
from vebench.reports.pages.sides import Other, answer, charts, differences
from vebench.results.header import measured_in_turn, what_differs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.beside import Place
    from vebench.plan.cells import CellKey
    from vebench.reports.document import Tone, Value
    from vebench.reports.pages.sides import Side

    Size = tuple[int, int]
    Tasks = Mapping[str, Sequence[Other]]


def document(sides: Sequence[Side]) -> Document | None:
    """Return the runs beside the first one, None if no other has a task in common with it."""
    first, *others = sides
    in_turn = [measured_in_turn(first.head, other.head) for other in others]
    tasks: dict[str, list[Other]] = {}
    for side, turns in zip(others, in_turn, strict=True):
        for found in beside(
            first.cells, side.cells, Names("report", first.name, side.name, "in either"), in_turn=turns
        ):
            tasks.setdefault(found.env, []).append(Other(side, found))
    if not tasks:
        return None
    runs, differ = differences(sides)
    tables = [table for env, of_task in tasks.items() for table in _tables(env, first, of_task)]
    return Document(
        title=f"{figures.counted(len(sides), 'run')} side by side",
        facts=tuple(_facts(sides, tasks, in_turn, alike=not differ)),
        tables=(runs, *tables),
        legend=tuple(_legend(sides)),
        explanations=tuple(_explanations(tasks)),
        notice="; ".join(f"{side.name} is {side.notice}" for side in sides if side.notice),
        answers=tuple(answer(env, first, of_task) for env, of_task in tasks.items()),
        charts=tuple(chart for env in tasks for chart in charts(env, sides)),
    )


def _facts(sides: Sequence[Side], tasks: Tasks, in_turn: Iterable[bool], *, alike: bool) -> Iterator[tuple[str, str]]:
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


def _legend(sides: Sequence[Side]) -> Iterator[str]:
    first, *others = sides
    if len(others) == 1:
        yield f"In each cell: the rate of {others[0].name} over that of {first.name}, and both in frames/s."
    else:
        yield f"In each cell: the rate of each run over that of {first.name}, and that of {first.name} in frames/s."
    yield "±: the true value lies within this distance, with 95 % confidence."
    if any(what_differs(first.head, other.head) for other in others):
        yield "Machines or packages differ: a ratio is of all that differs together."


def _tables(env: str, first: Side, others: Sequence[Other]) -> Iterator[Table]:
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
        if any(text.lines != (figures.NOTHING,) for text in texts):
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


def _labels(first: Side, by_run: Iterable[Mapping[CellKey, Place]]) -> list[str]:
    """Return the backends of all runs in the order in which the first would list them."""
    cells = [cell for places in by_run for place in places.values() for cell in place.cells if cell is not None]
    return list(dict.fromkeys(cell.label for cell in in_report_order(cells, first.head.spec)))


def _of_all(by_run: Iterable[Mapping[CellKey, Place]], key: CellKey | None) -> list[Place | None]:
    return [None if key is None else places.get(key) for places in by_run]


def _size(key: CellKey) -> Size:
    return key.workers, key.envs_per_worker


def _crowded(sides: Sequence[Side]) -> Iterator[str]:
    """Yield which runs had fewer CPUs than workers in some columns."""
    names: dict[int, list[str]] = {}
    for side in sides:
        names.setdefault(side.head.usable_cpus, []).append(side.name)
    for cpus, of in names.items():
        yield f"! more workers than the {figures.counted(cpus, 'CPU')} of {' and '.join(of)}"


def _left_out(first: Side, others: Sequence[Other], heads: Collection[Size]) -> Iterator[str]:
    """Yield which sizes a run has that no column shows, because no other has them."""
    runs = [(first, 0, others[0].found), *((other.side, 1, other.found) for other in others)]
    for side, index, found in runs:
        measured = [_size(place.key) for place in found.places if place.cells[index] is not None]
        alone = [size for size in measured if size not in heads]
        if alone:
            yield f"Only {side.name} has {sizes(alone, measured)}"


def _cell(first: Side, others: Sequence[Other], places: Sequence[Place | None]) -> Text:
    """Return one cell in all runs: of two with both rates, of more with that of the first alone."""
    known = [(other.side, place) for other, place in zip(others, places, strict=True) if place is not None]
    if not known:
        return Text((figures.NOTHING,))
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


def _ratio(first: Side, side: Side, place: Place) -> str:
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
