"""``action.yml``: its steps, run as a runner runs them, on a repository of two commits. What installs is a fake."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree, which
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
# Makes no environment: what goes into one is noted, and a vebench that answers is put there.
UV = r"""#!/bin/sh
echo "uv $*" >> "$LOG"
[ "$1" = venv ] && for last; do :; done && mkdir -p "$last/bin" && exit
for word; do
  case $word in ./*-source)
    read -r release < "$word/release"
    echo "$word is $release" >> "$LOG"
    [ "$release" != broken ] || exit 1
  esac
done
cat > gate/bin/vebench <<'END'
#!/bin/sh
echo "vebench $*" >> "$LOG"
ls -A >> "$LOG"
echo "PYTHONPATH=$PYTHONPATH" >> "$LOG"
[ "$1" != history ] || { cp "$4" "$2"; echo steady; exit 3; }
[ -n "$NO_REPORT" ] || { echo "| for-loop | 2 | ${VERDICT:-slower} | - |"; echo run > run-b.jsonl; }
[ -z "$HANGS" ] || { trap 'echo ended >> "$LOG"; exit 130' TERM; echo $PPID > "$HANGS"; sleep 60 & wait $!; }
exit "$STATUS"
END
chmod +x gate/bin/vebench
"""
GH = r"""#!/bin/sh
echo "gh $*" >> "$LOG"
case $* in
  *--paginate*) while [ "$1" != --jq ]; do shift; done; printf %s "$WRITTEN" | jq -r "$2" ;;
  *) [ "$REFUSED" = 0 ] || { echo "HTTP $REFUSED" >&2; exit 1; }
esac
"""
Ran = Callable[..., tuple[int, str]]
GIT = ("git", "-c", "user.name=ci", "-c", "user.email=ci")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Return a repository whose last commit has the release ``after``, the one before ``middle``, the first ``before``.

    The branch ``stable`` is at the first.
    """
    repository = tmp_path / "origin"
    subprocess.run([*GIT, "init", "--quiet", "--initial-branch", "main", repository], check=True)
    for release in ("before", "middle", "after"):
        commit(repository, release)
        if release == "before":
            subprocess.run([*GIT, "branch", "stable"], cwd=repository, check=True)
    return repository


def commit(repository: Path, release: str) -> None:
    (repository / "release").write_text(f"{release}\n")
    subprocess.run([*GIT, "add", "."], cwd=repository, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--message", release], cwd=repository, check=True)


def of(repository: Path, name: str) -> str:
    return subprocess.check_output([*GIT, "rev-parse", name], cwd=repository, text=True).strip()


@pytest.fixture
def run(tmp_path: Path, origin: Path) -> Ran:
    """Return a function that runs a step in a shallow clone. It returns the exit status and the log of calls."""
    repository, programs, log = tmp_path / "repository", tmp_path / "programs", tmp_path / "log"
    for folder in (programs, tmp_path / "temp"):
        folder.mkdir()
    for name, text in (("uv", UV), ("gh", GH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def step(name: str, given: Mapping[str, str] = {}, *, pushed: str = "", **inputs: str) -> tuple[int, str]:
        rmtree(repository, ignore_errors=True)
        subprocess.run([*GIT, "clone", "--quiet", "--depth", "1", f"file://{origin}", repository], check=True)
        values = {key: spec.get("default", "") for key, spec in ACTION["inputs"].items()} | inputs
        known = {f"inputs.{key}": value for key, value in values.items()}
        known |= {"steps.compare.outputs.folder": str(tmp_path / "temp" / "throughput-12"), "github.event.number": "7"}
        known["github.event_name == 'push' && github.event.before || ''"] = pushed
        on_default = "github.event_name == 'push' && github.ref_name == github.event.repository.default_branch"
        known[f"{on_default} && inputs.history || ''"] = values["history"]
        variables = {
            key: re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], text)
            for key, text in STEPS[name].get("env", {}).items()
        }
        runner = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_JOB": "throughput",
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_REPOSITORY": "some/project",
            "GITHUB_SHA": of(repository, "HEAD"),
            "RUNNER_TEMP": str(tmp_path / "temp"),
            "TMPDIR": str(tmp_path / "temp"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(repository),
            "LOG": str(log),
        }
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        process = subprocess.Popen(shell, cwd=repository, env=os.environ | runner | variables | given)
        if hangs := given.get("HANGS"):
            while not (Path(hangs).exists() and (script := Path(hangs).read_text())):
                assert process.poll() is None
                time.sleep(0.01)
            os.kill(int(script), signal.SIGTERM)
        status = process.wait()
        trees = subprocess.check_output([*GIT, "worktree", "list"], cwd=repository, text=True)
        assert len(trees.splitlines()) == 1, "no work tree is left"
        assert [*(tmp_path / "temp").glob("tmp.*")] == []
        return status, log.read_text() if log.exists() else ""

    return step


@pytest.mark.parametrize(
    ("inconclusive", "status", "ends"),
    [("pass", 0, 0), ("pass", 1, 1), ("pass", 2, 2), ("pass", 3, 0), ("fail", 3, 3)],
)
def test_a_slower_commit_fails_and_an_undecided_one_as_asked(
    run: Ran, inconclusive: str, status: int, ends: int
) -> None:
    found, _ = run("Compare", {"STATUS": str(status)}, envs="CartPole", inconclusive=inconclusive)
    assert found == ends


def test_where_nothing_could_be_compared_the_action_fails(run: Ran) -> None:
    assert run("Compare", {"STATUS": "3", "NO_REPORT": "1"}, envs="CartPole")[0] == 3


@pytest.mark.parametrize(
    ("verdict", "ends"), [("inconclusive", 0), ("missing", 3), ("not comparable", 3), ("a missing word", 0)]
)
def test_only_a_run_that_could_not_decide_passes_by_default(run: Ran, verdict: str, ends: int) -> None:
    assert run("Compare", {"STATUS": "3", "VERDICT": f" {verdict}"}, envs="CartPole")[0] == ends


@pytest.mark.parametrize(
    ("base", "pushed", "release"),
    [
        ("", "", "middle"),
        ("", 40 * "0", "middle"),  # the push of a new branch
        ("", "stable", "before"),
        ("stable", "", "before"),
    ],
)
def test_the_base_is_the_parent_the_commit_before_a_push_or_as_asked(
    run: Ran, origin: Path, base: str, pushed: str, release: str
) -> None:
    pushed = of(origin, pushed) if pushed == "stable" else pushed
    status, log = run("Compare", {"STATUS": "0"}, envs="CartPole", base=base, pushed=pushed)
    assert (status, f"./base-source is {release}" in log, "./head-source is after" in log) == (0, True, True)


def test_a_base_that_is_none_is_no_verdict(run: Ran) -> None:
    assert run("Compare", {"STATUS": "0"}, envs="CartPole", base="nowhere")[0] not in {0, 1}


def test_both_commits_are_installed_apart_and_compared_where_no_module_of_theirs_is(run: Ran) -> None:
    status, log = run(
        "Compare", {"STATUS": "0"}, envs="CartPole,m:E[a='b c']", backends="gym-sync", packages="numpy==2 x"
    )
    assert status == 0
    assert "./base-source is middle" in log
    assert "./head-source is after" in log
    assert log.count("numpy==2 x") == 2
    given = "--env CartPole,m:E[a='b c'] --workers 2 --tolerance 10% --metric rate --budget 10m --backend gym-sync"
    compared, *there, path = log[log.index("vebench compare") :].splitlines()
    to = "--output run.jsonl --format markdown"
    assert re.fullmatch(rf"vebench compare \S+/base/bin/python \S+/head/bin/python {re.escape(given)} {to}", compared)
    assert (there, path) == (["report.md"], "PYTHONPATH=")


def test_a_commit_that_does_not_install_is_not_called_slower(run: Ran, origin: Path) -> None:
    commit(origin, "broken")
    status, log = run("Compare", {"STATUS": "0"}, envs="CartPole")
    assert (status, "vebench compare" in log) == (2, False)


def test_text_of_inputs_is_not_run(run: Ran, tmp_path: Path) -> None:
    hostile = f"$(touch {tmp_path}/taken)`touch {tmp_path}/taken`; touch {tmp_path}/taken"
    run("Compare", {"STATUS": "0"}, pushed="0", **dict.fromkeys(ACTION["inputs"], hostile))
    assert not (tmp_path / "taken").exists()


def test_a_push_adds_its_run_to_a_branch_which_is_made_once(run: Ran, origin: Path) -> None:
    for count in (1, 2):
        status, _ = run("Compare", {"STATUS": "1"}, envs="CartPole", history="runs", pushed=of(origin, "main~1"))
        assert status == 1
        files = subprocess.check_output([*GIT, "ls-tree", "--name-only", "runs"], cwd=origin, text=True).split()
        assert len(files) == count
        time.sleep(1)  # the names have the time


def test_a_signal_to_the_script_ends_what_measures_and_leaves_nothing(run: Ran, tmp_path: Path) -> None:
    status, log = run("Compare", {"STATUS": "0", "HANGS": str(tmp_path / "hangs")}, envs="CartPole")
    assert (status, log.endswith("ended\n")) == (143, True)


@pytest.mark.skipif(not which("jq"), reason="gh evaluates what jq does")
@pytest.mark.parametrize(
    ("written", "refused", "asked"),
    [
        ([], 0, "--method POST repos/some/project/issues/7/comments"),
        ([(12, "Bot", 0), (34, "Bot", 0)], 0, "--method PATCH repos/some/project/issues/comments/12"),
        ([(5, "User", 0), (6, "Bot", 3)], 0, "--method POST repos/some/project/issues/7/comments"),
        ([], 403, "--method POST repos/some/project/issues/7/comments"),
    ],
    ids=["first", "again", "a person's, and another use's", "a fork without the right"],
)
def test_the_report_is_one_comment_of_each_use(
    run: Ran,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    written: list[tuple[int, str, int]],
    refused: int,
    asked: str,
) -> None:
    (folder := tmp_path / "temp" / "throughput-12").mkdir(parents=True)
    (folder / "report.md").write_text("slower\n")
    there = [
        {"id": number, "user": {"type": kind}, "body": f"<!-- vebench compare 12{other or ''} -->\nsame"}
        for number, kind, other in written
    ]
    status, log = run("Comment", {"WRITTEN": json.dumps(there), "REFUSED": str(refused)})
    assert (status, asked in log) == (0, True)
    assert (folder / "comment.md").read_text() == "<!-- vebench compare 12 -->\nslower\n"
    assert (f"summary: HTTP {refused}" in capfd.readouterr().out) == bool(refused)


def test_nothing_is_said_where_nothing_was_compared(run: Ran) -> None:
    assert run("Comment") == (0, "")


@pytest.mark.parametrize("page", ["README.md", "docs/guides/ci.md"])
def test_the_workflow_of_a_page_has_inputs_that_exist(page: str) -> None:
    example = (ROOT / "docs" / "examples" / "github.yml").read_text().splitlines()[1:]
    lines = [line.partition("  #")[0] for line in example]
    assert "\n".join(lines) in re.sub(r"  #.*", "", (ROOT / page).read_text())
    (job,) = yaml.safe_load("\n".join(lines))["jobs"].values()
    given = set(job["steps"][-1]["with"])
    needed = {name for name, spec in ACTION["inputs"].items() if spec.get("required")}
    assert needed <= given <= set(ACTION["inputs"])


def test_each_input_is_described_and_reaches_a_shell_as_a_variable_alone() -> None:
    text, guide = (ROOT / "action.yml").read_text(), (ROOT / "docs" / "guides" / "ci.md").read_text()
    rows = guide.partition("## Inputs")[2].partition("\n## ")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", rows, re.MULTILINE))
    defaults = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()}
    assert set(re.findall(r"inputs\.(\w+)", text)) == set(table) == set(defaults)
    assert {name: f"`{defaults[name]}`" for name in table if "`" in table[name]}.items() <= table.items()
    for step in STEPS.values():
        assert (step["shell"], "${{" in step["run"]) == ("bash", False)
