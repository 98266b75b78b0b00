"""Runs as data: every column, in CSV and in JSON, and what services that keep figures over time get."""

import csv
import io
import json
import os

import pytest
from support.pages import document_of, page_of
from support.records import make_cell, shares

from vebench.child.answers import Window
from vebench.reports import columns
from vebench.reports.formats import data
from vebench.reports.formats.data import bmf, github
from vebench.reports.run import RunPage


def test_json_is_null_where_a_number_does_not_apply(page: RunPage) -> None:
    cells = {(cell["backend"], cell["workers"]): cell for cell in json.loads(data.json_of(page))}
    failed = cells["gym-async", 4]
    assert (failed["status"], failed["frames_per_second"], failed["speedup"]) == ("failed", None, None)
    assert [set(finding) for finding in failed["findings"]] == [{"code", "message", "remedy"}] * 2
    assert cells["null", 1]["speedup"] is None
    assert cells["null", 1]["loop_ns_per_batch"]["median"] == pytest.approx(399.6, 1e-3)
    alone = cells["mine.adapters:Fast", 2]
    assert alone["frames_per_second"] == {"median": 14800.0, "low": None, "high": None}
    assert alone["options"] == {"mode": "a|b"}


@pytest.mark.parametrize("begin", "=+-@\N{FULLWIDTH EQUALS SIGN}")
def test_no_text_of_csv_is_a_formula_and_no_number_a_text(begin: str) -> None:
    name = f"{begin}cmd|'/C calc'!A1"
    page = page_of(make_cell(name, steps=(100,) * 4, env=name), file=f"{begin}x.jsonl")
    (line,) = csv.DictReader(io.StringIO(data.csv_of(page)))
    assert (line["file"], line["env"], line["backend"]) == (f"'{begin}x.jsonl", f"'{name}", f"'{name}")
    assert not any(text.startswith(begin) for text in line.values())
    assert float(line["frames_per_second"]) > 0
    (cell,) = json.loads(data.json_of(page))
    assert (cell["file"], cell["env"]) == (f"{begin}x.jsonl", name)


IDENTITY = {"file", "env", "backend", "options", "workers", "envs_per_worker"}


def test_csv_keeps_the_order_of_its_columns_and_appends_new_ones(page: RunPage) -> None:
    rates = ("steps_per_second", "frames_per_second", "speedup", "efficiency", "of_ceiling", "frames_per_cpu_second")
    known = [
        *("file", "env", "backend", "workers", "envs_per_worker", "num_envs", "batch_size", "processes", "threads"),
        *("cpus", "frame_skip", "status", "reason", "repeats", "windows", "rows", "resets"),
        *(f"{name}{bound}" for name in (*rates, "ns_per_batch") for bound in ("", "_low", "_high")),
        *("startup_seconds", "peak_rss_bytes", "oversubscribed", "verdict", "findings"),
    ]
    assert data.csv_of(page).splitlines()[0].split(",")[: len(known)] == known


def test_json_and_csv_have_the_same_columns_and_the_same_values(page: RunPage) -> None:
    cells = json.loads(data.json_of(page))
    lines = list(csv.DictReader(io.StringIO(data.csv_of(page))))
    names = {name.removesuffix("_low").removesuffix("_high") for name in lines[0]}
    assert names - IDENTITY == set(cells[0]) - IDENTITY
    for cell, line in zip(cells, lines, strict=True):
        for name in names - IDENTITY - {"cpus", "findings", "hosts"}:
            value = cell[name]
            if isinstance(value, dict):
                assert [line[f"{name}{bound}"] for bound in ("", "_low", "_high")] == [
                    "" if number is None else str(number) for number in value.values()
                ]
            else:
                assert line[name] == ("" if value is None else str(value))
        assert line["findings"].split() == [finding["code"] for finding in cell["findings"]]
        rates = {one["host"]: one["steps_per_second"]["median"] for one in cell["hosts"]}
        assert line["hosts"].split() == [f"{host}={rate:.0f}" for host, rate in rates.items()]


def test_what_each_host_did_is_in_both_and_in_a_table_of_its_own() -> None:
    cells = (make_cell(steps=(100,) * 4), make_cell("shm-sync", 2, (200,) * 4, hosts=shares(100, 80)))
    page = page_of(*cells)
    assert json.loads(data.json_of(page))[1]["hosts"] == [
        {"host": "host-0", "steps_per_second": {"median": 100.0, "low": None, "high": None}},
        {"host": "host-1", "steps_per_second": {"median": 80.0, "low": None, "high": None}},
    ]
    assert list(csv.DictReader(io.StringIO(data.csv_of(page))))[1]["hosts"] == "host-0=100 host-1=80"
    (table,) = (table for table in document_of(page).tables if table.title.endswith(": hosts"))
    assert table.rows[-1].texts[-1].lines == ("host-0=100, host-1=80",)


def test_both_formats_have_the_columns_and_no_others(page: RunPage) -> None:
    known = IDENTITY.union(column.name for column in columns.COLUMNS)
    names = data.csv_of(page).splitlines()[0].split(",")
    assert {name.removesuffix("_low").removesuffix("_high") for name in names} <= known
    assert set(json.loads(data.json_of(page))[0]) == known


def test_a_name_that_cannot_be_encoded_is_escaped() -> None:
    text = data.dump({"file": os.fsdecode(b"a\xff.jsonl"), "unit": "µs"})
    assert json.loads(text.encode()) == {"file": "a\udcff.jsonl", "unit": "µs"}
    assert "µs" in text


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        data.dump({"value": number})


def test_reference_rows_and_cells_without_a_rate_are_left_out_and_names_are_unique(page: RunPage) -> None:
    for names in ([entry["name"] for entry in json.loads(github(page))], list(json.loads(bmf(page)))):
        assert len(names) == len(set(names)) == 8
        assert not [name for name in names if "ceiling" in name or "null" in name]
        assert [name for name in names if "4 workers" in name] == ["ALE/Pong-v5 / for-loop / 4 workers"]
    without_interval = json.loads(bmf(page))["ALE/Pong-v5 / mine.adapters:Fast[mode=a|b] / 2 workers"]
    assert without_interval == {"throughput": {"value": 14800.0}}


def test_a_note_names_what_was_found_of_the_cell_and_that_its_run_is_unusable() -> None:
    taken = (Window(10**9, 1000, 0, others_ns=5 * 10**8),) * 4
    cells = (make_cell(steps=(900,) * 4), *(make_cell(name, windows=taken) for name in ("gym-sync", "shm-sync")))
    extras = {entry["name"]: entry["extra"] for entry in json.loads(github(page_of(*cells)))}
    assert extras["ALE/Pong-v5 / for-loop / 1 worker"] == "900 steps/s, unusable"
    assert extras["ALE/Pong-v5 / gym-sync / 1 worker"] == "1,000 steps/s, disturbed, unusable"
