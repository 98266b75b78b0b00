"""Hostile text in every field of a run file, in everything that every command prints and writes, in every format."""

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import html5lib
import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec import inspect
from support.commands import Command, registered
from support.fakes import fake_world
from support.records import make_cell, make_header, make_repeated

from vebench.backends.entry import Shape
from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Task
from vebench.child.answers import CellProof, Mismatch, Proof
from vebench.equality.verify import VerifyPage
from vebench.errors import RunFileError
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.reports.console import save
from vebench.reports.formats import FORMATS, format_for
from vebench.results.records import CellRecord, ProofRecord, Run, RunRecord, encode, sealed
from vebench.results.store import parse
from vebench.share.submissions import MANIFEST, Manifest

Line = dict[str, Any]

# Each part would be a command, markup, a formula or an escape sequence somewhere.
EVIL = "".join(
    (
        *("<script>alert(1)</script>", "|", "::error::x", "\n::error file=a::y", "\r\n::warning::z", "##[error]w"),
        *("\x1b[31m", "\x1b]0;title\x07", "\x9b31m", "\x9d0;title\x9c", "\u202e", "\u2028", "$x^2$", "$\\frac{1$"),
        *("\\", "`tick`", "``` \n", "**bold**", "[link](http://x)", "&amp;", "%0A::error::v", "{{ 7 * 7 }}", "#"),
        *("@someone ${`|}", '"', "'", "é"),
    )
)
# The HTML that vebench writes into Markdown.
OUR_HTML = {"<br>", "<details>", "</details>", "<span>", "</span>", "<!-- -->"}
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
    """Yield the path of every field that holds texts, outer fields first, with the text to write there."""
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
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    found = []
    if isinstance(parts, list | tuple):
        for part in parts:
            found += texts(part)
    return found


def written(lines: list[Line]) -> bytes:
    plain = [{name: value for name, value in line.items() if name != "crc32"} for line in lines]
    return b"".join(sealed(json.dumps(line, separators=(",", ":")).encode()) for line in plain)


def put(line: Line, path: tuple[str, ...], value: Any) -> None:
    """Write a value to a field, if the line has the record around it. The names in a mapping keep a value."""
    at: Any = line
    for name in path[:-1]:
        at = at.get(name) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        return
    names = at.get(path[-1]) if isinstance(value, dict) and EVIL in value else None
    at[path[-1]] = dict.fromkeys(names, value[EVIL]) | value if names else value


def hostile(without: tuple[str, ...] = ()) -> list[Line]:
    """Return the lines of the run with hostile texts in all fields that can hold them, except ``without``."""
    lines = a_run()
    for kind, record in KINDS.items():
        for path, value in changes(inspect.type_info(record)):
            if path[-1] in without:
                continue
            tried = deepcopy(lines)
            for line in tried:
                if (line["type"] == "run") == (kind == "run") and line.get("backend") != "for-loop":
                    put(line, path, value)
            with suppress(RunFileError):  # such as an impossible plan
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


def check_json(text: str) -> None:
    assert any("<script>alert(1)</script>|" in found for found in texts(json.loads(text)))


def check_csv(text: str) -> None:
    lines = list(csv.reader(io.StringIO(text)))
    assert len(lines) > 1
    assert {len(line) for line in lines} == {len(lines[0])}


def check_xml(text: str) -> None:
    assert list(ET.fromstring(text).iter())
    assert "<script>alert" not in text


def check_html(text: str) -> None:
    """The standard calls nothing in it an error, and nothing in it acts but our script."""
    elements = [*html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text).iter()]
    attributes = [(str(name), value) for element in elements for name, value in element.attrib.items()]
    assert [element.tag for element in elements].count("script") <= 1
    assert not [name for name, value in attributes if name.startswith("on") or value.startswith("http://x")]
    assert "<script>alert" not in text


def check_markdown(text: str) -> None:
    """Each table has as many columns in every line, and nothing is markup but what we wrote."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    blocks = [line for token in tokens if token.type == "html_block" for line in token.content.splitlines() if line]
    assert {token.content for token in inside if token.type == "html_inline"} <= OUR_HTML
    assert {line for line in blocks if not line.startswith("<summary>")} <= OUR_HTML
    assert not any("@someone" in line for line in blocks)
    summaries = [re.sub("</?span>|<!-- -->", "", line) for line in blocks if "<summary>" in line]
    assert all(line.count("<") == 2 and line.endswith("</summary>") for line in summaries)
    assert [token for token in inside if token.type == "link_open"] == []
    assert {token.tag for token in tokens if token.type == "heading_open"} <= {"h1", "h2", "h3"}
    tables: list[list[str]] = [[]]
    for line in text.splitlines():
        tables[-1].append(line) if line.startswith("|") else tables.append([])
    counts = [{len(re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))) for line in lines} for lines in tables if lines]
    assert all(len(columns) == 1 for columns in counts)


def check_latex(text: str) -> None:
    """No sign that LaTeX takes for a command is one that came from outside."""
    assert re.search(r"(?<!\\)\$x", text) is None
    assert "\\frac" not in text


WELL_FORMED = {
    ".json": check_json,
    ".csv": check_csv,
    ".xml": check_xml,
    ".svg": check_xml,
    ".html": check_html,
    ".md": check_markdown,
    ".tex": check_latex,
}


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("command", READ)
def test_nothing_that_a_command_prints_or_writes_acts(vebench: Command, command: str) -> None:
    ways = [
        ["-o", f"out{form.suffixes[0]}"] if form.suffixes else ["-f", form.name] for form in FORMATS if not form.binary
    ]
    before = {*Path().rglob("*")}
    statuses = set()
    for arguments in READ[command]:
        for way in [[]] if "-o" in arguments else [[], *ways]:
            done = vebench(*command.split(), *arguments, *way, world=fake_world())
            statuses.add(done.status)
            assert (acting(done.out), acting(done.err)) == ("", ""), (arguments, way)
    for path in {*Path().rglob("*")} - before:
        if path.is_file() and "submissions" not in path.parts:  # copies, to be downloaded
            text = path.read_text(encoding="utf-8")
            assert acting(text) == "", path
            if path.suffix in WELL_FORMED:
                WELL_FORMED[path.suffix](text)
    assert statuses <= {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["terminal", "markdown", "html", "json"])
def test_nothing_that_verify_shows_of_a_hostile_backend_acts(name: str, tmp_path: Path) -> None:
    task = Task("Pong", OTHER.name, 4)
    cell = Cell(task, BackendChoice("for-loop", {"mode": EVIL}), 2, 1, Shape(2, 2, 1, 1), (0,))
    mismatch = Mismatch(1, 7, EVIL, EVIL, EVIL, 0.5)
    proof = Proof("different", rows=9, ends=1, mismatch=mismatch, fault=EVIL, reason=EVIL, allowed=(EVIL,))
    path = tmp_path / f"report{format_for(name, None, 'verify').suffixes[0]}"
    page = VerifyPage(((cell, proof), (replace(cell, skip=EVIL), proof)), 20, RunSpec(("Pong",)))
    save(page, format_for(name, None, "verify"), path)
    assert acting(path.read_text()) == ""
    WELL_FORMED.get(path.suffix, str)(path.read_text())
