"""The worked example of ``CONTRIBUTING.md``: its adapter does the same work as a plain loop."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.in_this_process import world_here
from support.places import TESTS

from vebench.backends.entry import BackendEntry

TEXT = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ADAPTER, ROW = re.findall(r"```python\n# backends/.*?\n(.*?)```", TEXT, re.DOTALL)


def test_contributing_is_short() -> None:
    assert len(TEXT.splitlines()) <= 88


def test_the_example_adapter_does_the_same_work(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"BackendEntry": BackendEntry}
    exec(ROW, names)  # noqa: S102 - our own document
    (entry,) = names["ENTRIES"]
    module, _, name = entry.target.rpartition(".")[2].partition(":")
    Path(f"{module}.py").write_text(ADAPTER)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    tasks = "CartPole,odd:odd/Nested-v0"
    asked = ("verify", "-e", tasks, "-b", f"{module}:{name}", "--steps", "100", "-f", "json")
    found = json.loads(vebench(*asked, world=world_here()).out)
    assert [(each["backend"], each["verdict"]) for each in found] == [(f"{module}:{name}", "identical")] * 2
    assert (entry.shape_of(2, 3, 2, {}).num_envs, entry.by_default) == (6, False)
