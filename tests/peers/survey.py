"""Surveys which tasks are the same work on which backends: ``python tests/peers/survey.py``, about an hour on 2 CPUs.

Each task is compared by ``vebench verify`` on every backend, and the answers are kept as they come, so that a survey
that was ended goes on where it was. Then ``vebench/plan/survey.json`` gets what was found with the packages installed
here, in place of what was known of the same packages, and ``docs/same-work.md`` its tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import ENTRIES, PACKAGES, REFERENCE
from vebench.interpreters.interpreter import packages_here
from vebench.plan.known_work import SAME
from vebench.plan.tasks import KNOWN, short_name

HERE = Path(__file__).resolve().parents[2]
SURVEY = HERE / "vebench" / "plan" / "survey.json"
PAGE = HERE / "docs" / "same-work.md"
# At the least. Where no episode ended, one environment is stepped for longer: most of Atari's games are over by then,
# and all of MuJoCo's, after 1,000 steps.
STEPS, ENVS, LONG_STEPS = 600, 2, 1500
BEGIN, END = "<!-- survey: begin -->\n", "<!-- survey: end -->\n"
COLUMNS = (*SAME, "different", "unverified")
# Those that a verdict is based on. vebench is not among them, since the survey comes with it.
DECIDING = {name for package in PACKAGES for name in package.deciding_names}


def main() -> int:
    """Compare what has not been compared yet, and write down everything that is known then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=Path, default=Path("survey-answers.jsonl"))
    names = [entry.name for entry in ENTRIES if not entry.reference_row and entry.name != REFERENCE]
    parser.add_argument("--backends", default=",".join(names))
    parser.add_argument("--part", default="0/1", help="of the tasks, such as 1/2 for the second half")
    parser.add_argument("--render", action="store_true", help="compare nothing more")
    asked = parser.parse_args()
    if not asked.render:
        part, parts = map(int, asked.part.split("/"))
        for task in KNOWN[part::parts]:
            settle(task.id, asked.backends.split(","), asked.answers)
    answers = read(asked.answers)
    write_survey(
        {
            env: {each["backend"]: (each["verdict"], each["summary"]) for each in found.values()}
            for env, found in answers.items()
        }
    )
    write_page()
    return 0


def settle(env: str, backends: list[str], path: Path) -> None:
    """Compare the backends that have no answer yet on one task, and add their answers to the file."""
    there = read(path).get(env, {})
    wanted = [name for name in backends if name not in there]
    answers = compare(env, wanted, STEPS, ENVS) if wanted else []
    endless = [each["backend"] for each in answers if each["verdict"] in SAME and not each["ends"]]
    longer = compare(env, endless, LONG_STEPS, 1) if endless else []
    answers = [each for each in answers if each["backend"] not in endless] + longer
    with path.open("a") as file:
        file.writelines(json.dumps(answer) + "\n" for answer in answers)
    if answers:
        print(env, {each["backend"]: each["verdict"] for each in answers}, flush=True)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the answers of a file, by task and backend, in the order of tasks and of the registry."""
    found: dict[str, dict[str, Any]] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for answer in map(json.loads, lines):
        found.setdefault(answer["env"], {})[answer["backend"]] = answer
    names = [entry.name for entry in ENTRIES]
    return {
        task.id: dict(sorted(found[task.id].items(), key=lambda item: names.index(item[0])))
        for task in KNOWN
        if task.id in found
    }


def compare(env: str, backends: list[str], steps: int, num_envs: int) -> list[dict[str, Any]]:
    """Return what ``vebench verify`` answers on one task."""
    command = [sys.executable, "-m", "vebench.cli", "verify", "-e", env, "-f", "json", "-b", ",".join(backends)]
    command += ["--steps", str(steps), "--num-envs", str(num_envs), "--timeout", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    answer: list[dict[str, Any]] = json.loads(done.stdout)
    return answer


def write_survey(verdicts: dict[str, dict[str, tuple[str, str]]]) -> None:
    """Put the verdicts into the file that comes with vebench, in place of those of the same packages."""
    packages = {name: version for name, version in packages_here().items() if name in DECIDING}
    others = [survey for survey in json.loads(SURVEY.read_text()) if survey["packages"] != packages]
    found = {"packages": packages, "steps": STEPS, "num_envs": ENVS, "verdicts": verdicts}
    surveys = sorted([*others, found], key=lambda survey: sorted(survey["packages"].items()))
    SURVEY.write_text(_laid_out(surveys))


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
    length = f"At least {survey['steps']:,} steps of {survey['num_envs']} environments"
    head = (
        f"### {packages}\n\n{length}; at least {LONG_STEPS:,} steps of one where no episode ended within those.\n\n"
        f"| suite | backend | {' | '.join(COLUMNS)} |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
    )
    rows = []
    for suite in SUITES.values():
        envs = {env: found for env, found in survey["verdicts"].items() if env in suite.tasks}
        for backend in dict.fromkeys(name for found in envs.values() for name in found):
            counts = Counter(found[backend][0] for found in envs.values() if backend in found)
            rows.append(f"| {suite.title} | {backend} | {' | '.join(str(counts[name] or '') for name in COLUMNS)} |")
    return head + "\n".join(rows) + "\n\n" + _reasons(survey)


def _reasons(survey: dict[str, Any]) -> str:
    """Return the tasks whose rows are not identical, those with the same verdict and reason together."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for env, found in survey["verdicts"].items():
        for backend, (verdict, reason) in found.items():
            if verdict != "identical" or reason:
                groups.setdefault((verdict, backend, reason), {})[short_name(env)] = None
    merged: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (verdict, backend, reason), envs in groups.items():
        merged.setdefault((verdict, reason, tuple(envs)), []).append(backend)
    head = "| verdict | backends | tasks | why |\n| --- | --- | --- | --- |\n"
    lines = (
        f"| {verdict} | {', '.join(backends)} | {', '.join(envs)} | {reason} |"
        for (verdict, reason, envs), backends in sorted(merged.items(), key=lambda item: (item[0][0], -len(item[0][2])))
    )
    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
