"""``vebench run --until``: passes that go on until intervals are narrow enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vebench.analysis.precision import FEWEST_PROCESSES

if TYPE_CHECKING:
    from pathlib import Path


def vebench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vebench.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


def repeats(path: Path) -> list[int]:
    return [json.loads(line)["repeat"] for line in path.read_text().splitlines()[1:]]


BRIEF = ("-e", "CartPole", "-w", "1", "-b", "null", "--duration", "0.02", "--warmup", "0.02", "--rounds", "2")


def test_until_goes_on_to_the_precision_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = vebench(tmp_path, "run", *BRIEF, "--until", "99%", "--budget", "600", "-o", "run.jsonl", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert repeats(path) == list(range(len(repeats(path))))
    assert len(repeats(path)) >= FEWEST_PROCESSES
    for line in path.read_text().splitlines()[1:]:
        cell = json.loads(line)
        assert cell["warmup_ns"] >= 20_000_000
        assert cell["settled"] in (True, False)


def test_until_ends_with_its_budget_says_so_and_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = vebench(tmp_path, "run", *BRIEF, "--until", "0.0001%", "--budget", "0.001", "-o", "run.jsonl")
    assert done.returncode == 0
    assert "imprecise" in done.stdout
    first = repeats(path)
    assert first in ([0], [0, 1])
    assert vebench(tmp_path, "run", "--resume", "run.jsonl", "-q").returncode == 0
    assert repeats(path)[: len(first)] == first


def test_a_budget_that_ends_does_not_part_those_that_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    until = ("--until", "0.0001%", "--budget", "0.001", "--interleave", "-b", "for-loop")
    assert vebench(tmp_path, "run", *BRIEF, *until, "-o", "run.jsonl", "-q").returncode == 0
    header, *cells = map(json.loads, path.read_text().splitlines())
    assert header["spec"]["interleave"] is True
    assert sorted((cell["backend"], cell["repeat"]) for cell in cells) == [
        (backend, repeat) for backend in ("for-loop", "null") for repeat in range(len(cells) // 2)
    ]
    assert all(len(cell["windows"]) == 2 for cell in cells)
    assert "cells taking turns" in vebench(tmp_path, "report", "run.jsonl").stdout


@pytest.mark.parametrize(
    "more",
    [("--until", "0"), ("--until", "soon"), ("--until", "2%", "--budget", "0"), ("--budget", "60")],
)
def test_a_precision_that_makes_no_sense_is_bad_input(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = vebench(tmp_path, "run", *BRIEF, *more)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert more[-2] in done.stderr
