"""``vebench compare``: the same cells in two interpreters, in turn."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Command, lines
from support.fakes import FakeClock, FakeStart, Script, failing, fake_examine, fake_world, interrupted, steady
from support.paced import paced
from support.places import NO_OLDEST_PYTHON, OLDEST_PYTHON

from vebench.child.answers import Answer
from vebench.interpreters import Interpreter
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec

OLD_AND_NEW = ("old", "new")
LOOP = ("-e", "Pong", "-b", "for-loop", "-w", "1", "-o", "pair.jsonl")
BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--windows", "2", "--passes", "2")


def without(module: str, *lacking: str) -> Callable[[str, str], Interpreter]:
    """Return what finds that the Pythons ``lacking`` lack a module, and that others have everything."""

    def examined(option: str, path: str, **_: bool) -> Interpreter:
        found = fake_examine(option, path)
        return replace(found, modules=found.modules - {module}) if path in lacking else found

    return examined


@pytest.mark.skipif(not OLDEST_PYTHON.exists(), reason=NO_OLDEST_PYTHON)
def test_a_users_adapter_is_measured_in_a_python_3_10_without_vebench(vebench: Command, tmp_path: Path) -> None:
    plan = ("-e", "CartPole", "-b", "faulty:Sound", "-w", "1", *BRIEF)
    done = vebench("compare", OLDEST_PYTHON, sys.executable, *plan, "-f", "json", "-o", "pair.jsonl")
    assert done.status in (0, 1, 3), done.err
    (cell,) = json.loads(done.out)["cells"]
    assert (cell["backend"], cell["workers"]) == ("faulty:Sound", 1)
    assert cell["verdict"] in ("same", "slower", "faster") or cell["why"]
    for side, version in (("a", "3.10."), ("b", sys.version.split()[0])):
        header, *cells = lines(tmp_path / f"pair-{side}.jsonl")
        assert header["host"]["python"].startswith(version)
        assert header["cells"] == len(cells) == 2
        assert [(cell["status"], len(cell["windows"]) >= 2) for cell in cells] == [("ok", True)] * 2


def test_each_cell_runs_in_both_interpreters_and_the_first_alternates(vebench: Command) -> None:
    start = FakeStart()
    plan = ("-e", "Pong", "-b", "for-loop", "-w", "1,2")
    found = vebench("compare", "old", "new", *plan, "-f", "json", world=fake_world(start))
    assert found.status == 0
    assert [cell["workers"] for cell in json.loads(found.out)["cells"]] == [1, 2]
    assert {(cell.interpreter.side, python) for cell, python in start.started} == {("A", "old"), ("B", "new")}
    assert start.left == 2
    pairs = [(one, other) for (one, _), (other, _) in zip(start.started[::2], start.started[1::2], strict=True)]
    assert all((one.key, one.group) == (other.key, other.group) for one, other in pairs)
    assert len({one.group for one, _ in pairs}) == len(pairs)
    orders = {(one.repeat % 2, one.interpreter.side + other.interpreter.side) for one, other in pairs}
    assert orders == {(0, "AB"), (1, "BA")}


@pytest.mark.parametrize(
    ("on_a", "of_b", "status"),
    [(0.0, 500.0, 3), (0.48, 500.0, 1), (0.0, 100.0, 1)],
    ids=["B alone", "both", "B, which is far slower than that explains"],
)
def test_a_cell_disturbed_on_one_side_alone_is_not_called_slower(
    vebench: Command, on_a: float, of_b: float, status: int
) -> None:
    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        return steady(cell, spec, of_b, stolen=0.5) if cell.interpreter.side == "B" else steady(cell, spec, stolen=on_a)

    start = FakeStart({"for-loop": script})
    plan = ("-e", "Pong", "-b", "for-loop", "-w", "1,2", "--passes", "5", "-o", "pair.jsonl")
    found = vebench("compare", "old", "new", *plan, "-f", "json", world=fake_world(start))
    assert found.status == status
    shown = json.loads(found.out)
    assert {cell["verdict"] for cell in shown["cells"]} == {"slower" if status == 1 else "inconclusive"}
    assert [cell["ratio"]["median"] for cell in shown["cells"]] == pytest.approx([of_b / 1000] * 2, rel=0.01)


def test_reference_rows_that_are_named_are_measured_but_not_gated(vebench: Command) -> None:
    start = FakeStart()
    asked = ("-e", "Pong", "-w", "1", "-b", "for-loop,ceiling,null")
    found = vebench("compare", *OLD_AND_NEW, *asked, world=fake_world(start))
    assert found.status == 0
    assert {cell.backend.name for cell, _ in start.started} == {"for-loop", "ceiling", "null"}
    assert found.out.startswith("Compare: 1 not slower of 1 cell\n")
    alone = vebench("compare", *OLD_AND_NEW, *asked[:-1], "ceiling,null", "-o", "b.jsonl", world=fake_world())
    assert (alone.status, "ceiling and null" in alone.refusal) == (3, True)


@pytest.mark.parametrize("lacking", ["old", "new"])
def test_cells_that_cannot_run_on_both_sides_are_refused_with_the_reason(
    vebench: Command, tmp_path: Path, lacking: str
) -> None:
    asked = ("-e", "Pong", "-w", "1", "-b", "null,envpool-sync")
    found = vebench("compare", *OLD_AND_NEW, *asked, world=fake_world(examine=without("envpool", lacking)))
    side = {"old": "A (old)", "new": "B (new)"}[lacking]
    assert found.status == 3
    assert f"{side}: not installed: envpool" in found.refusal
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("lacking", "status", "verdicts"),
    [
        (["old"], 3, [("for-loop", "same"), ("envpool-sync", "missing")]),
        (["new"], 3, [("for-loop", "same"), ("envpool-sync", "missing")]),
        (["old", "new"], 0, [("for-loop", "same")]),
    ],
)
def test_a_cell_that_ran_on_one_side_only_is_missing(
    vebench: Command, lacking: Sequence[str], status: int, verdicts: list[tuple[str, str]]
) -> None:
    asked = ("-e", "Pong", "-w", "1", "-b", "for-loop,envpool-sync", "-f", "json", "-o", "report.md")
    found = vebench("compare", *OLD_AND_NEW, *asked, world=fake_world(examine=without("envpool", *lacking)))
    answer = json.loads(found.out)
    # The pattern by which the action knows a missing rate.
    assert bool(re.search(r"\| +(missing|not comparable) \|", Path("report.md").read_text())) == (status == 3)
    assert (found.status, answer["status"]) == (status, status)
    assert [(cell["backend"], cell["verdict"]) for cell in answer["cells"]] == verdicts


@pytest.mark.parametrize("lacking", OLD_AND_NEW)
def test_passes_are_added_in_pairs_if_one_python_skips_cells(vebench: Command, lacking: str) -> None:
    uneven = paced(lambda cell: 1.3e-5 if (cell.interpreter.side, cell.repeat % 2) == ("B", 1) else 1e-5)
    start = FakeStart(dict.fromkeys(("for-loop", "gym-sync"), uneven))
    world = fake_world(start, examine=without("envpool", lacking), clock=FakeClock(0.1))
    asked = ("-e", "Pong", "-w", "1,2", "-b", "envpool-sync,for-loop,gym-sync", "--budget", "60", "-f", "json")
    plan = ("--passes", "2", "--windows", "3")
    answer = json.loads(vebench("compare", *OLD_AND_NEW, *asked, *plan, world=world).out)
    assert {cell["backend"] for cell in answer["cells"] if cell["verdict"] == "missing"} == {"envpool-sync"}
    added = [cell for cell, _ in start.started if cell.repeat >= 2]
    assert {cell.backend.name for cell in added} == {"for-loop", "gym-sync"}
    for one, other in zip(added[::2], added[1::2], strict=True):
        assert (one.key, one.group) == (other.key, other.group)
        assert {one.interpreter.side, other.interpreter.side} == {"A", "B"}


@pytest.mark.parametrize(("budget", "passes"), [("1s", 2), ("1000s", 6)])
def test_a_budget_is_kept_from_the_second_pass_on(vebench: Command, budget: str, passes: int) -> None:
    start = FakeStart({"for-loop": lambda cell, spec: steady(cell, spec, 1000 + 500 * (cell.interpreter.side == "B"))})
    found = vebench("compare", *OLD_AND_NEW, *LOOP, "--budget", budget, world=fake_world(start, clock=FakeClock(0.5)))
    assert found.status == 0
    assert {cell.repeat for cell, _ in start.started} == set(range(passes))
    header, *cells = lines(Path("pair-a.jsonl"))
    assert header["cells"] <= len(cells)


def test_a_disturbed_side_is_called_unusable(vebench: Command) -> None:
    def stolen(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec, stolen=0.3 * (cell.interpreter.side == "B"))

    found = vebench("compare", *OLD_AND_NEW, *LOOP, world=fake_world(FakeStart({"for-loop": stolen})))
    assert "pair-b.jsonl is unusable" in found.out
    assert "pair-a.jsonl is unusable" not in found.out
    assert "unusable" in vebench("report", "pair-b.jsonl").out


@pytest.mark.parametrize(
    ("sides", "passes", "status", "why"),
    [
        ("B", range(5), 1, "B: failed: boom"),
        ("A", range(5), 3, "A: failed: boom"),
        ("B", (2,), 1, "B: 1 of 6 passes failed: boom"),
        ("AB", (2,), 0, None),
    ],
)
def test_a_cell_that_failed_in_b_alone_is_status_1(
    vebench: Command, sides: str, passes: Sequence[int], status: int, why: str | None
) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        here = cell.interpreter.side in sides and cell.repeat in passes
        return failing("boom")(cell, spec) if here else steady(cell, spec)

    world = fake_world(FakeStart({"for-loop": script}))
    found = vebench("compare", *OLD_AND_NEW, *LOOP, "-f", "json", world=world)
    (cell,) = json.loads(found.out)["cells"]
    assert (found.status, cell["why"] or cell["failed"]) == (status, why)


def test_a_file_that_exists_is_refused_before_measuring(vebench: Command, tmp_path: Path) -> None:
    (tmp_path / "pair-b.jsonl").touch()
    start = FakeStart()
    done = vebench("compare", "old", "new", *LOOP, world=fake_world(start))
    assert (done.status, "pair-b.jsonl exists" in done.refusal, start.started) == (2, True, [])


def test_an_interrupted_comparison_names_the_files_of_its_cells(vebench: Command) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        return interrupted(cell, spec) if cell.repeat else steady(cell, spec)

    found = vebench("compare", *OLD_AND_NEW, *LOOP, world=fake_world(FakeStart({"for-loop": script})))
    assert (found.status, found.out) == (130, "")
    assert "interrupted: 2 of 12 cells are in pair-a.jsonl and pair-b.jsonl; to compare again: vebench" in found.err
    for command in (("run", "--resume"), ("check",)):  # one side's run is not measured further alone
        assert vebench(*command, "pair-a.jsonl", world=fake_world()).status == 3
