"""Surveys which backends do the same work, for the Python that runs it: ``python tools/survey.py``, an hour on 2 CPUs.

For each task that vebench knows, in interpreters of their own:

- each backend is compared as ``vebench verify`` compares it, by the same code. ``vebench/plan/survey.json`` has the
  verdicts;
- if a backend with classes of our own is among them, the class is compared with Gymnasium's environments, in all the
  cases of ``tools/fast_cases.py``. ``docs/evidence/data/same-bytes.json`` has what was found.

Both take each answer as it comes, in place of what was known for the same Python and packages, and what has changed is
printed. docs/evidence/survey.md is renewed at the end. The exit status is 1 if bytes of our own classes differ.

Answers are also in a file, so that a survey that was ended goes on where it was. To compare other code anew, delete it.
For another Python: install vebench there, not as an editable package, and run this with that Python. Before new
versions are added to ``backends/fast/classes.py``, this must have been run with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import gymnasium
from evidence import record
from orphans import end_with_parent

from vebench.api import PairVerification, verify
from vebench.backends.environments.suites import SUITES, load_target, short_name
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Setup, Task
from vebench.backends.registry import ENTRIES, PACKAGES, REFERENCE
from vebench.child.answers import Proof, describe
from vebench.child.equality import recorder, replay
from vebench.child.equality.recorder import step_trials
from vebench.child.request import Judging, Request, Settings, Stepping
from vebench.errors import VebenchError
from vebench.interpreters import packages_here
from vebench.machine import kernel
from vebench.plan.grammar import parse_backends
from vebench.plan.tasks import KNOWN, TASKS
from vebench.plan.verdicts import SAME, why_not_identical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vebench.plan.grammar import BackendChoice

    Answer = dict[str, Any]
    Survey = dict[str, Any]
    Job = tuple[Callable[..., list[Answer]], tuple[Any, ...]]  # what is to be called, with what

HERE = Path(__file__).resolve().parents[1]
FILES = {"verdicts": HERE / "vebench" / "plan" / "survey.json", "bytes": HERE / "docs/evidence/data/same-bytes.json"}
# At the least. Where no episode ended, one environment is stepped for longer: most of Atari's games are over by then,
# and all of MuJoCo's, after 1,000 steps.
STEPS, ENVS, LONG_STEPS = 600, 2, 1500
# Of backends that draw their own starts: what in ``parted.py`` has the episodes that are compared, of so many at once.
POOLS, POOLED = {"envpool-sync": "pool", "envpool-async": "Gathered"}, 8
# Our own classes step those environments together that one thread takes, so that there are to be some.
TOGETHER = 4
COLUMNS = (*SAME, "different", "unverified")
LABELS = tuple(
    entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row and entry.name != REFERENCE
)
OWN = {entry.name for entry in ENTRIES if entry.scope.own_classes is not None}
OWN_CLASS = "own class"  # in place of a backend's label, in the answer on a class of ours beside Gymnasium's
# Our own class steps this, too, which is of no suite.
OLDER = replace(TASKS["CartPole-v1"], id="CartPole-v0")
SURVEYED = {task.id: task for task in (*KNOWN, OLDER)}
# Those that a verdict is based on. vebench is not among them, since the survey comes with it.
DECIDING = {name for package in PACKAGES for name in package.deciding_names}
UNMEASURED = Settings(duration=0, windows=0, warmup=0, longest_warmup=0, timeout=0, memory="none")
# How an episode ended, in words, and by what names ``Found.ends`` counts it: of Atari in frames 1 to 4 of a step.
PHYSICS_ENDS = [("termination", ["terminated"]), ("limit on steps", ["limit"]), ("both at once", ["both"])]
ATARI_ENDS = [
    (title, [f"{kind}, frame {frame}" for frame in (1, 2, 3, 4)])
    for kind, title in (("game over", "game over"), ("life", "life lost"), ("limit", "limit on frames"))
]


def main() -> int:
    """Compare what has no answer yet, and write down each answer as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=Path, default=Path("survey-answers.jsonl"))
    parser.add_argument("--backends", default=",".join(LABELS))
    parser.add_argument("--only", default="", help="names of tasks, such as Pong,Hopper")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the steps in which own classes are compared")
    asked = parser.parse_args()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = {name: version for name, version in sorted(packages_here().items()) if name in DECIDING}
    here = {"python": python, "packages": packages}
    lines = asked.answers.read_text().splitlines() if asked.answers.exists() else []
    there = [answer for answer in map(json.loads, lines) if answer["here"] == here]
    filed = put(here, there)
    answered = {(answer["env"], answer["backend"]) for answer in there}
    by_name = {**TASKS, OLDER.id: OLDER}
    tasks = [by_name[name] for name in asked.only.split(",") if name] or list(SURVEYED.values())
    work = jobs(tasks, parse_backends([asked.backends]), answered, asked.share)
    for answers in compared(work, asked.processes):
        dated = [{"here": here, "date": f"{datetime.now(UTC):%Y-%m-%d}", **answer} for answer in answers]
        with asked.answers.open("a") as file:
            file.writelines(json.dumps(answer) + "\n" for answer in dated)
        filed = put(here, dated)
        there += dated
    for title, (columns, rows) in tables(filed).items():
        record("survey", title, columns.split(" | "), rows, versions="the packages of the first table")
    return any(answer.get("difference") for answer in there)


def jobs(
    tasks: Iterable[Task], backends: Sequence[BackendChoice], answered: set[tuple[str, str]], share: float
) -> Iterator[Job]:
    """Yield what is to be called in a process of its own, for each task with answers missing."""
    for task in tasks:
        ours = class_of(task.id) is not None and any(each.name in OWN for each in backends)
        if ours and (task.id, OWN_CLASS) not in answered:
            yield compare_own, (task, share)
        missing = [
            each
            for each in backends
            if (task.id, each.label) not in answered
            and task is not OLDER
            and task.suite in (each.entry.scope.suites or SUITES)
            and each.entry.scope.name_of(task) is not None
        ]
        # Those with threads come last: they are not to be there when others fork.
        missing.sort(key=lambda each: each.entry.steps_gymnasium, reverse=True)
        if missing:
            yield compare, (task, missing)


def compared(work: Iterable[Job], processes: int) -> Iterator[list[Answer]]:
    """Yield the answers of each job as they come, and print them."""
    started = time.monotonic()
    spawn = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_quiet, max_tasks_per_child=1) as pool:
        asked = [pool.submit(function, *arguments) for function, arguments in work]
        for count, done in enumerate(as_completed(asked), 1):
            for answer in done.result():
                words = " ".join(f"{answer.get(key, '')}" for key in ("verdict", "summary", "difference"))
                spent = f"[{count}/{len(asked)}, {(time.monotonic() - started) / 60:.0f} min]"
                print(f"{spent} {answer['env']} {answer['backend']}: {answer['rows']:,} rows {words}", flush=True)
            yield done.result()


def _quiet() -> None:
    """Leave out what libraries print, and end with the survey."""
    end_with_parent()
    sys.path.insert(0, str(HERE / "tests"))
    recorder.LEAST_S = 0.0  # there are hundreds of comparisons
    # A process that has loaded adapters is not forked.
    replay._in_parallel = lambda work, items: [work(items)] if items else []  # noqa: SLF001
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)


def compare_own(task: Task, share: float) -> list[Answer]:
    """Return what all cases of a task found together. A case that raises differs, and the others are still compared."""
    from fast_cases import atari_cases, physics_cases
    from support.same_bytes import Found, compare

    found = Found()
    for case in (atari_cases if task.suite == "atari" else physics_cases)(task, share):
        try:
            found.add(compare(case))
        except Exception as error:  # noqa: BLE001 - whatever one side raises and the other does not
            found.add(Found(difference=f"{case.name}: {describe(error)}"))
    ends = dict(sorted(found.ends.items()))
    return [{"env": task.id, "backend": OWN_CLASS, "rows": found.rows, "ends": ends, "difference": found.difference}]


def compare(task: Task, backends: Sequence[BackendChoice]) -> list[Answer]:
    """Return what comparisons on one task find, longer ones of one environment where no episode ended in the first."""
    found = _proofs(task, backends, STEPS)
    endless = [each for each in backends if found[each.label].verdict in SAME and not found[each.label].ends]
    found |= _proofs(task, endless, LONG_STEPS, 1)
    return [
        {
            "env": task.id,
            "backend": label,
            "verdict": proof.verdict,
            "rows": proof.rows,
            "ends": proof.ends,
            "summary": why_not_identical(proof),
        }
        for label, proof in found.items()
    ]


def _proofs(task: Task, backends: Sequence[BackendChoice], steps: int, num_envs: int | None = None) -> dict[str, Proof]:
    """Return what is found of each backend, by its label."""
    found = {}
    cpus = tuple(sorted(kernel.allowed() or (0,)))[:ENVS]
    for backend in backends:
        entry = backend.entry
        if (problem := entry.why_not(task)) is not None:
            found[backend.label] = Proof("unverified", reason=problem, failed=True)
            continue
        if (chance := entry.scope.chance(replace(task, exact=True))) is not None:
            found[backend.label] = _of_episodes(task, backend, chance)
            continue
        together = TOGETHER if backend.name == "fast-sync" else ENVS
        setup = Setup(replace(task, exact=True), num_envs or together, cpus=cpus)
        request = Request(setup, backend.name, backend.options, UNMEASURED, str(Path.cwd()))
        found[backend.label] = given = _proof(request, steps)
        if not given.failed and given.own_classes is not None and given.own_classes.refused:
            # What stepped is not what the answer would be known as.
            found[backend.label] = Proof("unverified", reason=given.own_classes.words, failed=True)
    return found


def _of_episodes(task: Task, backend: BackendChoice, chance: str) -> Proof:
    """Return whether episodes of a backend that draws its own starts are those of Gymnasium's environment."""
    pool = f"parted:{POOLS[backend.name]}[task_id={backend.entry.scope.name_of(task)}]"
    with chdir(HERE / "tools"):
        try:
            limit = gymnasium.spec(task.id).max_episode_steps or STEPS
            one = verify(task.id, pool, within="distribution", num_envs=POOLED, steps=2 * limit, seed=1)
        except (VebenchError, gymnasium.error.Error) as error:
            return Proof("unverified", reason=f"{chance}; {error}")
    assert isinstance(one, PairVerification)
    ends = one.page.verdict.stats.ends
    return Proof(one.verdict, ends=ends, reason=f"{chance}; {one.page.verdict.why}")  # type: ignore[arg-type] # of the pair


def _proof(request: Request, steps: int) -> Proof:
    """Step a backend and compare what it returns, both in this process."""
    failed = ""
    with TemporaryDirectory() as folder:
        proving = Stepping(steps, path=str(Path(folder, "rows")))
        try:
            step_trials(request, proving, load_target(request.entry.target))
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
            failed = describe(error)
        return replay.compare_trials(request, Judging(steps, path=proving.path, failed=failed))


def put(here: Answer, answers: Iterable[Answer]) -> dict[str, list[Survey]]:
    """Put answers into the files, and print what has changed. Returns what is on file."""
    filed = {kind: json.loads(path.read_text()) for kind, path in FILES.items()}
    for answer in answers:
        if answer["backend"] == OWN_CLASS:
            kind, found = "bytes", {key: answer[key] for key in ("rows", "ends", "difference")}
        else:
            kind, found = "verdicts", {answer["backend"]: [answer["verdict"], answer["summary"]]}
        survey = next((one for one in filed[kind] if one | here == one), None)
        if survey is None:
            size = {"steps": STEPS, "num_envs": ENVS} if kind == "verdicts" else {}
            survey = {**here, "dates": {}, **size, kind: {}}
            filed[kind].append(survey)
        survey["dates"][answer["backend"]] = answer["date"]
        known = survey[kind].setdefault(answer["env"], {})
        before = {name: known[name] for name in found if name in known}
        if before != found:
            print(f"changed: {answer['env']}: {found}, was {before or 'unknown'}", flush=True)
        known |= found
    for kind, path in FILES.items():
        path.write_text(_laid_out(filed[kind], kind))
    return filed


def _laid_out(surveys: list[Survey], kind: str) -> str:
    """Return JSON in order, with a line for each task, so that a change in one is a change of one line."""
    parts = []
    for survey in sorted(surveys, key=lambda one: (one["python"], sorted(one["packages"].items()))):
        found = {env: _in_order(survey[kind][env]) for env in SURVEYED if env in survey[kind]}
        lines = ",\n".join(f"  {json.dumps(env)}: {json.dumps(of_env)}" for env, of_env in found.items())
        head = json.dumps({**survey, "dates": _in_order(survey["dates"]), kind: {}}).removesuffix("{}}")
        parts.append(f"{head}{{\n{lines}\n}}}}")
    return "[" + ",\n".join(parts) + "]\n"


def _in_order(found: dict[str, Any]) -> dict[str, Any]:
    """Return what was found in the order of the registry's backends, and what is of none as it is."""
    return dict(sorted(found.items(), key=lambda item: LABELS.index(item[0]) if item[0] in LABELS else 0))


def tables(filed: dict[str, list[Survey]]) -> dict[str, tuple[str, Iterable[tuple[Any, ...]]]]:
    """Return columns and rows of what was surveyed with which Python. What holds for several is there once."""
    joined: dict[tuple[Any, ...], Survey] = {}
    for kind, surveys in filed.items():
        for survey in surveys:
            key = survey["python"], *sorted(survey["packages"].items())
            one = joined.setdefault(key, {"verdicts": {}, "bytes": {}, "dates": {}})
            one["dates"] |= survey["dates"]
            one[kind] = survey[kind]
    versions, named = [], {}
    for (python, *packages), survey in sorted(joined.items()):
        name = python + "'" * sum(each.startswith(python) for each in named)  # there may be several with one Python
        named[name] = survey
        dates = merged([(date, label) for label, date in survey["dates"].items()], 1)
        when = "; ".join(f"{date}: {labels}" for date, labels in sorted(dates))
        versions.append((name, ", ".join(map(" ".join, packages)), when))
    return {
        "Packages": ("Python | packages | last compared", versions),
        "Backends": (f"Python | suite | backends | {' | '.join(COLUMNS)}", counts(named)),
        "Tasks that are not plainly identical": ("work status | Python | backends | tasks | why", reasons(named)),
        "Own classes": ("Python | suite | tasks | same bytes | rows | episodes ended by", own_classes(named)),
    }


def merged(rows: Iterable[tuple[Any, ...]], column: int) -> list[tuple[Any, ...]]:
    """Return one row for all that differ in this column alone, with its texts in order."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        found.setdefault(row[:column] + row[column + 1 :], []).append(row[column])
    return [(*key[:column], ", ".join(texts), *key[column:]) for key, texts in found.items()]


def counts(named: dict[str, Survey]) -> list[tuple[Any, ...]]:
    """Return how often each verdict was found: Pythons and backends with the same counts together."""
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for name, survey in named.items():
        for suite in SUITES.values():
            for env in suite.tasks:
                for backend, (verdict, _) in survey["verdicts"].get(env, {}).items():
                    found.setdefault((name, suite.title, backend), Counter())[verdict] += 1
    rows = [(*key, *(verdicts[column] or "" for column in COLUMNS)) for key, verdicts in found.items()]
    return merged(merged(rows, 2), 0)


def reasons(named: dict[str, Survey]) -> list[tuple[Any, ...]]:
    """Return the tasks whose rows are not plainly identical: those with the same verdict and reason together."""
    rows = []
    for name, survey in named.items():
        for env, by_backend in survey["verdicts"].items():
            for backend, (verdict, why) in by_backend.items():
                if verdict != "identical" or why:
                    rows.append((verdict, name, backend, short_name(env), why))
        found = survey["bytes"].items()
        rows += [("different", name, OWN_CLASS, env, each["difference"]) for env, each in found if each["difference"]]
    for column in (3, 2, 1):
        rows = merged(rows, column)
    return sorted(rows, key=lambda row: row[0])


def own_classes(named: dict[str, Survey]) -> Iterator[tuple[object, ...]]:
    """Yield how much of our own classes was compared, and how many episodes ended in which way."""
    for name, survey in named.items():
        for suite in SUITES.values():
            answers = [found for env, found in survey["bytes"].items() if SURVEYED[env].suite == suite.name]
            if answers:
                same = sum(not found["difference"] for found in answers)
                ends = sum((Counter(found["ends"]) for found in answers), Counter[str]())
                kinds = ATARI_ENDS if suite.name == "atari" else PHYSICS_ENDS
                ended = "; ".join(f"{kind} {' + '.join(f'{ends[each]:,}' for each in of)}" for kind, of in kinds)
                yield name, suite.title, len(answers), same, f"{sum(found['rows'] for found in answers):,}", ended


if __name__ == "__main__":
    sys.exit(main())
