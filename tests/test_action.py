"""``action.yml``: its steps, run as a runner runs them, on a repository of two commits. What installs is a fake."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
MARK = "<!-- vebench compare -->"
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
[ -n "$NO_REPORT" ] || echo slower > report.md
exit "$STATUS"
END
chmod +x gate/bin/vebench
"""
GH = r"""#!/bin/sh
echo "gh $*" >> "$LOG"
case $* in *--paginate*) printf "$WRITTEN" ;; *) exit "$REFUSED" ;; esac
"""
Ran = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Ran:
    """Return what runs a step of the action in a repository, and its status and what was called."""
    repository, programs, log = tmp_path / "repository", tmp_path / "programs", tmp_path / "log"
    for folder in (repository, programs, tmp_path / "temp"):
        folder.mkdir()
    for name, text in (("uv", UV), ("gh", GH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    git = ["git", "-c", "user.name=ci", "-c", "user.email=ci"]

    def commit(release: str) -> None:
        (repository / "release").write_text(f"{release}\n")
        subprocess.run([*git, "add", "."], cwd=repository, check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", release], cwd=repository, check=True)

    subprocess.run([*git, "init", "--quiet"], cwd=repository, check=True)
    commit("before")

    def step(name: str, given: Mapping[str, str] = {}, release: str = "after", **inputs: str) -> tuple[int, str]:
        commit(release)
        values = {key: spec.get("default", "") for key, spec in ACTION["inputs"].items()} | inputs
        folder = tmp_path / "temp" / "throughput"
        known = {f"inputs.{key}": value for key, value in values.items()}
        known |= {"steps.compare.outputs.folder": str(folder), "github.event.number": "7"}
        variables = {
            key: re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known[found[1]], text)
            for key, text in STEPS[name].get("env", {}).items()
        }
        runner = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_REPOSITORY": "some/project",
            "RUNNER_TEMP": str(tmp_path / "temp"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(repository),
            "LOG": str(log),
        }
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
        done = subprocess.run(shell, cwd=repository, env=os.environ | runner | variables | given, check=False)
        trees = subprocess.check_output([*git, "worktree", "list"], cwd=repository, text=True)
        assert len(trees.splitlines()) == 1, "no work tree is left"
        return done.returncode, log.read_text() if log.exists() else ""

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


def test_both_commits_are_installed_apart_and_compared_where_no_module_of_theirs_is(run: Ran) -> None:
    status, log = run(
        "Compare", {"STATUS": "0"}, envs="CartPole,m:E[a='b c']", backends="gym-sync", packages="numpy==2 x"
    )
    assert status == 0
    assert "./base-source is before" in log
    assert "./head-source is after" in log
    assert log.count("numpy==2 x") == 2
    given = "--env CartPole,m:E[a='b c'] --workers 2 --tolerance 10% --budget 10m --backend gym-sync --output report.md"
    compared, *there, path = log[log.index("vebench compare") :].splitlines()
    assert re.fullmatch(rf"vebench compare \S+/base/bin/python \S+/head/bin/python {re.escape(given)}", compared)
    assert (there, path) == ([], "PYTHONPATH=")


def test_a_commit_that_does_not_install_is_not_called_slower(run: Ran) -> None:
    status, log = run("Compare", {"STATUS": "0"}, release="broken", envs="CartPole")
    assert (status, "vebench compare" in log) == (2, False)


def test_text_of_inputs_is_not_run(run: Ran, tmp_path: Path) -> None:
    hostile = f"$(touch {tmp_path}/taken)`touch {tmp_path}/taken`; touch {tmp_path}/taken"
    assert run("Compare", {"STATUS": "0"}, **dict.fromkeys(ACTION["inputs"], hostile))[0] == 0
    assert not (tmp_path / "taken").exists()


@pytest.mark.parametrize(
    ("written", "refused", "asked"),
    [
        ("", "0", "--method POST repos/some/project/issues/7/comments"),
        ("12\n34\n", "0", "--method PATCH repos/some/project/issues/comments/12"),
        ("", "1", "--method POST repos/some/project/issues/7/comments"),
    ],
    ids=["first", "again", "a fork without the right"],
)
def test_the_report_is_one_comment(run: Ran, tmp_path: Path, written: str, refused: str, asked: str) -> None:
    (folder := tmp_path / "temp" / "throughput").mkdir(parents=True)
    (folder / "report.md").write_text("slower")
    status, log = run("Comment", {"WRITTEN": written, "REFUSED": refused})
    assert (status, asked in log) == (0, True)
    assert (folder / "comment.md").read_text() == f"{MARK}\nslower"


def test_nothing_is_said_where_nothing_was_compared(run: Ran) -> None:
    assert run("Comment") == (0, "")


def test_the_workflow_of_the_readme_has_inputs_that_there_are() -> None:
    example = (ROOT / "docs" / "examples" / "github.yml").read_text().splitlines()[1:]
    lines = [line.partition("  #")[0] for line in example]
    assert "\n".join(lines) in (ROOT / "README.md").read_text()
    (job,) = yaml.safe_load("\n".join(lines))["jobs"].values()
    given = set(job["steps"][-1]["with"])
    needed = {name for name, spec in ACTION["inputs"].items() if spec.get("required")}
    assert needed <= given <= set(ACTION["inputs"])


def test_each_input_is_described_and_reaches_a_shell_as_a_variable_alone() -> None:
    text = (ROOT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.(\w+)", text)) == set(ACTION["inputs"])
    for step in STEPS.values():
        assert (step["shell"], "${{" in step["run"]) == ("bash", False)
