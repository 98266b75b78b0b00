"""Commands as a user meets them, called in this process: what they print, and their exit status."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from vebench.commands.world import World

    Command = Callable[..., "Result"]

CI_VARIABLES = ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS")


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


def command_in(folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Command:
    """Return the command, run in ``folder`` and outside of any CI service; the keyword ``world`` gives it another."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", os.environ.get("COLUMNS", "100"))
    for name in CI_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path, world: World | None = None) -> Result:
        capture.readouterr()
        status = cli.invoke([*map(str, arguments)], world)
        return Result(status, *capture.readouterr())

    return call
