"""Own classes step only with what they were verified with; anywhere else Gymnasium's do, and every command says so."""

import json

import pytest
from support.commands import ONE_PASS, Command, Result
from support.in_this_process import world_here

from vebench.backends.fast import classes
from vebench.backends.fast.classes import VERSIONS

pytest.importorskip("mujoco")

TASK = "HalfCheetah-v5"
BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--windows", "1", "--no-base", *ONE_PASS)


def words(result: Result) -> str:
    assert result.status == 0, result
    return " ".join(result.out.split())


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let our classes count as verified with another version of Gymnasium; return what is said about that."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setitem(VERSIONS, "gymnasium", ("0.9.1",))  # type: ignore[arg-type] # read by all, written by tests alone
    return "our own class was verified with gymnasium 0.9.1 (gymnasium"


def test_run_list_and_doctor_say_why_gymnasiums_class_steps_and_what_to_do(vebench: Command, why: str) -> None:
    remedy = "pip install 'gymnasium==0.9.1'"
    vebench("run", "-e", TASK, "-w", "1", "-b", "fast-sync", *BRIEF, "-o", "run.jsonl", world=world_here())
    (cell,) = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    assert cell["steps"].startswith(f"Gymnasium's class: {why}")
    assert "no infos" not in cell["differences"]
    (found,) = (one for one in cell["findings"] if one["code"] == "fallback")
    assert remedy in found["remedy"]
    for command in ("list", "doctor"):
        text = words(vebench(command))
        assert f"fallback: fast-sync, fast-async will use Gymnasium's class: {why}" in text
        assert remedy in text


def test_a_verdict_on_gymnasiums_class_is_not_kept_for_ours(vebench: Command, why: str) -> None:
    asked = ("verify", "-e", TASK, "-b", "fast-sync", "--steps", "20")
    assert why in words(vebench(*asked, world=world_here()))
    assert "known:" not in vebench(*asked, world=world_here()).err


def test_a_setting_that_our_class_does_not_know_is_refused_by_its_name() -> None:
    refused = classes.refusal(TASK, {"frame_skip": 5, "xml_file": "other.xml", "render_mode": None})
    assert refused is not None
    assert refused.refused == "our own class for HalfCheetah-v5 does not support xml_file"


def test_a_task_without_an_own_class_is_left_out_unless_asked_for(vebench: Command) -> None:
    lake = ("run", "-e", "FrozenLake-v1", "-w", "1", "--dry-run")
    assert "fast-" not in words(vebench(*lake))
    asked = words(vebench(*lake, "-b", "for-loop,fast-sync"))
    assert "skipped: fast-sync at 1 worker: vebench has no class for FrozenLake-v1" in asked
