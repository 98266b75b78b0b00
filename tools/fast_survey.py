"""Shows that our own classes return Gymnasium's bytes: ``python tools/fast_survey.py``, 20 minutes on 2 CPUs.

Each task of ``backends/fast/classes.py`` is stepped beside Gymnasium's environments (``tests/support/same_bytes.py``),
in all the cases of ``tools/fast_cases.py``. What was found is written to ``docs/same-bytes.json``, in place of what was
known of the same packages, and counted in ``docs/same-work.md``. What has changed since then is printed. The exit
status is 1 if a byte differs.

Before new versions are added to ``backends/fast/classes.py``, this must have been run with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orphans import end_with_parent

from vebench.backends.environments.suites import short_name
from vebench.backends.fast.classes import class_of
from vebench.backends.packages import OPENCV
from vebench.interpreters.interpreter import packages_here
from vebench.plan.tasks import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vebench.backends.interface import Task

HERE = Path(__file__).resolve().parents[1]
FILED = HERE / "docs" / "same-bytes.json"
PAGE = HERE / "docs" / "same-work.md"
BEGIN, END = "<!-- own classes: begin -->\n", "<!-- own classes: end -->\n"
SUITES = {"atari": "Atari", "mujoco": "MuJoCo", "classic": "classic control"}
# How an episode ended, in words, and by what names ``Answer.ends`` counts it: of Atari in frames 1 to 4 of a step.
KINDS = {
    "atari": [
        (title, [f"{kind}, frame {frame}" for frame in (1, 2, 3, 4)])
        for kind, title in (("game over", "game over"), ("life", "life lost"), ("limit", "limit on frames"))
    ],
    "mujoco": [("termination", ["terminated"]), ("limit on steps", ["limit"]), ("both at once", ["both"])],
}
KINDS["classic"] = KINDS["mujoco"]


@dataclass(frozen=True)
class Answer:
    """What was found for one task: rows compared in each way, episodes that ended by kind, and the first difference."""

    rows: int = 0
    ends: Mapping[str, int] = field(default_factory=dict)
    how: tuple[str, ...] = ()
    difference: str = ""

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Answer:
        """Return the answer that was written as a line."""
        return cls(line["rows"], line["ends"], tuple(line["how"]), line.get("difference", ""))

    def line(self) -> dict[str, Any]:
        """Return what is written."""
        found = {"rows": self.rows, "ends": dict(sorted(self.ends.items())), "how": list(self.how)}
        return {**found, "difference": self.difference} if self.difference else found


def main() -> int:
    """Compare, print what changed, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of tasks, such as Pong,Hopper")
    parser.add_argument("--part", default="0/1", help="of the tasks, such as 1/2 for the second half")
    parser.add_argument("--steps", type=float, default=1.0, metavar="FACTOR", help="more or fewer steps in each case")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--missing", action="store_true", help="only tasks that are not on file for these packages")
    parser.add_argument("--render", action="store_true", help="compare nothing, write the page anew")
    asked = parser.parse_args()
    packages = deciding(packages_here())
    before = read(FILED).get(packages, {})
    found: dict[str, Answer] = {}
    if not asked.render:
        part, parts = map(int, asked.part.split("/"))
        tasks = [task for task in wanted(asked.only) if not (asked.missing and task.id in before)][part::parts]
        as_filed = asked.steps == 1.0
        for name, answer in answers(tasks, asked.steps, asked.processes):
            found[name] = answer
            if as_filed:
                put_on_file(packages, name, answer)
        print(*changes(before, found), sep="\n")
        if not as_filed:
            print(f"not filed: with --steps {asked.steps} this is another comparison than the one on file")
    write_page(read(FILED))
    return any(answer.difference for answer in found.values())


def wanted(only: str) -> list[Task]:
    """Return the tasks that there are classes of our own for, those of these names, or all."""
    tasks = [task for task in KNOWN if class_of(task.id) is not None]
    names = {name for name in only.split(",") if name}
    if unknown := names - {name for task in tasks for name in (task.id, short_name(task.id))}:
        raise SystemExit(f"--only {', '.join(sorted(unknown))}: there is no class of our own for it")
    return [task for task in tasks if not names or names & {task.id, short_name(task.id)}]


def answers(tasks: Sequence[Task], factor: float, processes: int) -> Iterator[tuple[str, Answer]]:
    """Yield the answer of each task, as they come, and print it."""
    started = time.monotonic()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=quiet) as pool:
        asked = {pool.submit(compare_one, task, factor): task for task in tasks}
        for count, answered in enumerate(as_completed(asked), 1):
            task, answer = asked[answered], answered.result()
            spent = f"{(time.monotonic() - started) / 60:.1f} min"
            what = answer.difference or f"same bytes in {answer.rows:,} rows"
            print(f"[{count}/{len(asked)}, {spent}] {task.id}: {what}", flush=True)
            yield task.id, answer


def quiet() -> None:
    """Keep the emulator's greeting of each process to itself, and let each step with one thread."""
    end_with_parent()
    sys.path.insert(0, str(HERE / "tests"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def compare_one(task: Task, factor: float) -> Answer:
    """Return what all cases of a task found together. A case that raises differs, and the others are still compared."""
    from fast_cases import cases_of
    from support.same_bytes import Found, compare

    found = Found()
    try:
        for case in cases_of(task, factor):
            try:
                found.add(compare(case))
            except Exception as error:  # noqa: BLE001 - whatever one side raises and the other does not
                found.add(Found(difference=f"{case.name}: {type(error).__name__}: {error}"))
    except Exception as error:  # noqa: BLE001 - the same of what makes the cases
        found.add(Found(difference=f"{type(error).__name__}: {error}"))
    return Answer(found.rows, dict(found.ends), tuple(found.how), found.difference)


def changes(before: Mapping[str, Answer], found: Mapping[str, Answer]) -> Iterable[str]:
    """Yield in words what is not as it was on file for the same packages."""
    for name, answer in found.items():
        old = before.get(name)
        if old is None:
            yield f"new: {name}: {answer.difference or 'same bytes'}"
        elif old.difference != answer.difference:
            yield f"changed: {name}: {answer.difference or 'same bytes'}, was: {old.difference or 'same bytes'}"
        elif old != answer:
            counts = [f"{answer.rows - old.rows:+,} rows"] if answer.rows != old.rows else []
            kinds = sorted({*old.ends, *answer.ends})
            counts += [
                f"{more:+} {kind}" for kind in kinds if (more := answer.ends.get(kind, 0) - old.ends.get(kind, 0))
            ]
            counts += [f"steps by {'; '.join(answer.how)}"] if answer.how != old.how else []
            yield f"changed: {name}: {', '.join(counts)}"
    same = sum(before.get(name) == answer for name, answer in found.items())
    yield f"as on file: {same} of {len(found)} tasks"


Packages = tuple[tuple[str, str], ...]


def deciding(installed: Mapping[str, str]) -> Packages:
    """Return the packages that make the bytes, with their versions, and Python's before them."""
    names = {
        name
        for task in KNOWN
        if (ours := class_of(task.id)) is not None
        for package in (*ours.packages, OPENCV)
        for name in package.deciding_names
    }
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (("Python", python), *sorted((name, version) for name, version in installed.items() if name in names))


def read(path: Path) -> dict[Packages, dict[str, Answer]]:
    """Return what is on file, by packages and task."""
    surveys = json.loads(path.read_text()) if path.exists() else []
    return {
        tuple(survey["packages"].items()): {name: Answer.read(line) for name, line in survey["tasks"].items()}
        for survey in surveys
    }


def put_on_file(packages: Packages, name: str, answer: Answer) -> None:
    """Write one answer at once: a survey that is ended goes on with ``--missing``, and others may be under way."""
    filed = read(FILED)
    filed.setdefault(packages, {})[name] = answer
    write(FILED, filed)


def write(path: Path, filed: Mapping[Packages, Mapping[str, Answer]]) -> None:
    """Write it with a line for each task, so that a change in one is a change of one line."""
    order = [task.id for task in KNOWN]
    surveys = []
    for packages, tasks in sorted(filed.items()):
        lines = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(tasks[name].line())}" for name in sorted(tasks, key=order.index)
        )
        surveys.append(json.dumps({"packages": dict(packages)})[:-1] + ', "tasks": {\n' + lines + "\n}}")
    path.write_text("[" + ",\n".join(surveys) + "]\n")


def write_page(filed: Mapping[Packages, Mapping[str, Answer]]) -> None:
    """Put the counts into the page, between its marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = "\n".join(section(packages, tasks) for packages, tasks in sorted(filed.items()))
    PAGE.write_text(f"{before}{BEGIN}\n{sections}\n{END}{after}")


def section(packages: Packages, tasks: Mapping[str, Answer]) -> str:
    """Return as Markdown how much was compared with these packages, and how many episodes ended in which way."""
    (python, version), *others = packages
    lines = [
        f"### vebench's own classes with {python} {version}\n",
        f"{', '.join(f'{name} {version}' for name, version in others)}:\n",
        "| suite | tasks | same bytes | different | rows compared | episodes ended by | stepped by (tasks) |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for suite, title in SUITES.items():
        answers = {task.id: tasks[task.id] for task in KNOWN if task.suite == suite and task.id in tasks}
        if not answers:
            continue
        ends: Counter[str] = Counter()
        how: Counter[str] = Counter()
        for answer in answers.values():
            ends.update(answer.ends)
            how.update(answer.how)
        ended = "; ".join(f"{kind} {' + '.join(f'{ends[name]:,}' for name in names)}" for kind, names in KINDS[suite])
        stepped = "; ".join(f"{way} ({count})" for way, count in how.most_common())
        different = sum(bool(answer.difference) for answer in answers.values())
        rows = sum(answer.rows for answer in answers.values())
        counts = f"{len(answers)} | {len(answers) - different} | {different or ''} | {rows:,}"
        lines.append(f"| {title} | {counts} | {ended} | {stepped} |")
    differences = [f"- {name}: {answer.difference}" for name, answer in tasks.items() if answer.difference]
    return "\n".join([*lines, "", *differences, *([""] if differences else [])])


if __name__ == "__main__":
    sys.exit(main())
