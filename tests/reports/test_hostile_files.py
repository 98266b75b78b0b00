"""Hostile text in every field of a run file, in everything that every command prints and writes."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from support.commands import Command, registered
from support.fakes import fake_world
from support.records import make_cell, make_header, make_repeated

from vebench.child.answers import CellProof, Mismatch
from vebench.errors import RunFileError
from vebench.reports.formats import FORMATS
from vebench.results.records import CellRecord, ProofRecord, Run, RunRecord, encode, sealed
from vebench.results.store import parse
from vebench.share.submissions import MANIFEST, Manifest

Line = dict[str, Any]

EVIL = "x\x1b[2J\x1b]0;title\x07\n::error::y\r\n##[error]z\x9b31m\u202e\u2028<script>alert(1)</script>@someone ${`|} é"
ACTS = re.compile(r"^\s*::(error|warning|notice|debug|group|add-mask|set-output|stop-commands)\b|##\[", re.MULTILINE)
KINDS = {"run": RunRecord, "cell": CellRecord, "proof": ProofRecord}
# Which arguments let a command read run files or submissions. Another command that takes a path belongs here.
READ = {
    "report": (["a.jsonl"], ["a.jsonl", "b.jsonl"]),
    "check": (["a.jsonl", "b.jsonl", "--metric", "speedup"], ["a.jsonl"]),
    "history": (["runs"],),
    "run": (["--resume", "a.jsonl", "--dry-run"], ["--resume", "a.jsonl", "--allow-code"]),
    "tune": (["--resume", "a.jsonl"],),
    "share make": (["a.jsonl"],),
    "share check": (["in/one"],),
    "share site": (["in", "-o", "site"],),
    "share cite": (["a.jsonl"],),
}
READ_NONE = {"compare", "bisect", "verify", "list", "install", "doctor"}


def a_run() -> list[Line]:
    """Return the lines of a run of ``for-loop``, a backend with a rate, one that differs and one that failed."""
    head = msgspec.structs.replace(make_header(suite="classic-3/1"), packages={"gymnasium": "1", "vebench": "0.1.0"})
    rates = make_repeated({("for-loop", 1): 1000.0, ("gym-sync", 2): 2000.0}, head)
    differs = CellProof("different", rows=9, mismatch=Mismatch(0, 1, "rewards", "0", "1"), environments=1, num_envs=2)
    more = (make_cell("shm-sync", 2, (2000, 2010), proof=differs), make_cell("gym-async", 2, status="failed"))
    run = Run(head, (*rates.cells, *more))
    found = [run.header, *run.cells, ProofRecord.of(more[0])]
    return [json.loads(encode(line)) for line in found]


def filled(kind: inspect.Type) -> Any:  # noqa: PLR0911 - a line for each type
    """Return a value of this type in which each text is hostile."""
    match kind:
        case inspect.UnionType():
            parts = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return filled(next((one for one in parts if isinstance(one, inspect.StrType)), parts[0]))
        case inspect.StrType() | inspect.AnyType():
            return EVIL
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.StructType() | inspect.DataclassType():
            return {field.encode_name: filled(field.type) for field in kind.fields}
        case inspect.DictType():
            return {filled(kind.key_type): filled(kind.value_type)}
        case inspect.VarTupleType() | inspect.ListType():
            return [filled(kind.item_type)]
        case inspect.TupleType():
            return [filled(one) for one in kind.item_types]
        case inspect.BoolType():
            return True
        case _:
            return 1


def changes(kind: inspect.Type, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path of every field that holds texts, outer ones first, with what to write there."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from changes(one, path)
    elif isinstance(kind, inspect.StructType | inspect.DataclassType):
        for field in kind.fields:
            if EVIL in texts(value := filled(field.type)):
                yield (*path, field.encode_name), value
            yield from changes(field.type, (*path, field.encode_name))


def texts(value: Any) -> list[str]:
    """Return all texts in a value, names too."""
    if isinstance(value, str):
        return [value]
    each = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [text for one in each for text in texts(one)]


def written(lines: list[Line]) -> bytes:
    plain = [{name: value for name, value in line.items() if name != "crc32"} for line in lines]
    return b"".join(sealed(json.dumps(line, separators=(",", ":")).encode()) for line in plain)


def hostile(without: tuple[str, ...] = ()) -> list[Line]:
    """Return the lines of the run with hostile texts in all fields that can hold them, but in these."""
    lines = a_run()
    for kind, record in KINDS.items():
        for path, value in changes(inspect.type_info(record)):
            if path[-1] in without:
                continue
            tried = deepcopy(lines)
            for line in tried:
                if (line["type"] == "run") == (kind == "run") and line.get("backend") != "for-loop":
                    at: Any = line
                    for name in path[:-1]:
                        at = at.get(name) if isinstance(at, dict) else None
                    if isinstance(at, dict):
                        names = at.get(path[-1]) if isinstance(value, dict) and EVIL in value else None
                        at[path[-1]] = dict.fromkeys(names, value[EVIL]) | value if names else value
            with suppress(RunFileError):  # such as a plan that cannot be
                parse(written(tried), "run.jsonl")
                lines = tried
    return lines


def acting(text: str) -> str:
    """Return the first part of a text that acts on a terminal or a log, empty if none does."""
    strange = next((letter for letter in text if letter != "\n" and not letter.isprintable()), "")
    return strange or (found[0] if (found := ACTS.search(text)) else "")


# With these, a run is of another command or of another machine, so that some pages do not show it.
_UNUSUAL = ("interpreter", "interpreters", "hosts", "replica_hosts", "suite", "only", "policy", "python", "pin")
RUNS = {"every field": hostile(), "a usual run": hostile(_UNUSUAL)}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, vebench: Command) -> bytes:  # noqa: ARG001 - it is run in a folder of its own
    """Write hostile run files, a folder of them and a folder of submissions, and return the contents of one."""
    data = written(RUNS[request.param])
    for name in ("runs", "in/one"):
        Path(name).mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl", "runs/a.jsonl", "runs/b.jsonl", "in/one/run.jsonl"):
        Path(name).write_bytes(data)
    known = {"plan": "0" * 12, "machine": "0" * 12, "host": RUNS[request.param][0]["host"]}
    manifest = filled(inspect.type_info(Manifest)) | known | {"sha256": sha256(data).hexdigest()}
    Path("in/one", MANIFEST).write_text(json.dumps(manifest))
    return data


def test_texts_of_a_run_file_are_harmless_once_they_are_read(run: bytes) -> None:
    assert sum(text == EVIL for line in run.splitlines() for text in texts(json.loads(line))) > 50
    found = parse(run, "run.jsonl")[0]
    assert {acting(text) for text in texts(msgspec.to_builtins((found.header, found.cells)))} == {""}


def test_every_command_that_reads_files_is_listed_here() -> None:
    assert registered().keys() == READ.keys() | READ_NONE


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("command", READ)
def test_nothing_that_a_command_prints_or_writes_acts(vebench: Command, command: str) -> None:
    ways = [
        ["-o", f"out{form.suffixes[0]}"] if form.suffixes else ["-f", form.name] for form in FORMATS if not form.binary
    ]
    before = {*Path().rglob("*")}
    statuses = set()
    for arguments in READ[command]:
        for way in [[], *ways] if "-o" not in arguments else [[]]:
            done = vebench(*command.split(), *arguments, *way, world=fake_world())
            statuses.add(done.status)
            assert (acting(done.out), acting(done.err)) == ("", ""), (arguments, way)
    for path in {*Path().rglob("*")} - before:
        if path.is_file() and "submissions" not in path.parts:  # copies, to be downloaded
            assert acting(path.read_text(encoding="utf-8")) == "", path
    assert statuses <= {0, 1, 2, 3}


@pytest.mark.usefixtures("run")
def test_nobody_is_notified_by_a_summary_in_markdown(vebench: Command) -> None:
    summaries = re.findall(r"<summary>.*", vebench("report", "a.jsonl", "-f", "markdown").out)
    assert any("@<!-- -->someone" in line for line in summaries)
    assert not any("@someone" in line for line in summaries)
