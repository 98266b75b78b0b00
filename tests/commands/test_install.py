"""``vebench install``: interpreters that have the backends of other projects."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.commands import Command
from support.leaks import processes_that_name
from support.waiting import eventually

from vebench import interpreters
from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.backends.packages import Installation, Step
from vebench.commands import core as command
from vebench.interpreters import folder_of, packages_here, python_of

# Stands in for uv: it makes an interpreter that is this one, and notes what it was to install.
UV = r"""#!/bin/sh
echo "$@" >> "$UV_TOLD"
case "$1" in
  venv) for folder; do :; done; mkdir -p "$folder/bin"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "{python}" > "$folder/bin/python"; chmod +x "$folder/bin/python";;
  pip) case "$*" in *unfit*) echo "error: no such version of unfit"; exit 1;; *slow*) sleep 1000;; esac;;
esac
"""


@dataclass(frozen=True)
class Uv:
    """What was asked of a stand-in for uv."""

    told: Path

    @property
    def calls(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(UV.format(python=sys.executable))
    (tools / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_TOLD", str(tmp_path / "told"))
    return Uv(tmp_path / "told")


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Let there be one installation, that no backend uses."""
    return let_be(monkeypatch, Installation("one", "One 1.0", (Step(("one==1.0",)), Step(("two",), ("--no-deps",)))))


def let_be(monkeypatch: pytest.MonkeyPatch, installation: Installation) -> Installation:
    for module in (registry, command):
        monkeypatch.setattr(module, "INSTALLATIONS", (installation,))
    return installation


@pytest.mark.usefixtures("one")
def test_an_interpreter_gets_simulators_in_the_versions_here_and_then_the_library(vebench: Command, uv: Uv) -> None:
    done = vebench("install", "one")
    assert done.status == 0, done
    venv, first, second = uv.calls
    assert venv.startswith("venv ")
    assert f"gymnasium=={packages_here()['gymnasium']}" in first.split()
    assert f"imageio=={version('imageio')}" in first.split()
    assert first.endswith("one==1.0")
    assert second.endswith("--no-deps two")
    assert python_of("one") == str(folder_of("one") / "bin" / "python")


@pytest.mark.usefixtures("one")
def test_what_is_set_up_is_not_set_up_again(vebench: Command, uv: Uv) -> None:
    vebench("install", "one")
    again = vebench("install", "one")
    assert (again.status, len(uv.calls)) == (0, 3)
    assert "is already set up" in again.err


def test_what_other_versions_set_up_is_set_up_anew(vebench: Command, uv: Uv, monkeypatch: pytest.MonkeyPatch) -> None:
    let_be(monkeypatch, Installation("one", "One 1.0", (Step(("one==1.0",)),)))
    vebench("install", "one")
    let_be(monkeypatch, Installation("one", "One 1.1", (Step(("one==1.1",)),)))
    vebench("install", "one")
    assert [call.rpartition(" ")[2] for call in uv.calls if call.startswith("pip")] == ["one==1.0", "one==1.1"]


def test_what_cannot_be_had_is_said_in_a_line_and_leaves_nothing_to_be_used(
    vebench: Command, uv: Uv, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_be(monkeypatch, Installation("one", "One 1.0", (Step(("unfit",)),)))
    done = vebench("install", "one")
    assert done.status == 1
    assert "one: cannot be set up: error: no such version of unfit; full log: " in done.err
    assert uv.calls
    assert (python_of("one"), folder_of("one").exists()) == (None, False)


def test_an_interrupt_leaves_no_process_and_no_folder(uv: Uv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = let_be(monkeypatch, Installation("one", "One 1.0", (Step(("slow",)),)))

    def interrupt(_text: str) -> None:
        monkeypatch.setattr(subprocess, "Popen", interrupted_popen(uv))

    with pytest.raises(KeyboardInterrupt):
        interpreters.set_up(slow, interrupt)
    assert not folder_of("one").exists()
    assert eventually(lambda: not processes_that_name(tmp_path / "tools"))


def interrupted_popen(uv: Uv) -> type:
    """Return a class of processes that the user interrupts once they have begun."""
    popen = subprocess.Popen

    class Interrupted(popen):  # type: ignore[misc, valid-type]
        def wait(self, timeout: float | None = None) -> int:
            if timeout is None and not getattr(self, "was_interrupted", False) and "pip" in self.args:
                self.was_interrupted = True
                assert eventually(lambda: any("slow" in call for call in uv.calls))
                raise KeyboardInterrupt
            status: int = super().wait(timeout)
            return status

    return Interrupted


def test_every_installation_is_of_a_backend_or_a_suite() -> None:
    of_suites = {suite.installation for suite in SUITES.values()}
    for installation in registry.INSTALLATIONS:
        of_backend = any(entry.library.installation == installation for entry in registry.ENTRIES)
        assert of_backend or installation.name in of_suites
        assert installation.name not in registry.BY_NAME or installation.steps


def test_what_a_peer_needs_is_installed_with_it() -> None:
    for entry in registry.ENTRIES:
        if entry.library.installation is not None:
            wanted = [text for step in entry.library.installation.steps for text in step.requirements]
            named = {Requirement(text).name for text in wanted if "://" not in text}
            assert {package.name for package in entry.library.packages if package.extra is None} <= named, entry.name
