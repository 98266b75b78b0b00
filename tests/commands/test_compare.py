"""``vebench compare``: the same cells in two interpreters, in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vebench.backends.interface import Task
from vebench.commands.compare import in_turn
from vebench.errors import UsageError
from vebench.interpreters.interpreter import examine, packages_here
from vebench.machine.placement import Placement
from vebench.plan.cells import Plan, expand
from vebench.plan.spec import BackendChoice, RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--rounds", "2", "--repeats", "2")
CART_POLE = Task("CartPole-v1", "classic", 1)


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vebench.cli", "compare", *arguments]
        environment = {**os.environ, "COLUMNS": "100"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return call


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_each_cell_is_first_in_one_interpreter_and_then_in_the_other() -> None:
    spec = RunSpec(("CartPole",), (1, 2), (BackendChoice("for-loop"),), repeats=4)
    placement = Placement((0, 1), 2)
    one, other = (expand(spec, (CART_POLE,), placement, None) for _ in "AB")
    sides = [
        Plan(plan.spec, tuple(cell.__class__(**{**vars(cell), "side": side}) for cell in plan.cells))
        for plan, side in ((one, "A"), (other, "B"))
    ]
    cells = in_turn(*sides, None).cells
    assert len(cells) == 2 * len(one.cells)
    pairs = list(zip(cells[::2], cells[1::2], strict=True))
    assert all((first.key, first.group) == (second.key, second.group) for first, second in pairs)
    assert len({first.group for first, _ in pairs}) == len(pairs)
    for repeat in range(4):
        order = {first.side + second.side for first, second in pairs if first.repeat == repeat}
        assert order == ({"AB"} if repeat % 2 == 0 else {"BA"})


def test_an_interpreter_beside_itself_gives_ratios_and_a_run_file_for_each_side(
    compare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    pythons = ("--a", sys.executable, "--b", sys.executable)
    done = compare(*pythons, "-e", "CartPole", "-b", "for-loop", "-w", "1,2", *BRIEF, "-f", "json", "-o", "pair.jsonl")
    assert done.returncode in (0, 1, 3), done.stderr
    answer = json.loads(done.stdout)
    assert [(cell["backend"], cell["workers"]) for cell in answer["cells"]] == [("for-loop", 1), ("for-loop", 2)]
    assert all(cell["ratio"]["low"] <= cell["ratio"]["median"] <= cell["ratio"]["high"] for cell in answer["cells"])
    for side in "ab":
        header, *cells = map(json.loads, (tmp_path / f"pair-{side}.jsonl").read_text().splitlines())
        assert header["cells"] == len(cells) == 4
        assert all(cell["status"] == "ok" for cell in cells)
        run = str(tmp_path / f"pair-{side}.jsonl")
        for command in (["run", "--resume", run], ["check", run]):
            ours = [sys.executable, "-m", "vebench.cli", *command]
            refused = subprocess.run(ours, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert refused.returncode == 3
            assert refused.stderr.endswith("by vebench compare: measure both sides again with it\n")


def test_what_is_no_python_is_refused_in_a_line(
    compare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = compare("--a", sys.executable, "--b", "no/such/python", "-e", "CartPole")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"vebench: --b no/such/python: {tmp_path}/no/such/python does not start: No such file or directory: "
        "name a Python, such as venv/bin/python\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--junit", "nowhere/check.xml"), "--junit nowhere/check.xml: name a file in a folder that exists"),
        (("--junit", "pair-a.jsonl"), "--junit pair-a.jsonl: is also the run file: name another file"),
        (("-o", "old.jsonl"), "old-b.jsonl exists and would be overwritten: name another file with -o"),
    ],
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    compare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, more: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "old-b.jsonl").touch()
    pythons = ("--a", sys.executable, "--b", sys.executable)
    done = compare(*pythons, "-e", "CartPole", "-b", "for-loop", "-w", "1", *BRIEF, "-o", "pair.jsonl", *more)
    assert (done.returncode, done.stderr) == (2, f"vebench: {reason}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["old-b.jsonl"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo hello", "--a .*/python: Python ended with status 0: it did not say why"),
        ("echo broken >&2; exit 3", "--a .*/python: Python ended with status 3: broken"),
        ("""echo '{"version": [3, 9, 1], "packages": {}, "modules": ["numpy"]}'""", "Python 3.9 is too old"),
        ("""echo '{"version": [3, 12, 1], "packages": {}, "modules": []}'""", "has no numpy"),
    ],
)
def test_an_interpreter_that_cannot_run_cells_is_refused_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        examine("--a", script(tmp_path / "python", text))


def test_an_interpreter_is_found_from_the_current_folder_as_a_shell_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    answer = '{"version": [3, 12, 1], "packages": {}, "modules": ["numpy"]}'
    script(tmp_path / "bin" / "other", f"echo '{answer}'")
    assert examine("--a", "bin/other").path == str(tmp_path / "bin" / "other")
    assert examine("--a", "bin/../bin/other").path == str(tmp_path / "bin" / ".." / "bin" / "other")
    assert examine("--a", "other").path == "other"


def test_an_interpreter_tells_its_version_its_packages_and_what_can_be_imported() -> None:
    found = examine("--a", sys.executable)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.packages == packages_here()
    assert "gymnasium" in found.packages
    assert found.has("gymnasium")
    assert not found.has("no_such_module")


def test_a_backend_that_an_interpreter_lacks_is_skipped_there(tmp_path: Path) -> None:
    answer = '{"version": [3, 12, 1], "packages": {}, "modules": ["numpy", "gymnasium"]}'
    bare = examine("--a", script(tmp_path / "python", f"echo '{answer}'"))
    spec = RunSpec(("CartPole",), (1,), (BackendChoice("for-loop"), BackendChoice("envpool-sync")))
    loop, pool = sorted(
        expand(spec, (CART_POLE,), Placement((0,), 1), None, bare.has).cells, key=lambda cell: cell.backend.name
    )[::-1]
    assert loop.skip is None
    assert pool.skip == "not installed: envpool (pip install envpool)"
