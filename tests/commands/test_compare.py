"""``vebench compare``: the same cells in two interpreters, in turn."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.fakes import FakeStart, fake_world, steady
from support.places import NO_OLDEST_PYTHON, OLDEST_PYTHON

from vebench.backends.interface import Task
from vebench.commands.compare import in_turn
from vebench.errors import UsageError, shown
from vebench.interpreters.interpreter import examine, packages_here
from vebench.machine.placement import Placement
from vebench.plan.cells import Plan, expand
from vebench.plan.spec import BackendChoice, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

    from vebench.child.answers import Answer
    from vebench.plan.cells import Cell

HERE_TWICE = ("--a", sys.executable, "--b", sys.executable)
BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--rounds", "2", "--repeats", "2")
CART_POLE = Task("CartPole-v1", "classic", 1)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_each_cell_is_first_in_one_interpreter_and_then_in_the_other() -> None:
    spec = RunSpec(("CartPole",), (1, 2), (BackendChoice("for-loop"),), repeats=4)
    placement = Placement((0, 1), 2)
    one, other = (expand(spec, (CART_POLE,), placement, None) for _ in "AB")
    sides = [
        Plan(plan.spec, tuple(replace(cell, side=side) for cell in plan.cells))
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


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_interpreter_beside_itself_gives_ratios_and_a_run_file_for_each_side(
    vebench: Command, tmp_path: Path
) -> None:
    plan = ("-e", "CartPole", "-b", "for-loop", "-w", "2", *BRIEF)
    done = vebench("compare", *HERE_TWICE, *plan, "-f", "json", "-o", "pair.jsonl")
    assert done.status in (0, 1, 3), done.err
    (cell,) = json.loads(done.out)["cells"]
    assert (cell["backend"], cell["workers"]) == ("for-loop", 2)
    assert cell["ratio"]["low"] <= cell["ratio"]["median"] <= cell["ratio"]["high"]
    for side in "ab":
        header, *cells = lines(tmp_path / f"pair-{side}.jsonl")
        assert header["cells"] == len(cells) == 2
        assert all(cell["status"] == "ok" for cell in cells)


@pytest.mark.skipif(not OLDEST_PYTHON.exists(), reason=NO_OLDEST_PYTHON)
def test_an_adapter_of_the_users_is_found_and_measured_in_a_python_3_10_that_has_numpy_and_no_vebench(
    vebench: Command, tmp_path: Path
) -> None:
    pythons = ("--a", OLDEST_PYTHON, "--b", sys.executable)
    plan = ("-e", "CartPole", "-b", "faulty:Sound", "-w", "1", *BRIEF)
    done = vebench("compare", *pythons, *plan, "-o", "pair.jsonl")
    assert done.status in (0, 1, 3), done.err
    header, *cells = lines(tmp_path / "pair-a.jsonl")
    assert header["host"]["python"].startswith("3.10.")
    assert [(cell["status"], len(cell["windows"]) >= 2) for cell in cells] == [("ok", True)] * 2


def test_each_cell_runs_in_the_interpreter_of_its_side(vebench: Command) -> None:
    start = FakeStart()
    plan = ("-e", "Pong", "-b", "for-loop", "-w", "1,2")
    found = vebench("compare", "--a", "old", "--b", "new", *plan, "-f", "json", "-q", world=fake_world(start))
    assert found.status == 0
    assert [cell["workers"] for cell in json.loads(found.out)["cells"]] == [1, 2]
    assert {(cell.side, python) for cell, python in start.started} == {("A", "old"), ("B", "new")}
    assert start.left == 2


@pytest.mark.parametrize("more", [(), ("--inconclusive", "pass")])
def test_where_others_disturbed_one_side_no_cell_is_called_slower(vebench: Command, more: tuple[str, ...]) -> None:
    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        return steady(cell, spec, 500.0, stolen=0.5) if cell.side == "B" else steady(cell, spec)

    start = FakeStart({"for-loop": script})
    plan = ("-e", "Pong", "-b", "for-loop", "-w", "1,2", "--repeats", "5", "-o", "pair.jsonl", "-q", *more)
    found = vebench("compare", "--a", "old", "--b", "new", *plan, world=fake_world(start))
    assert found.status == 3
    reason = "pair-b.jsonl is unusable: others took CPU time of 2 of 2 cells; measure on an idle machine"
    assert found.out.splitlines()[:2] == ["Check: 2 not comparable of 2 cells", reason]
    assert "slower" not in found.out.partition("slower, faster: by more")[0]


@pytest.mark.parametrize("command", [("run", "--resume"), ("check",)], ids="-".join)
def test_the_run_of_one_side_is_neither_resumed_nor_measured_again(vebench: Command, command: tuple[str, ...]) -> None:
    plan = ("-e", "Pong", "-b", "for-loop", "-w", "1", "-o", "pair.jsonl", "-q")
    assert vebench("compare", "--a", "old", "--b", "new", *plan, world=fake_world()).status == 0
    for side in "ab":
        refused = vebench(*command, f"pair-{side}.jsonl", world=fake_world())
        assert refused.status == 3
        assert refused.refusal.endswith("by vebench compare: measure both sides again with it\n")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no/such/python", "{absolute} does not start: No such file or directory"),
        ("/no/such/python", "does not start: No such file or directory"),
        ("no-such-python", "does not start: No such file or directory"),
    ],
)
def test_what_does_not_start_is_refused_in_a_line_that_names_it_once_if_that_is_enough(
    vebench: Command, tmp_path: Path, path: str, reason: str
) -> None:
    done = vebench("compare", "--a", sys.executable, "--b", path, "-e", "CartPole")
    assert done.status == 2
    example = "name a Python, such as venv/bin/python"
    assert done.refusal == f"vebench: --b {path}: {reason.format(absolute=shown(str(tmp_path / path)))}: {example}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--junit", "nowhere/check.xml"), "--junit nowhere/check.xml: name a file in a folder that exists"),
        (("--junit", "pair-a.jsonl"), "--junit pair-a.jsonl: is also the run file: name another file"),
        (("-o", "old.jsonl"), "old-b.jsonl exists and would be overwritten: name another file with -o"),
    ],
)
def test_a_file_that_cannot_be_written_is_reported_before_anything_is_measured(
    vebench: Command, tmp_path: Path, more: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "old-b.jsonl").touch()
    start = FakeStart()
    plan = ("-e", "CartPole", "-b", "for-loop", "-w", "1", "-o", "pair.jsonl")
    done = vebench("compare", "--a", "old", "--b", "new", *plan, *more, world=fake_world(start))
    assert (done.status, done.refusal, start.started) == (2, f"vebench: {reason}\n", [])
    assert [path.name for path in tmp_path.iterdir()] == ["old-b.jsonl"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo hello", "--a .*/python: is no Python that runs: it ended with status 0, without an answer"),
        ("echo broken >&2; exit 3", "--a .*/python: is no Python that runs: it ended with status 3: broken"),
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


def test_an_interpreter_reports_its_version_its_packages_and_what_can_be_imported() -> None:
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
