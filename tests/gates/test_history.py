"""``vebench history``: what a folder of runs says, in which format, and with which exit status."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.commands import Command
from support.records import make_header, make_runs, write_run

from vebench.results.records import Run

LOOP, ASYNC = ("for-loop", 1), ("gym-async", 2)
STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 101.5, 98.5, 100.0, 100.0] * 2
ELSEWHERE = replace(make_header(), host=replace(make_header().host, cpu_model="Other CPU"))


def write(runs: Iterable[tuple[str, Run]], folder: str = ".vebench") -> Path:
    """Write run files as CI would keep them. Returns their folder."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    for name, run in runs:
        write_run(place / name, run)
    return place


def lower(rates: list[float], runs: int) -> list[float]:
    """Return the rates with the newest runs 8 % slower."""
    return [*rates[:-runs], *(0.92 * rate for rate in rates[-runs:])]


@pytest.mark.parametrize(
    ("rates", "status", "headline"),
    [
        (STEADY, 0, "no change in 1 series over 20 runs"),
        (lower(STEADY, 4), 1, "slower since run 17 of 20, 2026-09-17: 1 of 1 series"),
        (lower(STEADY, 12), 0, "no new change for the worse in 1 series over 20 runs"),
        ([*STEADY, 50.0], 0, "no change in 1 series over 21 runs"),
        (STEADY[:5], 3, "too few runs: a series needs 6 to show a change"),
    ],
    ids=["steady", "new drop", "old drop", "one slow run", "too few"],
)
def test_a_new_drop_alone_has_status_1(vebench: Command, rates: list[float], status: int, headline: str) -> None:
    write(make_runs({ASYNC: rates}))
    result = vebench("history")
    assert (result.status, result.err) == (status, "")
    assert result.out.startswith(f"History: {headline}")


def test_json_has_every_point_and_every_change(vebench: Command) -> None:
    write(make_runs({LOOP: STEADY, ASYNC: lower(STEADY, 4)}))
    result = vebench("history", "-f", "json", "-b", "gym-async")
    data = json.loads(result.out)
    assert (data["status"], data["metric"], len(data["runs"]), data["left_out"]) == (1, "fps", 20, {})
    (series,) = data["series"]
    whose = [series[name] for name in ("env", "backend", "workers", "envs_per_worker")]
    assert whose == ["ALE/Pong-v5", "gym-async", 2, 1]
    assert [point["run"] for point in series["points"]] == list(range(20))
    assert [point["value"] for point in series["points"][:2]] == pytest.approx([100_000, 101_000])
    (change,) = series["changes"]
    assert (change["run"], change["file"], change["new"]) == (16, ".vebench/016.jsonl", True)
    assert change["ratio"]["low"] < 0.92 < change["ratio"]["high"]
    assert series["level"]["low"] < 92_000 < series["level"]["high"]
    assert data["run_to_run"] == pytest.approx(series["run_to_run"])


def test_only_the_tasks_and_backends_that_are_named_are_looked_at(vebench: Command) -> None:
    write(make_runs({LOOP: lower(STEADY, 4), ASYNC: STEADY}))
    assert vebench("history").status == 1
    assert vebench("history", "--backend", "gym-async", "--env", "pong").status == 0
    assert "did you mean Pong?" in vebench("history", "-e", "Pang").refusal
    assert ".vebench/" in vebench("history", "-b", "gym-sync").refusal


def test_on_several_machines_speedups_are_followed(vebench: Command) -> None:
    machines = [
        *make_runs({LOOP: STEADY[:10], ASYNC: STEADY[:10]}),
        *make_runs({key: [2 * rate for rate in STEADY[:10]] for key in (LOOP, ASYNC)}, ELSEWHERE, 10),
    ]
    write(machines)
    result = vebench("history", "-f", "json")
    assert (result.status, json.loads(result.out)["metric"]) == (0, "speedup")
    slower = lower(STEADY, 4)[10:]
    write([*machines[:10], *make_runs({LOOP: STEADY[10:], ASYNC: slower}, ELSEWHERE, 10)])
    result = vebench("history")
    assert result.status == 1
    assert "vebench check .vebench/015.jsonl .vebench/016.jsonl --metric speedup" in " ".join(result.out.split())


def test_a_damaged_run_is_named_and_other_files_are_ignored(vebench: Command) -> None:
    folder = write(make_runs({ASYNC: STEADY}))
    (folder / "damaged.jsonl").write_text((folder / "000.jsonl").read_text() + "{}\n")
    (folder / "other.jsonl").write_text('{"type": "event"}\n')
    (folder / "000.jsonl.log").write_text("boom\n")
    (folder / "empty.jsonl").touch()
    result = vebench("history")
    assert (result.status, result.err.count("\n")) == (0, 1)
    assert result.err.startswith("vebench: left out: .vebench/damaged.jsonl, line 3: ")
    assert "over 20 runs" in result.out


def test_sides_of_comparisons_are_a_history_if_alone(vebench: Command) -> None:
    side = replace(make_header(), interpreter="/new/bin/python")
    folder = write(make_runs({ASYNC: STEADY}, side))
    assert vebench("history").out.startswith("History: no change in 1 series over 20 runs")
    for path in [*folder.iterdir()]:
        path.with_stem(f"{path.stem}-a").write_bytes(path.read_bytes())
    assert vebench("history").status == 2
    write(make_runs({ASYNC: [50.0] * 6}, first=20))
    assert vebench("history").out.startswith("History: no change in 1 series over 6 runs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["no run in .vebench/", "vebench run"]),
        (("a.jsonl",), ["no run in a.jsonl/"]),
        (("others",), ["no usable run in others/"]),
        (("-f", "csv"), ["csv"]),
    ],
)
def test_a_lack_of_runs_is_a_line_and_status_2(vebench: Command, arguments: tuple[str, ...], words: list[str]) -> None:
    Path("a.jsonl").touch()
    Path("others").mkdir()
    Path("others", "b.jsonl").write_text("{}\n")
    result = vebench("history", *arguments)
    assert result.status == 2
    for word in words:
        assert word in result.refusal


def test_a_stored_run_is_in_the_folder_and_its_history(vebench: Command) -> None:
    write(make_runs({ASYNC: STEADY}), "runs")
    newest = write(make_runs({ASYNC: lower(STEADY, 4)}), "new") / "019.jsonl"
    (stored := newest.with_name("head.jsonl")).write_bytes(newest.read_bytes())
    for _ in range(2):  # again changes nothing
        found = json.loads(vebench("history", "runs", "--store", str(stored), "-f", "json").out)
        assert (len(found["runs"]), found["runs"][-1]["file"]) == (21, "runs/head.jsonl")
    taken = vebench("history", "runs", "--store", "new/019.jsonl")
    assert (taken.status, taken.err.count("\n")) == (2, 1)
