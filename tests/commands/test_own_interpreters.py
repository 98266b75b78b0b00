"""``-b NAME@PYTHON``: backends in interpreters of their own, in one run with others."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from support.commands import Command
from support.fakes import EVERYTHING, FakeStart, fake_world

from vebench.backends.interface import Task
from vebench.interpreters import Interpreter, packages_here
from vebench.plan.tasks import TASKS

RUN = ("run", "-e", "CartPole", "-w", "2", "--passes", "1", "--no-interleave", "-q", "-o", "run.jsonl")
OTHER = "/opt/other/python"


def examined(packages: Mapping[str, str], lacking: str = "") -> object:
    """Return what examines Pythons, all of which have these packages, but for the module ``lacking``."""

    def examine(_option: str, path: str, **_: bool) -> Interpreter:
        return Interpreter(path, "3.12.1", {**packages_here(), **packages}, EVERYTHING - {lacking})

    return examine


def test_each_cell_runs_in_the_interpreter_that_was_named_for_its_backend(vebench: Command) -> None:
    start = FakeStart()
    done = vebench(*RUN, "-b", f"gym-async,gym-async@{OTHER},gym-sync@{OTHER}", world=fake_world(start))
    assert done.status == 0, done
    found = {cell.backend.label: cell.interpreter.path for cell, _ in start.started}
    own = {f"gym-async@{OTHER}": OTHER, f"gym-sync@{OTHER}": OTHER}
    assert found == {"for-loop": "", "yardstick": "", "gym-async": "", **own}


def test_a_run_file_has_the_packages_of_every_interpreter(vebench: Command) -> None:
    world = fake_world(examine=examined({"gymnasium": "1.2.2"}))
    vebench(*RUN, "-b", f"gym-async,gym-async@{OTHER}", world=world)
    head, *cells = map(json.loads, Path("run.jsonl").read_text().splitlines())
    (label, own), *others = head["interpreters"].items()
    assert (label, own["path"], own["python"], others) == (f"gym-async@{OTHER}", OTHER, "3.12.1", [])
    assert (own["packages"]["gymnasium"], head["packages"]["gymnasium"]) == ("1.2.2", packages_here()["gymnasium"])
    assert sorted(cell.get("python", "") for cell in cells if cell["type"] == "cell") == ["", "", "", OTHER]
    told = " ".join(vebench("report", "--all", "run.jsonl").out.split())
    assert f"gymnasium 1.2.2 inside the Python of gym-async@{OTHER}" in told


def install(cache: Path, name: str) -> str:
    """Make files where an installation's interpreter is expected, and return the interpreter's path."""
    folder = cache / "vebench" / "peers" / name
    (folder / "bin").mkdir(parents=True)
    (folder / "made-from").touch()
    (folder / "bin" / "python").touch()
    return str(folder / "bin" / "python")


def test_all_cells_of_a_librarys_task_run_in_its_interpreter(vebench: Command, cache: Path) -> None:
    home, start = install(cache, "gymnax"), FakeStart()
    labels = f"for-loop,gym-sync,jax,jax@{OTHER},jax[rollout=8]"
    asked = (*RUN, "-e", "gymnax:CartPole-v1", "-b", labels, "--envs-per-worker", "3")
    tasks = (TASKS["CartPole"], Task("gymnax:CartPole-v1", "gymnax", 1))
    parts = {"examine": examined({"gymnax": "1.0.1"}), "resolve": lambda *_, **_options: tasks}
    done = vebench(*asked, world=fake_world(start, **parts))
    assert done.status == 0, done
    cells = [cell for cell, _ in start.started]
    found = {(cell.task.suite, cell.backend.label): cell.interpreter for cell in cells}
    here = {("classic", name): ("", "") for name in ("for-loop", "gym-sync", "yardstick")}
    at_home = {("gymnax", name): (home, home) for name in ("for-loop", "jax", "jax[rollout=8]", "yardstick")}
    elsewhere = {("gymnax", f"jax@{OTHER}"): (OTHER, home)}
    assert {key: (one.path, one.home) for key, one in found.items()} == here | at_home | elsewhere
    assert {cell.backend.label for cell in cells if cell.is_reference} == {"for-loop"}
    assert {cell.shape.batch_size for cell in cells if cell.entry.role == "rollout"} == {2 * 3 * 8}
    head, *_ = map(json.loads, Path("run.jsonl").read_text().splitlines())
    assert {name: own["packages"]["gymnax"] for name, own in head["interpreters"].items()} == {
        "gymnax": "1.0.1",
        f"jax@{OTHER}": "1.0.1",
    }


def test_a_backend_that_its_interpreter_lacks_is_skipped_with_the_reason(vebench: Command, tmp_path: Path) -> None:
    world = fake_world(examine=examined({}, lacking="mujoco"))
    vebench(*RUN, "-e", "HalfCheetah", "-b", f"gym-sync,gym-sync@{OTHER}", world=world)
    reasons = {line.get("reason") for line in map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines()[1:])}
    assert reasons == {None, "not installed: mujoco (pip install mujoco)"}


def test_a_run_in_two_interpreters_is_finished_in_both_and_not_if_one_has_changed(vebench: Command) -> None:
    start = FakeStart()
    labels = f"gym-sync,gym-async@{OTHER}"
    vebench(*RUN, "-b", labels, "--no-base", world=fake_world(start, examine=examined({})))
    file = Path("run.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"type":"run"' in line or OTHER not in line))
    changed = fake_world(examine=examined({"gymnasium": "0.29.1"}))
    refused = vebench("run", "--allow-code", "--resume", "run.jsonl", world=changed)
    assert refused.status == 3
    assert f"gym-async@{OTHER}: gymnasium" in refused.err
    again = FakeStart()
    vebench("run", "--allow-code", "--resume", "run.jsonl", "-q", world=fake_world(again, examine=examined({})))
    assert [(cell.backend.label, cell.interpreter.path) for cell, _ in again.started] == [(f"gym-async@{OTHER}", OTHER)]


def test_a_backend_steps_in_its_interpreter_and_is_compared_with_our_loop(vebench: Command, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/started"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = vebench("verify", "-e", "CartPole", "-b", f"for-loop@{python}", "--steps", "60")
    assert (done.status, "identical" in done.out) == (0, True), done
    started = (tmp_path / "started").read_text()
    assert started.count("vebench.child.main fork") == 1, "it compares in another"
