"""What is known of a backend's work: from the survey, and from what the user has found."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.fakes import fake_world
from support.records import make_cell, make_header, make_sweep, write_run

import vebench
from vebench.backends.entry import Shape
from vebench.backends.fast import classes
from vebench.backends.interface import OwnClasses, Task
from vebench.child.answers import Layout, Proof, Ready
from vebench.engine.runner import Outcome
from vebench.plan import verdicts
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice, parse_backends
from vebench.plan.verdicts import UNKNOWN, Knowledge, KnownVerdict, as_stepped, concluded, keep, kept_file, key, lasts
from vebench.results.records import Run, RunRecord, record, with_current_verdicts

PONG = Task("ALE/Pong-v5", "atari", 4)
POOL, OURS = BackendChoice("envpool-sync"), BackendChoice("shm-sync")
VERSIONS = {"vebench": "1", "gymnasium": "1.4.0", "numpy": "2.4.6", "ale-py": "0.12.1", "envpool": "1.2.5"}
SAME, OTHER = KnownVerdict("identical", "", 1000, 2), KnownVerdict("different", "frame skip 5 instead of 4", 1000, 2)


def test_what_is_kept_is_known_the_next_time() -> None:
    task = Task("Mine-v0", "classic", 1)
    before = Knowledge.load()
    assert (before.of(task, BackendChoice("for-loop")).verdict, before.of(task, POOL)) == ("identical", UNKNOWN)
    keep(key(task, POOL), OTHER)
    keep(key(task, OURS), SAME)
    assert (Knowledge.load().of(task, POOL), Knowledge.load().of(task, OURS)) == (OTHER, SAME)


DAMAGE = {
    "no UTF-8": lambda path: path.write_bytes(b'{"key":["Mine-v0","\xff",[]],"known":{"verdict":"identical"}}\n'),
    "deep": lambda path: path.write_bytes(b"[" * 100_000 + b"\n"),
    "long": lambda path: path.write_bytes(b'{"key":["' + b"x" * 10_000_000 + b'"]}\n'),
    "other JSON": lambda path: path.write_bytes(b'[]\n{"key":["a","b",["c"]],"known":{"verdict":"good"}}\n'),
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_of_verdicts_stops_no_command_and_is_told_once(vebench: Command, damage: str) -> None:
    path = kept_file()
    path.parent.mkdir(parents=True)
    DAMAGE[damage](path)
    write_run(Path("run.jsonl"), make_sweep())
    pong = ("-e", "Pong", "-b", "gym-sync")
    compared = vebench(*("compare", "old", "new", *pong, "-w", "1", "-o", "pair.jsonl"), world=fake_world())
    assert compared.status == 0
    assert compared.err.count(str(path)) == 1
    assert vebench("report", "run.jsonl").status == 0
    verified = vebench("verify", *pong, "--steps", "1100", world=fake_world())
    assert verified.status == 0
    assert ("work status not kept" in verified.err) == (damage == "a folder")


def test_a_line_that_was_cut_off_costs_no_later_one() -> None:
    task = Task("Mine-v0", "classic", 1)
    keep(key(task, POOL), OTHER)
    kept_file().write_bytes(kept_file().read_bytes()[:-20])
    keep(key(task, OURS), SAME)
    knowledge = Knowledge.load()
    assert (knowledge.of(task, POOL), knowledge.of(task, OURS)) == (UNKNOWN, SAME)
    assert str(kept_file()) in knowledge.damage


@pytest.mark.parametrize(
    ("name", "version", "same"),
    [
        ("envpool", "1.2.6", False),
        ("gymnasium", "1.4.1", False),
        ("numpy", "2.5.0", True),
        ("numpy", "3.0.0", False),
        ("mujoco", "3.6.0", True),
        ("opencv-python", "4.10.0.84", False),
    ],
)
def test_a_verdict_holds_for_the_packages_of_its_task_and_backend(name: str, version: str, same: bool) -> None:
    knowledge = Knowledge([(key(PONG, POOL, VERSIONS), SAME)])
    assert knowledge.of(PONG, POOL, VERSIONS) == SAME
    assert knowledge.of(PONG, POOL, {**VERSIONS, name: version}) == (SAME if same else UNKNOWN)


@pytest.mark.parametrize(
    ("ends", "steps", "verdict"), [(0, 100, "unverified"), (0, 5000, "identical"), (1, 100, "identical")]
)
def test_rows_that_agreed_prove_nothing_until_an_episode_has_ended(ends: int, steps: int, verdict: str) -> None:
    known = concluded(Proof("identical", rows=2 * steps, ends=ends), steps, 2)
    assert known.verdict == verdict
    assert (verdict == "identical") or known.reason == "identical over 100 steps, but no episode ended"


@pytest.mark.parametrize(
    ("before", "now", "believed"),
    [
        (SAME, OTHER, OTHER),
        (OTHER, SAME, SAME),
        (OTHER, KnownVerdict("identical", "", 10, 2), OTHER),
        (SAME, KnownVerdict("equal", "", 10, 2), SAME),
        (SAME, KnownVerdict("equal", "", 2000, 2), KnownVerdict("equal", "", 2000, 2)),
        (KnownVerdict("different", "once", 10, 1), OTHER, OTHER),
        (KnownVerdict("unverified", "timed out after 300 s", 1100, 2), SAME, SAME),
        (SAME, KnownVerdict("unverified", "timed out after 300 s", 6000, 2), SAME),
    ],
)
def test_any_difference_counts_and_else_the_longer_comparison(
    before: KnownVerdict, now: KnownVerdict, believed: KnownVerdict
) -> None:
    entry = key(PONG, POOL, VERSIONS)
    assert Knowledge([(entry, before), (entry, now)]).of(PONG, POOL, VERSIONS) == believed


def test_nothing_is_kept_of_code_from_elsewhere() -> None:
    assert not lasts(PONG, BackendChoice("mine:Fast"))
    assert not lasts(Task("Own-v0", "gymnasium", 1, module="mine"), OURS)
    knowledge = Knowledge()
    assert not knowledge.add(PONG, BackendChoice("mine:Fast"), OTHER)
    assert knowledge.of(PONG, BackendChoice("mine:Fast")) == OTHER  # as long as the command lasts


def test_a_run_learns_what_was_found_since() -> None:
    packages = dict(VERSIONS)
    knowledge = Knowledge([(key(PONG, POOL, packages), OTHER), (key(PONG, OURS, packages), SAME)])
    cells = (
        make_cell("envpool-sync", verdict="unverified"),
        make_cell("shm-sync", verdict=None),
        make_cell("gym-sync", verdict="equal"),
        make_cell("shm-sync", verdict="different", verdict_reason="stale"),
        make_cell("ceiling"),
        make_cell("a-backend-of-long-ago", verdict=None),
    )
    run = with_current_verdicts(Run(header_with(packages), cells), knowledge)
    assert [(each.verdict, each.verdict_reason) for each in run.cells] == [
        ("different", "frame skip 5 instead of 4"), ("identical", ""), ("equal", ""), ("different", "stale"),
        (None, ""), ("unverified", ""),
    ]  # fmt: skip
    older = header_with({**VERSIONS, "envpool": "0.8.4"})
    run = with_current_verdicts(Run(older, cells[:1]), knowledge)
    assert run.cells[0].verdict == "unverified", "of other packages"


def header_with(packages: dict[str, str]) -> RunRecord:
    known = make_header()
    return RunRecord(known.schema, known.spec, known.host, packages, known.command, known.started)


def test_without_its_own_class_a_backend_has_the_verdict_of_the_plain_one() -> None:
    fast = BackendChoice("fast-sync")
    ours, refused = OwnClasses("compiled"), OwnClasses(refused="not compiled")
    entries = [(key(PONG, as_stepped(PONG, fast, own), VERSIONS), SAME) for own in (ours, refused)]
    for known, has in zip(entries, (ours, refused), strict=True):
        knowledge = Knowledge([known])
        for own in (ours, refused):
            assert knowledge.of(PONG, fast, VERSIONS, own) == (SAME if own is has else UNKNOWN)
            run = Run(header_with(VERSIONS), (make_cell("fast-sync", verdict="unverified", own_classes=own),))
            (cell, *_) = with_current_verdicts(run, knowledge).cells
            assert cell.verdict == ("identical" if own is has else "unverified")
        assert knowledge.of(PONG, BackendChoice("shm-sync"), VERSIONS) == (SAME if has is refused else UNKNOWN)
    assert as_stepped(PONG, OURS) == OURS


def test_a_cell_that_fell_back_to_gymnasiums_class_has_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "library", lambda: True)  # it is there, as far as can be known beforehand
    cell = Cell(PONG, BackendChoice("fast-sync"), 1, 1, Shape(1, 1, 1, 1), (0,), known=SAME)
    for own, verdict in ((OwnClasses("compiled"), "identical"), (OwnClasses(refused="not compiled"), "unverified")):
        layout = Layout(num_envs=1, batch_size=1, processes=1, threads=1, frame_skip=4, own_classes=own)
        assert record(cell, Outcome("ok", ready=Ready(7, layout))).verdict == verdict


def test_the_survey_names_tasks_and_backends_that_there_are() -> None:
    known = Knowledge.load()
    for survey in json.loads(Path(verdicts.__file__).with_name("survey.json").read_text()):
        versions = {**survey["packages"], "vebench": vebench.__version__}
        for env, by_backend in survey["verdicts"].items():
            for name, (verdict, reason) in by_backend.items():
                (backend,) = parse_backends([name])
                assert known.of(verdicts.TASKS[env], backend, versions, OwnClasses()).verdict == verdict
                assert reason or verdict in ("identical", "equal"), (env, name)
