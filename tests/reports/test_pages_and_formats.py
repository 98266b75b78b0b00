"""Reports: every number with its interval, every cell accounted for, in each format's own syntax."""

from __future__ import annotations

import csv
import io
import json
import re

import msgspec
import pytest
from rich.console import Console
from support.records import make_cell, make_header

from vebench.analysis.statistics import Estimate
from vebench.backends.interface import Task
from vebench.machine.placement import place
from vebench.plan.cells import Plan, expand, without
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.reports import figures
from vebench.reports.formats import csv as as_csv
from vebench.reports.formats import json as as_json
from vebench.reports.formats import markdown, terminal
from vebench.reports.pages.plan import plan_document
from vebench.reports.pages.run import Report, document
from vebench.results.records import Run, WindowRecord

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@pytest.fixture
def report(sweep: Run) -> Report:
    return Report.of([("pong.jsonl", sweep)])


@pytest.fixture
def wide() -> Report:
    """Return a report on nine worker counts."""
    cells = [make_cell(backend, size, (2300, 2310) * 3) for size in SIZES for backend in ("for-loop", "envpool-sync")]
    return Report.of([("wide.jsonl", Run(make_header(), tuple(cells)))])


def on_terminal(report: Report, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    terminal.write(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(13120.4, "13,120"), (99.96, "100"), (42.34, "42.3"), (2.3149, "2.31"), (0.411, "0.41"), (0.0042, "0.0042")],
)
def test_numbers_keep_three_digits_or_more(value: float, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(100.0, 98.6, 101.4), "±1.4%"),
        (Estimate(100.0, 80.0, 125.0), "±25%"),
        (Estimate(100.0, 10.0, 1000.0), "±>100%"),
        (Estimate(100.0, 99.99, 100.01), "±<0.1%"),
        (Estimate(100.0), "(no interval)"),
        (Estimate(0.0, 0.0, 12.0), "(to 12.0)"),
    ],
)
def test_a_spread_is_the_larger_half_of_the_interval(estimate: Estimate, text: str) -> None:
    assert figures.spread(estimate) == text


@pytest.mark.parametrize(("seconds", "text"), [(45.4, "45 s"), (320, "5 min 20 s"), (3659.7, "1 h 01 min")])
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


def test_rows_are_as_in_the_registry_with_third_parties_after_and_references_last(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert [row.label for row in table.rows] == [
        "for-loop", "gym-async", "envpool-sync", "mine.adapters:Fast[mode=a|b]", "ceiling", "null",
    ]  # fmt: skip
    assert [row.reference for row in table.rows] == [False, False, False, False, True, True]


def test_tasks_stand_in_the_order_in_which_they_were_asked_for() -> None:
    envs = ("CartPole-v1", "ALE/Pong-v5", "Ant-v5")  # as a shuffled run measures them
    run = Run(make_header(envs=("Pong", "Ant", "CartPole")), tuple(make_cell(env=env) for env in envs))
    titles = [table.title.partition(":")[0] for table in document(Report.of([("a", run)]).sections[0]).tables]
    assert titles == ["ALE/Pong-v5", "Ant-v5", "CartPole-v1"]


def test_no_cell_is_blank(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    texts = {
        (row.label, column): text.lines for row in table.rows for column, text in zip("124v", row.texts, strict=True)
    }
    assert all(line for lines in texts.values() for line in lines)
    assert texts["gym-async", "4"] == ("failed",)
    assert texts["envpool-sync", "4"] == ("skipped",)
    assert texts["null", "4"] == ("not run",)


def test_a_cell_shows_frames_and_steps_with_interval_and_speedup(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert table.rows[2].texts[1].lines == ("14,402 ±4.0%", "3,600 steps/s", "1.56x ±5.7%")


def test_a_reference_row_shows_no_speedup(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert (table.rows[4].label, table.rows[4].texts[1].lines) == ("ceiling", ("37,610 ±4.0%", "9,402 steps/s"))


@pytest.mark.parametrize(
    ("loop", "note"),
    [
        ((2, "ok"), "was not measured (add -b for-loop and 1 to --workers)"),
        ((1, "failed"), "has no rate"),
    ],
)
def test_without_the_reference_one_note_says_why_there_are_no_speedups(loop: tuple[int, str], note: str) -> None:
    workers, status = loop
    cells = (make_cell("for-loop", workers, (900,) * 4, status=status), make_cell("gym-sync", 1, (900,) * 4))
    (table,) = document(Report.of([("a", Run(make_header(), cells))]).sections[0]).tables
    assert table.notes == (f"no speedups: for-loop with one worker {note}",)
    assert [text.lines[1:] for text in table.rows[1].texts[:-1] if text.tone != "missing"] == [("900 steps/s",)]


def test_one_window_is_shown_to_have_no_interval(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert table.rows[3].texts[1].lines == ("14,800 (no interval)", "3,700 steps/s", "1.61x (no interval)")


def test_the_null_backend_shows_the_cost_of_the_loop(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert table.rows[-1].texts[0].lines == ("0.40 µs ±4.0%", "a batch")
    assert "null: what the measuring loop itself costs" in table.notes


def test_the_best_is_the_fastest_with_an_interval_that_is_no_reference(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    best = [(row.label, index) for row in table.rows for index, text in enumerate(row.texts) if text.tone == "best"]
    assert best == [("envpool-sync", 1)]


def test_a_rate_that_cannot_be_is_not_called_the_best() -> None:
    cells = (
        make_cell("for-loop", 1, (100,) * 4),
        make_cell("shm-sync", 1, (900,) * 4),
        make_cell("ceiling", 1, (500,) * 4),
    )
    (table,) = document(Report.of([("a", Run(make_header(), cells))]).sections[0]).tables
    assert [row.texts[0].tone for row in table.rows] == ["best", "plain", "reference"]


def test_the_last_column_says_whether_the_work_is_the_same() -> None:
    cells = (
        make_cell("for-loop", 1, (100,) * 4),
        make_cell("envpool-sync", 1, (900,) * 4, verdict="equal"),
        make_cell("gym-sync", 1, (100,) * 4, verdict=None),
        make_cell("null", 1, (10_000,) * 4),
    )
    (table,) = document(Report.of([("a", Run(make_header(), cells))]).sections[0]).tables
    told = {row.label: row.texts[-1].lines for row in table.rows}
    assert told == {
        "for-loop": ("identical",), "envpool-sync": ("equal",), "gym-sync": ("unverified",), "null": ("-",),
    }  # fmt: skip


def test_a_rate_of_other_work_is_struck_and_not_the_best() -> None:
    cells = (make_cell("for-loop", 1, (100,) * 4), make_cell("gym-sync", 1, (900,) * 4, verdict="different"))
    report = Report.of([("a", Run(make_header(), cells))])
    (table,) = document(report.sections[0]).tables
    assert [(row.texts[0].tone, row.texts[0].lines[-1]) for row in table.rows] == [
        ("best", "1.00x"),
        ("struck", "other work"),
    ]
    assert "~~3,600 ±4.0%~~<br>other work | different |" in markdown.render(report)


def test_columns_with_more_workers_than_cpus_are_marked(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert table.columns == ("1 worker", "2 workers", "4 workers !", "same work")
    assert "! more workers than the 2 CPUs that they run on" in table.notes


def test_differences_from_the_reference_are_noted(report: Report) -> None:
    (table,) = document(report.sections[0]).tables
    assert table.differences == ("envpool-sync: rewards are float32",)
    heading = "Not quite the same work as for-loop:"
    assert f"{heading}\n  envpool-sync: rewards are float32" in on_terminal(report, 80)
    assert f"{heading}\n\n- envpool-sync: rewards are float32\n" in markdown.render(report)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_is_never_overrun(wide: Report, report: Report, width: int) -> None:
    for text in (on_terminal(wide, width), on_terminal(report, width)):
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", range(60, 260, 7))
def test_a_table_too_wide_is_split_and_loses_no_column(wide: Report, width: int) -> None:
    text = on_terminal(wide, width)
    assert [text.count(f" {size} worker") >= 1 for size in SIZES] == [True] * len(SIZES)
    assert len(re.findall(r"2,305 steps/s", text)) == 2 * len(SIZES)
    assert len(re.findall(r"1\.00x ±5\.\d%", text)) == 2 * len(SIZES) - 1  # one is the loop over itself


def test_three_worker_counts_fit_beside_each_other_in_80_columns() -> None:
    fast = (1_111_111, 1_222_222, 1_111_111, 1_222_222)
    cells = [
        make_cell(backend, size, fast) for size in (1, 2, 4) for backend in ("for-loop", "envpool-async", "ceiling")
    ]
    text = on_terminal(Report.of([("a.jsonl", Run(make_header(), tuple(cells)))]), 80)
    assert re.search(r"backend +1 worker +2 workers +4 workers !", text)


def test_without_colour_the_best_is_still_marked(report: Report) -> None:
    text = on_terminal(report, 100)
    assert "\x1b" not in text
    assert "* 14,402 ±4.0%" in text


def test_findings_come_last_with_their_remedies(report: Report) -> None:
    text = on_terminal(report, 200)
    assert text.index("Findings") > text.index("highest median")
    assert re.search(
        r"\nfailed +timed out after 300 s in recv \| see log *\n +ALE/Pong-v5: gym-async at 4 workers *\n"
        r" +-> see pong\.jsonl\.log .*vebench run --resume pong\.jsonl measures it again",
        text,
    )


def test_on_a_narrow_terminal_a_findings_code_has_a_line_of_its_own(report: Report) -> None:
    lines = [line.rstrip() for line in on_terminal(report, 80).splitlines()]
    start = lines.index("failed")
    assert lines[start + 1 : start + 3] == [
        "  timed out after 300 s in recv | see log",
        "    ALE/Pong-v5: gym-async at 4 workers",
    ]


def test_a_run_that_was_not_finished_says_so(sweep: Run) -> None:
    run = Run(msgspec.structs.replace(sweep.header, cells=30), sweep.cells)
    text = markdown.render(Report.of([("r.jsonl", run)]))
    assert "- **incomplete**: 14 of 30 cells\n  - → vebench run --resume r.jsonl" in text


def test_what_a_file_says_cannot_steer_the_terminal() -> None:
    cells = (make_cell("\x1b[2Jevil:\nClass", 1, (100,) * 4, env="a\x1b]0;b\x07", differences=("[red]\x1b[31m",)),)
    text = on_terminal(Report.of([("x\x1b.jsonl", Run(make_header(), cells))]), 100)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text


def test_a_markdown_table_has_as_many_columns_in_each_line(report: Report) -> None:
    lines = [line for line in markdown.render(report).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 6
    assert {line.replace("\\|", "").count("|") for line in lines} == {6}
    assert len({len(line) for line in lines}) == 1
    assert " **14,402 ±4.0%**<br>3,600 steps/s<br>1.56x ±5.7% |" in lines[4]


def test_markdown_says_how_to_read_a_table_before_it(report: Report) -> None:
    text = markdown.render(report)
    assert text.index("In each place: ") < text.index("**Bold**: highest median") < text.index("### ALE/Pong-v5")


def test_markdown_has_a_title_the_machine_and_the_command_that_repeats_it(report: Report) -> None:
    text = markdown.render(report)
    assert text.startswith("# Throughput of vector-env backends\n\n## pong.jsonl\n")
    assert "- machine: Test CPU, 2 of 2 CPUs usable, 24.0 GiB\n" in text
    assert "- command: `vebench run --env Pong`\n" in text
    assert text.index("### Findings") > text.index("### ALE/Pong-v5")


def test_markdown_has_one_table_for_each_task() -> None:
    cells = [make_cell(backend, env=env) for env in ("Ant-v5", "CartPole-v1") for backend in ("for-loop", "gym-sync")]
    text = markdown.render(Report.of([("a.jsonl", Run(make_header(), tuple(cells)))]))
    assert [line for line in text.splitlines() if line.startswith("| backend")] == [
        "| backend  |  1 worker | same work |"
    ] * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("**x** <b>", r"\*\*x\*\* \<b>"),
        ("x86_64 __init__", r"x86_64 \_\_init\_\_"),
        ("[a](b)", r"[a\](b)"),
        ("±>100%", "±>100%"),
    ],
)
def test_what_would_be_markup_is_escaped(text: str, shown: str) -> None:
    assert f"## {shown}\n" in markdown.render(Report.of([(text, Run(make_header(), ()))]))


def test_csv_has_a_line_for_each_cell_and_every_derived_number(report: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv.render(report))))
    assert len(lines) == 14
    pool = next(line for line in lines if (line["backend"], line["workers"]) == ("envpool-sync", "2"))
    assert pool["cpus"] == "0-1"
    assert float(pool["frames_per_second"]) == 14402.0
    assert float(pool["efficiency"]) == pytest.approx(14402 / 9212 / 2)
    failed = next(line for line in lines if line["status"] == "failed")
    assert (failed["frames_per_second"], failed["findings"]) == ("", "failed oversubscribed")


def test_json_has_the_keys_that_the_design_fixes_in_that_order(report: Report) -> None:
    cells = json.loads(as_json.render(report))
    assert len(cells) == 14
    assert list(cells[0])[:14] == [
        "env", "backend", "workers", "num_envs", "status", "steps_per_second", "frames_per_second", "speedup",
        "efficiency", "of_ceiling", "frames_per_cpu_second", "startup_seconds", "peak_rss_bytes", "findings",
    ]  # fmt: skip
    pool = next(cell for cell in cells if (cell["backend"], cell["workers"]) == ("envpool-sync", 2))
    assert {key: pool[key] for key in list(pool)[-8:]} == {
        "envs_per_worker": 1, "batch_size": 2, "processes": 1, "threads": 1, "cpus": [0, 1], "frame_skip": 4,
        "verdict": "identical", "verdict_reason": "",
    }  # fmt: skip
    assert list(cells[0]["speedup"]) == ["median", "low", "high"]


def test_json_is_null_where_a_number_does_not_apply(report: Report) -> None:
    cells = {(cell["backend"], cell["workers"]): cell for cell in json.loads(as_json.render(report))}
    failed = cells["gym-async", 4]
    assert (failed["status"], failed["frames_per_second"], failed["speedup"]) == ("failed", None, None)
    assert [set(finding) for finding in failed["findings"]] == [{"code", "message", "remedy"}] * 2
    assert (cells["null", 1]["speedup"], cells["null", 1]["loop_ns_per_batch"]["median"]) == (
        None,
        pytest.approx(399.6, 1e-3),
    )
    alone = cells["mine.adapters:Fast", 2]
    assert alone["frames_per_second"] == {"median": 14800.0, "low": None, "high": None}
    assert alone["options"] == {"mode": "a|b"}


def test_several_files_are_sections_in_the_order_given(sweep: Run, wide: Report) -> None:
    both = Report.of([("b.jsonl", sweep), ("a.jsonl", wide.sections[0].run)])
    text = markdown.render(both)
    assert text.index("## b.jsonl") < text.index("## a.jsonl")
    assert [cell["file"] for cell in json.loads(as_json.render(both))] == ["b.jsonl"] * 14 + ["a.jsonl"] * 18
    assert len(as_csv.render(both).splitlines()) == 1 + 14 + 18


def test_a_run_without_a_cell_is_rendered() -> None:
    empty = Report.of([("a.jsonl", Run(make_header(), ()))])
    assert "No cell has been measured yet." in on_terminal(empty, 80)
    assert "No cell has been measured yet." in markdown.render(empty)
    assert as_json.render(empty) == "[]\n"
    assert list(csv.DictReader(io.StringIO(as_csv.render(empty)))) == []
    assert as_csv.render(empty).startswith("file,env,backend,workers,")


def test_a_window_without_transitions_is_rendered() -> None:
    windows = (WindowRecord(ns=10**9, rows=0, resets=0, cpu_ns=10**9), WindowRecord(ns=10**9, rows=5, resets=0))
    run = Run(
        make_header(),
        (make_cell(windows=windows), make_cell("null", windows=windows[:1]), make_cell("gym-sync", windows=())),
    )
    report = Report.of([("a.jsonl", run)])
    assert "no window" in on_terminal(report, 80)
    assert json.loads(as_json.render(report))[0]["frames_per_second"]["low"] == 0.0


TASKS = (Task("ALE/Pong-v5", "atari", 4), Task("Own-v0", "gymnasium", 1))


def shown(plan: Plan) -> str:
    console = Console(file=io.StringIO(), width=80)
    terminal.write_document(plan_document(plan), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def planned() -> str:
    spec = RunSpec(("Pong", "Own-v0"), (1, 4), repeats=2)
    return shown(expand(spec, TASKS, place("compact", frozenset({0, 1})), None))


def test_what_is_left_of_repeats_is_counted_cell_by_cell() -> None:
    spec = RunSpec(("Pong",), (1, 4), (BackendChoice("for-loop"),), repeats=3)
    whole = expand(spec, TASKS[:1], place("compact", frozenset({0, 1})), None)
    assert "2 cells x 3 repeats" in shown(whole)
    assert "5 cells in 3 repeats" in shown(without(whole, {whole.cells[0].key}))


def test_a_plan_shows_each_cell_with_its_layout_and_cpus_once(planned: str) -> None:
    pool = [line.split() for line in planned.splitlines() if line.startswith(" envpool-async ")]
    assert pool == [
        ["envpool-async", "1", "3", "(1", "a", "batch)", "1", "x", "1", "0", "-"],
        ["envpool-async", "4", "12", "(4", "a", "batch)", "1", "x", "2", "0-1", "-"],
    ]
    bare = [line.split() for line in planned.splitlines() if line.startswith(" ceiling ")]
    assert bare[1] == ["ceiling", "4", "2", "2", "x", "1", "0-1", "-"]


def test_a_plan_shows_what_is_skipped_and_why_and_how_long_the_rest_takes(planned: str) -> None:
    assert "skipped: envpool-sync at 1, 4 workers: envpool-sync has no Own-v0" in " ".join(planned.split())
    # Pong on 9 backends, Own-v0 on 6 and 2 skipped; each at 2 worker counts, twice, for 7 seconds.
    assert "30 cells x 2 repeats, 4 skipped" in planned
    assert "about 9 min 00 s, of which 2 s a cell to start it" in planned
    assert planned.index("ALE/Pong-v5") < planned.index("\nOwn-v0")


def test_what_is_not_installed_costs_a_plan_one_line_for_all_backends_that_need_it() -> None:
    spec = RunSpec(("Pong",), (1, 4), tuple(map(BackendChoice, ("for-loop", "gym-sync", "envpool-sync"))))
    without_ale = expand(spec, TASKS[:1], place("compact", frozenset({0, 1})), None, lambda module: module != "ale_py")
    (table,) = plan_document(without_ale).tables
    assert table.notes == ("skipped: for-loop, gym-sync at 1, 4 workers: not installed: ale-py (pip install ale-py)",)


def test_several_runs_say_whether_they_may_be_compared_and_why_not(sweep: Run) -> None:
    other = msgspec.structs.replace(sweep.header.host, cpu_model="Another 9000", governor="powersave")
    elsewhere = Run(msgspec.structs.replace(sweep.header, host=other), sweep.cells)
    first, again, away = Report.of([("a.jsonl", sweep), ("b.jsonl", sweep), ("c.jsonl", elsewhere)]).sections
    assert "compared" not in dict(document(first).facts)
    assert dict(document(again).facts)["compared"] == "comparable with a.jsonl: the same machine and packages"
    told = dict(document(away).facts)["compared"]
    assert told == "not comparable with a.jsonl: cpu_model Test CPU against Another 9000"


def test_a_run_under_a_quota_says_so() -> None:
    half = msgspec.structs.replace(make_header().host, quota_cpus=0.5, quota_source="/sys/fs/cgroup/cpu.max")
    run = Run(msgspec.structs.replace(make_header(), host=half), (make_cell("for-loop", 1, (2300, 2310, 2305, 2290)),))
    (remark,) = document(Report.of([("pong.jsonl", run)]).sections[0]).remarks
    assert remark.code == "quota"
    assert "a quota of 0.5 CPUs (/sys/fs/cgroup/cpu.max) is less than one CPU" in remark.text
