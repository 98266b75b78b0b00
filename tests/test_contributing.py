"""The worked example of the guide to backends: its adapter does the same work as a plain loop."""

import json
import re

import pool
import pytest
from support.commands import Command
from support.in_this_process import world_here
from support.places import TESTS

from vebench.backends import entry
from vebench.backends.interface import Task
from vebench.backends.packages import Package

DOCS = TESTS.parent / "docs"
GUIDE = (DOCS / "guides" / "write-a-backend.md").read_text(encoding="utf-8")
ADAPTER, ROW = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
(OWN_STARTS,) = re.findall(r"^ {4}scope=(.+chance=.+)$", GUIDE, re.MULTILINE)
CARTPOLE, PONG = Task("CartPole-v1", "classic", 1), Task("ALE/Pong-v5", "atari", 4)
NAMES = {**vars(entry), "name_of": pool.name_of, "Package": Package}


def test_the_guide_quotes_the_adapter() -> None:
    assert ADAPTER in (DOCS / "examples" / "pool.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", ["pool:Pool", "pool:Pool[ratio=2]"])
def test_the_example_adapter_does_the_same_work(vebench: Command, backend: str) -> None:
    asked = ("verify", "-e", "CartPole,CartPole[max_episode_steps=20]", "-b", backend, "--steps", "100", "-f", "json")
    found = json.loads(vebench(*asked, world=world_here()).out)
    assert [(each["backend"], each["verdict"]) for each in found] == [(backend, "identical")] * 2


def test_the_row_of_the_example_says_what_the_adapter_can_step() -> None:
    row = eval(ROW, NAMES)  # noqa: S307 - our own document
    assert (row.shape_of(2, 3, 2, {"ratio": 2}).num_envs, row.by_default, row.is_peer) == (12, False, True)
    assert (row.has(CARTPOLE), row.has(PONG), row.scope.chance(CARTPOLE)) == (True, False, None)
    assert eval(OWN_STARTS, NAMES).chance(CARTPOLE)  # noqa: S307 - as above
