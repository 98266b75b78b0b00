"""Surveys which tasks are the same work on which backends: ``python tools/survey.py``, 40 minutes on 2 CPUs.

Each backend is compared on every task as ``vebench verify`` compares it, by the same code, but all of a task in one
interpreter. The answers are kept as they come, so that a survey that was ended
goes on where it was. Then ``vebench/plan/survey.json`` gets what was found with the
packages installed here, in place of what was known of the same packages and backends, and ``docs/same-work.md`` its
tables. For another Python's packages: install vebench there, not as an editable package, and run this with that Python.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import TYPE_CHECKING, Any

from orphans import end_with_parent

from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import Setup, Task
from vebench.backends.registry import ENTRIES, PACKAGES, REFERENCE
from vebench.child import trials
from vebench.child.answers import Proof, describe
from vebench.child.main import load
from vebench.child.proof import replay
from vebench.child.request import Judging, Proving, Request, Settings
from vebench.child.stepping import step_trials
from vebench.interpreters.interpreter import packages_here
from vebench.machine import pinning
from vebench.plan.grammar import parse_backends
from vebench.plan.known_work import SAME
from vebench.plan.tasks import KNOWN, TASKS
from vebench.reports.pages.verify import why_not_identical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.plan.spec import BackendChoice

HERE = Path(__file__).resolve().parents[1]
SURVEY = HERE / "vebench" / "plan" / "survey.json"
PAGE = HERE / "docs" / "same-work.md"
# At the least. Where no episode ended, one environment is stepped for longer: most of Atari's games are over by then,
# and all of MuJoCo's, after 1,000 steps.
STEPS, ENVS, LONG_STEPS = 600, 2, 1500
# Our own classes step those environments together that one process has, so that there are to be some.
TOGETHER = 4
BEGIN, END = "<!-- survey: begin -->\n", "<!-- survey: end -->\n"
COLUMNS = (*SAME, "different", "unverified")
LABELS = tuple(
    entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row and entry.name != REFERENCE
)
# Those that a verdict is based on. vebench is not among them, since the survey comes with it.
DECIDING = {name for package in PACKAGES for name in package.deciding_names}
UNMEASURED = Settings(duration=0, rounds=0, warmup=0, longest_warmup=0, timeout=0, memory="none")


def main() -> int:
    """Compare what has not been compared yet, and write down everything that is known then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=Path, default=Path("survey-answers.jsonl"))
    parser.add_argument("--backends", default=",".join(LABELS))
    parser.add_argument("--only", default="", help="names of tasks, such as Pong,Hopper")
    parser.add_argument("--part", default="0/1", help="of the tasks, such as 1/2 for the second half")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--render", action="store_true", help="compare nothing more")
    asked = parser.parse_args()
    if not asked.render:
        part, parts = map(int, asked.part.split("/"))
        tasks = [TASKS[name] for name in asked.only.split(",")] if asked.only else KNOWN
        backends = parse_backends([asked.backends])
        compare_all(tasks[part::parts], backends, asked.answers, asked.processes)
    answers = read(asked.answers)
    verdicts = {
        env: {each["backend"]: (each["verdict"], each["summary"]) for each in found.values()}
        for env, found in answers.items()
    }
    for line in write_survey(verdicts):
        print(line)
    write_page()
    return 0


def compare_all(tasks: Sequence[Task], backends: Sequence[BackendChoice], path: Path, processes: int) -> None:
    """Compare the backends that have no answer yet, and add their answers to the file as they come."""
    there = read(path)
    work = []
    for task in tasks:
        missing = [each for each in backends if steps(each, task) and each.label not in there.get(task.id, {})]
        # Those with threads come last: they are not to be there when others fork.
        missing.sort(key=lambda each: each.entry.steps_gymnasium, reverse=True)
        if missing:
            work.append((task, missing))
    # A new process for each task, likewise.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_quiet, max_tasks_per_child=1) as pool:
        asked = [pool.submit(compare, *each) for each in work]
        for count, answered in enumerate(as_completed(asked), 1):
            for answer in answered.result():
                with path.open("a") as file:
                    file.write(json.dumps(answer) + "\n")
                words = f"{answer['verdict']} {answer['summary']}".strip()
                print(f"[{count}/{len(asked)}] {answer['env']} {answer['backend']}: {words}", flush=True)


def steps(backend: BackendChoice, task: Task) -> bool:
    """Return whether a backend has a task, and a class of its own for it that can do without its compiled part."""
    entry, ours = backend.entry, class_of(task.id)
    if ours is not None and ours.needs_library and not backend.options.get("compiled", True):
        return False
    return task.suite in (entry.suites or SUITES) and entry.name_of(task) is not None


def _quiet() -> None:
    """Leave out what libraries print, and end with the survey."""
    end_with_parent()
    trials.LEAST_S = 0.0  # there are hundreds of comparisons
    # A process that has loaded adapters is not forked.
    replay._in_parallel = map  # noqa: SLF001
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)


def compare(task: Task, backends: Sequence[BackendChoice]) -> list[dict[str, Any]]:
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
    asked, found = {}, {}
    cpus = tuple(sorted(pinning.allowed() or (0,)))[:ENVS]
    for backend in backends:
        entry = backend.entry
        if (problem := entry.why_not(task)) is not None:
            found[backend.label] = Proof("unverified", reason=problem, failed=True)
            continue
        if (chance := entry.chance(replace(task, exact=True))) is not None:
            found[backend.label] = Proof("unverified", reason=chance)
            continue
        setup = Setup(
            replace(task, exact=True),
            num_envs or (TOGETHER if backend.name == "fast-sync" else ENVS),
            cpus=cpus,
        )
        target, options, folder = entry.target, backend.options, str(Path.cwd())
        asked[backend.label] = Request(setup, backend.name, target, options, UNMEASURED, folder)
    for label, request in asked.items():
        given = _proof(request, steps)
        if given.failed:
            found[label] = given
        elif (own := given.own_classes) is not None and own.refused:
            # What stepped is not what the answer would be known as.
            found[label] = Proof("unverified", reason=own.words, failed=True)
        else:
            found[label] = given
    return {backend.label: found[backend.label] for backend in backends}


def _proof(request: Request, steps: int) -> Proof:
    """Step a backend and compare what it returns, both in this process."""
    failed = ""
    with TemporaryDirectory() as folder:
        proving = Proving(steps, path=str(Path(folder, "rows")))
        try:
            step_trials(request, proving, load(request.target), lambda _: None)
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
            failed = describe(error)
        return replay.prove(request, Judging(steps, path=proving.path, failed=failed))


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the answers of a file, by task and backend, in the order of tasks and of the registry."""
    found: dict[str, dict[str, Any]] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for answer in map(json.loads, lines):
        found.setdefault(answer["env"], {})[answer["backend"]] = answer
    return {
        task.id: dict(sorted(found[task.id].items(), key=lambda item: LABELS.index(item[0])))
        for task in KNOWN
        if task.id in found
    }


def write_survey(verdicts: dict[str, dict[str, tuple[str, str]]]) -> list[str]:
    """Put the verdicts into the file that comes with vebench, beside and in place of those of the same packages.

    Returns what has changed, in words.
    """
    packages = {name: version for name, version in packages_here().items() if name in DECIDING}
    surveys = json.loads(SURVEY.read_text())
    others = [survey for survey in surveys if survey["packages"] != packages]
    before = next((survey["verdicts"] for survey in surveys if survey["packages"] == packages), {})
    changed = [
        f"changed: {env} {backend}: {found}, was {old or 'unknown'}"
        for env, by_backend in verdicts.items()
        for backend, found in by_backend.items()
        if (old := before.get(env, {}).get(backend)) != list(found)
    ]
    merged = {
        task.id: dict(sorted(found.items(), key=lambda item: LABELS.index(item[0])))
        for task in KNOWN
        if (found := {**before.get(task.id, {}), **verdicts.get(task.id, {})})
    }
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"python": python, "packages": packages, "steps": STEPS, "num_envs": ENVS, "verdicts": merged}
    surveys = sorted([*others, found], key=lambda survey: sorted(survey["packages"].items()))
    SURVEY.write_text(_laid_out(surveys))
    return changed


def _laid_out(surveys: list[dict[str, Any]]) -> str:
    """Return JSON with a line for each task, so that a change in one is a change of one line."""
    parts = []
    for survey in surveys:
        head = {key: value for key, value in survey.items() if key != "verdicts"}
        lines = ",\n".join(f"  {json.dumps(env)}: {json.dumps(found)}" for env, found in survey["verdicts"].items())
        parts.append(json.dumps(head)[:-1] + ', "verdicts": {\n' + lines + "\n}}")
    return "[" + ",\n".join(parts) + "]\n"


def write_page() -> None:
    """Put the surveys' tables into the page, between its marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = "\n".join(map(section, json.loads(SURVEY.read_text())))
    PAGE.write_text(f"{before}{BEGIN}\n{sections}\n{END}{after}")


def section(survey: dict[str, Any]) -> str:
    """Return one survey as Markdown: how often each verdict was found, and every task that is not plainly the same."""
    packages = ", ".join(f"{name} {version}" for name, version in sorted(survey["packages"].items()))
    length = (
        f"At least {survey['steps']:,} steps of {survey['num_envs']} environments; "
        f"where no episode ended, {LONG_STEPS:,} of one."
    )
    said = fill(f"{packages}. {length}", 100, break_on_hyphens=False)
    head = (
        f"### The survey with Python {survey['python']}\n\n{said}\n\n"
        f"| suite | backends | {' | '.join(COLUMNS)} |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
    )
    rows: dict[tuple[str, ...], list[str]] = {}
    for suite in SUITES.values():
        envs = {env: found for env, found in survey["verdicts"].items() if env in suite.tasks}
        for backend in dict.fromkeys(name for found in envs.values() for name in found):
            counts = Counter(found[backend][0] for found in envs.values() if backend in found)
            rows.setdefault((suite.title, *(str(counts[name] or "") for name in COLUMNS)), []).append(backend)
    lines = (f"| {title} | {', '.join(names)} | {' | '.join(counts)} |" for (title, *counts), names in rows.items())
    return head + "\n".join(lines) + "\n\n" + _reasons(survey)


def _reasons(survey: dict[str, Any]) -> str:
    """Return the tasks whose rows are not identical, those with the same verdict and reason together."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for env, found in survey["verdicts"].items():
        for backend, (verdict, why) in found.items():
            if verdict != "identical" or why:
                groups.setdefault((verdict, backend, why), {})[short_name(env)] = None
    merged: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (verdict, backend, why), envs in groups.items():
        merged.setdefault((verdict, why, tuple(envs)), []).append(backend)
    head = "| verdict | backends | tasks | why |\n| --- | --- | --- | --- |\n"
    lines = (
        f"| {verdict} | {', '.join(backends)} | {', '.join(envs)} | {why} |"
        for (verdict, why, envs), backends in sorted(merged.items(), key=lambda item: (item[0][0], -len(item[0][2])))
    )
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
