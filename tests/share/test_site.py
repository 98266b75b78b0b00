"""A site from submissions: what is on it, what is left out, and that nothing in a submission acts."""

import json
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
from support.browser import Browser
from support.commands import Command
from support.records import make_header

from vebench.plan.suites import FROZEN
from vebench.share import folder as submission
from vebench.share.folder import InstalledPackage, Interval, MachineRecord, Manifest, Result

SUITE = FROZEN["classic-3/1"]
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


def around(rate: float, half: float = 0.01) -> Interval:
    return Interval(rate, rate * (1 - half), rate * (1 + half))


def cell(backend: str, workers: int, ratio: float, half: float = 0.01, **other: Any) -> Result:  # noqa: ANN401 - any field
    known = Result(
        "CartPole-v1", backend, workers, workers, around(1000 * ratio, half), around(ratio, half), "identical"
    )
    return msgspec.structs.replace(known, **other)


USUAL = (cell("for-loop", 1, 1.0), cell("shm-sync", 1, 0.9), cell("shm-sync", 2, 1.8), cell("gym-async", 2, 1.2))


def submit(folder: Path, results: Sequence[Result] = USUAL, machine: str = "a" * 12, **manifest: object) -> Path:
    """Write a submission as ``vebench share make`` does, but for the lines of its run."""
    host = msgspec.structs.replace(make_header().host, cpu_model=manifest.pop("cpu_model", "Test CPU"))
    contents = {
        submission.RUN: f"{folder}".encode(),
        submission.MACHINE: msgspec.json.encode(MachineRecord(machine, host)),
        submission.PACKAGES: msgspec.json.encode({"numpy": InstalledPackage("2.3.1", "")}),
    }
    digests = {name: sha256(content).hexdigest() for name, content in contents.items()}
    made = Manifest(**{**DEFAULTS, "results": tuple(results), "files": digests, **manifest})  # type: ignore[arg-type]
    folder.mkdir(parents=True)
    for name, content in {**contents, submission.MANIFEST: msgspec.json.encode(made)}.items():
        (folder / name).write_bytes(content)
    return folder


def parsed(path: Path) -> ET.Element:
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root: ET.Element = parser.parse(path.read_text(encoding="utf-8"))
    return root


def built(vebench: Command, folder: Path) -> Path:
    assert vebench("share", "site", "in", "-o", "out").status == 0
    return folder / "out"


def rows(page: Path) -> list[list[str]]:
    """Return the texts of each row of the page's first table."""
    (body, *_) = parsed(page).iter("tbody")
    return [["".join(place.itertext()).strip() for place in row] for row in body]


@pytest.fixture
def three(vebench: Command, tmp_path: Path) -> Path:
    """Return a site of three submissions, two of them from one machine on different days."""
    submit(tmp_path / "in" / "old", [cell("shm-sync", 2, 5.0)])
    submit(tmp_path / "in" / "new", started="2026-11-22T08:15:00+00:00")
    doubted = cell("gym-async", 2, 90.0, note="other processes disturbed it")
    several = [*USUAL[:3], doubted, cell("ceiling", 2, 99.0, verdict=None, reference_row=True)]
    submit(tmp_path / "in" / "other", several, "b" * 12, cpu_model="Other CPU")
    return built(vebench, tmp_path)


def test_all_links_lead_to_what_is_there_and_nothing_comes_from_elsewhere(three: Path) -> None:
    pages = sorted(three.rglob("*.html"))
    assert [f"{page.relative_to(three).parts[0]}" for page in pages] == [
        *["backends"] * 3,
        "index.html",
        *["machines"] * 2,
    ]
    for page in pages:
        root = parsed(page)
        assert not [element for element in root.iter() if element.get("src") or element.get("style")]
        for link in [element.attrib["href"] for element in root.iter() if "href" in element.attrib]:
            parts = urlsplit(link)
            assert (parts.scheme, parts.netloc) in {("", ""), ("data", "")}
            if not parts.scheme:
                target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
                assert target.is_relative_to(three)
                assert target.is_file()
                assert not parts.fragment or parts.fragment in {one.get("id") for one in parsed(target).iter()}
    for file in submission.FILES:
        assert (three / "submissions" / "new" / file).read_bytes() == (three.parent / "in" / "new" / file).read_bytes()


def test_the_newest_of_each_machine_is_ranked_by_speedup_and_a_doubt_has_no_place(three: Path) -> None:
    shown = [
        (row[0].split(",")[0], row[1].replace("\N{EN DASH}", " to "), row[2], row[3])
        for row in rows(three / "index.html")
    ]
    assert shown == [
        ("Test CPU", "1 to 2", "shm-sync", "2"),
        ("Other CPU", "1 to 2", "shm-sync", "2"),
        ("Test CPU", "3", "gym-async", "2"),
        ("Test CPU", "4 to 5", "for-loop", "1"),
        ("Other CPU", "4 to 5", "for-loop", "1"),
        ("Other CPU", "-", "gym-async", "2"),
    ]
    assert rows(three / "index.html")[-1][-1] == "other processes disturbed it"
    data = json.loads((three / "site.json").read_text())
    assert [row["places"] for row in data["tasks"][0]["rows"]] == [[1, 2], [1, 2], [3, 3], [4, 5], [4, 5], None]


def test_suites_plans_and_divisions_are_in_tables_of_their_own(vebench: Command, tmp_path: Path) -> None:
    submit(tmp_path / "in" / "a")
    submit(tmp_path / "in" / "b", division="tuned")
    submit(tmp_path / "in" / "c", plan="c" * 12)
    submit(tmp_path / "in" / "d", suite="other/1")
    site = built(vebench, tmp_path)
    tasks = json.loads((site / "site.json").read_text())["tasks"]
    assert {(task["suite"], task["division"]): len(task["rows"]) for task in tasks} == {
        ("classic-3/1", "reference"): 3,
        ("classic-3/1", "tuned"): 3,
        (f"classic-3/1, plan {'c' * 12}", "reference"): 3,
        (f"other/1, plan {SUITE.digest}", "reference"): 3,
    }
    assert [len(rows(page)) for page in (site / "index.html", *(site / "tasks").iterdir())] == [3] * 4


def test_what_cannot_be_shown_is_left_out_and_named_with_the_reason(vebench: Command, tmp_path: Path) -> None:
    good = submit(tmp_path / "in" / "good")
    (submit(tmp_path / "in" / "changed") / submission.RUN).write_text("other counts")
    (submit(tmp_path / "in" / "lacking") / submission.MACHINE).unlink()
    (submit(tmp_path / "in" / "no-json") / submission.MANIFEST).write_text("{")
    submit(tmp_path / "in" / "future", schema=2)
    submit(tmp_path / "in" / "endless", [cell("shm-sync", 1, 1e300)])
    submit(tmp_path / "in" / "undated", started="yesterday")
    shutil.copytree(good, tmp_path / "in" / "again")
    (tmp_path / "in" / "README.md").touch()
    result = vebench("share", "site", "in", "-o", "out")
    left = {
        one["folder"]: one["reason"] for one in json.loads((tmp_path / "out" / "site.json").read_text())["left_out"]
    }
    assert left.keys() == {"changed", "lacking", "no-json", "future", "endless", "undated", "good"}
    assert left["changed"] == "changed since it was submitted: run.jsonl"
    assert (result.status, result.err.count("left out: ")) == (0, len(left))
    text = "".join(parsed(tmp_path / "out" / "index.html").itertext())
    assert all(f"{name}: {reason}" in text for name, reason in left.items())
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("source", "target", "word"),
    [
        ("empty", "out", "no submission"),
        ("nowhere", "out", "folder of submissions"),
        ("in", "in/site", "outside of"),
        ("in", ".", "outside of"),
        ("in", "mine", "paper.tex"),
        ("in", "mine/paper.tex", "no part of a site"),
        ("in", "no/where", "exists"),
        ("in", "former", "CNAME"),
    ],
)
def test_a_site_replaces_nothing_but_a_site_and_an_error_leaves_nothing(
    vebench: Command, tmp_path: Path, source: str, target: str, word: str
) -> None:
    submit(tmp_path / "in" / "a")
    for folder in ("empty", "mine", "former"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine" / "paper.tex").touch()
    for _ in range(2):  # the second replaces the first
        assert vebench("share", "site", "in", "-o", "former").status == 0
    (tmp_path / "former" / "CNAME").touch()
    before = sorted(tmp_path.rglob("*"))
    result = vebench("share", "site", source, "-o", target)
    assert (result.status, word in result.refusal) == (2, True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def hostile(vebench: Command, tmp_path: Path) -> Path:
    """Return a site in which all that a submission can name is hostile."""
    evil = [cell(name, 1, 1.0, env=name) for name in (HOSTILE[:200], ADDRESS, "con", "..")]
    evil.append(cell(HOSTILE[:199], 1, 1.0, note=HOSTILE, verdict=HOSTILE[:200]))
    named = {"vebench": HOSTILE[:200], "suite": HOSTILE[:200], "command": HOSTILE, "cpu_model": HOSTILE * 20}
    submit(tmp_path / "in" / HOSTILE.replace("/", "")[:200], evil, **named)
    submit(tmp_path / "in" / "a&b <i>\u202e" / submission.MACHINE)
    return built(vebench, tmp_path)


def test_hostile_names_are_text_and_make_no_path(hostile: Path) -> None:
    paths = [f"{path.relative_to(hostile)}" for path in hostile.rglob("*")]
    assert all(set(path) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_./") and ".." not in path for path in paths)
    for page in hostile.rglob("*.html"):
        root = parsed(page)
        assert len([*root.iter("script")]) == 1
        assert not [*root.iter("img"), *root.iter("i")]
        assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
        assert not {"\u202e", "\x07"} & set(page.read_text(encoding="utf-8"))
        assert all("javascript:" not in element.get("href", "") for element in root.iter())


@pytest.mark.parametrize("width", [390, 1366])
def test_no_page_is_wider_than_the_screen_and_nothing_hostile_acts(browser: Browser, hostile: Path, width: int) -> None:
    browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    for page in hostile.rglob("*.html"):
        browser.open(page)
        browser.script('for (const one of document.querySelectorAll("details")) one.open = true')
        assert browser.script("return document.documentElement.scrollWidth") <= width
        assert browser.script("return document.title") != "acted"


def test_a_filter_shows_rows_with_all_words_and_heads_sort(browser: Browser, three: Path) -> None:
    browser.open(three / "index.html")
    found = """
    const field = document.querySelector(".filter input");
    field.value = "SHM other";
    field.dispatchEvent(new Event("input"));
    const left = [...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility()).length;
    document.querySelector("[aria-sort] button").click();
    return [left, document.querySelector(".filter output").textContent, document.querySelector("[aria-sort]").ariaSort,
      [...document.querySelectorAll("tbody tr")].map((row) => Number(row.cells[4].dataset.value))];
    """
    left, shown, order, ratios = browser.script(found)
    assert (left, shown, order) == (1, "1 of 6 rows", "ascending")
    assert ratios == sorted(ratios)
