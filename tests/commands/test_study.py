"""``vebench study``: what it measures and keeps, how it goes on, what it shows, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from support.fakes import FakeStart, failing, interrupted, steady
from support.studies import paced, world_of

from vebench.results import store
from vebench.studies import table

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command
    from support.fakes import Script

    from vebench.commands.world import World
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

# Two parts on the same question, which cells of vebench's own answer without a lookup.
OWN = """
from dataclasses import replace

from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow, Text
from vebench.studies.pairs import pairs
from vebench.studies.study import PLAN, Part, Study


def conclude(runs):
    cells = [(run, {cell.label: cell for cell in run.cells}) for run in runs]
    found = pairs((run, of["gym-sync"], of["for-loop"]) for run, of in cells if len(of) == 2)
    rows = tuple(TableRow(run.part, (pair.text,)) for run, pair in zip(runs, found))
    parts = ", ".join(f"{run.part} {pair.words}" for run, pair in zip(runs, found))
    return Conclusion(
        f"Of {len(runs)} parts: {parts}.",
        decided=any(pair.decided for pair in found),
        tables=(Table("ratios", "part", ("ratio",), rows),),
        why=("It is a test.",),
        undecided=tuple(pair.words for pair in found if not pair.decided),
    )


STUDY = Study(
    name="mine",
    question="Is gym-sync slower than the loop?",
    parts=tuple(
        Part(name, replace(PLAN, envs=("CartPole",), seed=seed), ("gym-sync", "for-loop"))
        for seed, name in enumerate(("one", "two"))
    ),
    conclude=conclude,
)
NO_STUDY = "a text"
RAISES = replace(STUDY, conclude=lambda runs: 1 / 0)
CONCLUDES_NOTHING = replace(STUDY, conclude=lambda runs: None)
WITH_TORCH = replace(
    STUDY, parts=(*STUDY.parts, Part("three", replace(PLAN, envs=("Pong",), policy="mlp:8x8"), ("gym-sync",)))
)
"""
ANSWER = r"Of 2 parts: one (49|50)\.\d% slower "
MINE = ("study", "own:STUDY", "-w", "2", "--proof", "off", "--rounds", "1")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a user's own file with a study, in the current folder."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test import its own module of this name."""
    monkeypatch.delitem(sys.modules, "own", raising=False)


def seconds(cell: Cell) -> float:
    return cell.shape.batch_size * (20e-6 if cell.backend.name == "gym-sync" else 10e-6)


def world(start: FakeStart | None = None, noise: float = 0.003) -> World:
    return world_of(paced(seconds, noise), start=start)


@pytest.fixture
def measured(vebench: Command, own: Path, tmp_path: Path) -> Path:  # noqa: ARG001 - it has to be there
    """Return the folder of a whole study."""
    done = vebench(*MINE, "--folder", "runs", "-q", world=world())
    assert done.status == 0
    return tmp_path / "runs"


@pytest.mark.parametrize("arguments", [(), ("--list",)])
def test_the_studies_are_listed_with_their_questions(vebench: Command, arguments: tuple[str, ...]) -> None:
    result = vebench("study", *arguments)
    assert (result.status, result.err) == (0, "")
    for name in ("exchange", "gil", "overlap", "timeout"):
        assert f"\n{name} " in result.out


@pytest.mark.parametrize("study", table.studies(), ids=lambda study: study.name)
def test_each_study_of_the_folder_is_found_by_the_name_of_its_file_and_can_be_planned(
    vebench: Command, study: table.Study, tmp_path: Path
) -> None:
    assert study.question.endswith("?")
    changes = ("--policy", "sleep:1ms", "--env", "HalfCheetah,Pong")
    result = vebench("study", study.name, *changes, "--dry-run", world=world())
    assert result.status == 0, result.err
    assert f"Plan of {study.parts[0].name}" in result.out
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_measured_in_turn_into_ordinary_run_files_and_answered(vebench: Command, measured: Path) -> None:
    assert sorted(path.name for path in measured.glob("*.jsonl")) == ["one.jsonl", "two.jsonl"]
    for path in measured.glob("*.jsonl"):
        run = store.read(path)
        assert (len(run.cells), run.header.spec.interleave, run.header.cells) == (6, True, 6)
        assert run.header.command.startswith("vebench study own:STUDY -w 2")
    assert vebench("report", measured / "one.jsonl").status == 0
    assert (
        vebench("check", measured / "one.jsonl", measured / "two.jsonl", "--metric", "fps", "--tolerance", "50%").status
        == 0
    )
    assert vebench("run", "--resume", measured / "one.jsonl", "-q", world=world()).status == 0


def test_the_answer_comes_first_then_the_table_why_and_how_to_repeat_it(vebench: Command, own: Path) -> None:
    result = vebench(*MINE, world=world())
    assert result.status == 0, own
    places = [
        result.out.index(text)
        for text in ("Of 2 parts: one ", "\nratios\n", "It is a test.", "How far to trust it", "measure again")
    ]
    assert places == sorted(places)
    assert "vebench study own:STUDY --from .vebench/study-mine-" in " ".join(result.out.split())
    assert "part one, 1 of 2" in result.err


def test_options_change_the_plan_of_all_parts(vebench: Command, own: Path) -> None:
    start = FakeStart()
    more = ("--envs-per-worker", "3", "--repeats", "1", "--seed", "9", "--timeout", "77", "--policy", "sleep:1ms")
    result = vebench(*MINE, *more, "-q", world=world(start))
    assert (result.status, own.exists()) == (3, True)  # the same seed makes both parts the same, and one repeat is few
    assert {(cell.workers, cell.envs_per_worker, cell.repeat) for cell, _ in start.started} == {(2, 3, 0)}
    assert "part two is not measured: what was asked for makes it the same as part one" in result.err


def test_without_workers_a_study_has_one_for_each_cpu(vebench: Command, own: Path) -> None:
    start = FakeStart()
    assert vebench("study", "own:STUDY", "--proof", "off", "-q", world=world(start)).status == 0, own
    assert {cell.workers for cell, _ in start.started} == {4}


def test_an_interrupted_study_goes_on_where_it_ended(vebench: Command, own: Path, tmp_path: Path) -> None:
    start = FakeStart()

    def until_the_ninth(cell: Cell, spec: RunSpec) -> Script:
        return interrupted(cell, spec) if len(start.started) > 8 else paced(seconds)(cell, spec)

    stopped = vebench(*MINE, "--folder", "runs", "-q", world=world_of(until_the_ninth, start=start))
    assert (stopped.status, own.exists()) == (130, True)
    assert stopped.err.endswith("to go on: vebench study own:STUDY --resume runs\n")
    done = len(store.read(tmp_path / "runs" / "one.jsonl").cells)
    assert (done, (tmp_path / "runs" / "two.jsonl").exists()) == (6, True)
    early = vebench("study", "own:STUDY", "--from", "runs")
    assert re.match(ANSWER, early.out)
    again = FakeStart()
    whole = vebench("study", "own:STUDY", "--resume", "runs", "-q", world=world(again))
    assert whole.status == 0
    assert len(again.started) < 6
    assert {cell.repeat for cell, _ in again.started} <= {0, 1, 2}
    assert all(len(store.read(path).cells) == 6 for path in (tmp_path / "runs").glob("*.jsonl"))
    assert re.match(ANSWER, whole.out)


def test_code_of_the_current_folder_that_only_the_run_files_name_has_to_be_allowed(
    vebench: Command, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine_too.py").write_text("def act(observations): ...\n")
    stopped = vebench(*MINE, "--policy", "mine_too:act", "--folder", "runs", "-q", world=world_of(interrupted))
    again = "study own:STUDY --resume runs --allow-code"
    assert (stopped.status, own.exists()) == (130, True)
    assert stopped.err.endswith(f"to go on: vebench {again}\n")
    refused = vebench(*again.split()[:-1], "-q", world=world())
    assert (refused.status, "--policy mine_too:act" in refused.refusal) == (2, True)
    assert vebench(*again.split(), "-q", world=world()).status == 0


def test_a_whole_study_has_nothing_left_to_measure_and_is_answered_again(vebench: Command, measured: Path) -> None:
    before = {path: path.read_bytes() for path in measured.glob("*.jsonl")}
    for how in ("--resume", "--from"):
        start = FakeStart()
        again = vebench("study", "own:STUDY", how, measured, world=world(start))
        assert (again.status, start.started) == (0, [])
        assert re.match(ANSWER, again.out)
    assert {path: path.read_bytes() for path in measured.glob("*.jsonl")} == before


@pytest.mark.parametrize(
    ("file", "words"),
    [("a.md", "## Of 2 parts"), ("a.html", "<h1>Of 2 parts"), ("a.csv", "ratios,one,ratio,"), ("a.txt", "Of 2 parts")],
)
def test_the_answer_is_written_in_the_format_of_a_files_suffix(
    vebench: Command, measured: Path, tmp_path: Path, file: str, words: str
) -> None:
    assert vebench("study", "own:STUDY", "--from", measured, "-o", file).status == 0
    assert words in (tmp_path / file).read_text()


def test_programs_get_the_answer_with_the_ends_of_each_interval(vebench: Command, measured: Path) -> None:
    data = json.loads(vebench("study", "own:STUDY", "--from", measured, "-f", "json").out)
    assert (data["study"], data["decided"], data["status"], data["left_out"]) == ("mine", True, 0, {})
    one, two = data["places"]
    assert (one["row"], two["row"], one["column"]) == ("one", "two", "ratio")
    assert one["low"] < 0.5 < one["high"]
    assert data["runs"] == [str(measured / "one.jsonl"), str(measured / "two.jsonl")]


def test_a_part_that_cannot_run_here_is_left_out_with_its_reason(vebench: Command, own: Path) -> None:
    asked = ("study", "own:WITH_TORCH", *MINE[2:])
    plain = vebench(*asked, "-q", world=world())
    assert plain.status == 0, own
    assert "part three is left out: --policy mlp:8x8: needs torch: pip install 'vebench-rl[torch]'" in plain.err
    assert "left out" in plain.out


def test_if_no_part_can_run_the_first_reason_is_the_error(vebench: Command, own: Path, tmp_path: Path) -> None:
    result = vebench(*MINE, "--policy", "mlp:8x8", "-q", world=world())
    refusal = "vebench: --policy mlp:8x8: needs torch: pip install 'vebench-rl[torch]'\n"
    assert (result.status, result.refusal) == (2, refusal)
    assert [path for path in tmp_path.iterdir() if path not in (own, tmp_path / "__pycache__")] == []


def test_a_failed_cell_makes_the_status_1_and_is_told(vebench: Command, own: Path) -> None:
    def fails_once(cell: Cell, spec: RunSpec) -> Script:
        return (
            failing("boom")(cell, spec) if cell.repeat == 2 and cell.backend.name == "gym-sync" else script(cell, spec)
        )

    script = paced(seconds)
    result = vebench(*MINE, "--repeats", "4", "-q", world=world_of(fails_once))
    assert result.status == 1, own
    assert "1 failed" in result.out


def test_cells_that_do_not_tell_leave_the_question_open_with_status_3(vebench: Command, own: Path) -> None:
    result = vebench(*MINE, "-q", world=world(noise=2.0))
    assert (result.status, own.exists()) == (3, True)
    assert "not decided: between -" in result.out
    assert "--repeats 6 makes intervals narrower" in " ".join(result.out.split())


def test_a_run_whose_cpus_others_had_concludes_nothing(vebench: Command, own: Path) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec, 500.0 if cell.backend.name == "gym-sync" else 1000.0, stolen=0.5)

    result = vebench(*MINE, "-q", world=world_of(script))
    assert (result.status, own.exists()) == (3, True)
    assert result.out.startswith("Not decided: unusable: others took CPU time of 2 of 2 cells")
    assert "% slower" not in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("exchagne",), ["exchagne", "exchange", "MODULE:NAME"]),
        (("own:",), ["own:", "MODULE:NAME"]),
        (("own:NOTHING",), ["own:NOTHING", "vebench.studies.study.Study"]),
        (("own:NO_STUDY",), ["own:NO_STUDY", "vebench.studies.study.Study"]),
        (("nowhere:STUDY",), ["nowhere", "cannot be imported"]),
        (("own:STUDY", "--repeats", "0"), ["--repeats 0"]),
        (("own:STUDY", "--env", "Pnog"), ["Pnog", "Pong"]),
        (("own:STUDY", "--from", "nothing"), ["nothing", "one.jsonl, two.jsonl"]),
        (("own:STUDY", "--resume", "nothing"), ["nothing", "one.jsonl, two.jsonl"]),
        (("own:STUDY", "--resume", "nothing", "-w", "2"), ["--resume", "leave out --workers"]),
        (("own:STUDY", "--from", "nothing", "--dry-run"), ["--from", "leave out --dry-run"]),
        (("own:STUDY", "--allow-code"), ["--allow-code", "--resume"]),
        (("own:STUDY", "--folder", "."), [".", "--folder", "--resume"]),
        (("own:STUDY", "--folder", "no/such"), ["no/such", "--folder"]),
        (("own:STUDY", "-f", "pdf"), ["-f pdf", "terminal, markdown, html, csv, json"]),
        (("own:STUDY", "-o", "a.pdf"), ["-o a.pdf", ".md"]),
        (("--dry-run",), ["NAME", "leave out --dry-run"]),
        (("gil", "--list"), ["--list", "gil"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_with_status_2(
    vebench: Command, own: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    result = vebench("study", *arguments, world=world())
    assert (result.status, own.exists()) == (2, True)
    assert [word for word in words if word not in result.refusal] == []


@pytest.mark.parametrize(("name", "words"), [("RAISES", "ZeroDivisionError"), ("CONCLUDES_NOTHING", "NoneType")])
def test_a_conclusion_of_the_users_that_fails_loses_nothing(
    vebench: Command, measured: Path, name: str, words: str
) -> None:
    result = vebench("study", f"own:{name}", "--from", measured)
    assert (result.status, words in result.refusal) == (2, True)
