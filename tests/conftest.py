"""What every test gets: a cache folder of its own, and small things that most of them need."""

import gc
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.browser import BROWSER, DRIVER, NO_BROWSER, Browser, browsing
from support.commands import Command, command_in
from support.records import make_sweep

from vebench.backends import packages
from vebench.results.records import Run

# Tests send SIGINT to what they start, which a process in the background of a script would let it inherit as ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("tests", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)  # pytest --hypothesis-profile=thorough
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which the texts that formats write are approved."""
    parser.addoption("--renew", action="store_true", help="write the snapshots of formats anew; look at their diff")


@pytest.fixture
def renew(request: pytest.FixtureRequest) -> bool:
    """Return whether snapshots are to be written anew."""
    return bool(request.config.getoption("--renew"))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups, if it is there
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that look at the whole machine run one after the other, in one of several processes."""
    for item in items:
        if item.get_closest_marker("whole_machine"):
            item.add_marker(pytest.mark.xdist_group("whole_machine"))


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what the tests find out away from what the user knows."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def cache(cache_of_the_session: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache folder in which nothing is known yet."""
    folder = cache_of_the_session / str(next(NUMBERS))
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def sweep() -> Run:
    """Return a run of Pong on two CPUs with every outcome that a cell can have."""
    return make_sweep()


@pytest.fixture
def vebench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return the command of a user who stands in the test's folder, which is empty."""
    return command_in(tmp_path, monkeypatch, capsys)


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as if every package were installed."""
    monkeypatch.setattr(packages, "find_spec", lambda _name: True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if BROWSER is None or DRIVER is None:
        pytest.skip(NO_BROWSER)
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what was imported, here and in processes that tests fork."""
    gc.collect()
    gc.freeze()
