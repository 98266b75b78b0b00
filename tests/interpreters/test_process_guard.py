"""Processes and folders that must not outlive the process that needs them, in whatever state that is."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vebench.machine import guardian
from vebench.process_guard import LOCK, Interrupts, ProcessGuard, sweep


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_other_users_machines_and_programs_are_not_swept_away(folder: Path) -> None:
    token = "0" * 16
    for name, content in (("other", f"{token} another-machine"), ("program", "12345"), ("none", "")):
        (folder / f"vebench-{name}").mkdir()
        (folder / f"vebench-{name}" / LOCK).write_text(content)
    (folder / "away").mkdir()
    (folder / "away" / LOCK).write_text(f"{token} {os.uname().nodename}")
    (folder / "vebench-link").symlink_to(folder / "away")
    sweep()
    assert len(list(folder.iterdir())) == 5


def test_processes_with_the_token_end_with_the_context() -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with ProcessGuard() as guarded:
        ours = {**os.environ, guardian.TOKEN_VARIABLE: guarded.token}
        bearer = subprocess.Popen(sleep, env=ours, start_new_session=True)
        other = subprocess.Popen(sleep)
    assert bearer.wait() < 0
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_hang_up_that_is_ignored_already_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupts.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupts.requested
    finally:
        signal.signal(signal.SIGHUP, before)
