"""The answer of a run, for every situation that a run can end in: the sentences that a careful engineer would write."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from support.pages import document_of, on_terminal
from support.records import SECOND, make_cell, make_header, on_hosts

from vebench import cli
from vebench.analysis.answer import TaskAnswer, answer
from vebench.analysis.summary import summarise
from vebench.backends.interface import OwnClasses
from vebench.backends.registry import ENTRIES
from vebench.child.window import Window
from vebench.reports.document import AnswerText
from vebench.reports.formats import markdown
from vebench.reports.pages.answer import RULE
from vebench.reports.pages.run import RunPage
from vebench.results.records import CellRecord, Run
from vebench.share.cite import CitePage

Cells = list[CellRecord]


COMMAND = "vebench run --env Pong"
# The reference among them.
CONTESTANTS = [entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row]
NO_WINNER = re.compile(r"[nN]o winner|unusable")


def curve(backend: str, rates: dict[int, int], **fields: object) -> Cells:
    """Return a cell of ``backend`` for each number of workers, with four equal windows of so many steps each."""
    return [make_cell(backend, workers, (steps,) * 4, **fields) for workers, steps in rates.items()]


def noisy(backend: str, workers: int, *steps: int) -> Cells:
    return [make_cell(backend, workers, steps)]


def disturbed(backend: str, workers: int, steps: int) -> Cells:
    """Return a cell whose CPUs worked for others for 30 % of each window."""
    window = Window(SECOND, steps, 0, cpu_ns=SECOND, others_ns=int(0.3 * SECOND * min(workers, 2)))
    return [make_cell(backend, workers, windows=(window,) * 4)]


def held_back(backend: str, workers: int, steps: int, **fields: object) -> Cells:
    """Return a cell that a CPU quota slowed in each window."""
    window = Window(SECOND, steps, 0, cpu_ns=SECOND, throttled_ns=SECOND // 2, throttles=5)
    return [make_cell(backend, workers, windows=(window,) * 4, **fields)]


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
    """The cells of a run, the sentences of its answer, and what was asked for."""

    cells: Cells
    sentences: tuple[str, ...]
    asked: dict[str, object]


def situation(cells: Cells, *sentences: str, **asked: object) -> Situation:
    return Situation(cells, sentences, asked)


def figure(cell: str, rate: int, times: str = "", *, spread: str = "±11%", error: str = "±5.7%") -> str:
    """Return a cell with its rate, and how many times that of the plain loop it is, if that is given."""
    return f"{cell}, {rate:,} frames/s ({spread}){f', {times} a plain loop ({error})' if times else ''}"


def wins(cell: str, rate: int, times: str = "", so_far: str = "", **spreads: str) -> str:
    """Return the sentence that names a winner."""
    return f"Pong on this machine{so_far}: {figure(cell, rate, times, **spreads)}."


def left_out(cell: str, rate: int, why: str, **spreads: str) -> str:
    return f"Excluded although faster: {figure(cell, rate, **spreads)}; it {why}."


LOOP = curve("for-loop", {1: 1000})
WIDE_STEPS = (1000, 3000, 2000, 4000)  # of a cell whose interval says nothing
CEILING = curve("ceiling", {1: 1500})
FAST = curve("shm-sync", {2: 1900})
FAST_WINS = wins("shm-sync with 2 workers", 7600, "1.90x")
RESUME = "vebench run --resume a.jsonl"
UNKNOWN_WORK = {"verdict": "unverified"}
NOT_KNOWN = "is not known to do the same work"
IMPOSSIBLE = "is significantly faster than the bare simulator"
COMPARE = "vebench compare old/python new/python --env Pong"
NONE = "Pong on this machine, no winner"
ONE_IS_WIDE = [*LOOP, *FAST, *noisy("gym-async", 2, *WIDE_STEPS)]
UNCERTAIN = (
    f"{NONE}: gym-async with 2 workers has the highest rate, "
    "10,000 frames/s (±>100%), too uncertain to distinguish it from shm-sync and for-loop."
)
KNOWN_BETTER = f"The fastest with a usable interval: {figure('shm-sync with 2 workers', 7600, '1.90x')}."
LOOP_COUNTS = f"The highest rate that counts: {figure('for-loop with 1 worker', 4000)}."

SITUATIONS = {
    "the example of the docs": situation(
        [
            *curve("for-loop", {1: 2714}),
            *curve("shm-async", {4: 5238}),
            *curve("envpool-sync", {4: 6300}),
            *curve("envpool-async", {1: 3400, 2: 5930, 4: 6375}),
        ],
        wins("envpool-sync with 4 workers", 25_200, "2.32x"),
        f"{RULE}; the others (at most 1.07x as fast): envpool-async with 4 workers.",
        "The fastest with Gymnasium's interface is shm-async with 4 workers, 1.93x (±5.7%).",
    ),
    "the winner's environments are our own, and so are not those of the plain loop": situation(
        [*LOOP, *curve("shm-async", {4: 2000}), *curve("fast-async", {4: 4000}, own_classes=OwnClasses("compiled"))],
        wins("fast-async with 4 workers", 16_000, "4.00x"),
        "fast-async steps vebench's own environment classes; "
        "the fastest on Gymnasium's is shm-async with 4 workers, 2.00x (±5.7%).",
    ),
    "the winner's environments would have been our own": situation(
        [*LOOP, *curve("fast-async", {4: 4000}, own_classes=OwnClasses(refused="another version"))],
        wins("fast-async with 4 workers", 16_000, "4.00x"),
    ),
    "the interface is Gymnasium's but not the environments": situation(
        [
            *LOOP,
            *curve("shm-async", {4: 2000}),
            *curve("fast-async", {4: 3000}, own_classes=OwnClasses("compiled")),
            *curve("envpool-sync", {4: 4000}),
        ],
        wins("envpool-sync with 4 workers", 16_000, "4.00x"),
        "The fastest with Gymnasium's interface is fast-async with 4 workers, 3.00x (±5.7%), on vebench's own classes; "
        "the fastest on Gymnasium's is shm-async with 4 workers, 2.00x (±5.7%).",
    ),
    "a tie of everything": situation(
        [*LOOP, *curve("gym-sync", {1: 990}), *curve("shm-sync", {1: 1010})],
        wins("for-loop with 1 worker", 4000),
        f"{RULE}; the others (at most 1.07x as fast): shm-sync with 1 worker and gym-sync with 1 worker.",
    ),
    "a tie of many, with one that is slower": situation(
        [
            *LOOP,
            *(cell for name in ("gym-sync", "gym-async", "shm-sync", "shm-async") for cell in curve(name, {2: 1990})),
            *curve("envpool-sync", {2: 2000}),
            *curve("envpool-async", {2: 2010}),
        ],
        wins("gym-sync with 2 workers", 7960, "1.99x"),
        f"{RULE}; the others (at most 1.07x as fast): "
        "envpool-async with 2 workers, envpool-sync with 2 workers, gym-async with 2 workers and 2 others.",
    ),
    "the plain loop is the fastest": situation(
        [*LOOP, *curve("gym-async", {1: 400, 2: 600})],
        wins("for-loop with 1 worker", 4000)[:-1] + ", and nothing is faster than this plain loop.",
    ),
    "a single backend, as asked for": situation(
        curve("shm-sync", {1: 1000, 2: 1850, 4: 1900}),
        f"{NONE}: only shm-sync was measured.",
        f"Its highest rate: {figure('shm-sync with 4 workers', 7600)}.",
        "2 workers reach 97% of it (±5.7%).",
        "Measure other backends, too: leave out --backend, or name more.",
        backends=[{"name": "shm-sync"}],
        command=f"{COMMAND} -b shm-sync --no-base -o one.jsonl",
    ),
    "a user's own backend alone, beside the loop that is there for speedups": situation(
        [*LOOP, *curve("threads:Threads", {1: 800, 2: 1300})],
        f"{NONE}: only threads:Threads was measured.",
        f"Its highest rate: {figure('threads:Threads with 2 workers', 5200, '1.30x')}.",
        "More may be faster: 2 workers is the most that was measured, on 4 CPUs.",
        "Measure other backends, too: leave out --backend, or name more.",
        backends=[{"name": "threads:Threads"}],
        command=f"{COMMAND} -b threads:Threads --verify -w 1..2 -o a.jsonl",
    ),
    "a backend with options beside a reference row": situation(
        [*curve("envpool-async", {2: 1300}, options={"ratio": 2}), *curve("ceiling", {2: 3000})],
        f"{NONE}: only envpool-async[ratio=2] was measured.",
        f"Its highest rate: {figure('envpool-async[ratio=2] with 2 workers', 5200)}.",
        "Measure other backends, too: leave out --backend, or name more.",
        backends=[{"name": "envpool-async", "options": {"ratio": 2}}, {"name": "ceiling"}],
        command=f"{COMMAND} -b 'envpool-async[ratio=2],ceiling'",
    ),
    "a single backend, since the others failed": situation(
        [*LOOP, *failed("gym-sync", 1), *failed("shm-sync", 1)],
        f"{NONE}: only for-loop has a rate.",
        f"Its highest rate: {figure('for-loop with 1 worker', 4000)}.",
        f"Measure with: {RESUME}",
    ),
    "the highest rate is known to nothing": situation(
        ONE_IS_WIDE,
        UNCERTAIN,
        KNOWN_BETTER,
        "Measure again with --until 10%.",
        command=f"{COMMAND} --windows 4 -o wide.jsonl",
    ),
    "the highest rate is known to nothing, and cells are missing": situation(
        ONE_IS_WIDE,
        UNCERTAIN.replace("winner", "winner, so far (3 of 27 cells)"),
        KNOWN_BETTER,
        f"Measure with: {RESUME}",
        planned=27,
    ),
    "the highest rate is known to nothing, although the run went on until it was to be": situation(
        ONE_IS_WIDE, UNCERTAIN, KNOWN_BETTER, f"Measure with: {RESUME}", until=0.02
    ),
    "the highest rate of a side of a comparison is known to nothing": situation(
        ONE_IS_WIDE,
        UNCERTAIN,
        KNOWN_BETTER,
        "Measure again with --passes 10.",
        interpreter="new/python",
        command=f"{COMPARE} --budget 10m -o a.jsonl",
        passes=5,
    ),
    "a comparison is not finished": situation(
        ONE_IS_WIDE,
        UNCERTAIN.replace("winner", "winner, so far (3 of 8 cells)"),
        KNOWN_BETTER,
        f"Measure with: {COMPARE}",
        interpreter="new/python",
        command=COMPARE,
        planned=8,
    ),
    "another size of the best backend is known to nothing": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 4: 2300}), *noisy("shm-sync", 2, *WIDE_STEPS)],
        wins("shm-sync with 4 workers", 9200, "2.30x"),
        "With 2 workers it may be faster: 10,000 frames/s (±>100%).",
    ),
    "a size of the best backend is known, but a rate of another backend above it is not": situation(
        [
            *LOOP,
            *curve("shm-sync", {1: 1000, 4: 2300}),
            *noisy("shm-sync", 2, *WIDE_STEPS),
            *noisy("gym-async", 2, *(steps - 50 for steps in WIDE_STEPS)),
        ],
        UNCERTAIN.replace("shm-sync", "GYM").replace("gym-async", "shm-sync").replace("GYM", "gym-async"),
        f"The fastest with a usable interval: {figure('shm-sync with 4 workers', 9200, '2.30x')}.",
        "Measure again with --until 10%.",
    ),
    "only a size of the best backend is known": situation(
        [
            *noisy("for-loop", 1, *WIDE_STEPS),
            *curve("shm-sync", {2: 2600}),
            *noisy("shm-sync", 4, *(steps + 600 for steps in WIDE_STEPS)),
        ],
        wins("shm-sync with 2 workers", 10_400, "1.04x", error="±>100%"),
        f"{RULE}; the others (at most 2.98x as fast): for-loop with 1 worker.",
        "With 4 workers it may be faster: 12,400 frames/s (±>100%).",
    ),
    "the highest rate is hardly known, but that it is the highest": situation(
        [*LOOP, *noisy("shm-sync", 2, 3000, 4000, 5000, 4200)],
        wins("shm-sync with 2 workers", 16_200, "4.05x", spread="±52%", error="±55%"),
        "Its interval is wide, but all other backends are significantly slower.",
    ),
    "the same of a run that was interrupted": situation(
        [*LOOP, *noisy("shm-sync", 2, 3000, 4000, 5000, 4200)],
        wins("shm-sync with 2 workers", 16_200, "4.05x", ", so far (2 of 9 cells)", spread="±52%", error="±55%"),
        "Its interval is wide, but all others measured so far are significantly slower.",
        planned=9,
    ),
    "the fastest with Gymnasium's interface is hardly known": situation(
        [
            *LOOP,
            *curve("shm-async", {2: 1150}),
            *noisy("shm-sync", 2, 900, 2100, 1400, 1700),
            *curve("envpool-sync", {2: 9000}),
        ],
        wins("envpool-sync with 2 workers", 36_000, "9.00x"),
        "The fastest with Gymnasium's interface is shm-sync with 2 workers, 1.52x (±>100%).",
    ),
    "the winner draws its own starts, and its episodes are the same": situation(
        [*LOOP, *curve("envpool-sync", {2: 3000}, verdict="same distribution")],
        wins("envpool-sync with 2 workers (same distribution)", 12_000, "3.00x"),
        "The fastest with Gymnasium's interface is for-loop with 1 worker, 1.00x.",
    ),
    "all rates are hardly known, since passes differ, but not what they are to each other": situation(
        [
            make_cell(backend, 1, tuple(round(steps * shift * noise) for noise in (0.99, 1.01)), repeat=repeat)
            for repeat, shift in enumerate((0.5, 1.0, 1.5))
            for backend, steps in (("for-loop", 1000), ("gym-sync", 1010 + repeat), ("shm-sync", 1900 + 9 * repeat))
        ],
        wins("shm-sync with 1 worker", 6938, "1.91x", spread="±>100%", error="±0.7%"),
        "Its interval is wide because passes differed; in ratios of backends this cancels.",
        passes=3,
    ),
    "one window each": situation(
        [*noisy("for-loop", 1, 1000), *noisy("gym-sync", 1, 990), *noisy("shm-sync", 2, 1900)],
        f"{NONE}: no rate counts, since shm-sync, for-loop and gym-sync have only one window.",
        "Measure again with --passes 10.",
        passes=5,
    ),
    "one window of the fastest": situation(
        [*LOOP, *FAST, *noisy("gym-async", 2, 2500)],
        FAST_WINS,
        left_out("gym-async with 2 workers", 10_000, "has only one window", spread="no interval"),
    ),
    "the fastest does other work": situation(
        [*LOOP, *FAST, *curve("envpool-sync", {2: 3000}, verdict="different")],
        FAST_WINS,
        left_out("envpool-sync with 2 workers", 12_000, "does other work"),
    ),
    "a slower one does other work": situation(
        [*LOOP, *FAST, *curve("gym-sync", {1: 900}, verdict="different")], FAST_WINS
    ),
    "all but the loop do other work": situation(
        [*LOOP, *(cell for name in ("gym-sync", "shm-sync") for cell in curve(name, {1: 2000}, verdict="different"))],
        f"{NONE}: only for-loop is left, since gym-sync and shm-sync do other work.",
        LOOP_COUNTS,
        "Compare the work with: vebench verify --env ALE/Pong-v5 -b gym-sync,shm-sync",
    ),
    "nobody has compared the work of any": situation(
        [*LOOP, *curve("gym-sync", {2: 1900}, **UNKNOWN_WORK)],
        f"{NONE}: only for-loop is left, since gym-sync {NOT_KNOWN}.",
        LOOP_COUNTS,
        "Measure again with --verify.",
    ),
    "nobody has compared the work of a user's own backend, and cells are missing": situation(
        [*LOOP, *curve("my.mod:Own", {2: 1900}, options={"mode": "a b"}, **UNKNOWN_WORK)],
        f"{NONE}, so far (2 of 9 cells): only for-loop is left, since my.mod:Own[mode=a b] {NOT_KNOWN}.",
        LOOP_COUNTS,
        "Compare the work with: vebench verify --env ALE/Pong-v5 -b 'my.mod:Own[mode=a b]'",
        planned=9,
    ),
    "nobody has compared the work of the only backend of a comparison": situation(
        curve("my.mod:Own", {2: 1900}, **UNKNOWN_WORK),
        f"{NONE}: no rate counts, since my.mod:Own {NOT_KNOWN}.",
        "Compare the work with: vebench verify --env ALE/Pong-v5 -b my.mod:Own",
        interpreter="new/python",
        command=COMPARE,
    ),
    "the work of any cannot be compared": situation(
        curve("envpool-sync", {2: 1900}, env="Own-v0", verdict_reason="it draws its start", **UNKNOWN_WORK),
        f"{NONE}: no rate counts, since envpool-sync {NOT_KNOWN}.".replace("Pong", "Own"),
        "Compare the work with: vebench verify --env my.module:Own-v0 -b envpool-sync",
        envs=["my.module:Own-v0"],
    ),
    "the work of any can never be compared": situation(
        curve("envpool-sync", {2: 1900}, env="CartPole-v1", **UNKNOWN_WORK),
        f"{NONE}: no rate counts, since envpool-sync {NOT_KNOWN}.".replace("Pong", "CartPole"),
        "The work of envpool-sync cannot be compared: "
        "EnvPool draws the start with its own generator, and has no setting for it.",
    ),
    "the fastest is faster than the simulator": situation(
        [*LOOP, *curve("gym-sync", {1: 800}), *curve("shm-sync", {1: 2000}), *CEILING],
        wins("for-loop with 1 worker", 4000),
        left_out("shm-sync with 1 worker", 8000, IMPOSSIBLE),
    ),
    "all but the loop are faster than the simulator": situation(
        [*LOOP, *curve("shm-sync", {1: 2000}), *CEILING],
        f"{NONE}: only for-loop is left, since shm-sync {IMPOSSIBLE}.",
        LOOP_COUNTS,
        "Measure again with --passes 6.",
    ),
    "most cells were disturbed": situation(
        [*LOOP, *disturbed("gym-sync", 1, 1500), *disturbed("shm-sync", 2, 3000)],
        "No winner: this run is unusable.",
        "Measure on an idle machine.",
    ),
    "most cells of two tasks were held back": situation(
        [cell for env in ("Ant-v5", "Ant-v4") for cell in held_back("for-loop", 1, 1500, env=env)],
        "No winner: this run is unusable.",
        "Measure on more CPUs, or with fewer --workers.",
        envs=["Ant-v5", "Ant-v4"],
    ),
    "the winner was disturbed": situation(
        [*LOOP, *curve("gym-sync", {1: 900}), *disturbed("shm-sync", 2, 1900)],
        FAST_WINS,
        "Others took CPU time while it was measured: it may be faster still.",
    ),
    "one that was disturbed might be as fast as the winner": situation(
        [*LOOP, *FAST, *disturbed("gym-async", 2, 1500), *curve("gym-sync", {2: 1500})],
        FAST_WINS,
        f"{RULE}; the others: gym-async with 2 workers.",
    ),
    "a quota held the winner back": situation(
        [*LOOP, *curve("gym-sync", {1: 900}), *held_back("shm-sync", 2, 1900)],
        FAST_WINS,
        "A CPU quota held it back: with more CPUs it may be faster.",
    ),
    "no loop was measured": situation(
        [*curve("gym-sync", {2: 1000}), *curve("envpool-sync", {2: 1900})],
        wins("envpool-sync with 2 workers", 7600),
        "The fastest with Gymnasium's interface is gym-sync with 2 workers, 4,000 frames/s (±11%).",
    ),
    "two versions of a task": situation(
        [
            cell
            for env in ("Ant-v4", "Ant-v5")
            for cell in (*curve("for-loop", {1: 1000}, env=env), *curve("shm-sync", {2: 1900}, env=env))
        ],
        *(FAST_WINS.replace("Pong", env) for env in ("Ant-v4", "Ant-v5")),
        envs=["Ant-v4", "Ant-v5"],
    ),
    "everything failed": situation(
        [*failed("for-loop", 1), *failed("gym-sync", 1)],
        f"{NONE}: no backend could be measured.",
        f"After fixing what the findings name, measure with: {RESUME}",
    ),
    "a race had no time": situation(
        [*failed("for-loop", 1), *failed("gym-sync", 1)],
        f"{NONE}: no cell has a rate yet.",
        f"Measure with: {RESUME.replace('run', 'tune', 1)}",
        only=["for-loop:1x1"],
    ),
    "no cell is there": situation([], "No winner: nothing has been measured yet.", f"Measure with: {RESUME}"),
    "the user ended the first cell": situation(
        failed("for-loop", 1, "interrupted"),
        f"{NONE}, so far (0 of 8 cells): no cell has a rate yet.",
        f"Measure with: {RESUME}",
        planned=8,
    ),
    "reference rows only": situation(
        [*curve("null", {1: 2_500_000}), *CEILING],
        f"{NONE}: only reference rows were measured.",
        "Measure backends, too: leave out --backend.",
        backends=[{"name": "null"}, {"name": "ceiling"}],
        command=f"{COMMAND} --backend=null,ceiling",
    ),
    "fewer workers are as good": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 2880, 3: 2990, 4: 3000})],
        wins("shm-sync with 2 workers", 11_520, "2.88x"),
        f"{RULE}; the others (at most 1.10x as fast): shm-sync with 4 workers and shm-sync with 3 workers.",
    ),
    "fewer workers are almost as good": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 2600, 4: 3000})],
        wins("shm-sync with 4 workers", 12_000, "3.00x"),
        "2 workers reach 87% of it (±5.7%).",
    ),
    "the plain loop is not distinguishable from the fastest, and a twentieth slower": situation(
        [*noisy("for-loop", 1, 1000, 1050, 950, 1000), *curve("shm-sync", {1: 1060, 2: 1070})],
        wins("for-loop with 1 worker", 4000, spread="±13%"),
        f"{RULE}; the others (at most 1.17x as fast): shm-sync with 2 workers and shm-sync with 1 worker.",
    ),
    "more workers are slower from some number on": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1900, 4: 1500})], FAST_WINS
    ),
    "CPUs are left": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1900, 4: 3700})],
        wins("shm-sync with 4 workers", 14_800, "3.70x"),
        "More may be faster: 4 workers is the most that was measured, on 64 CPUs.",
        cpus=64,
    ),
    "more workers than CPUs are best": situation(
        [*LOOP, *curve("shm-sync", {1: 1000, 2: 1500, 4: 2000})],
        wins("shm-sync with 4 workers on 2 CPUs", 8000, "2.00x"),
        cpus=2,
    ),
    "several environments for each worker": situation(
        [
            *(cell for envs in (1, 16) for cell in curve("for-loop", {1: 1000}, envs_per_worker=envs)),
            *curve("shm-sync", {1: 1000, 2: 1900}),
            *curve("shm-sync", {1: 1100, 2: 2200}, envs_per_worker=16),
            *curve("envpool-sync", {1: 2800, 2: 3000}, envs_per_worker=16),
        ],
        wins("envpool-sync with 2 workers x 16 envs", 12_000, "3.00x"),
        "1 worker x 16 envs reaches 93% of it (±5.7%).",
        "The fastest with Gymnasium's interface is shm-sync with 2 workers x 16 envs, 2.20x (±5.7%).",
        envs_per_worker=[1, 16],
    ),
    "cells are missing": situation(
        [*LOOP, *curve("gym-sync", {1: 900}), *FAST],
        wins("shm-sync with 2 workers", 7600, "1.90x", so_far=", so far (3 of 27 cells)"),
        planned=27,
    ),
    "everything at once keeps to four sentences": situation(
        [
            *LOOP,
            *curve("envpool-async", {1: 2800, 2: 3000}),
            *curve("envpool-sync", {2: 2990}),
            *FAST,
            *curve("mine:Fast", {2: 4000}, **UNKNOWN_WORK),
        ],
        wins("envpool-sync with 2 workers", 11_960, "2.99x"),
        left_out("mine:Fast with 2 workers", 16_000, NOT_KNOWN),
        f"{RULE}; the others (at most 1.06x as fast): envpool-async with 2 workers.",
        "The fastest with Gymnasium's interface is shm-sync with 2 workers, 1.90x (±5.7%).",
    ),
    "a third party's backend with an evil name": situation(
        [*LOOP, *curve("<script>:\x1b[31mA\u202e|\n", {2: 3000})],
        wins("<script>: [31mA | with 2 workers", 12_000, "3.00x"),
        "The fastest with Gymnasium's interface is for-loop with 1 worker, 1.00x.",
    ),
}


@pytest.mark.parametrize("one", SITUATIONS.values(), ids=SITUATIONS)
def test_the_answer_is_what_a_careful_engineer_would_write(one: Situation) -> None:
    found = answers_of(one.cells, **one.asked)
    assert tuple(sentence for answer in found for sentence in answer.sentences) == one.sentences


@pytest.mark.parametrize("one", SITUATIONS.values(), ids=SITUATIONS)
def test_the_marked_place_is_the_winners_and_there_is_none_without_one(one: Situation) -> None:
    document = document_of(page_of(one.cells, **one.asked))  # type: ignore[arg-type] # as the table has them
    won = {one.group for one in document.answers if not NO_WINNER.search(one.sentences[0])}
    marked = {
        table.group: f"{row.label} with {table.columns[index].removesuffix(' !')}"
        for table in document.tables
        for row in table.rows
        for index, text in enumerate(row.texts)
        if text.tone == "best"
    }
    assert marked.keys() == won
    for told in document.answers:
        assert told.group not in marked or marked[told.group] in told.sentences[0]
        assert len(told.sentences) <= 5
    assert bool(document.best) == bool(won)


def recommended() -> Iterator[str]:
    """Yield each command that an answer of the table ends with, as a user would copy it."""
    for cells, _, asked in SITUATIONS.values():
        for one in answers_of(cells, **asked):
            *others, last = one.sentences
            assert not any("vebench " in sentence for sentence in others)
            assert last.endswith(".") or ": vebench " in last
            if not last.endswith("."):
                yield last.partition(": vebench ")[2]


def test_every_command_that_is_recommended_is_one_that_can_be_typed() -> None:
    lines = set(recommended())
    assert {line.split()[0] for line in lines} == {"run", "compare", "verify", "tune"}
    for line in lines:
        name, *words = shlex.split(line)
        command = cli.app.commands[name]
        context = command.make_context(name, words, obj=None)
        assert not context.args


def test_that_a_run_is_unusable_is_explained_once() -> None:
    cells, _, asked = SITUATIONS["most cells of two tasks were held back"]
    document = document_of(page_of(cells, **asked))  # type: ignore[arg-type] # as the table has them
    assert document.notice.startswith("unusable: a CPU quota slowed 2 of 2 cells")
    assert [one.group for one in document.answers] == [""]


def code_of(cells: Iterable[CellRecord], **asked: object) -> tuple[str, ...]:
    (one,) = answers_of([*LOOP, *cells], **asked)
    return one.code


def test_the_winners_code_is_what_its_library_needs_for_what_was_built() -> None:
    cells = curve("envpool-async", {2: 3000}, num_envs=6, batch_size=2, threads=2)
    assert code_of(cells) == (
        "# 2 workers = batches of 2, from 6 environments in 2 threads",
        "import envpool",
        "",
        "# async_reset(), then recv() and send(actions, ids) in turn",
        "envs = envpool.make_gymnasium(",
        '    "Pong-v5", num_envs=6, batch_size=2, num_threads=2,',
        "    use_fire_reset=False,",
        ")",
    )
    own = [make_cell(name, 1, (steps,) * 4, env="Own-v0") for name, steps in (("for-loop", 100), ("gym-sync", 900))]
    (one,) = answers_of(own, envs=["my.module:Own-v0"])
    assert '        "my.module:Own-v0", disable_env_checker=True,' in one.code


def test_there_is_no_code_without_a_winner_nor_for_a_third_party_nor_for_several_replicas() -> None:
    assert code_of(curve("gym-sync", {1: 2000})) != ()
    assert code_of(curve("mine:Fast", {1: 2000})) == ()
    assert code_of(curve("gym-sync", {2: 2000}, replicas=((0,), (1,)))) == ()


def test_the_answer_is_last_on_a_terminal_and_first_in_markdown() -> None:
    page = page_of([*LOOP, *curve("gym-sync", {1: 2000}), *failed("shm-sync", 1)])
    (one,) = document_of(page).answers
    assert on_terminal(page, 200).rstrip().endswith(one.sentences[-1])
    text = markdown.markdown_text(page)
    assert f"\n\n**{one.sentences[0]}**\n\n```python\n# 1 worker = 1 environment in 1 process\n" in text
    assert text.index(one.code[-1]) < text.index("### Findings") < text.index("- machine: ")


@pytest.mark.parametrize(("cpus", "where"), [((2,), "host-0"), ((2, 2), "these hosts")])
def test_an_answer_says_where_it_holds(cpus: tuple[int, ...], where: str) -> None:
    page = RunPage.of([("a.jsonl", Run(on_hosts(make_header(2), *cpus), (*LOOP, *FAST)))])
    (answer,) = document_of(page).answers
    assert answer.sentences == (FAST_WINS.replace("this machine", where),)


def simulated(rates: dict[str, float], rng: np.random.Generator) -> TaskAnswer:
    """Return the answer of a run in which processes differ by 3 % and windows by 2 %."""
    cells = [
        make_cell(backend, 1, tuple(round(process * rng.lognormal(0, 0.02)) for _ in range(2)), repeat=repeat)
        for repeat in range(3)
        for backend, rate in rates.items()
        for process in [rate * rng.lognormal(0, 0.03)]
    ]
    head = make_header()
    return answer(summarise(Run(head, tuple(cells))), head.spec, 2)


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


@pytest.mark.parametrize(("cells", "quoted"), [([*LOOP, *FAST], ["shm-sync"]), (FAST, ["shm-sync"]), (ONE_IS_WIDE, [])])
def test_only_a_backend_that_the_answer_names_is_quoted(cells: Cells, quoted: list[str]) -> None:
    run = Run(make_header(), tuple(cells))
    assert [cell.label for cell in CitePage.of(run, summarise(run)).quoted] == quoted


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


def test_of_those_that_do_as_well_the_simplest_to_use_is_named() -> None:
    (one,) = answers_of([*LOOP, *curve("fast-async", {4: 3010}), *curve("fast-sync", {4: 3000})])
    assert "fast-sync with 4 workers" in one.sentences[0]
    assert "fast-async with 4 workers" in one.sentences[1]
