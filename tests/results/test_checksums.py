"""Checksums: whatever is damaged in a run file is noticed, and files of earlier versions are still read."""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import make_cell, make_header, write_lines

from vebench.errors import RunFileError
from vebench.results.checksums import sealed
from vebench.results.store import RunWriter, holds_run, read

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run file with two cells."""
    path = tmp_path_factory.mktemp("runs") / "pong.jsonl"
    with RunWriter.create(path, make_header()) as writer:
        writer.append(make_cell("for-loop", 1, (2300, 2310)))
        writer.append(make_cell("gym-async", 2, (2400,)))
    return path


def noticed(path: Path) -> bool:
    """Return whether reading ``path`` fails with the number of a line, or notes what is wrong with the last one.

    So do ``report`` and ``check``, which refuses a run that has lost a line.
    """
    try:
        run = read(path)
        return bool(run.notes or run.mended)
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


@given(data=st.data())
def test_damage_of_any_length_is_noticed_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, written: Path, data: st.DataObject
) -> None:
    whole = written.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    wrong = data.draw(st.binary(min_size=1, max_size=len(whole) - start))
    damaged = whole[:start] + wrong + whole[start + len(wrong) :]
    path = tmp_path_factory.mktemp("runs") / "damaged.jsonl"
    path.write_bytes(damaged)
    assert damaged == whole or noticed(path)


@pytest.mark.parametrize("instead", [b"", b"\x0b", b"\r", b"}"])
def test_a_last_line_that_has_lost_nothing_but_its_newline_is_kept(
    written: Path, tmp_path: Path, instead: bytes
) -> None:
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(written.read_bytes().removesuffix(b"\n") + instead)
    run = read(path)
    assert (run.cells, run.notes) == (read(written).cells, ())
    assert run.mended == (f"{path}, line 3: has lost its newline, but is whole: kept",)
    with RunWriter.resume(path) as writer:
        writer.append(make_cell("gym-async", 4, (2500,)))
    assert (len(read(path).cells), read(path).mended) == (3, ())


@given(
    body=st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers() | st.text(st.characters(codec="utf-8")))
)
def test_a_line_of_any_type_gets_the_checksum_that_the_documentation_says(body: dict[str, object]) -> None:
    line = json.dumps({"type": "proof", **body}, separators=(",", ":")).encode()
    found = sealed(line)
    text, _, rest = found.rpartition(b',"crc32":"')
    assert json.loads(found) == {"type": "proof", **body, "crc32": f"{zlib.crc32(text):08x}"}
    assert (text, rest) == (line[:-1], f'{zlib.crc32(text):08x}"}}'.encode())
    assert sealed(found) == found


def test_users_read_lines_as_before_and_the_first_says_that_they_have_checksums(written: Path) -> None:
    first, *cells = map(json.loads, written.read_text().splitlines())
    assert (first["type"], first["schema"], first["checksums"]) == ("run", 2, "crc32")
    assert [[*line][-1] for line in (first, *cells)] == ["crc32"] * 3
    assert [cell["windows"][0]["rows"] for cell in cells] == [2300, 2400]


def test_damage_is_one_line_that_names_the_damaged_one(vebench: Command, written: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(written.read_bytes().replace(b'"rows":2310', b'"rows":2318'))
    for command in (("report", damaged), ("check", damaged, written), ("run", "--resume", damaged)):
        result = vebench(*command)
        why = "its checksum (crc32) does not fit: the line was damaged, or changed after it was written"
        assert (result.status, result.refusal) == (2, f"vebench: {damaged}, line 2: {why}\n")


def test_a_line_without_a_checksum_is_damaged_if_one_before_it_has_one(written: Path, tmp_path: Path) -> None:
    first, second, third = written.read_text().splitlines()
    bare = json.dumps({name: value for name, value in json.loads(third).items() if name != "crc32"})
    path = tmp_path / "damaged.jsonl"
    path.write_text(f"{first}\n{second}\n{bare}\n")
    with pytest.raises(RunFileError, match=r"line 3: its checksum \(crc32\) is missing"):
        read(path)


def test_a_file_with_a_damaged_first_line_is_still_taken_for_a_run(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    path = tmp_path / "damaged.jsonl"
    for damaged in (whole.replace(b'"run"', b'"rum"', 1), whole.replace(b'"schema"', b'"schema', 1)):
        path.write_bytes(damaged)
        assert holds_run(path)


def test_lines_that_other_programs_end_in_their_way_are_read(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(written.read_bytes().replace(b"\n", b"\r\n"))
    assert read(path) == read(written)


def test_cells_of_one_file_may_be_put_into_another(written: Path, tmp_path: Path) -> None:
    first, second, third = written.read_text().splitlines()
    path = write_lines(tmp_path / "other.jsonl", [first])
    path.write_text(f"{path.read_text()}{third}\n{second}\n")
    assert {cell.backend for cell in read(path).cells} == {"for-loop", "gym-async"}
