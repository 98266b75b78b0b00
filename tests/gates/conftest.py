"""Fixtures for tests of old commits and releases."""

import signal
import tempfile
from collections.abc import Iterator

import pytest

from vebench import process_guard


@pytest.fixture
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a test a temporary folder, and see that nothing is left in it, nor a signal's handler."""
    folder, handler = tmp_path_factory.mktemp("temporary"), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert [*folder.glob(f"{process_guard.PREFIX}*")] == []
    assert signal.getsignal(signal.SIGTERM) == handler
