"""``vebench report``: which runs it renders, in which format, where to, and several side by side."""

import csv
import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from support.commands import Command
from support.fakes import fake_world
from support.records import make_cell, make_header, make_repeated, on_machine, write_run

from vebench.child.answers import Window
from vebench.reports.document import Document
from vebench.reports.run import RunPage
from vebench.results.records import Run

SMALL = ("run", "-e", "CartPole", "-w", "1,2", "-b", "for-loop,null", "-q")


@pytest.fixture
def measured(vebench: Command, tmp_path: Path) -> Path:
    """Return the file of a run of four cells and a yardstick."""
    assert vebench(*SMALL, "-o", "run.jsonl", world=fake_world()).status == 0
    return tmp_path / "run.jsonl"


def test_a_report_of_the_newest_run_needs_no_name(vebench: Command) -> None:
    vebench("run", "-e", "CartPole", "-w", "1", "-b", "for-loop", "-q", world=fake_world())
    cell, _ = json.loads(vebench("report", "-f", "json").out)
    assert (cell["env"], cell["backend"], cell["status"]) == ("CartPole-v1", "for-loop", "ok")
    speed = cell["frames_per_second"]
    assert speed["low"] <= speed["median"] <= speed["high"]


def test_a_reports_format_follows_from_its_files_suffix(vebench: Command, measured: Path, tmp_path: Path) -> None:
    for name in ("report.md", "report.csv", "report.json", "report.txt"):
        assert vebench("report", measured, "-o", tmp_path / name).status == 0
    assert (tmp_path / "report.md").read_text().startswith("# ")
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))) == 5
    assert len(json.loads((tmp_path / "report.json").read_text())) == 5
    assert "\x1b" not in (tmp_path / "report.txt").read_text()


def test_all_and_columns_are_shown_on_request(vebench: Command, measured: Path) -> None:
    few = vebench("report", measured).out
    assert "efficiency" not in few
    every = vebench("report", measured, "--all", "--columns", "efficiency,peak_rss", "--columns", "startup").out
    titles = [f"CartPole-v1: {name}" for name in ("efficiency", "peak_rss_bytes", "startup_seconds")]
    assert [every.index(title) for title in titles] == sorted(every.index(title) for title in titles)
    assert "100 MiB" in every


def test_a_report_never_overwrites_a_run(vebench: Command, measured: Path, tmp_path: Path) -> None:
    target = tmp_path / "other.csv"
    target.write_bytes(measured.read_bytes())
    before = target.read_bytes()
    result = vebench("report", measured, "-f", "csv", "-o", target)
    assert result.status == 2
    assert "would be overwritten" in result.refusal
    assert target.read_bytes() == before


def test_all_runs_of_a_folder_are_reported_with_their_logs_left_out(vebench: Command, measured: Path) -> None:
    folder = Path("runs")
    folder.mkdir()
    for age, name in enumerate(("b.jsonl", "a.jsonl")):
        (folder / name).write_bytes(measured.read_bytes())
        os.utime(folder / name, (age, age))
    (folder / "a.jsonl.log").write_text("== CartPole-v1, null\nboom\n")
    for arguments, names in (([folder], ["b", "a"]), (sorted(folder.iterdir()), ["a", "b"])):
        result = vebench("report", *arguments, "-f", "json")
        files = list(dict.fromkeys(cell["file"] for cell in json.loads(result.out)))
        assert files == [str(folder / f"{name}.jsonl") for name in names]


OLD = {("for-loop", 1): 1000.0, ("for-loop", 2): 1010.0, ("shm-sync", 1): 980.0, ("shm-sync", 2): 1800.0}
NEW = {("for-loop", 1): 1500.0, ("for-loop", 2): 1490.0, ("shm-sync", 1): 1600.0, ("shm-sync", 2): 2900.0}
ELSEWHERE = on_machine(make_header(), cpu_model="New CPU", kernel="6.9.0", memory_bytes=64 * 2**30)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Return the files of a run on an old machine, and of the same on a new one."""
    old = write_run(tmp_path / "old.jsonl", make_repeated(OLD))
    return old, write_run(tmp_path / "new.jsonl", make_repeated(NEW, ELSEWHERE))


def together(*runs: Run) -> Document:
    return RunPage.of([(f"{number}.jsonl", run) for number, run in enumerate(runs)]).documents[0]


def test_two_runs_are_one_document_that_says_first_what_differs(vebench: Command, two: tuple[Path, Path]) -> None:
    result = vebench("report", *(path.name for path in two))
    assert (result.status, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "2 runs side by side"
    differs = lines.index("B differs cpu_model Test CPU against New CPU")
    assert lines.index("A old.jsonl, on Test CPU") < differs < lines.index("ALE/Pong-v5: B over A")
    assert "Machines or packages differ: a ratio combines the effects of all differences." in " ".join(lines)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (NEW, "A and B, each at its best, are not distinguishable: B is 1.61x (±68%) as fast, shm-sync with 2 workers"),
        ({cell: 1.03 * rate for cell, rate in OLD.items()}, "A and B, each at its best, are not distinguishable: "),
        (
            {**OLD, ("for-loop", 2): 700.0, ("shm-sync", 2): 300.0, ("for-loop", 1): 500.0, ("shm-sync", 1): 600.0},
            "B is 0.39x (±68%) as fast as A, each at its best: for-loop with 2 workers on B, shm-sync with 2 workers",
        ),
        ({("shm-sync", 8): 5000.0}, "B is 2.78x (±68%) as fast as A, each at its best: "),
    ],
)
def test_the_answer_compares_runs_at_their_best(new: dict[tuple[str, int], float], words: str) -> None:
    document = together(make_repeated(OLD), make_repeated(new))
    assert document.answers[0].sentences[0].startswith(f"Pong: {words}")
    assert dict(document.facts)["B differs"] == "nothing known: same machine and plan"


def test_tables_have_ratios_rates_and_the_sizes_of_only_one_run() -> None:
    bigger = {**NEW, **{("shm-sync", workers): 3000.0 for workers in (4, 8, 16)}}
    more = Run(make_header(64), (*make_repeated(bigger).cells, *make_repeated(NEW, env="Ant-v5").cells))
    document = together(make_repeated({**OLD, ("shm-sync", 4): 1800.0}), more)
    (table,) = (table for table in document.tables if table.group)
    assert table.columns == ("1 worker", "2 workers", "4 workers !")
    assert table.rows[1].texts[1].lines == ("1.61x ±68%", "A 7,244 ±10%", "B 11,670 ±10%")
    assert table.notes == ("! more workers than the 2 CPUs of A", "Only B has 8, 16 workers")
    assert dict(document.facts)["not compared"] == "Ant-v5 (in B)"


def test_a_terminal_shows_each_run_alone_with_all_and_a_file_always(vebench: Command, two: tuple[Path, Path]) -> None:
    alone = "vebench run --env Pong"  # the command of a run
    assert alone not in vebench("report", *two).out
    assert vebench("report", *two, "--all").out.count(alone) == 2
    for name in ("both.md", "both.txt"):
        vebench("report", *two, "-o", Path(name))
        text = Path(name).read_text()
        assert text.count(alone) == 2
        assert text.index("2 runs side by side") < text.index(alone)


@pytest.mark.parametrize("options", [("--forecast", "4"), ("--columns", "efficiency")])
def test_what_a_run_alone_shows_is_of_each(vebench: Command, two: tuple[Path, Path], options: tuple[str, str]) -> None:
    out = vebench("report", *(path.name for path in two), *options).out
    title = {"--forecast": "ALE/Pong-v5: Predicted frames/s", "--columns": "ALE/Pong-v5: efficiency"}[options[0]]
    assert out.count(title) == 2
    assert out.index("2 runs side by side") < out.index(title)
    assert "--all shows each run alone" not in out


def test_data_of_several_files_has_all_cells_and_nothing_else(vebench: Command, two: tuple[Path, Path]) -> None:
    both, first = (vebench("report", *files, "-f", "json").out for files in (two, two[:1]))
    assert [cell["file"] for cell in json.loads(both)] == [str(two[0])] * 4 + [str(two[1])] * 4
    assert list(json.loads(both)[0]) == list(json.loads(first)[0])
    assert len(list(csv.DictReader(io.StringIO(vebench("report", *two, "-f", "csv").out)))) == 8


def test_interleaved_sides_of_a_comparison_have_narrower_ratios() -> None:
    head = msgspec.structs.replace(make_header(), interpreter="/old/python")
    other = msgspec.structs.replace(head, interpreter="/new/python", packages={"gymnasium": "1.5.0"})
    again = {cell: 1.06 * rate for cell, rate in OLD.items()}
    document = together(make_repeated(OLD, head), make_repeated(again, other))
    assert document.answers[0].sentences[0].startswith("Pong: B is 1.06x (±<0.1%)")
    assert dict(document.facts)["compared"] == "frames/s; interleaved, so disturbances affected both"
    apart = msgspec.structs.replace(other, started="2026-11-21T09:15:00+00:00")
    (answer, *_) = together(make_repeated(OLD, head), make_repeated(again, apart)).answers
    assert "are not distinguishable" in answer.sentences[0]


def test_no_verdict_is_given_on_an_unusable_run_and_that_is_said_first() -> None:
    window = Window(10**9, 1000, 0, others_ns=5 * 10**8)
    taken = [make_cell(backend, workers, windows=(window,) * 4) for backend, workers in OLD]
    document = together(make_repeated(OLD), Run(make_header(), tuple(taken)))
    unusable = "B is unusable: other processes disturbed 4 of 4 cells; measure on an idle machine"
    assert document.notice == unusable
    assert document.answers[0].sentences == (f"Pong: no verdict: {unusable}.",)
    assert {text.lines[0] for row in document.tables[-1].rows for text in row.texts} == {"inconclusive"}


def test_what_has_no_ratio_says_in_a_word_why_and_below_in_full() -> None:
    lonely, failed = make_cell("gym-sync", 1, (900, 910)), make_cell("shm-async", 2, status="failed", reason="boom")
    old = Run(make_header(), (*make_repeated({**OLD, ("shm-async", 2): 950.0}).cells, lonely))
    document = together(old, Run(make_header(), (*make_repeated(NEW).cells, failed)))
    texts = {row.label: [text.lines for text in row.texts] for row in document.tables[-1].rows}
    assert texts["gym-sync"] == [("only A", "A 3,620 ±11%"), ("-",)]
    assert texts["shm-async"] == [("-",), ("missing", "A 3,823 ±10%")]
    (explanation,) = document.remarks
    assert (explanation.label, explanation.text) == ("missing", "B: failed: boom")
    assert explanation.places == ("ALE/Pong-v5, shm-async, 2 workers",)


def test_of_three_runs_each_is_compared_with_the_first() -> None:
    half = {cell: rate / 2 for cell, rate in OLD.items()}
    document = together(make_repeated(OLD), make_repeated(NEW), make_repeated(half))
    assert document.title == "3 runs side by side"
    (answer,) = document.answers
    said = [sentence.split(",")[0] for sentence in answer.sentences[:2]]
    assert said == ["Pong: A and B", "Pong: C is 0.50x (±68%) as fast as A"]
    assert answer.sentences[2].startswith("B, with the same backend, workers and CPUs: 1.55x")
    new, slow = document.tables
    assert [table.title for table in (new, slow)] == ["ALE/Pong-v5: B over A", "ALE/Pong-v5: C over A"]
    assert [table.rows[1].texts[1].lines[0] for table in (new, slow)] == ["1.61x ±68%", "0.50x ±68%"]
