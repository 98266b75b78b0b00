"""``vebench share make``, ``check`` and ``cite``: a run with a fixed plan, for others to check and to quote."""

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.fakes import IDENTICAL, FakeStart
from support.paced import paced, world_of

from vebench.plan.spec import SUBMISSION_SUITES
from vebench.share.submissions import FILES, MANIFEST

Record = dict[str, Any]


@pytest.fixture
def run(vebench: Command) -> Path:
    """Return the file of a run of a suite on a machine with one CPU."""
    start = FakeStart(proofs={"gym-sync": [replace(IDENTICAL, num_envs=1, environments=1)]})
    script = paced(lambda cell: 1e-4 if cell.backend.name == "gym-sync" else 2e-4)
    world = replace(world_of(script, 1, start), clock=partial(next, count(step=5)))  # a window takes 5 s of it
    asked = ("run", "--suite", "classic-3", "-b", "gym-sync", "-o", "run.jsonl", "-q")
    assert vebench(*asked, world=world).status == 0
    return Path("run.jsonl")


def rewritten(path: Path, change: Callable[[list[Record]], object]) -> None:
    """Change the lines of a run file, and seal them again."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    change(found)
    sealed = b""
    for line in found:
        line.pop("crc32", None)
        body = json.dumps(line, separators=(",", ":")).encode()[:-1]
        sealed += b'%s,"crc32":"%08x"}\n' % (body, zlib.crc32(body))
    path.write_bytes(sealed)


def of_gym(found: list[Record], kind: str = "cell") -> Record:
    return next(line for line in found if line["type"] == kind and line["backend"] == "gym-sync")


def refused(vebench: Command) -> set[str]:
    """Return the checks that refuse the submission in ``mine``."""
    checked = vebench("share", "check", "mine", "-f", "json")
    (answer,) = json.loads(checked.out)
    assert checked.status == (not answer["accepted"])
    assert all(each["remedy"] for each in answer["refusals"])
    return {each["check"] for each in answer["refusals"]}


def test_a_submission_is_accepted(vebench: Command, run: Path) -> None:
    assert (vebench("share", "make", run).status, Path("mine").exists()) == (0, False)
    assert vebench("share", "make", run, "-o", "mine").status == 0
    assert {path.name for path in Path("mine").iterdir()} == {*FILES}
    manifest = json.loads(Path("mine", MANIFEST).read_text())
    assert (manifest["suite"], manifest["division"]) == ("classic-3/1", "reference")
    assert manifest["command"] == "vebench run --suite classic-3 -b gym-sync"
    assert refused(vebench) == set()
    for target, status in (("mine", 2), ("run.jsonl/mine", 2), ("submissions/mine", 0)):
        assert vebench("share", "make", run, "-o", target).status == status


def test_a_submission_names_nothing_of_the_machine(vebench: Command, run: Path) -> None:
    rewritten(run, lambda found: of_gym(found).update(reason="see /home/ann/secret/log.txt"))
    rewritten(run, lambda found: found[0].update(command="vebench run -o /home/ann/run.jsonl"))
    assert vebench("share", "make", run, "-o", "mine").status == 0
    assert not any(b"ann" in path.read_bytes() for path in Path("mine").iterdir())
    named = {"name": "gym-sync", "options": {}, "python": "/home/ann/bin/python"}
    rewritten(run, lambda found: found[0]["spec"].update(backends=[named]))
    assert vebench("share", "make", run).status == 2


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("one-run", lambda found: found[0]["packages"].update(more="1")),
        ("one-run", lambda found: of_gym(found).update(run="0" * 12)),
        ("plan", lambda found: found[0]["spec"].update(windows=13)),
        ("plan", lambda found: found[0]["spec"].update(suite="classic-3/9")),
        ("plan", lambda found: of_gym(found).update(frame_skip=1000)),
        ("stated", lambda found: [window.update(rows=10**6 * window["rows"]) for window in of_gym(found)["windows"]]),
        ("stated", lambda found: found[0].update(started="9999-12-31T00:00:00+00:00")),
        ("complete", lambda found: found.remove(of_gym(found))),
        ("findings", lambda found: found[0].update(cells=100)),
        ("work", lambda found: found.remove(of_gym(found, "proof"))),
        ("findings", lambda found: of_gym(found).update(status="failed", reason="it broke", windows=[])),
        ("release", lambda found: found[0]["packages"].update(vebench="99.0.0.dev1")),
    ],
)
def test_mistakes_are_refused(
    vebench: Command, run: Path, check: str, change: Callable[[list[Record]], object]
) -> None:
    assert vebench("share", "make", run, "-o", "mine").status == 0
    rewritten(Path("mine", "run.jsonl"), change)
    manifest = json.loads(Path("mine", MANIFEST).read_text())
    manifest["sha256"] = sha256(Path("mine", "run.jsonl").read_bytes()).hexdigest()
    manifest["vebench"] = json.loads(Path("mine", "run.jsonl").read_text().splitlines()[0])["packages"]["vebench"]
    Path("mine", MANIFEST).write_text(json.dumps(manifest))
    assert check in refused(vebench)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("run.jsonl", lambda text: text.replace('"rows":', '"rows": ', 1)),
        ("submission.json", lambda text: text.replace("cpu_model", "model", 1)),
        ("more.txt", lambda _text: "more"),
        ("submission.json", lambda text: text.replace('"median": ', '"median": 9', 1)),
    ],
)
def test_changed_files_are_refused(vebench: Command, run: Path, name: str, change: Callable[[str], str]) -> None:
    assert vebench("share", "make", run, "-o", "mine").status == 0
    path = Path("mine", name)
    path.write_text(change(path.read_text() if path.exists() else ""))
    assert refused(vebench) & {"files", "stated"}


def test_a_refused_submission_is_not_written(vebench: Command, run: Path) -> None:
    rewritten(run, lambda found: found.remove(of_gym(found)))
    assert (vebench("share", "make", run, "-o", "mine").status, Path("mine").exists()) == (1, False)
    assert vebench("share", "check", "mine").status == 2


def test_work_that_cannot_be_compared_is_accepted(vebench: Command, run: Path) -> None:
    nothing = {"verdict": "unverified", "rows": 0, "impossible": True, "reason": "it draws its own start"}
    rewritten(run, lambda found: [line["proof"].update(nothing) for line in found if line["type"] == "proof"])
    rewritten(run, lambda found: [line.update(verdict="unverified") for line in found if line.get("verdict")])
    assert vebench("share", "make", run, "-o", "mine").status == 0
    results = json.loads(Path("mine", MANIFEST).read_text())["results"]
    assert {each["verdict"] for each in results if each["backend"] == "gym-sync"} == {"unverified"}


def test_the_plan_of_a_suite_is_fixed(vebench: Command, run: Path) -> None:
    plans = {suite.id: suite.digest for suite in SUBMISSION_SUITES.values()}
    assert plans == {"atari-5/1": "c149424934ce", "mujoco-5/1": "38e7abd10fd4", "classic-3/1": "4b278088285d"}
    assert SUBMISSION_SUITES["classic-3/1"].spec(6).workers == (1, 2, 4, 6)
    assert "--workers" in vebench("run", "--suite", "classic-3", "-w", "3").refusal
    assert "did you mean classic-3" in vebench("run", "--suite", "classic").refusal
    rewritten(run, lambda found: found[0]["spec"].pop("suite"))
    assert "--suite" in vebench("share", "make", run).refusal


def test_a_run_is_quoted_in_a_sentence_and_as_bibtex(vebench: Command, run: Path) -> None:
    shown = " ".join(vebench("share", "cite", run).out.split())
    for word in ("CartPole: gym-sync with 1 worker", "frames/s", "95 %", "suite classic-3/1", "@misc{vebench-"):
        assert word in shown
    assert vebench("share", "cite", run, "-o", "run.bib").status == 0
    assert Path("run.bib").read_text().startswith("@misc{vebench-")
    assert vebench("share", "cite", run, "-o", "run.cff").status == 2
