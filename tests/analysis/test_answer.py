"""The answer of a run, for every situation that a run can end in: as data, and as a page shows it."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from support.pages import document_of
from support.records import SECOND, make_cell, make_header

from vebench import cli
from vebench.analysis.answer import TaskAnswer, answer_for, may_win
from vebench.analysis.cell import CellSummary
from vebench.analysis.summary import rated, summarise
from vebench.backends.entry import BackendEntry
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.registry import BY_NAME
from vebench.child.answers import Window
from vebench.plan.verdicts import Knowledge, KnownVerdict, keep, key_of_pair, other_implementations
from vebench.reports.document import AnswerText
from vebench.reports.run import RunPage
from vebench.results.records import CellRecord, Run, with_current_verdicts

Cells = list[CellRecord]


COMMAND = "vebench run --env Pong"


def curve(backend: str, rates: dict[int, int], **fields: object) -> Cells:
    """Return a cell of ``backend`` for each number of workers, with four equal windows of so many steps each."""
    return [make_cell(backend, workers, (steps,) * 4, **fields) for workers, steps in rates.items()]


def noisy(backend: str, workers: int, *steps: int) -> Cells:
    return [make_cell(backend, workers, steps)]


def disturbed(backend: str, workers: int, steps: int) -> Cells:
    """Return a cell whose CPUs worked for others for 30 % of each window."""
    window = Window(SECOND, steps, 0, cpu_ns=SECOND, others_ns=int(0.3 * SECOND * min(workers, 2)))
    return [make_cell(backend, workers, windows=(window,) * 4)]


def failed(backend: str, workers: int, reason: str = "timed out after 300 s in recv") -> Cells:
    return [make_cell(backend, workers, status="failed", reason=reason)]


def page_of(
    cells: Iterable[CellRecord],
    cpus: int = 4,
    *,
    planned: int | None = None,
    command: str = COMMAND,
    interpreter: str | None = None,
    **spec: object,
) -> RunPage:
    """Return the page of a run of these cells on a machine with so many CPUs; other keywords go to its spec."""
    head = msgspec.structs.replace(make_header(cpus, **spec), cells=planned, command=command, interpreter=interpreter)
    return RunPage.of([("a.jsonl", Run(head, tuple(cells)))])


def answers_of(cells: Iterable[CellRecord], **asked: object) -> Sequence[AnswerText]:
    return document_of(page_of(cells, **asked)).answers  # type: ignore[arg-type] # as the table has them


class Situation(NamedTuple):
    cells: Cells
    outcomes: tuple[str, ...]  # of each task
    asked: dict[str, object]


def situation(cells: Cells, *outcomes: str, **asked: object) -> Situation:
    return Situation(cells, outcomes, asked)


def outcome(found: TaskAnswer) -> str:
    """Return the facts of an answer on one line."""

    def name(cell: CellSummary) -> str:
        return f"{cell.label}:{cell.workers}"

    best = found.best
    places = {"best": best, "perhaps": found.perhaps}
    if found.reason is not None and found.known is not best:
        places["known"] = found.known
    places |= {"in Gymnasium": found.in_gymnasium, "of Gymnasium": found.of_gymnasium}
    facts = [found.reason.name] if found.reason else []
    facts += [f"{word} {name(cell)}" for word, cell in places.items() if cell is not None]
    facts += [f"fewer {found.smaller[0].workers}"] if found.smaller else []
    facts += [f"tied {', '.join(map(name, found.tied))}"] if found.tied else []
    facts += [f"doubted {', '.join(f'{cell.label}: {why}' for cell, why in found.doubted)}"] if found.doubted else []
    return "; ".join(facts)


LOOP = curve("for-loop", {1: 1000})
WIDE_STEPS = (1000, 3000, 2000, 4000)  # of a cell whose interval says nothing
CEILING = curve("ceiling", {1: 1500})
FAST = curve("shm-sync", {2: 1900})
UNKNOWN_WORK = {"verdict": "unverified"}
ONE_IS_WIDE = [*LOOP, *FAST, *noisy("gym-async", 2, *WIDE_STEPS)]

SITUATIONS = {
    "the example of the docs": situation(
        [
            *curve("for-loop", {1: 2714}),
            *curve("shm-async", {4: 5238}),
            *curve("envpool-sync", {4: 6300}),
            *curve("envpool-async", {1: 3400, 2: 5930, 4: 6375}),
        ],
        "best envpool-sync:4; in Gymnasium shm-async:4; tied envpool-async:4",
    ),
    "the winner's environments are our own, and so are not those of the plain loop": situation(
        [*LOOP, *curve("shm-async", {4: 2000}), *curve("fast-async", {4: 4000}, own_classes=OwnClasses("compiled"))],
        "best fast-async:4; of Gymnasium shm-async:4",
    ),
    "the interface is Gymnasium's but not the environments": situation(
        [
            *LOOP,
            *curve("shm-async", {4: 2000}),
            *curve("fast-async", {4: 3000}, own_classes=OwnClasses("compiled")),
            *curve("envpool-sync", {4: 4000}),
        ],
        "best envpool-sync:4; in Gymnasium fast-async:4; of Gymnasium shm-async:4",
    ),
    "a tie of many, with one that is slower": situation(
        [
            *LOOP,
            *(cell for name in ("gym-sync", "gym-async", "shm-sync", "shm-async") for cell in curve(name, {2: 1990})),
            *curve("envpool-sync", {2: 2000}),
            *curve("envpool-async", {2: 2010}),
        ],
        "best gym-sync:2; tied envpool-async:2, envpool-sync:2, gym-async:2, shm-sync:2, shm-async:2",
    ),
    "a single backend, as asked for": situation(
        curve("shm-sync", {1: 1000, 2: 1850, 4: 1900}),
        "ALONE; best shm-sync:4; fewer 2",
        backends=[{"name": "shm-sync"}],
        command=f"{COMMAND} -b shm-sync --no-base -o one.jsonl",
    ),
    "a single backend, since the others failed": situation(
        [*LOOP, *failed("gym-sync", 1), *failed("shm-sync", 1)], "ALONE; best for-loop:1"
    ),
    "the highest rate is known to nothing": situation(
        ONE_IS_WIDE,
        "WIDE; best gym-async:2; known shm-sync:2; tied shm-sync:2",
        command=f"{COMMAND} --windows 4 -o wide.jsonl",
    ),
    "another size of the best backend is known to nothing": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 4: 2300}), *noisy("shm-sync", 2, *WIDE_STEPS)],
        "best shm-sync:4; perhaps shm-sync:2",
    ),
    "the highest rate is hardly known, but that it is the highest": situation(
        [*LOOP, *noisy("shm-sync", 2, 3000, 4000, 5000, 4200)], "best shm-sync:2"
    ),
    "the winner draws its own starts, and its episodes are the same": situation(
        [*LOOP, *curve("envpool-sync", {2: 3000}, verdict="same distribution")],
        "best envpool-sync:2; in Gymnasium for-loop:1",
    ),
    "all rates are hardly known, since passes differ, but not what they are to each other": situation(
        [
            make_cell(backend, 1, tuple(round(steps * shift * noise) for noise in (0.99, 1.01)), repeat=repeat)
            for repeat, shift in enumerate((0.5, 1.0, 1.5))
            for backend, steps in (("for-loop", 1000), ("gym-sync", 1010 + repeat), ("shm-sync", 1900 + 9 * repeat))
        ],
        "best shm-sync:1",
        passes=3,
    ),
    "one window each": situation(
        [*noisy("for-loop", 1, 1000), *noisy("gym-sync", 1, 990), *noisy("shm-sync", 2, 1900)],
        "DOUBTED; doubted shm-sync: no interval, for-loop: no interval, gym-sync: no interval",
        passes=5,
    ),
    "the fastest does other work": situation(
        [*LOOP, *FAST, *curve("envpool-sync", {2: 3000}, verdict="different")],
        "best shm-sync:2; doubted envpool-sync: other work",
    ),
    "all but the loop do other work": situation(
        [*LOOP, *(cell for name in ("gym-sync", "shm-sync") for cell in curve(name, {1: 2000}, verdict="different"))],
        "DOUBTED; best for-loop:1; doubted gym-sync: other work, shm-sync: other work",
    ),
    "nobody has compared the work of any": situation(
        [*LOOP, *curve("gym-sync", {2: 1900}, **UNKNOWN_WORK)], "DOUBTED; best for-loop:1; doubted gym-sync: unverified"
    ),
    "nobody has compared the work of a user's own backend, and cells are missing": situation(
        [*LOOP, *curve("my.mod:Own", {2: 1900}, options={"mode": "a b"}, **UNKNOWN_WORK)],
        "DOUBTED; best for-loop:1; doubted my.mod:Own[mode=a b]: unverified",
        planned=9,
    ),
    "the work of any cannot be compared": situation(
        curve("envpool-sync", {2: 1900}, env="Own-v0", verdict_reason="it draws its start", **UNKNOWN_WORK),
        "DOUBTED; doubted envpool-sync: unverified",
        envs=["my.module:Own-v0"],
    ),
    "the fastest is faster than the simulator": situation(
        [*LOOP, *curve("gym-sync", {1: 800}), *curve("shm-sync", {1: 2000}), *CEILING],
        "best for-loop:1; doubted shm-sync: above ceiling",
    ),
    "most cells were disturbed": situation(
        [*LOOP, *disturbed("gym-sync", 1, 1500), *disturbed("shm-sync", 2, 3000)], "UNUSABLE; best shm-sync:2"
    ),
    "one that was disturbed might be as fast as the winner": situation(
        [*LOOP, *FAST, *disturbed("gym-async", 2, 1500), *curve("gym-sync", {2: 1500})],
        "best shm-sync:2; tied gym-async:2",
    ),
    "everything failed": situation([*failed("for-loop", 1), *failed("gym-sync", 1)], "FAILED"),
    "a race had no time": situation([*failed("for-loop", 1), *failed("gym-sync", 1)], "FAILED", only=["for-loop:1x1"]),
    "no cell is there": situation([]),
    "the user ended the first cell": situation(failed("for-loop", 1, "interrupted"), "NOT_MEASURED", planned=8),
    "fewer workers are as good": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 2880, 3: 2990, 4: 3000})],
        "best shm-sync:2; tied shm-sync:4, shm-sync:3",
    ),
    "the plain loop is not distinguishable from the fastest, and a little slower": situation(
        [*noisy("for-loop", 1, 1000, 1050, 950, 1000), *curve("shm-sync", {1: 1030, 2: 1040})],
        "best for-loop:1; tied shm-sync:2, shm-sync:1",
    ),
    "the plain loop is not distinguishable from the fastest, but more than a twentieth slower": situation(
        [*noisy("for-loop", 1, 1000, 1050, 950, 1000), *curve("shm-sync", {1: 1060, 2: 1070})],
        "best shm-sync:1; tied shm-sync:2, for-loop:1",
    ),
    "cells are missing": situation([*LOOP, *curve("gym-sync", {1: 900}), *FAST], "best shm-sync:2", planned=27),
}


@pytest.mark.parametrize("one", SITUATIONS.values(), ids=SITUATIONS)
def test_each_situation_has_its_answer(one: Situation) -> None:
    (section,) = page_of(one.cells, **one.asked).sections  # type: ignore[arg-type] # as the table has them
    head, tasks = section.run.header, dict.fromkeys(cell.env for cell in section.cells)
    answers = [
        answer_for([cell for cell in section.cells if cell.env == env], head.spec, usable=not section.notice)
        for env in tasks
    ]
    assert tuple(map(outcome, answers)) == one.outcomes


def recommended() -> Iterator[str]:
    """Yield each command that an answer of the table ends with, as a user would copy it."""
    for cells, _, asked in SITUATIONS.values():
        for one in answers_of(cells, **asked):
            *others, last = one.sentences
            assert not any("vebench " in sentence for sentence in others)
            assert last.endswith(":" if one.command else ".")
            if one.command:
                yield one.command.removeprefix("vebench ")


def test_every_command_that_is_recommended_is_one_that_can_be_typed() -> None:
    lines = set(recommended())
    assert {line.split()[0] for line in lines} == {"run", "verify", "tune"}
    for line in lines:
        name, *words = shlex.split(line)
        command = cli.app.commands[name]
        context = command.make_context(name, words, obj=None)
        assert not context.args


def simulated(rates: dict[str, float], rng: np.random.Generator) -> TaskAnswer:
    """Return the answer of a run in which processes differ by 3 % and windows by 2 %."""
    cells = [
        make_cell(backend, 1, tuple(round(process * rng.lognormal(0, 0.02)) for _ in range(2)), repeat=repeat)
        for repeat in range(3)
        for backend, rate in rates.items()
        for process in [rate * rng.lognormal(0, 0.03)]
    ]
    head = make_header()
    return answer_for(summarise(Run(head, tuple(cells))), head.spec)


@pytest.mark.parametrize(("fastest", "runs", "among", "alone"), [(5150, 60, 56, 0), (6250, 20, 20, 18)])
def test_the_fastest_is_the_winner_or_cannot_be_told_from_it_and_wins_alone_if_it_is_faster_by_a_quarter(
    fastest: float, runs: int, among: int, alone: int
) -> None:
    rng = np.random.default_rng(1)
    rates = {"for-loop": 1000, "gym-sync": 5000, "shm-sync": 5000, "envpool-sync": fastest}
    answers = (simulated(rates, rng) for _ in range(runs))
    found = [[one.best.label, *(cell.label for cell in one.tied)] for one in answers]
    assert sum("envpool-sync" in labels for labels in found) >= among
    assert sum(labels == ["envpool-sync"] for labels in found) >= alone


def test_of_equal_backends_none_is_called_slower_and_no_rate_is_too_high() -> None:
    rng, told, held, rates = np.random.default_rng(3), 0, 0, []
    names = ("for-loop", "gym-sync", "gym-async", "shm-sync", "envpool-sync", "envpool-async")
    for _ in range(60):
        found = simulated(dict.fromkeys(names, 5000), rng)
        rate = found.best.frames_per_second
        told += len(found.tied) < len(names) - 1
        held += rate.low <= 20000 <= rate.high
        rates.append(rate.median / 20000)
    assert told <= 3
    assert held >= 54
    assert abs(np.mean(rates) - 1) < 0.01


ROLLS = BackendEntry("rolls", "rolls:Rolls", "of a simulator", roles={"rollout": "rollout"})


def test_rows_left_on_a_device_and_rollouts_never_win_and_have_a_sentence_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BY_NAME, "rolls", ROLLS)
    cells = [
        *LOOP,
        *curve("native", {1: 1900}),
        *curve("native", {1: 9000}, options={"deliver": "device"}),
        *curve("rolls", {1: 20_000}, options={"rollout": 128}, verdict=None),
    ]
    run = Run(make_header(), tuple(cells))
    (section,) = page_of(cells).sections
    assert outcome(answer_for(section.cells, run.header.spec)) == "best native:1"
    assert may_win(rated(run), 1) == {("ALE/Pong-v5", "native")}
    (text,) = answers_of(cells)
    named = [sentence.partition(": ")[2].partition(" with")[0] for sentence in text.sentences]
    assert named == ["native", "native[deliver=device]", "rolls[rollout=128]"]
    (alone,) = answers_of(cells[2:])
    assert (alone.settled, len(alone.sentences)) == (False, 4)
    assert "native[deliver=device]" in alone.sentences[1]


THERE, HERE = "gymnax:CartPole-v1", "CartPole-v1"


@pytest.mark.parametrize("verdict", ["same distribution", "different", "unverified"])
def test_another_implementation_is_named_only_if_its_episodes_are_the_same(verdict: str) -> None:
    here = [
        *curve("for-loop", {1: 1000}, env=HERE, frame_skip=1),
        *curve("shm-sync", {2: 1900}, env=HERE, frame_skip=1),
    ]
    there = curve("native", {1: 3800}, env=THERE, frame_skip=2)
    run = Run(make_header(4), (*here, *there))
    tasks = Task(HERE, "classic", 1), Task(THERE, "gymnax", 1)
    versions = [run.header.packages] * 2
    assert [*other_implementations(tasks)] == [tasks]
    for policy, found in (("", "same distribution"), ("hold", verdict)):
        if verdict != "unverified":
            keep(key_of_pair(*tasks, versions, policy), KnownVerdict(found))
    (document,) = RunPage.of([("a.jsonl", with_current_verdicts(run, Knowledge.load()))]).documents
    (mine, theirs) = document.answers
    if verdict == "same distribution":
        assert mine.sentences[-1].endswith("): native with 1 worker, 3,800 steps/s (±11%), 2.00x (±5.7%).")
    assert sum(THERE in sentence for sentence in mine.sentences) == (verdict == "same distribution")
    assert not any("another implementation" in sentence for sentence in theirs.sentences)
    assert any("--within distribution" in line for line in document.legend) == (verdict != "same distribution")
