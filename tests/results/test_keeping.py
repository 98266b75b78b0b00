"""What was measured is kept, whatever others do to the run file while it is being written."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from support.records import make_cell, make_header

from vebench.errors import UsageError
from vebench.results.store import RunWriter, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FIRST, SECOND = make_cell("for-loop", 1, (2300, 2310)), make_cell("gym-async", 2, (2400,))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a run file; the current folder and that for temporary files are others than its own."""
    for name in ("here", "temporary", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "runs" / "pong.jsonl"


@pytest.fixture
def writer(path: Path) -> Iterator[RunWriter]:
    """Return a writer that has written a first cell."""
    with RunWriter.create(path, make_header()) as writer:
        writer.append(FIRST)
        yield writer


def empty(path: Path) -> None:
    path.write_bytes(b"")


def touch_anew(path: Path) -> None:
    path.unlink()
    path.touch()


@pytest.mark.parametrize(
    "harm",
    [os.unlink, lambda path: shutil.rmtree(path.parent), empty, touch_anew],
    ids=["deleted", "with its folder", "emptied", "deleted and made anew"],
)
def test_a_run_file_that_is_deleted_or_emptied_is_written_again_at_once_and_at_the_end(
    writer: RunWriter, path: Path, harm: Callable[[Path], None]
) -> None:
    harm(path)
    writer.append(SECOND)
    assert read(path).cells == (FIRST, SECOND)
    harm(path)
    writer.close()
    assert read(path).cells == (FIRST, SECOND)
    assert (writer.moved, writer.path) == ("", path)
    assert writer.note == f"{path} was deleted while cells were measured: it was written again, with all of them"


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("anew", [True, False])
def test_a_file_that_took_the_place_of_a_run_file_is_left_alone(
    writer: RunWriter, path: Path, size: int, anew: bool
) -> None:
    if anew:
        path.unlink()
    path.write_text("somebody else's\n" * size)
    writer.append(SECOND)
    writer.close()
    beside = path.with_name("pong.2.jsonl")
    assert path.read_text() == "somebody else's\n" * size
    assert read(beside).cells == (FIRST, SECOND)
    assert writer.moved == (
        f"{path} was replaced while cells were measured: what was measured is in {beside}; "
        f"to go on: vebench run --resume {beside}"
    )


def test_an_editor_that_saves_a_run_file_to_a_new_file_is_no_harm(writer: RunWriter, path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.replace(path)
    writer.append(SECOND)
    assert read(path).cells == (FIRST, SECOND)
    assert (writer.note, writer.moved, list(path.parent.iterdir())) == ("", "", [path])


def test_a_line_in_which_the_user_interrupted_is_no_reason_for_another_file(
    writer: RunWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.append(SECOND)
    monkeypatch.undo()
    writer.close()
    assert ([*path.parent.iterdir()], read(path).cells) == ([path], (FIRST, SECOND))


def test_what_does_not_fit_on_a_full_disk_is_written_to_another(
    writer: RunWriter, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = path.read_bytes()
    write = os.write
    full = {path.parent, tmp_path / "here"}

    def fill(fd: int, data: bytes) -> int:
        if any(os.path.samestat(os.fstat(fd), file.stat()) for folder in full for file in folder.iterdir()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    monkeypatch.setattr(os, "write", fill)
    writer.append(SECOND)
    monkeypatch.undo()
    elsewhere = tmp_path / "temporary" / "pong.jsonl"
    assert (path.read_bytes(), read(elsewhere).cells) == (whole, (FIRST, SECOND))
    assert [list(folder.iterdir()) for folder in sorted(full)] == [[], [path]]
    why = f"{path} cannot be written: No space left on device"
    assert writer.moved.startswith(f"{why}: what was measured is in {elsewhere}")


def test_a_new_place_is_locked_as_the_old_one_was(writer: RunWriter, path: Path) -> None:
    path.unlink()
    writer.secure()
    with pytest.raises(UsageError, match="is being written by another run"):
        RunWriter.resume(path)
