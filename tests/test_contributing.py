"""The worked example of the guide to backends: its adapter does the same work as a plain loop."""

import json
import re
from pathlib import Path

import pytest
from support.commands import Command
from support.in_this_process import world_here
from support.places import TESTS

from vebench.backends.entry import BackendEntry

GUIDE = TESTS.parent / "docs" / "guides" / "write-a-backend.md"
ADAPTER, ROW = re.findall(r"```python\n# backends/.*?\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_adapter_does_the_same_work(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = eval(ROW, {"BackendEntry": BackendEntry})  # noqa: S307 - our own document
    module, _, name = entry.target.rpartition(".")[2].partition(":")
    Path(f"{module}.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    tasks = "CartPole,odd:odd/Nested-v0"
    asked = ("verify", "-e", tasks, "-b", f"{module}:{name}", "--steps", "100", "-f", "json")
    found = json.loads(vebench(*asked, world=world_here()).out)
    assert [(each["backend"], each["verdict"]) for each in found] == [(f"{module}:{name}", "identical")] * 2
    assert (entry.shape_of(2, 3, 2, {}).num_envs, entry.by_default) == (6, False)
