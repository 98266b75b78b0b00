"""Run files: what is written is read again, kept whatever others do to the file, and its damage said in a line."""

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import Command
from support.records import make_cell, make_header, on_hosts, on_machine, write_lines

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.answers import CellProof, Done, Layout, Ready, Window
from vebench.engine.runner import Outcome
from vebench.errors import RunFileError, StorageError, UsageError
from vebench.files import LONGEST_TEXT, MOST_BYTES
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.results.records import RunRecord, WindowRecord, fingerprint, record, sealed, what_differs
from vebench.results.store import RunWriter, default_path, read, refuse_to_overwrite, run_files, run_files_in

NOW = datetime(2026, 11, 21, 8, 15, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pong.jsonl"


@pytest.fixture
def written(path: Path) -> Path:
    """Return a run file with two cells."""
    with RunWriter.create(path, make_header()) as writer:
        writer.append(make_cell("for-loop", 1, (2300, 2310)))
        writer.append(make_cell("gym-async", 2, (2400,)))
    return path


def replace_line(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    write_lines(path, lines)


def test_what_is_appended_is_read_again(written: Path) -> None:
    run = read(written)
    assert run.header == make_header()
    appended = (make_cell("for-loop", 1, (2300, 2310)), make_cell("gym-async", 2, (2400,)))
    assert run.cells == tuple(replace(cell, run=run.header.digest) for cell in appended)
    assert run.notes == ()


def test_the_lines_are_those_that_the_design_fixes(written: Path) -> None:
    first, second, third = map(json.loads, written.read_text().splitlines())
    assert (first["type"], first["schema"]) == ("run", 2)
    assert [*second][:2] == ["type", "env"]
    assert second["type"] == "cell"
    fixed = {"ns": 10**9, "rows": 2300, "resets": 0, "cpu_ns": 10**9, "throttled_ns": None, "steal_ns": None}
    assert second["windows"][0].items() >= fixed.items()
    for line in written.read_bytes().splitlines():
        body, _, end = line.rpartition(b',"crc32":"')
        assert end == b'%08x"}' % zlib.crc32(body)
    del third["crc32"]
    written.write_bytes(
        b"".join(written.read_bytes().splitlines(keepends=True)[:2]) + json.dumps(third).encode() + b"\n"
    )
    with pytest.raises(RunFileError, match=r"line 3: its checksum \(crc32\) does not match"):
        read(written)


def test_a_run_that_cannot_be_written_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = BackendChoice("mine:Adapter", {"a": "\udcff"})
    with pytest.raises(UsageError, match="a run file cannot store this request"):
        RunWriter.create(path, make_header(backends=[{"name": choice.name, "options": choice.options}]))

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        RunWriter.create(path, make_header())
    assert not path.exists()


def test_a_report_never_overwrites_a_run(written: Path, tmp_path: Path) -> None:
    other, link = tmp_path / "other.csv", tmp_path / "link.csv"
    other.write_bytes(written.read_bytes()[:40])  # damaged, and still one
    link.symlink_to(written)
    for target in (written, other, link):
        with pytest.raises(UsageError, match="is a run file, and would be overwritten"):
            refuse_to_overwrite(target)
    for content in (b"", b"# Throughput\n", b'[{"type": "run"}]\n', b"[" * 100_000):
        other.write_bytes(content)
        refuse_to_overwrite(other)


def test_a_resumed_run_goes_on_where_it_ended(written: Path) -> None:
    with RunWriter.resume(written) as writer:
        with pytest.raises(UsageError, match="being written by another run"):
            RunWriter.resume(written)
        assert len(writer.run.cells) == 2
        writer.append(make_cell("shm-sync", 2, (3000,)))
        assert writer.run == read(written)
    assert [found.backend for found in read(written).cells] == ["for-loop", "gym-async", "shm-sync"]
    written.write_bytes(written.read_bytes()[:-20])  # a cut-off line is removed first
    with RunWriter.resume(written) as writer:
        assert writer.notes == [f"{written}, line 4: truncated, ignored"]
        writer.append(make_cell("ceiling", 2, (3000,)))
    run = read(written)
    assert [found.backend for found in run.cells] == ["for-loop", "gym-async", "ceiling"]
    assert run.notes == ()


def test_a_cell_measured_again_supersedes_what_was_measured_before(written: Path) -> None:
    with RunWriter.resume(written) as writer:
        writer.append(make_cell("for-loop", 1, (2500,)))
        writer.append(make_cell("for-loop", 1, (2600,), repeat=1))
        writer.append(make_cell("for-loop", 1, (2700,), options={"a": 1}))
    rows = [(found.backend, found.windows[0].rows) for found in read(written).cells]
    assert rows == [("for-loop", 2500), ("gym-async", 2400), ("for-loop", 2600), ("for-loop", 2700)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"workers":2', '"workers":"2"'),
        ('"workers":2', '"workers":0'),
        ('"workers":2', f'"workers":{10**30}'),
        ('"resets":0', '"resets":2401'),
        ('"rows":2400', '"rows":-1'),
        ('"status":"ok"', '"status":"fine"'),
        ('"type":"cell"', '"type":"note"'),
        ('"ns":1000000000', '"ns":0'),
    ],
)
def test_a_value_that_cannot_be_is_an_error_even_in_the_last_line(written: Path, before: str, after: str) -> None:
    line = written.read_text().splitlines()[2]
    assert before in line
    replace_line(written, 3, line.replace(before, after))
    with pytest.raises(RunFileError, match="line 3: ") as error:
        read(written)
    assert "rows" not in before or "line 3: Expected int >= 0 - at $.windows[0].rows" in str(error.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [(3, r"written by another version of vebench \(schema 3; this one reads 2\)"), ("1", "Expected int, got str")],
)
def test_another_schema_is_an_error(written: Path, schema: object, message: str) -> None:
    first = json.loads(written.read_text().splitlines()[0])
    # What a later version writes need not make sense to this one.
    replace_line(written, 1, json.dumps({**first, "schema": schema, "host": first["host"] if schema != 3 else "new"}))
    with pytest.raises(RunFileError, match=f"line 1: {message}"):
        read(written)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\n", "line 1: not a vebench run file"),
        (b"\x7fELF\x00\x01\xff\xfe" * 100, "line 1: not a vebench run file"),
        (b'{"type": "cell"}\n', "line 1: not a vebench run file"),
        (b"[" * 100_000, "line 1: not a vebench run file"),
        (sealed(b'{"type":"run","schema":2}'), "line 1: Object missing required field spec"),
        (b'{"type": "run", "schema": 2, "x": "\xff"}\n', "line 1: its checksum"),
    ],
)
def test_a_foreign_file_is_an_error(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(RunFileError, match=message) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_an_error(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFileError, match="Is a directory"):
        read(written.parent)

    def refuse(_path: Path, _mode: str) -> BinaryIO:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, whom no mode refuses
    with pytest.raises(RunFileError, match=r"cannot read .*: Permission denied"):
        read(written)


def test_a_full_disk_costs_no_cell_that_was_measured(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written.read_bytes()
    write = os.write
    room = [100]

    def fill(fd: int, data: memoryview) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[: room.pop()])

    with RunWriter.resume(written) as writer:
        monkeypatch.setattr(os, "write", fill)
        with pytest.raises(StorageError, match=f"free some space, then vebench run --resume {written}"):
            writer.append(make_cell("shm-sync", 2, (3000,)))
        monkeypatch.undo()
    assert written.read_bytes() == whole


def test_the_newest_run_is_the_one_written_to_last(tmp_path: Path) -> None:
    for seconds, name in ((300, "b.jsonl"), (500, "a.jsonl"), (900, "notes.txt"), (400, "c.jsonl")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    assert [path.name for path in run_files([tmp_path])] == ["b.jsonl", "c.jsonl", "a.jsonl"]
    run, log = Path("a.jsonl"), Path("a.jsonl.log")
    assert run_files([run, log, Path("odd.log")]) == [run, Path("odd.log")]
    assert run_files([log]) == [log]


@pytest.mark.parametrize(
    ("envs", "name"),
    [
        (["Pong", "Ant-v5"], "20261121T081500Z-pong-ant.jsonl"),
        (["ALE/Pong-v5"], "20261121T081500Z-pong.jsonl"),
        (["my.module:Own/Thing_2-v0"], "20261121T081500Z-my-module-thing-2.jsonl"),
        (["../../etc/passwd"], "20261121T081500Z-passwd.jsonl"),
        (["日本"], "20261121T081500Z.jsonl"),
        (["Game"] * 100, f"20261121T081500Z-{'game-' * 12}".removesuffix("-") + ".jsonl"),
    ],
)
def test_a_run_is_named_by_its_time_and_tasks(envs: list[str], name: str) -> None:
    here = NOW.astimezone(timezone(timedelta(hours=9)))
    assert default_path(here, envs) == default_path(NOW, envs) == Path(".vebench") / name


def test_a_second_run_in_the_same_second_has_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        path = default_path(NOW, ["Pong"])
        RunWriter.create(path, make_header()).__exit__(None, None, None)
        assert run_files_in()[-1] == path
        names.append(path.name.removeprefix("20261121T081500Z-"))
    assert names == ["pong.jsonl", "pong-2.jsonl", "pong-3.jsonl"]


@pytest.fixture
def planned() -> Cell:
    choice = BackendChoice("envpool-async", {"ratio": 2})
    task = Task("ALE/Pong-v5", "atari", 4)
    return Cell(task, choice, 2, 1, Shape(4, 2, 1, 2), (0, 1), repeat=1)


def test_a_measured_cell_is_recorded_as_its_adapter_built_it(planned: Cell) -> None:
    layout = Layout(6, 3, 1, 1, 5, "same_step", ("rewards are\nfloat32",), (0, 1))
    found = record(planned, Outcome("ok", None, Ready(7, layout), (Window(9, 6, 1, 5, 4, 3),), Done(8)))
    assert (found.num_envs, found.batch_size, found.processes, found.threads, found.frame_skip) == (6, 3, 1, 1, 5)
    assert found.windows == (WindowRecord(9, 6, 1, 5, 4, 3),)
    assert (found.autoreset, found.differences, found.affinity) == ("same_step", ("rewards are float32",), (0, 1))
    assert (found.startup_ns, found.peak_rss_bytes, found.options) == (7, 8, {"ratio": 2})
    assert found.key == planned.key


def test_a_cell_that_never_got_ready_is_recorded_as_planned(planned: Cell) -> None:
    found = record(planned, Outcome("failed", "Traceback:\n  \x1b[31mboom \udcff"))
    assert (found.num_envs, found.batch_size, found.processes, found.threads, found.frame_skip) == (4, 2, 1, 2, 4)
    assert found.reason == "Traceback: [31mboom"


@given(cut=st.integers(0, 2000))
def test_a_file_cut_off_anywhere_is_read_so_far_or_refused(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("runs") / "run.jsonl"
    with RunWriter.create(path, make_header()) as writer:
        writer.append(make_cell("for-loop", 1, (2300,)))
        writer.append(make_cell("for-loop", 2, (2300,)))
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    whole = data.count(b"\n")
    if whole:
        assert len(read(path).cells) == whole - 1
    else:
        with pytest.raises(RunFileError, match=r"empty|not a vebench run file|truncated"):
            read(path)


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({"python": "3.11.9"}, {"python": "3.12.1"}, ["Python 3.11 against 3.12"]),
        ({"python": "3.11.9"}, {"python": "3.11.0"}, []),
        ({"governor": "performance"}, {"governor": "powersave"}, ["governor performance against powersave"]),
        ({"governor": "performance"}, {"governor": None}, []),
    ],
)
def test_machines_differ_by_known_facts(one: dict[str, object], other: dict[str, object], told: list[str]) -> None:
    first, second = (on_machine(make_header(), **facts) for facts in (one, other))
    assert what_differs(first, second) == told
    assert (fingerprint(first) == fingerprint(second)) == (not told and None not in other.values())


def test_runs_on_hosts_differ_from_those_on_one_machine_and_by_what_the_hosts_are() -> None:
    def on(*cpus: int, **spec: object) -> RunRecord:
        return on_hosts(make_header(**spec), *cpus)

    assert what_differs(on(2, 4), on(4, 2)) == []
    (told,) = what_differs(on(), on(2, 2))
    assert told.startswith("hosts none against 2 x Test CPU with 2 CPUs")
    assert len(what_differs(on(2, 2), on(2, 4))) == 1


def test_the_machine_and_the_packages_that_do_the_work_have_digits_of_their_own() -> None:
    head = make_header()
    upgraded = msgspec.structs.replace(head, packages={"gymnasium": "1.5.0"})
    ours = msgspec.structs.replace(head, packages={**head.packages, "vebench": "0.2.0", "torch": "2.9"})
    for run, machine, work in (
        (on_machine(head, cpu_model="Other CPU"), False, True),
        (upgraded, True, False),
        (ours, True, True),
    ):
        assert (fingerprint(run, "machine") == fingerprint(head, "machine")) == machine
        assert (fingerprint(run, "work") == fingerprint(head, "work")) == work


def test_a_proof_is_of_the_cell_that_it_names_and_is_written_once_that_is_there(written: Path) -> None:
    proof = CellProof("identical", rows=40, environments=2)
    with RunWriter.resume(written) as writer:
        proven = writer.append_proof(make_cell("gym-async", 2).key, proof)
        assert writer.run == read(written)
    assert [found.proof for found in read(written).cells] == [None, proven.proof] == [None, proof]
    lines = written.read_text().splitlines()
    write_lines(written, [lines[0], lines[1], lines[3]])
    assert len(read(written).cells) == 1, "the proof of a cell whose line was deleted is passed over"


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_another(path: Path) -> None:
    path.with_name("other").write_text("somebody else's\n" * 1000)
    path.with_name("other").replace(path)


@pytest.mark.parametrize("harm", [os.unlink, lambda path: shutil.rmtree(path.parent), empty, replace_by_another])
def test_a_run_file_that_is_gone_ends_the_run(written: Path, harm: Callable[[Path], None]) -> None:
    with pytest.raises(StorageError, match="was deleted or replaced"), RunWriter.resume(written) as writer:
        harm(written)
        before = written.read_bytes() if written.exists() else None
        with pytest.raises(StorageError, match="was deleted or replaced"):
            writer.append(make_cell("shm-sync", 2, (3000,)))
        assert (written.read_bytes() if written.exists() else None) == before


def test_a_line_in_which_the_user_interrupted_is_whole(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_fd: int) -> None:
        raise KeyboardInterrupt

    with RunWriter.resume(written) as writer:
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.append(make_cell("shm-sync", 2, (3000,)))
        monkeypatch.undo()
    assert (len(read(written).cells), writer.notes) == (3, [])


def noticed(path: Path) -> bool:
    """Return whether reading ``path`` fails with the number of a line, or notes that the last one is cut off.

    So do ``report`` and ``check``, which refuses a run that has lost a line.
    """
    try:
        return bool(read(path).notes)
    except RunFileError as error:
        return re.match(rf"{re.escape(str(path))}, line [1-4]: ", str(error)) is not None


def test_a_flipped_bit_is_noticed_wherever_it_is(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(whole)
    with path.open("r+b", buffering=0) as file:
        for bit in range(0, 8 * len(whole), 3):
            os.pwrite(file.fileno(), bytes([whole[bit // 8] ^ 1 << bit % 8]), bit // 8)
            assert noticed(path), bit
            os.pwrite(file.fileno(), whole[bit // 8 : bit // 8 + 1], bit // 8)
    assert read(path) == read(written)


def test_damage_is_one_line_that_names_the_damaged_one(vebench: Command, written: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(written.read_bytes().replace(b'"rows":2310', b'"rows":2318'))
    for command in (("report", damaged), ("check", damaged, written), ("run", "--resume", damaged)):
        result = vebench(*command)
        why = "its checksum (crc32) does not match: the line was damaged or edited"
        assert (result.status, result.refusal) == (2, f"vebench: {damaged}, line 2: {why}\n")


@pytest.mark.parametrize("size", [MOST_BYTES + 1, 20 << 30])
def test_a_file_that_is_too_large_is_refused_in_one_line(vebench: Command, written: Path, size: int) -> None:
    with written.open("r+b") as file:
        file.truncate(size)  # sparse
    for command in (("report", written), ("run", "--resume", written), ("check", written, written.parent / "b.jsonl")):
        refused = vebench(*command)
        assert refused.status == 2
        assert f"larger than {MOST_BYTES >> 20} MiB" in refused.refusal


def test_texts_and_lists_that_are_too_long_are_refused(vebench: Command, written: Path) -> None:
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    lines[0]["spec"]["pin"] = {"cpus": ",".join(["0-65535"] * 2000)}
    write_lines(written, map(json.dumps, lines))
    assert vebench("report", written).status == 0
    assert vebench("run", "--resume", written, "--dry-run").status == 2
    lines[0]["host"]["cpu_model"] = "-" * (LONGEST_TEXT + 1)
    write_lines(written, map(json.dumps, lines))
    assert vebench("report", written).status == 2
    assert (vebench("report", "/dev/zero").status, vebench("run", "--resume", "/dev/zero").status) == (2, 2)
