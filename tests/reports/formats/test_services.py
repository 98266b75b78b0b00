"""What services that keep figures over time get."""

from __future__ import annotations

import json

from support.pages import page_of
from support.records import make_cell

from vebench.child.window import Window
from vebench.reports.formats.data import bmf, github
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run


def test_reference_rows_and_cells_without_a_rate_are_left_out_and_names_are_unique(page: RunPage) -> None:
    for names in ([entry["name"] for entry in json.loads(github(page))], list(json.loads(bmf(page)))):
        assert len(names) == len(set(names)) == 8
        assert not [name for name in names if "ceiling" in name or "null" in name]
        assert [name for name in names if "4 workers" in name] == ["ALE/Pong-v5 / for-loop / 4 workers"]
    without_interval = json.loads(bmf(page))["ALE/Pong-v5 / mine.adapters:Fast[mode=a|b] / 2 workers"]
    assert without_interval == {"throughput": {"value": 14800.0}}


def test_of_several_runs_names_begin_with_the_files(sweep: Run) -> None:
    both = RunPage.of([("a.jsonl", sweep), ("b.jsonl", sweep)])
    names = list(json.loads(bmf(both)))
    assert len(names) == 16
    assert {name.partition(": ")[0] for name in names} == {"a.jsonl", "b.jsonl"}


def test_environments_for_each_worker_are_part_of_the_name() -> None:
    cells = (make_cell(steps=(5, 5)), make_cell(steps=(5, 5), envs_per_worker=4))
    names = list(json.loads(bmf(page_of(*cells))))
    assert names == ["ALE/Pong-v5 / for-loop / 1 worker", "ALE/Pong-v5 / for-loop / 1 worker x 4 envs"]


def test_a_run_without_a_rate_is_an_empty_list() -> None:
    empty = page_of()
    assert (github(empty), bmf(empty)) == ("[]\n", "{}\n")


def test_a_note_names_what_was_found_of_the_cell_and_that_its_run_is_unusable() -> None:
    taken = (Window(10**9, 1000, 0, others_ns=5 * 10**8),) * 4
    cells = (make_cell(steps=(900,) * 4), *(make_cell(name, windows=taken) for name in ("gym-sync", "shm-sync")))
    extras = {entry["name"]: entry["extra"] for entry in json.loads(github(page_of(*cells)))}
    assert extras["ALE/Pong-v5 / for-loop / 1 worker"] == "900 steps/s, unusable"
    assert extras["ALE/Pong-v5 / gym-sync / 1 worker"] == "1,000 steps/s, disturbed, unusable"
