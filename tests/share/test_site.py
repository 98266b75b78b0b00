"""``vebench share site``: its pages, the folders that are left out, and hostile submissions."""

import shutil
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import html5lib
import msgspec
import pytest
from support.commands import Command
from support.records import make_header

from vebench.analysis.statistics import Estimate
from vebench.plan.spec import SUBMISSION_SUITES
from vebench.share import submissions as submission
from vebench.share.submissions import CellResult, Manifest

SUITE = SUBMISSION_SUITES["classic-3/1"]
HOSTILE = '<script>document.title="acted"</script><img src=x onerror=alert(1)>"\'></td>{{7*7}}\u202e\x07' + "x" * 120
ADDRESS = "javascript:alert(1)//../../../etc"
DEFAULTS = {
    "schema": 1,
    "vebench": "1.2.0",
    "suite": SUITE.id,
    "plan": SUITE.digest,
    "division": "reference",
    "started": "2026-11-21T08:15:00+00:00",
    "command": "vebench run --suite classic-3",
}


def cell(backend: str, workers: int, ratio: float, **other: Any) -> CellResult:
    rate, speedup = (Estimate(one, one * 0.99, one * 1.01) for one in (1000 * ratio, ratio))
    known = CellResult("CartPole-v1", backend, workers, workers, rate, speedup, "identical")
    return msgspec.structs.replace(known, **other)


USUAL = (cell("for-loop", 1, 1.0), cell("shm-sync", 1, 0.9), cell("shm-sync", 2, 1.8), cell("gym-async", 2, 1.2))


def submit(folder: Path, results: Sequence[CellResult] = USUAL, machine: str = "a" * 12, **manifest: object) -> Path:
    """Write a submission as ``vebench share make`` does, but for the lines of its run."""
    host = msgspec.structs.replace(make_header().host, cpu_model=manifest.pop("cpu_model", "Test CPU"))
    run = f"{folder}".encode()
    of_machine = {"machine": machine, "host": host, "packages": {"numpy": "2.3.1"}}
    fields = {**DEFAULTS, **of_machine, "results": tuple(results), "sha256": sha256(run).hexdigest(), **manifest}
    folder.mkdir(parents=True)
    (folder / submission.RUN).write_bytes(run)
    (folder / submission.MANIFEST).write_bytes(msgspec.json.encode(Manifest(**fields)))
    return folder


def parsed(path: Path) -> ET.Element:
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root: ET.Element = parser.parse(path.read_text(encoding="utf-8"))
    return root


def built(vebench: Command, folder: Path) -> Path:
    assert vebench("share", "site", "in", "-o", "out").status == 0
    return folder / "out"


def tables(page: Path) -> list[list[list[str]]]:
    """Return the texts of each row of each table."""
    bodies = parsed(page).iter("tbody")
    return [[["".join(place.itertext()).strip() for place in row] for row in body] for body in bodies]


@pytest.fixture
def site(vebench: Command, tmp_path: Path) -> Path:
    """Return a site of two machines, one with two submissions of the same plan on different days."""
    submit(tmp_path / "in" / "old", [cell("shm-sync", 2, 5.0)])
    submit(tmp_path / "in" / "new", started="2026-11-22T08:15:00+00:00")
    doubted = cell("gym-async", 2, 90.0, note="other processes disturbed it")
    several = [*USUAL[:3], doubted, cell("ceiling", 2, 99.0, verdict=None, reference_row=True)]
    submit(tmp_path / "in" / "other", several, "b" * 12, cpu_model="Other CPU")
    submit(tmp_path / "in" / "tuned", division="tuned")
    submit(tmp_path / "in" / "plan", plan="c" * 12)
    return built(vebench, tmp_path)


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert [page.relative_to(site).parts[0] for page in pages] == ["index.html", "machines", "machines"]
    linked = set()
    for page in pages:
        root = parsed(page)
        assert not [element for element in root.iter() if element.get("src") or element.get("style")]
        for link in [element.attrib["href"] for element in root.iter() if "href" in element.attrib]:
            parts = urlsplit(link)
            assert (parts.scheme, parts.netloc) in {("", ""), ("data", "")}
            if not parts.scheme:
                target = (page.parent / unquote(parts.path)).resolve()
                assert target.is_relative_to(site)
                linked.add(target.read_bytes())
    assert {path.read_bytes() for path in (site.parent / "in").rglob("*.json*")} <= linked


def test_the_fastest_comes_first_and_excluded_rows_last(site: Path) -> None:
    of_plan, index, tuned = tables(site / "index.html")
    assert [(row[0].split(",")[0], row[1], row[2]) for row in index] == [
        ("Test CPU", "shm-sync", "2"),
        ("Other CPU", "shm-sync", "2"),
        ("Test CPU", "gym-async", "2"),
        ("Test CPU", "for-loop", "1"),
        ("Other CPU", "for-loop", "1"),
        ("Other CPU", "gym-async", "2"),
    ]
    assert "other processes disturbed it" in index[-1]
    assert (len(of_plan), len(tuned)) == (3, 3)


def test_damaged_submissions_are_left_out(vebench: Command, tmp_path: Path) -> None:
    good = submit(tmp_path / "in" / "good")
    (submit(tmp_path / "in" / "changed") / submission.RUN).write_text("other counts")
    (submit(tmp_path / "in" / "lacking") / submission.RUN).unlink()
    (submit(tmp_path / "in" / "no-json") / submission.MANIFEST).write_text("{")
    submit(tmp_path / "in" / "future", schema=2)
    submit(tmp_path / "in" / "endless", [cell("shm-sync", 1, 1e300), cell("shm-sync", 1, -1.0), cell("shm", 1, 0.0)])
    shutil.copytree(good, tmp_path / "in" / "again")
    (tmp_path / "in" / "README.md").touch()
    result = vebench("share", "site", "in", "-o", "out")
    left_out = {line.split(": ")[2] for line in result.err.splitlines() if "left out: " in line}
    assert (result.status, left_out) == (0, {"changed", "lacking", "no-json", "future", "good"})


def test_a_site_replaces_only_a_site(vebench: Command, tmp_path: Path) -> None:
    submit(tmp_path / "in" / "a")
    for folder in ("empty", "mine", "former"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine" / "paper.tex").touch()
    for _ in range(2):  # the second replaces the first
        assert vebench("share", "site", "in", "-o", "former").status == 0
    (tmp_path / "former" / "CNAME").touch()
    before = sorted(tmp_path.rglob("*"))
    for source in ("empty", "nowhere"):
        assert vebench("share", "site", source, "-o", "out").status == 2
    for target in (".", "mine", "mine/paper.tex", "no/where", "former"):
        assert vebench("share", "site", "in", "-o", target).status == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_hostile_names_are_text_and_make_no_path(vebench: Command, tmp_path: Path) -> None:
    evil = [cell(name, 1, 1.0, env=name) for name in (HOSTILE[:200], ADDRESS, "con", "..")]
    evil.append(cell(HOSTILE[:199], 1, 1.0, note=HOSTILE, verdict=HOSTILE[:200]))
    named = {"vebench": HOSTILE[:200], "suite": HOSTILE[:200], "command": HOSTILE, "cpu_model": HOSTILE * 20}
    submit(tmp_path / "in" / HOSTILE.replace("/", "")[:200], evil, **named)
    submit(tmp_path / "in" / "a&b <i>\u202e" / submission.RUN)
    hostile = built(vebench, tmp_path)
    paths = [f"{path.relative_to(hostile)}" for path in hostile.rglob("*")]
    assert all(set(path) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_./") and ".." not in path for path in paths)
    for page in hostile.rglob("*.html"):
        root = parsed(page)
        assert len([*root.iter("script")]) == 1
        assert not [*root.iter("img"), *root.iter("i")]
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
        assert not {"\u202e", "\x07"} & set(page.read_text(encoding="utf-8"))
        assert all("javascript:" not in element.get("href", "") for element in root.iter())
