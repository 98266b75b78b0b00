"""Runs side by side as a document: their differences, and the ratios of their rates to the first run's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from vebench.analysis.cell import in_report_order
from vebench.analysis.comparison import (
    CELL_SPREAD,
    FPS_SPREAD,
    CellComparison,
    Names,
    TaskComparison,
    compared_tasks,
)
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.plan.cells import CellKey
from vebench.reports import figures
from vebench.reports.answer import Section, setting_of
from vebench.reports.document import AnswerText, Document, Table, TableRow, Text, Tone
from vebench.results.records import how_plans_differ, measured_in_turn, what_differs


class OtherRun(NamedTuple):
    """A run that is compared with the first run, and the comparison on one task."""

    side: Section
    found: TaskComparison


def side_by_side(sides: Sequence[Section]) -> Document | None:
    """Return the runs compared with the first run; None if no other run shares a task with it."""
    first, *others = sides
    in_turn = [measured_in_turn(first.head, other.head) for other in others]
    tasks: dict[str, list[OtherRun]] = {}
    for side, turns in zip(others, in_turn, strict=True):
        names = Names("report", first.letter, side.letter, "in either")
        for found in compared_tasks(first.cells, side.cells, names, in_turn=turns):
            tasks.setdefault(found.env, []).append(OtherRun(side, found))
    if not tasks:
        return None
    tables: list[Table] = []
    reasons = []
    for env, of_task in tasks.items():
        for other in of_task:
            tables += _tables(env, first, other)
        reasons += [(place.verdict, place.why, place.key) for _, found in of_task for place in found.places]
    return Document(
        title=f"{figures.counted(len(sides), 'run')} side by side",
        facts=tuple(_facts(sides, tasks, in_turn=all(in_turn))),
        tables=tuple(tables),
        legend=tuple(_legend(sides)),
        explanations=tuple(figures.explained(reasons)),
        notice="; ".join(f"{side.letter} is {side.notice}" for side in sides if side.notice),
        answers=tuple(_answer(env, first, of_task) for env, of_task in tasks.items()),
    )


def _facts(sides: Sequence[Section], tasks: Collection[str], *, in_turn: bool) -> Iterator[tuple[str, str]]:
    """Yield the files, their differences from the first run, and the tasks that are not compared."""
    first = sides[0]
    for side in sides:
        yield side.letter, f"{side.name}, on {one_line(side.head.host.cpu_model)}"
        differences = [*what_differs(first.head, side.head), *how_plans_differ(first.head, side.head).values()]
        if side is not first:
            yield f"{side.letter} differs", one_line("; ".join(differences)) or "nothing known: same machine and plan"
    spread = f"runs of the same code are assumed to differ by {FPS_SPREAD:.0%}, and each cell by {CELL_SPREAD:.0%}"
    cancels = "measured in turn, so disturbances affected both"
    yield "compared", f"frames/s; {cancels if in_turn else spread}"
    alone = figures.by_key((cell.env, side.letter) for side in sides for cell in side.cells if cell.env not in tasks)
    if alone:
        words = "; ".join(f"{env} (in {' and '.join(letters)})" for env, letters in alone.items())
        yield "not compared", one_line(words)


def _legend(sides: Sequence[Section]) -> Iterator[str]:
    first, *others = sides
    yield f"Each cell: the rate of the other run divided by the rate of {first.letter}, and both in frames/s."
    yield "±: the 95 % confidence interval."
    if any(what_differs(first.head, other.head) for other in others):
        yield "Machines or packages differ: a ratio combines the effects of all differences."


def _answer(env: str, first: Section, others: Sequence[OtherRun]) -> AnswerText:
    verdicts = [_verdict(first, other) for other in others]
    sentences = [f"{one_line(short_name(env))}: {verdict}" for verdict, _ in verdicts]
    for side, found in others:
        if found.mean is not None and len(found.counted) > 1 and not (first.notice or side.notice):
            whose = f"{side.letter}, with" if len(others) > 1 else "With"
            mean = figures.in_sentence(found.mean, "x")
            cells = f"the geometric mean of {figures.counted(len(found.counted), 'cell')}"
            sentences.append(f"{whose} the same backend, workers and CPUs: {mean}, {cells}.")
    return AnswerText(one_line(env), tuple(sentences), settled=any(settled for _, settled in verdicts))


def _verdict(first: Section, other: OtherRun) -> tuple[str, bool]:
    """Return the ratio of the other run in words, or why it is unknown, and whether the difference is significant."""
    side, found = other
    a, b = first.letter, side.letter
    for one in (first, side):
        if one.notice:
            return f"no verdict: {one.letter} is {one.notice}.", False
    best = found.best
    if best is None:
        lacking = " and ".join((a, b)[run] for run in found.lacking)
        return f"no verdict: {lacking} has no cell with a rate to compare.", False
    mine, its = setting_of(best.one), setting_of(best.other)
    where = f"{mine} on both" if mine == its else f"{its} on {b}, {mine} on {a}"
    speed = f"{b} is {figures.in_sentence(best.ratio, 'x')} as fast"
    low, high = best.ratio.low, best.ratio.high
    if low is not None and high is not None and low <= 1 <= high:
        return f"{a} and {b}, each at its best, are not distinguishable: {speed}, {where}.", False
    return f"{speed} as {a}, each at its best: {where}.", True


def _tables(env: str, first: Section, other: OtherRun) -> Iterator[Table]:
    """Yield the table of one task and one other run, with a column for each size of both runs."""
    side, found = other
    heads = dict(sorted({_size(one.key): one.key.size for one in found.places if None not in one.cells}.items()))
    if not heads:
        return
    places = {(one.key.backend, _size(one.key)): one for one in found.places}
    measured = [cell for one in found.places for cell in one.cells if cell is not None]
    rows = []
    for label in dict.fromkeys(cell.label for cell in in_report_order(measured, first.head.spec)):
        own = [places.get((label, size)) for size in heads]
        texts = tuple(Text((figures.DASH,)) if one is None else _cell(one, first, side) for one in own)
        if any(own):
            rows.append(TableRow(one_line(label), texts, any(text.tone == "reference_row" for text in texts)))
    most = max(workers for workers, _ in heads)
    few = {one.letter: one.head.usable_cpus for one in (first, side) if most > one.head.usable_cpus}
    notes = [f"! more workers than the {figures.counted(cpus, 'CPU')} of {letter}" for letter, cpus in few.items()]
    for index, one in enumerate((first, side)):
        sizes = [_size(place.key) for place in found.places if place.cells[index] is not None]
        lonely = [size for size in sizes if size not in heads]
        if lonely:
            notes.append(f"Only {one.letter} has {figures.sizes(lonely, sizes)}")
    fewest = min(few.values(), default=most)
    yield Table(
        title=f"{one_line(env)}: {side.letter} over {first.letter}",
        columns=tuple(f"{head} !" if workers > fewest else head for (workers, _), head in heads.items()),
        rows=tuple(rows),
        notes=tuple(notes),
        group=one_line(env),
    )


def _size(key: CellKey) -> figures.Size:
    return key.workers, key.envs_per_worker


def _cell(place: CellComparison, first: Section, side: Section) -> Text:
    """Return the ratio of a cell, or why it has no ratio, and its rates."""
    letters = first.letter, side.letter
    why = place.verdict if place.why else f"only {letters[place.cells[0] is None]}"
    lines = [why if place.ratio is None else figures.times(place.ratio)]
    for letter, cell in zip(letters, place.cells, strict=True):
        if cell is not None and cell.frames_per_second is not None:
            lines.append(f"{letter} {figures.rate(cell.frames_per_second)}")
    cells = [cell for cell in place.cells if cell is not None]
    tone: Tone = "plain"
    if any(cell.reference_row for cell in cells):
        tone = "reference_row"
    elif place.ratio is None:
        tone = "missing"
    elif any(cell.excluded for cell in cells):
        tone = "struck"
    return Text(tuple(lines), tone, place.ratio)
