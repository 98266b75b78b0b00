"""The simulators inside EnvPool: which versions they are, read from its libraries."""

import re
from importlib.metadata import version

import pytest

from vebench.backends.env_pool import inside_envpool, version_inside
from vebench.backends.interface import Engine

# By EnvPool's own version, as its build files have them.
KNOWN_INSIDE = {"1.2.5": {"atari": "0.11.2", "mujoco": "3.6.0"}, "1.2.7": {"atari": "0.12.1", "mujoco": "3.11.0"}}


@pytest.mark.parametrize(("suite", "name", "package"), [("atari", "ALE", "ale-py"), ("mujoco", "MuJoCo", "mujoco")])
def test_the_engine_inside_envpool_is_read_and_put_beside_that_installed(suite: str, name: str, package: str) -> None:
    pytest.importorskip("envpool")
    inside = KNOWN_INSIDE[version("envpool")][suite]
    (engine,) = inside_envpool(suite)
    assert engine == Engine(name, inside, version(package), f"{package}=={inside}")
    assert engine.unlike == (inside != version(package))
    assert engine.words == f"{name} {inside} inside EnvPool, {version(package)} in {package}"


def test_a_suite_without_an_engine_of_its_own_has_none_to_compare() -> None:
    assert inside_envpool("classic") == ()


@pytest.mark.parametrize(
    ("library", "expected"),
    [(b"..\x001.2.3\x00..", "1.2.3"), (b"nothing", None), (b"\x001.2.3\x00\x004.5.6\x00", None)],
)
def test_a_version_that_is_not_clear_is_not_reported(library: bytes, expected: str | None) -> None:
    assert version_inside(library, re.compile(rb"\x00(\d+\.\d+\.\d+)\x00")) == expected
